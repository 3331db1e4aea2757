"""Checks of what MultiConditionalMFA is given: parameters, weights, initial values."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar, compute_sample_weight

OBJECTIVES = ("multi_conditional", "joint")
SOLVERS = ("auto", "em", "lbfgs", "sgd")

# A prior that is narrower holds its parameters to the last digit that a gradient has.
LEAST_PRIOR_SCALE = 1e-6

# Squares of what is smaller are finite.
TOO_LARGE = 1e150


def check_parameters(est, n_features):
    """Raise for the first constructor parameter that cannot be meant.

    Raises
    ------
    ValueError, TypeError
        Naming the parameter, what was found, and what is needed.
    """
    for name, least in (("n_components", 1), ("n_factors", 0), ("n_init", 1), ("max_iter", 1), ("batch_size", 1)):
        check_integer(getattr(est, name), name, least)
    if est.n_jobs is not None:
        check_scalar(est.n_jobs, "n_jobs", Integral)
    check_scalar(est.verbose, "verbose", Integral, min_val=0)
    for name in ("allow_nan", "warm_start"):
        check_scalar(getattr(est, name), name, (bool, np.bool_))
    for name in ("alpha", "tol", "reg_covar", "learning_rate"):
        boundaries = "neither" if name == "learning_rate" else "left"
        check_scalar(getattr(est, name), name, Real, min_val=0, include_boundaries=boundaries)
        if not np.isfinite(getattr(est, name)):
            why = "; its limit has the means, loadings and noise of objective='joint'" if name == "alpha" else ""
            raise ValueError(f"{name} must be finite, got {getattr(est, name)}{why}.")
    for name in ("mean_prior_scale", "loading_prior_scale"):
        scale = getattr(est, name)
        if scale is not None:
            check_scalar(scale, name, Real)
            if not scale >= LEAST_PRIOR_SCALE:
                raise ValueError(f"{name}={scale}: must be None or at least {LEAST_PRIOR_SCALE}.")
    for name, choices in (
        ("objective", OBJECTIVES),
        ("noise", ("tied", "class", "component")),
        ("solver", SOLVERS),
    ):
        if getattr(est, name) not in choices:
            raise ValueError(f"{name}={getattr(est, name)!r}: must be one of {', '.join(map(repr, choices))}.")
    if est.n_factors > n_features:
        raise ValueError(
            f"n_factors={est.n_factors} is more than n_features={n_features}: a factor analyser has at most as many "
            "factors as features."
        )


def check_integer(value, name, least):
    """Raise unless a number is an integer, and no truth value, of at least ``least``."""
    check_scalar(value, name, Integral, min_val=least)
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value}.")


def check_classes(classes):
    """Names of all classes, sorted."""
    names = np.asarray(classes)
    if names.ndim != 1 or not names.size:
        raise ValueError(f"classes must be a list of at least one label, got {classes!r}.")
    return np.unique(names)


def class_weights(class_weight, y):
    """The weight of each sample by its class.

    Raises
    ------
    ValueError
        For weights that are negative or not finite.
    """
    weight = compute_sample_weight(class_weight, y)
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        raise ValueError(
            f"class_weight gives the class {y[wrong].tolist()[0]!r} the weight {weight[wrong][0]}; weights must be "
            "finite and not negative."
        )
    return weight


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


def check_magnitudes(X):
    """Complain about features whose variance would overflow."""
    large = np.flatnonzero((np.fmax.reduce(X) > TOO_LARGE) | (np.fmin.reduce(X) < -TOO_LARGE))
    if len(large):
        raise ValueError(
            f"feature(s) {_listed(large)} of X have values beyond {TOO_LARGE:g}, whose squares overflow; divide them "
            "by a constant."
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
    if init is None or isinstance(init, str):
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
        raise ValueError(f"init has the keys {list(given)}; it needs 'means' and may have {', '.join(shapes)}.")
    out = {}
    for name, value in given.items():
        try:
            value = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"init: {name} must be numbers of shape {shapes[name]}.") from error
        if value.shape != shapes[name]:
            raise ValueError(f"init: {name} has shape {value.shape}, expected {shapes[name]}.")
        total = value.sum(axis=-1)
        per_class = not (name == "noise_variance" and len(noise_shape) == 1)
        value = value[present] if per_class else value
        positive = name in ("noise_variance", "weights", "class_prior")
        if not np.isfinite(value).all() or (positive and not (value > 0).all()):
            raise ValueError(f"init: {name} must be finite{' and positive' if positive else ''}.")
        if name in ("weights", "class_prior"):
            if not np.allclose(total, 1, rtol=0, atol=1e-6):
                raise ValueError(f"init: {name} must sum to 1, found {total.tolist()}.")
            value = value / value.sum(axis=-1, keepdims=True)
        out[name] = value
    return out
