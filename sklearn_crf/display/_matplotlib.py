"""Import of matplotlib at the first drawing."""


def require_pyplot(caller):
    """``matplotlib.pyplot``, or an ImportError that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} draws with matplotlib: pip install 'sklearn_crf[plot]'.") from error
    return plt
