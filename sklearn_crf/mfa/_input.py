"""Checks of the parameters and the samples of MultiConditionalMFA."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_X_y, compute_sample_weight
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names

from sklearn_crf._numbers import replace_masked_values
from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding import (
    check_named_classes,
    mask_missing_nodes,
    read_sample_weight,
    require_one_label_each,
    require_rows,
    scale_sample_weight,
    validate_sample_weight,
)
from sklearn_crf.mfa._parameters import NOISE_KINDS, Priors
from sklearn_crf.mfa._samples import remove_isolated_values
from sklearn_crf.mfa._solvers import EM, SOLVERS, ScaledLBFGS, ScaledSGD

OBJECTIVES = ("multi_conditional", "joint")


class NumberInterval(Interval):
    """Interval of numbers that does not accept booleans."""

    def is_satisfied_by(self, val):
        return not isinstance(val, (bool, np.bool_)) and super().is_satisfied_by(val)


def at_least(least):
    """Return the constraint of an integer parameter with a lower bound."""
    return NumberInterval(Integral, least, None, closed="left")


NOT_NEGATIVE = NumberInterval(Real, 0, None, closed="left")

PARAMETER_CONSTRAINTS = {
    "n_components": [at_least(1), StrOptions({"auto"})],
    "n_factors": [at_least(0)],
    "objective": [StrOptions(set(OBJECTIVES))],
    "alpha": [NOT_NEGATIVE, StrOptions({"auto"})],
    "noise": [StrOptions({"auto", *NOISE_KINDS})],
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


def compute_class_weights(class_weight, y, sample_weight):
    """Return the class weight of each sample, or raise InvalidParameterError if a class weight is invalid."""
    # sample_weight: (n_samples,), used to compute the class frequencies for "balanced"
    if isinstance(class_weight, str):
        _, column = np.unique(y, return_inverse=True)
        counts = np.bincount(column, scale_sample_weight(sample_weight))
        return (counts.sum() / (len(counts) * counts))[column]
    try:
        weight = compute_sample_weight(class_weight, y).astype(float)
    except (TypeError, ValueError) as error:
        known = np.unique(y).tolist()
        raise InvalidParameterError(
            f"class_weight must map classes of y, which are {known}, to numbers, got {class_weight!r}."
        ) from error
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        raise InvalidParameterError(
            f"class_weight gives the class {y[wrong].tolist()[0]!r} the weight {weight[wrong][0]}; weights must be "
            "finite and not negative."
        )
    return weight


def check_counts(labels, names, n_components):
    """Raise ValueError if a class has fewer samples than components."""
    counts = np.bincount(labels, minlength=len(names))
    for name, count in zip(names, counts, strict=True):
        if count < n_components:
            raise ValueError(
                f"class {name!r} has {count} sample(s) of positive weight, fewer than n_components={n_components}: "
                "decrease n_components or add samples."
            )


def require_complete(X):
    """Raise ValueError if X has missing values."""
    if not np.isnan(X).any():
        return
    row, feature = np.argwhere(np.isnan(X))[0]
    raise ValueError(
        f"X contains NaN in feature {feature} of sample {row}: pass allow_nan=True to MultiConditionalMFA, which "
        "integrates out missing values, or impute them."
    )


def require_labels(y):
    """Raise ValueError unless y has one label for each sample."""
    use = "y must hold one label for each sample: use DRFClassifier for sequences, MultiLabelField for sets of labels."
    require_one_label_each(y, use)
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise ValueError(f"y has {labels.shape[1]} columns. {use}")
    if labels.dtype == object:
        missing = np.flatnonzero(mask_missing_nodes(labels.ravel(), np.nan))
        if len(missing):
            raise ValueError(f"y[{missing[0]}] is missing: leave out samples without a label.")


def check_magnitudes(X):
    """Raise ValueError for features whose variance would overflow."""
    largest = 1e150  # the square of this number is finite
    # Reducing all entries at once is much faster than reducing each column.
    if max(np.fmax.reduce(X, axis=None), -np.fmin.reduce(X, axis=None)) <= largest:
        return
    large = np.flatnonzero((np.fmax.reduce(X) > largest) | (np.fmin.reduce(X) < -largest))
    if len(large):
        raise ValueError(
            f"feature(s) {_list_indices(large)} of X have values above {largest:g} in magnitude, whose squares "
            "overflow: divide these features by a constant."
        )


def check_features(X, constant, noise_floor, is_joint):
    """Raise ValueError for features without observed values; with a noise floor, only warn of constant features."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(empty):
        raise ValueError(f"feature(s) {_list_indices(empty)} of X have no observed value: remove these features.")
    if constant.any():
        which = _list_indices(np.flatnonzero(constant))
        if noise_floor == 0:
            raise ValueError(
                f"feature(s) {which} of X are constant, so covariances are singular: remove these features or set "
                "noise_floor > 0."
            )
        # Constant features do not distinguish classes; only joint densities depend on their variance.
        if is_joint:
            warn_caller(f"feature(s) {which} of X are constant: their variance is set by noise_floor={noise_floor}.")


