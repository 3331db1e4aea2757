"""What scikit-learn asks estimators for besides fits: options of objects that are parameters, and their kind."""

from collections.abc import Mapping
from inspect import currentframe
from typing import Any

import numpy as np


def require_objects(estimator: Any, params: Mapping[str, Any], examples: Mapping[str, str]) -> None:
    """Raise ValueError where an option is set of a parameter that holds a name or None instead of an object."""
    # examples: code that makes an object, by the name of the parameter
    for key in params:
        name, _, option = key.partition("__")
        value = params.get(name, getattr(estimator, name, None))
        if option and hasattr(estimator, name) and not hasattr(value, "set_params"):
            raise ValueError(
                f"{key} sets an option of {name}={value!r}, which is no object: pass an object first, as in "
                f"{name}={examples.get(name, '...')}."
            )


def is_asked_to_count_classes() -> bool:
    """Whether a search by successive halving asks, to choose ``min_resources``, and y holds several labels an example.

    Of classifiers it counts the classes of y, which must then have one axis. Of other estimators it does not.
    """
    frame = currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("sklearn.", "sklearn_crf.")):
        if frame.f_code.co_name == "_check_input_parameters" and "y" in frame.f_locals:
            y = frame.f_locals["y"]
            return np.ndim(y) > 1 if hasattr(y, "dtype") and y.dtype != object else bool(len(y) and np.ndim(y[0]))
        frame = frame.f_back
    return False
