"""Checks of the parameters, weights and initial values of MultiConditionalMFA."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import clone
from sklearn.utils import compute_sample_weight
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions

from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding import missing_nodes, named_classes, summable_weight
from sklearn_crf.mfa._parameters import NOISE_KINDS, Priors
from sklearn_crf.mfa._solvers import EM, SOLVERS, ScaledLBFGS, ScaledSGD

OBJECTIVES = ("multi_conditional", "joint")

# Squares of smaller numbers are finite.
TOO_LARGE = 1e150


class NumberInterval(Interval):
    """Interval of numbers without booleans."""

    def is_satisfied_by(self, val):
        return not isinstance(val, (bool, np.bool_)) and super().is_satisfied_by(val)


def at_least(least):
    """Constraint of an integer parameter."""
    return NumberInterval(Integral, least, None, closed="left")


NOT_NEGATIVE = NumberInterval(Real, 0, None, closed="left")

PARAMETER_CONSTRAINTS = {
    "n_components": [at_least(1)],
    "n_factors": [at_least(0)],
    "objective": [StrOptions(set(OBJECTIVES))],
    "alpha": [NOT_NEGATIVE],
    "noise": [StrOptions(set(NOISE_KINDS))],
    "priors": [Priors, None],
    "init": [StrOptions({"kmeans", "random"}), "array-like", dict],
    "n_init": [at_least(1)],
    "solver": [StrOptions({"auto", *SOLVERS}), EM, ScaledLBFGS, ScaledSGD],
    "max_iter": [at_least(1)],
    "tol": [NOT_NEGATIVE],
    "class_weight": [StrOptions({"balanced"}), dict, None],
    "classes": ["array-like", None],
    "allow_nan": ["boolean"],
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [at_least(1), NumberInterval(Integral, None, -1, closed="right"), None],
    "verbose": ["verbose"],
}


def check_factors(n_factors, n_features):
    if n_factors > n_features:
        raise ValueError(
            f"n_factors={n_factors} is more than n_features={n_features}: a factor analyser has at most as many "
            "factors as features."
        )


def check_classes(classes):
    """Names of all classes, sorted."""
    try:
        return named_classes(classes, least=1)
    except ValueError as error:
        raise InvalidParameterError(str(error)) from error


def class_weights(class_weight, y, sample_weight):
    """The weight of each sample by its class; InvalidParameterError for one that is negative or not finite."""
    # sample_weight: (n_samples,), how much each sample counts where classes are balanced
    if isinstance(class_weight, str):
        _, column = np.unique(y, return_inverse=True)
        counts = np.bincount(column, summable_weight(sample_weight))
        return (counts.sum() / (len(counts) * counts))[column]
    try:
        weight = compute_sample_weight(class_weight, y).astype(float)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"class_weight={class_weight!r}: weights of classes must be numbers.") from error
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        raise InvalidParameterError(
            f"class_weight gives the class {y[wrong].tolist()[0]!r} the weight {weight[wrong][0]}; weights must be "
            "finite and not negative."
        )
    return weight


def resolve_solver(solver, objective, has_missing):
    """The solver of a parameter, as an object with valid options."""
    joint = objective == "joint"
    if isinstance(solver, str):
        name = ("em" if joint and not has_missing else "lbfgs") if solver == "auto" else solver
        solver = SOLVERS[name]()
    if isinstance(solver, EM) and not joint:
        raise ValueError("solver='em' maximises the joint likelihood only; use objective='joint', or solver='lbfgs'.")
    if isinstance(solver, EM) and has_missing:
        raise ValueError("solver='em' needs complete samples, but X has missing values; use solver='lbfgs' or 'auto'.")
    solver._validate_params()
    return clone(solver)


def check_counts(labels, names, n_components):
    """Every class needs as many samples as components."""
    counts = np.bincount(labels, minlength=len(names))
    for name, count in zip(names, counts, strict=True):
        if count < n_components:
            raise ValueError(
                f"class {name!r} has {count} sample(s) of positive weight, fewer than n_components={n_components}; "
                "lower n_components or give more samples."
            )


def require_complete(estimator, X):
    """Raise ValueError for missing values that the estimator was not told of."""
    if estimator.allow_nan or not np.isnan(X).any():
        return
    row, feature = np.argwhere(np.isnan(X))[0]
    raise ValueError(
        f"X contains NaN in feature {feature} of sample {row}: pass allow_nan=True to {type(estimator).__name__}, "
        "which integrates missing values out, or impute them."
    )


def require_labels(y):
    """Raise ValueError unless y holds a label for each sample."""
    try:
        labels = np.asarray(y)
    except ValueError:
        labels = np.empty((0, 2))
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise ValueError(
            "y must hold one label for each sample, but holds lists of them: use DRFClassifier or TRWCRF for sequences "
            "of labels, MultiLabelField for sets of labels."
        )
    if labels.dtype == object:
        missing = np.flatnonzero(missing_nodes(labels.ravel(), np.nan))
        if len(missing):
            raise ValueError(f"y[{missing[0]}] is missing: leave out samples without a label.")


def check_magnitudes(X):
    """Raise ValueError for features whose variance would overflow."""
    # Maxima of all entries take a fraction of the time of those of columns.
    if max(np.fmax.reduce(X, axis=None), -np.fmin.reduce(X, axis=None)) <= TOO_LARGE:
        return
    large = np.flatnonzero((np.fmax.reduce(X) > TOO_LARGE) | (np.fmin.reduce(X) < -TOO_LARGE))
    if len(large):
        raise ValueError(
            f"feature(s) {_listed(large)} of X have values beyond {TOO_LARGE:g}, whose squares overflow; divide them "
            "by a constant."
        )


def check_features(X, constant, noise_floor, is_joint):
    """Complain about features without any observed value, and about constant ones whose density depends on a prior."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(empty):
        raise ValueError(f"feature(s) {_listed(empty)} of X have no observed value; drop them.")
    if constant.any():
        which = _listed(np.flatnonzero(constant))
        if noise_floor == 0:
            raise ValueError(
                f"feature(s) {which} of X are constant, their covariance is singular; drop them or set noise_floor > 0."
            )
        # They tell no class from another: only densities depend on their variance.
        if is_joint:
            warn_caller(f"feature(s) {which} of X are constant; their variance is set by noise_floor={noise_floor}.")


