"""Deferred import of matplotlib."""


def require_pyplot(caller):
    """Return ``matplotlib.pyplot``, or raise ImportError with installation instructions."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} draws with matplotlib: pip install 'sklearn_crf[plot]'.") from error
    return plt
