"""matplotlib, imported only when something is drawn."""


def require_pyplot(caller):
    """``matplotlib.pyplot``, or a sentence that says how to get it.

    Parameters
    ----------
    caller : str
        Name of what draws.

    Returns
    -------
    module

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} draws with matplotlib: pip install 'sklearn_crf[plot]'.") from error
    return plt
