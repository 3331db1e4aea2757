"""Fields one after the other, each with the prediction of the one before as more channels."""

from copy import copy

import numpy as np
from sklearn.base import clone

from sklearn_crf.encoding import object_array

# What an estimator shows of its last field.
_OF_LAST = (
    "trees_",
    "precisions_",
    "weights_",
    "offsets_",
    "slopes_",
    "pairwise_channels_",
    "precision_channels_",
    "target_mean_",
    "target_scale_",
    "loss_curve_",
    "round_ends_",
    "validation_curve_",
    "n_iter_",
    "lattice_ndim_",
    "filter_bank_",
)


def fit_stages(estimator, X, y, sample_weight):
    """Fit the fields of a cascade and note on the estimator what its last one found.

    Parameters
    ----------
    estimator : RegressionTreeField
    X, y : array-like or list of array-like
    sample_weight : array-like of shape (n,), or None
    """
    if estimator.warm_start:
        raise ValueError(f"warm_start goes on from a single field, got cascade={estimator.cascade}.")
    stages, seen = [], X
    for _ in range(estimator.cascade):
        if stages:
            seen = with_channels(X, stages[-1].predict(seen))
        stages.append(clone(estimator).set_params(cascade=1).fit(seen, y, sample_weight))
    estimator.stages_ = stages
    estimator.n_features_in_ = stages[0].n_features_in_
    if hasattr(stages[0], "feature_names_in_"):
        estimator.feature_names_in_ = stages[0].feature_names_in_
    for name in _OF_LAST:
        setattr(estimator, name, getattr(stages[-1], name))


def predict_through(stages, X, n_jobs, return_std):
    """Prediction of the last field of a cascade.

    Parameters
    ----------
    stages : list of RegressionTreeField
    X : array-like or list of array-like
    n_jobs : int or None
    return_std : bool

    Returns
    -------
    ndarray, or a tuple of two
    """
    seen = X
    for k, stage in enumerate(stages):
        # On as many threads as asked for now; the fields that are kept stay as they are.
        own = copy(stage).set_params(n_jobs=n_jobs)
        if k == len(stages) - 1:
            return own.predict(seen, return_std=return_std)
        seen = with_channels(X, own.predict(seen))


def with_channels(X, predicted):
    """Images with more channels, in the layout of X.

    Parameters
    ----------
    X : array-like or list of array-like
        Images, channels last.
    predicted : ndarray
        Values of each, with or without an axis of channels.

    Returns
    -------
    ndarray, of object for a list
    """
    if isinstance(X, list | tuple) or np.asarray(X).dtype == np.object_:
        return object_array([_joined(x, p) for x, p in zip(X, predicted, strict=True)])
    return _joined(X, predicted)


def _joined(x, values):
    x, values = np.asarray(x, dtype=np.float32), np.asarray(values, dtype=np.float32)
    return np.concatenate([x, values[..., None] if values.ndim < x.ndim else values], axis=-1)
