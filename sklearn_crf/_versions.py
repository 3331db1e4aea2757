"""Versions of all that is installed and of pickled estimators, and how kernels run on this machine."""

import os
import sys
import warnings
from functools import cache
from inspect import signature

import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from sklearn_crf._own_methods import restoring
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


class HoldsOptions(BaseEstimator):
    """Base of classes with constructor parameters.

    What an older version saved lacks the parameters that came later: they have their defaults.
    """

    def __setstate__(self, state: dict) -> None:
        restore_options(self, state)


def restore_options(estimator, state, check=None):
    """Set the state of a pickle, with the defaults of constructor parameters that it lacks."""
    # check: callable(estimator), raises ValueError where kernels could not follow the fitted attributes
    BaseEstimator.__setstate__(estimator, _defaults(type(estimator).__init__) | state)
    if check is not None:
        with restoring(estimator):
            check(estimator)


# Copies are made of options in training too, and a signature takes 20 microseconds.
@cache
def _defaults(init):
    parameters = signature(getattr(init, "deprecated_original", init)).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def versioned_state(estimator):
    """State for a pickle, with the version of this package; to be assigned to ``__getstate__`` of a class."""
    return dict(BaseEstimator.__getstate__(estimator), _sklearn_crf_version=sys.modules[__package__].__version__)


def restore_versioned_state(estimator, state, check=None):
    """As :func:`restore_options`, with a warning if another version made the pickle; for ``__setstate__``."""
    state = dict(state)
    pickled_by = state.pop("_sklearn_crf_version", "before 0.1.0")
    current = sys.modules[__package__].__version__
    if pickled_by != current:
        warnings.warn(
            InconsistentVersionWarning(
                estimator_name=type(estimator).__name__,
                current_sklearn_version=f"{current} of sklearn_crf",
                original_sklearn_version=f"{pickled_by} of sklearn_crf",
            ),
            stacklevel=2,
        )
    restore_options(estimator, state, check)
