"""Versions of installed packages and of pickled estimators, and the vector level of the kernels."""

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
    """Print versions, the vector level and the number of processors, for bug reports and benchmarks.

    At a given vector level, results of kernels are bit-identical for any number of threads. The newest level that the
    processor supports is chosen when the first kernel is imported. To choose another level, set the environment
    variable ``SKLEARN_CRF_VECTOR_LEVEL`` before this import. The level "baseline" runs on every processor.

    See Also
    --------
    sklearn.show_versions : Versions of scikit-learn and its dependencies, which are also printed.

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
    """Base class of classes with constructor parameters.

    A pickle of an older version may lack parameters that were added later. These parameters get their default values.
    """

    def __setstate__(self, state: dict) -> None:
        restore_options(self, state)

    def _check_fitted(self) -> None:
        """Raise an error if fitted attributes are invalid, for example because the pickle is damaged."""


def restore_options(estimator, state):
    """Restore the state of an estimator from a pickle, with defaults for parameters that the pickle lacks.

    If the class has the method ``_check_fitted``, it raises an error if fitted attributes are invalid.
    """
    BaseEstimator.__setstate__(estimator, defaults_of(type(estimator).__init__) | state)
    is_fitted = any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))
    if is_fitted and hasattr(type(estimator), "_check_fitted"):
        with restoring(estimator):
            estimator._check_fitted()


# Cache the result, because training copies options, and inspecting a signature takes 20 microseconds.
@cache
def defaults_of(init):
    """Return a dict with the default value of each constructor parameter that has a default."""
    parameters = signature(getattr(init, "deprecated_original", init)).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def get_versioned_state(estimator):
    """Return the state to pickle. It includes the version of this package and the names of all attributes."""
    state = BaseEstimator.__getstate__(estimator)
    return {**state, "_sklearn_crf_version": sys.modules[__package__].__version__, "_sklearn_crf_names": [*state]}


def restore_versioned_state(estimator, state):
    """Call :func:`restore_options`, and warn if another version made the pickle; for use as ``__setstate__``."""
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
    lacking = set(state.pop("_sklearn_crf_names", ())) - set(state)
    if lacking:
        raise ValueError(f"the saved {type(estimator).__name__} is damaged: it lacks {', '.join(sorted(lacking))}.")
    restore_options(estimator, state)
