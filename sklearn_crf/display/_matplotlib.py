"""Import of matplotlib when it is first needed, and creation of the axes of displays."""

import numpy as np


def require_pyplot(caller):
    """Return ``matplotlib.pyplot``, or raise ImportError with installation instructions."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} draws with matplotlib: pip install 'sklearn_crf[plot]'.") from error
    return plt


def collect_axes(axes, count, caller):
    """Return a 1-D array of the axes to draw on; create axes if ``axes`` is None."""
    plt = require_pyplot(caller)
    if axes is None:
        axes = plt.subplots(1, count, figsize=(3.4 * count, 3.2), layout="constrained", squeeze=False)[1]
    axes = np.atleast_1d(axes).ravel()
    if len(axes) != count:
        raise ValueError(f"axes must hold {count} axes, got {len(axes)}.")
    return axes
