"""Small labelled fields on which estimators learn in a moment."""

import numpy as np
from scipy.ndimage import gaussian_filter


def noisy_blobs(n=12, side=10, noise=0.6, n_classes=2, seed=0):
    """Images of smooth random regions, observed under noise: X (n, side, side, 1), y (n, side, side)."""
    rng = np.random.default_rng(seed)
    fields = gaussian_filter(rng.normal(size=(n_classes, n, side, side)), (0, 0, 1, 1))
    y = fields.argmax(axis=0)
    return y[..., np.newaxis] + noise * rng.normal(size=(*y.shape, 1)), y


def chains(n=30, seed=0, n_classes=3):
    """Ragged chains of sticky states: lists of (T, 2) features and (T,) labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        length = int(rng.integers(1, 12))
        labels = np.cumsum(rng.random(length) < 0.3) % n_classes
        X.append(np.stack((labels, labels**2), axis=1) + rng.normal(size=(length, 2)))
        y.append(labels)
    return X, y
