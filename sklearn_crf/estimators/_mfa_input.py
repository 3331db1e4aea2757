"""Checks of what MultiConditionalMFA is given: parameters, weights, initial values."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar

OBJECTIVES = ("multi_conditional", "joint")
SOLVERS = ("auto", "em", "lbfgs", "sgd")


def check_parameters(est, n_features):
    """Raise for the first constructor parameter that cannot be meant.

    Raises
    ------
    ValueError, TypeError
        Naming the parameter, what was found, and what is needed.
    """
    for name, least in (("n_components", 1), ("n_factors", 0), ("n_init", 1), ("max_iter", 1), ("batch_size", 1)):
        check_scalar(getattr(est, name), name, Integral, min_val=least)
    for name in ("alpha", "tol", "reg_covar"):
        check_scalar(getattr(est, name), name, Real, min_val=0)
    check_scalar(est.learning_rate, "learning_rate", Real, min_val=0, include_boundaries="neither")
    for name in ("mean_prior_scale", "loading_prior_scale"):
        if getattr(est, name) is not None:
            check_scalar(getattr(est, name), name, Real, min_val=0, include_boundaries="neither")
    for name, choices in (
        ("objective", OBJECTIVES),
        ("noise", ("tied", "class", "component")),
        ("solver", SOLVERS),
    ):
        if getattr(est, name) not in choices:
            raise ValueError(f"{name}={getattr(est, name)!r}: must be one of {', '.join(map(repr, choices))}.")
    if not np.isfinite(est.alpha):
        raise ValueError("alpha must be finite; its limit has the means, loadings and noise of objective='joint'.")
    if est.n_factors > n_features:
        raise ValueError(
            f"n_factors={est.n_factors} is more than n_features={n_features}: a factor analyser has at most as many "
            "factors as features."
        )


def choose_solver(est, has_missing):
    """The solver that runs, with ``"auto"`` resolved."""
    joint = est.objective == "joint"
    if est.solver == "auto":
        return "em" if joint and not has_missing else "lbfgs"
    if est.solver == "em" and not joint:
        raise ValueError("solver='em' maximises the joint likelihood only; use objective='joint', or solver='lbfgs'.")
    if est.solver == "em" and has_missing:
        raise ValueError("solver='em' needs complete samples, X has NaN; use solver='lbfgs' or 'auto'.")
    return est.solver


def check_counts(labels, names, n_components):
    """Every class needs as many samples as components."""
    counts = np.bincount(labels, minlength=len(names))
    for name, count in zip(names, counts, strict=True):
        if count < n_components:
            raise ValueError(
                f"class {name!r} has {count} sample(s) of positive weight, fewer than n_components={n_components}; "
                "lower n_components or give more samples."
            )


def check_features(X, units, constant, reg_covar):
    """Complain about features without any observed value and about constant ones."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(empty):
        raise ValueError(f"feature(s) {_listed(empty)} of X have no observed value; drop them.")
    if constant.any():
        which = _listed(np.flatnonzero(constant))
        if reg_covar == 0:
            raise ValueError(
                f"feature(s) {which} of X are constant, their covariance is singular; drop them or set reg_covar > 0."
            )
        warnings.warn(
            f"feature(s) {which} of X are constant; their variance is set by reg_covar={reg_covar}.",
            UserWarning,
            stacklevel=4,
        )


def _listed(indices, most=5):
    text = ", ".join(map(str, indices[:most]))
    return f"{text}, ... ({len(indices)} in all)" if len(indices) > most else text


def check_init(init, present, shape, noise_shape):
    """Initial values as a dict of arrays restricted to the classes that occur, or the name of a strategy.

    Parameters
    ----------
    init : {"kmeans", "random"}, array-like of shape (C, K, d), or mapping
    present : ndarray of bool, (C,)
    shape : tuple
        (C, K, d, p).
    noise_shape : tuple

    Raises
    ------
    ValueError
        For a wrong name, key, shape or number.
    """
    if isinstance(init, str):
        if init not in ("kmeans", "random"):
            raise ValueError(f"init={init!r}: must be 'kmeans', 'random', an array of means, or a dict of arrays.")
        return init
    given = dict(init) if isinstance(init, dict) else {"means": init}
    shapes = {
        "means": shape[:3],
        "loadings": shape,
        "noise_variance": noise_shape,
        "weights": shape[:2],
        "class_prior": shape[:1],
    }
    if "means" not in given or not set(given) <= set(shapes):
        raise ValueError(f"init has the keys {sorted(given)}; it needs 'means' and may have {', '.join(shapes)}.")
    out = {}
    for name, value in given.items():
        value = np.asarray(value, dtype=float)
        if value.shape != shapes[name]:
            raise ValueError(f"init: {name} has shape {value.shape}, expected {shapes[name]}.")
        positive = name in ("noise_variance", "weights", "class_prior")
        if not np.isfinite(value).all() or (positive and not (value > 0).all()):
            raise ValueError(f"init: {name} must be finite{' and positive' if positive else ''}.")
        per_class = not (name == "noise_variance" and len(noise_shape) == 1)
        out[name] = value[present] if per_class else value
    return out
