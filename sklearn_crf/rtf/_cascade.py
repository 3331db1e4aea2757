"""Cascades of regression tree fields: each sees, besides the input, the prediction of the one before."""

from copy import copy

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from sklearn_crf.encoding import object_array
from sklearn_crf.rtf.images._degradation import Degradations

# Attributes of the last field of a cascade that are the estimator's as well.
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
    "held_out_errors_",
    "n_iter_",
    "lattice_ndim_",
    "filter_bank_",
    "missing_channels_",
    "keeps_known_",
    "target_dtype_",
    "target_range_",
    "_has_channels",
)


def fit_stages(estimator, X, y, sample_weight, degradations):
    """Fit the fields of a cascade and copy the attributes of the last one to the estimator."""
    # sample_weight: (n,); X on the lattice of y
    if estimator.warm_start:
        raise ValueError(f"warm_start goes on from a single field, got cascade={estimator.cascade}.")
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    stages, seen = [], X
    for k in range(estimator.cascade):
        options = {"cascade": 1, "clip": estimator.clip if k == estimator.cascade - 1 else None}
        own_degradations = degradations
        if stages:
            # Later fields see a corruption that the former ones were not trained on.
            own, own_degradations = _redrawn(estimator.corruption, X, degradations, [seed, k])
            seen = own
            for stage in stages:
                seen = with_channels(own, stage._predict_lifted(seen, own_degradations))
            options["corruption"] = None
        stage = clone(estimator).set_params(**options)
        stage._fit_lifted(seen, y, sample_weight, False, own_degradations)
        # Callbacks of the estimator hear of every stage as of a fit of its own, and are not kept with it.
        vars(stage).pop("_skl_callbacks", None)
        stages.append(stage)
    estimator.stages_ = stages
    estimator.n_features_in_ = stages[0].n_features_in_
    if hasattr(stages[0], "feature_names_in_"):
        estimator.feature_names_in_ = stages[0].feature_names_in_
    for name in _OF_LAST:
        setattr(estimator, name, getattr(stages[-1], name))


def seen_by_last(stages, X, n_jobs, degradations=None):
    """Input of the last field of a cascade."""
    seen = X
    for stage in stages[:-1]:
        # A copy runs on the present number of threads; the kept fields do not change.
        seen = with_channels(X, copy(stage).set_params(n_jobs=n_jobs)._predict_lifted(seen, degradations))
    return seen


def _redrawn(corruption, X, degradations, seeds):
    """Images with a new corruption or degradation, and the degradations that were drawn."""
    of_clean = degradations is not None and degradations.of_clean
    if corruption is None and not of_clean:
        return X, degradations
    drawn, used = [], []
    for i, x in enumerate(X):
        rng = np.random.default_rng([*seeds, i])
        if of_clean:
            own = degradations.choices[i]
            used.append(own[rng.integers(len(own))])
            drawn.append(used[-1].lifted(used[-1](np.asarray(x), rng)))
        else:
            drawn.append(np.asarray(corruption(np.asarray(x), rng), np.float32))
    is_list = isinstance(X, list | tuple) or X.dtype == object
    found = object_array(drawn) if is_list else np.stack(drawn)
    return found, Degradations([(own,) for own in used], of_clean=False) if of_clean else None


def with_channels(X, predicted):
    """Images with more channels, in the layout of X."""
    if isinstance(X, list | tuple) or np.asarray(X).dtype == np.object_:
        return object_array([_joined(x, p) for x, p in zip(X, predicted, strict=True)])
    return _joined(X, predicted)


def _joined(x, values):
    x, values = np.asarray(x, dtype=np.float32), np.asarray(values, dtype=np.float32)
    return np.concatenate([x, values[..., None] if values.ndim < x.ndim else values], axis=-1)
