"""Small labelled data sets on which estimators train quickly."""

import numpy as np
from scipy.ndimage import gaussian_filter


def noisy_blobs(n=12, side=10, noise=0.6, n_classes=2, seed=0):
    """Return noisy images of smooth random regions, X (n, side, side, 1), and their labels, y (n, side, side)."""
    rng = np.random.default_rng(seed)
    fields = gaussian_filter(rng.normal(size=(n_classes, n, side, side)), (0, 0, 1, 1))
    y = fields.argmax(axis=0)
    return y[..., np.newaxis] + noise * rng.normal(size=(*y.shape, 1)), y


def chains(n=30, seed=0, n_classes=3):
    """Return chains of different lengths T whose labels seldom change: lists of (T, 2) features and (T,) labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        length = int(rng.integers(1, 12))
        labels = np.cumsum(rng.random(length) < 0.3) % n_classes
        X.append(np.stack((labels, labels**2), axis=1) + rng.normal(size=(length, 2)))
        y.append(labels)
    return X, y
