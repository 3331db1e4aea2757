"""Training on images that are made: fields one after the other, and clean images that are corrupted."""

from copy import copy

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from sklearn_crf.encoding import object_array
from sklearn_crf.rtf._input import missing_values, with_masks, without_gaps

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
    "missing_channels_",
    "target_dtype_",
    "target_range_",
    "_has_channels",
)


def fit_stages(estimator, X, y, sample_weight):
    """Fit the fields of a cascade and note on the estimator what its last one found.

    Parameters
    ----------
    estimator : RegressionTreeField
    X, y : array-like or list of array-like
        Images have an axis of channels.
    sample_weight : array-like of shape (n,), or None
    """
    if estimator.warm_start:
        raise ValueError(f"warm_start goes on from a single field, got cascade={estimator.cascade}.")
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    stages, seen = [], X
    for k in range(estimator.cascade):
        options = {"cascade": 1, "clip": estimator.clip if k == estimator.cascade - 1 else None}
        if stages:
            # Later fields see corruption that the former ones were not trained on.
            own = X if estimator.corruption is None else _corrupted_images(estimator.corruption, X, [seed, k])
            seen = own
            for stage in stages:
                seen = with_channels(own, stage.predict(seen))
            options["corruption"] = None
        stages.append(clone(estimator).set_params(**options).fit(seen, y, sample_weight))
    estimator.stages_ = stages
    estimator.n_features_in_ = stages[0].n_features_in_
    if hasattr(stages[0], "feature_names_in_"):
        estimator.feature_names_in_ = stages[0].feature_names_in_
    for name in _OF_LAST:
        setattr(estimator, name, getattr(stages[-1], name))


def seen_by_last(stages, X, n_jobs):
    """What the last field of a cascade sees.

    Parameters
    ----------
    stages : list of RegressionTreeField
    X : array-like or list of array-like
    n_jobs : int or None

    Returns
    -------
    array-like or list of array-like
    """
    seen = X
    for stage in stages[:-1]:
        # On as many threads as asked for now; the fields that are kept stay as they are.
        seen = with_channels(X, copy(stage).set_params(n_jobs=n_jobs).predict(seen))
    return seen


def _corrupted_images(corruption, X, seeds):
    drawn = [
        np.asarray(corruption(np.asarray(x), np.random.default_rng([*seeds, i])), np.float32) for i, x in enumerate(X)
    ]
    return drawn if isinstance(X, list | tuple) else np.stack(drawn)


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


def of_clean_images(X):
    """Clean images with an axis of channels as input and target.

    Parameters
    ----------
    X : array-like of shape (n, H, W) or (n, H, W, C), or list of such images

    Returns
    -------
    inputs, targets : array-like or list of array-like
    is_grey : bool
        Whether they had no axis of channels.

    Raises
    ------
    ValueError
        If X has two readings, or does not hold images.
    """
    shape = getattr(X, "shape", ())
    if len(shape) == 3 and shape[2] in (3, 4):
        raise ValueError(
            f"X of shape {shape} has two readings: {shape[0]} grey images of {shape[1]} x {shape[2]} pixels (pass "
            "X[..., np.newaxis]), or one colour image (pass X[np.newaxis])."
        )
    images = [np.asarray(x) for x in X]
    axes = {image.ndim for image in images}
    if axes == {2}:
        given = object_array([image[..., None] for image in images]) if not shape else np.asarray(X)[..., None]
        return given, X, True
    if axes == {3}:
        return X, X, False
    raise ValueError(
        f"X must hold images of shape (H, W) or (H, W, C) where y is None, got arrays of {sorted(axes)} axes."
    )


# Images that a corruption is tried on, to see which channels it leaves gaps in.
_TRIED = 8


def corrupting(corruption, planes, is_grey):
    """What makes the inputs of a round.

    Parameters
    ----------
    corruption : callable
    planes : list of ndarray of shape (H, W, C)
        Clean images.
    is_grey : bool
        Whether it is given images without an axis of channels.

    Returns
    -------
    corrupted : callable
        ``corrupted(plane, i, rng)``: gaps are filled, and told by more channels.
    missing : tuple of int
        Channels with gaps.
    """

    def drawn(plane, rng):
        image = plane[..., 0] if is_grey else plane
        found = np.asarray(corruption(image.copy(), rng), dtype=np.float32)
        found = found[..., None] if found.ndim == 2 else found
        if found.shape[:2] != plane.shape[:2] or found.ndim != 3 or np.isinf(found).any():
            raise ValueError(
                f"corruption must return finite images of {plane.shape[0]} x {plane.shape[1]} pixels, got shape "
                f"{found.shape}{' with infinity' if np.isinf(found).any() else ''}."
            )
        return found

    tried = [drawn(plane, np.random.default_rng(i)) for i, plane in enumerate(planes[:_TRIED])]
    gaps = [own.any(axis=(0, 1)) for own in map(missing_values, tried) if own is not None]
    missing = tuple(np.flatnonzero(np.any(gaps, axis=0)).tolist()) if gaps else ()

    def corrupted(plane, i, rng):
        found = drawn(plane, rng)
        where = missing_values(found)
        found = found if where is None else without_gaps(found)
        return np.ascontiguousarray(with_masks(found, where, missing) if missing else found)

    return corrupted, missing
