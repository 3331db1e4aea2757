"""Uncorrelated inputs of the linear models: optimisation is quick where no direction of the weights is much flatter."""

import numpy as np

from sklearn_crf._threads import map_tasks

# Pixels that inputs are whitened by.
_WHITENING_SAMPLES = 50_000

# Directions of less variance than this share of the largest are not magnified to one.
_LEAST_VARIANCE = 1e-6


def whitening_of_types(data, types, rng, n_jobs):
    """The matrix of each type.

    Parameters
    ----------
    data : TrainingData
    types : list of FactorType
    rng : RandomState
    n_jobs : int or None

    Returns
    -------
    list of ndarray of shape (B, n_inputs)
    """
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(types))

    def one(number, n_threads):
        return whitening_of(data.features, types[number], np.random.RandomState(seeds[number]), data.weights)

    return map_tasks(one, range(len(types)), n_jobs)


def whitening_of(features, kind, rng, weights=None):
    """A matrix that makes what linear models see uncorrelated and of variance one, but for the constant.

    Parameters
    ----------
    features : list of ndarray of shape (H, W, F)
    kind : FactorType
    rng : RandomState
    weights : list of ndarray of shape (N,), optional
        Of each pixel.

    Returns
    -------
    ndarray of shape (B, n_inputs)
        B is at most n_inputs: channels that are constant, or sums of others, add nothing.
    """
    samples, weight = [], []
    for k, plane in enumerate(features):
        top, left, rows, columns = kind.rectangle(plane.shape)
        n = min(rows * columns, max(1, _WHITENING_SAMPLES // len(features)))
        own = np.arange(n) if n == rows * columns else rng.randint(rows * columns, size=n)
        if n:
            pixels = np.stack([top + own // columns, left + own % columns], axis=1)
            samples.append(kind.inputs(kind.seen(plane), pixels)[:, 1:])
            own_weight = 1.0 if weights is None else weights[k].reshape(plane.shape[:2])[tuple(pixels.T)]
            weight.append(np.broadcast_to(own_weight, n))
    size = kind.n_inputs(features[0].shape[2])
    inputs = np.concatenate(samples).astype(np.float64) if samples else np.zeros((1, size - 1))
    weight = np.concatenate(weight)[:, None] if weight else np.ones((1, 1))
    weight = weight / weight.sum()
    mean = np.sum(weight * inputs, axis=0)
    deviation = np.sqrt(np.sum(weight * (inputs - mean) ** 2, axis=0))
    used = deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30)
    scaled = (inputs - mean)[:, used] / deviation[used]
    variance, directions = np.linalg.eigh(scaled.T @ (weight * scaled))
    top = variance.max(initial=0.0)
    kept = variance > 1e-10 * top
    rows = directions[:, kept].T / np.sqrt(np.maximum(variance[kept], _LEAST_VARIANCE * top))[:, None]
    white = np.zeros((1 + len(rows), size))
    white[0, 0] = 1.0
    white[1:, 1:][:, used] = rows / deviation[used]
    white[1:, 0] = -white[1:, 1:] @ mean
    return white