def _list_indices(indices, most=5):
    text = ", ".join(map(str, indices[:most]))
    return f"{text}, ... ({len(indices)} in all)" if len(indices) > most else text


# Missing values pass this check, because the later error of require_complete says where they are.
ARRAYS: dict = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}


@dataclass(frozen=True, eq=False)
class SampleReading:
    """Options for reading and checking samples."""

    n_components: int
    n_factors: int
    classes: ArrayLike | None  # names of all classes; None uses the classes in y
    class_weight: dict | str | None
    allow_nan: bool

    def read(self, X, y, sample_weight):
        """Return fitted attributes and classes, and the labels, weights and features of samples of positive weight."""
        found = self.read_shard(X, y, sample_weight)
        if found is None:
            validate_sample_weight(sample_weight, len(X))
            raise ValueError(
                "sample_weight times class_weight is 0 for every sample: at least one sample needs a positive weight."
            )
        return found

    def read_shard(self, X: Any, y: Any, sample_weight: Any) -> tuple | None:
        """Return the same as :meth:`read`, or None if no sample has a positive weight."""
        names = _get_feature_names(X)
        require_rows(X)
        if y is not None:
            require_labels(y)
        X, y = check_X_y(replace_masked_values(X), replace_masked_values(y), estimator="MultiConditionalMFA", **ARRAYS)
        attributes = {"n_features_in_": X.shape[1]} | ({} if names is None else {"feature_names_in_": names})
        if not self.allow_nan:
            require_complete(X)
        check_classification_targets(y)
        if self.n_factors > X.shape[1]:
            raise ValueError(f"n_factors={self.n_factors} is larger than n_features={X.shape[1]}: decrease n_factors.")
        weight = read_sample_weight(sample_weight, len(X))
        if weight is None:
            weight = np.ones(len(X))
        if not weight.any():
            return None
        X, y, weight = _keep_positive_weights(weight, X, y, weight)
        X = np.asarray(X, dtype=np.float64)
        try:
            classes = np.unique(y) if self.classes is None else check_named_classes(self.classes, least=1)
        except ValueError as error:
            raise InvalidParameterError(str(error)) from error
        labels = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        unknown = classes[labels] != y
        if unknown.any():
            label = y[unknown].tolist()[0]
            raise ValueError(f"y contains the label {label!r}, which is not one of classes={classes.tolist()}.")
        if self.class_weight is not None:
            weight = weight * compute_class_weights(self.class_weight, y, weight)
            if not weight.any():
                return None
            labels, X, weight = _keep_positive_weights(weight, labels, X, weight)
        check_magnitudes(X)
        return attributes, classes, labels, weight, remove_isolated_values(X, labels)


def _keep_positive_weights(weight, *arrays):
    kept = weight > 0
    return arrays if kept.all() else [array[kept] for array in arrays]
