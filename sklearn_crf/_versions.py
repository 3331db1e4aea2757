"""Versions of all that is installed, and how kernels run on this machine."""

import os
import sys

import sklearn

from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.kernels.vector_level import available_levels


def show_versions() -> None:
    """Print what a report of a bug or of a speed should state: versions, vector units and processors.

    Results of kernels are the same bits for any number of threads at one level of vector units. The newest level that
    the processor has is chosen when the first kernel is imported; the environment variable
    ``SKLEARN_CRF_VECTOR_LEVEL`` fixes it, and has to be set before: "baseline" runs on every processor.

    See Also
    --------
    sklearn.show_versions : Versions of scikit-learn and what it depends on, which are printed too.

    Examples
    --------
    >>> from sklearn_crf import show_versions
    >>> show_versions()  # doctest: +ELLIPSIS
    <BLANKLINE>
    sklearn_crf: ...
    vector level: ... (of ...)
    processors: ...
    """
    print(f"\nsklearn_crf: {sys.modules[__package__].__version__}")
    print(f"vector level: {VECTOR_LEVEL} (of {', '.join(available_levels())})")
    print(f"processors: {os.cpu_count()}")
    sklearn.show_versions()