def _listed(indices, most=5):
    text = ", ".join(map(str, indices[:most]))
    return f"{text}, ... ({len(indices)} in all)" if len(indices) > most else text


def check_init(init, present, shape, noise_shape):
    """Initial values as a dict of arrays restricted to the classes that occur, or the name of a strategy."""
    # init: (C, K, d)
    if isinstance(init, str):
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
        raise InvalidParameterError(
            f"init has the keys {list(given)}; it needs 'means' and may have {', '.join(shapes)}."
        )
    out = {}
    for name, value in given.items():
        try:
            value = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(f"init: {name} must be numbers of shape {shapes[name]}.") from error
        if value.shape != shapes[name]:
            raise InvalidParameterError(f"init: {name} has shape {value.shape}, expected {shapes[name]}.")
        total = value.sum(axis=-1)
        per_class = not (name == "noise_variance" and len(noise_shape) == 1)
        value = value[present] if per_class else value
        positive = name in ("noise_variance", "weights", "class_prior")
        if not np.isfinite(value).all() or (positive and not (value > 0).all()):
            raise InvalidParameterError(f"init: {name} must be finite{' and positive' if positive else ''}.")
        if name in ("weights", "class_prior"):
            if not np.allclose(total, 1, rtol=0, atol=1e-6):
                raise InvalidParameterError(f"init: {name} must sum to 1, found {total.tolist()}.")
            value = value / value.sum(axis=-1, keepdims=True)
        out[name] = value
    return out
