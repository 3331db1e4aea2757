"""Helpers for scikit-learn's interface: nested parameters, missing labels and successive halving."""

from collections.abc import Mapping
from inspect import currentframe
from typing import Any

import numpy as np


def require_objects(estimator: Any, params: Mapping[str, Any], examples: Mapping[str, str]) -> None:
    """Raise ValueError if ``params`` sets a nested option, but the parameter is a name or None instead of an object."""
    # examples: dict from the name of a parameter to code that makes an object
    for key in params:
        name, _, option = key.partition("__")
        value = params.get(name, getattr(estimator, name, None))
        if option and hasattr(estimator, name) and not hasattr(value, "set_params"):
            raise ValueError(
                f"{key} sets an option of {name}, but {name}={value!r} is not an object: pass an object first, for "
                f"example {name}={examples.get(name, '...')}."
            )


def get_missing_label(estimator: Any) -> Any:
    """Return the ``missing_label`` of a classifier, which may be inside a pipeline or a meta-estimator."""
    while estimator is not None and not hasattr(estimator, "missing_label"):
        if hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        else:
            estimator = getattr(estimator, "best_estimator_", getattr(estimator, "estimator", None))
    return getattr(estimator, "missing_label", None)


def hide_type_in_halving(tags: Any) -> Any:
    """Return the tags, without the estimator type if the caller is successive halving and y has several axes.

    Successive halving counts the classes of y to choose ``min_resources``, but only for classifiers. This count
    requires y to have one axis.
    """
    frame = currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("sklearn.", "sklearn_crf.")):
        if frame.f_code.co_name == "_check_input_parameters" and "y" in frame.f_locals:
            y = frame.f_locals["y"]
            if np.ndim(y) > 1 if hasattr(y, "dtype") and y.dtype != object else len(y) and np.ndim(y[0]):
                tags.estimator_type = None
            break
        frame = frame.f_back
    return tags
