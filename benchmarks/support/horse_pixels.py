"""Photographs of horses reduced to 64 x 80 pixels with eight features each, for ``defaults.py`` and others."""

import os
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, sobel
from sklearn.preprocessing import StandardScaler

from sklearn_crf.preprocessing import NodeTransformer
from support.bundles import load_weizmann_horses


def horse_photographs():
    """The Weizmann set in the folder that the environment names."""
    if "SKLEARN_CRF_DATA" not in os.environ:
        raise SystemExit("the horses need the environment variable SKLEARN_CRF_DATA: the folder of weizmann_horses/")
    return load_weizmann_horses(Path(os.environ["SKLEARN_CRF_DATA"]) / "weizmann_horses")


def pixels_of(bunch, chosen):
    """Features (n, 64, 80, 8) and masks (n, 64, 80) of some of the photographs."""
    features = np.array([_features(_reduced(bunch.data[i][..., 0] / 255.0)) for i in chosen])
    masks = np.array([_reduced(bunch.target[i].astype(float)) >= 0.5 for i in chosen]).astype(int)
    return features, masks


def twenty_horses():
    """Twenty reduced photographs to learn from, twenty to test on, with scaled features: X, y, X_test and y_test."""
    bunch = horse_photographs()
    X_train, y_train = pixels_of(bunch, bunch.train[:20])
    X_test, y_test = pixels_of(bunch, bunch.test[:20])
    scaled = NodeTransformer(StandardScaler())
    return scaled.fit_transform(X_train), y_train, scaled.transform(X_test), y_test


def _features(image):
    """Grey value, two blurred ones, the gradient, the place and the squares of that."""
    row, column = (np.arange(n) / n - 0.5 for n in image.shape)
    row, column = np.meshgrid(row, column, indexing="ij")
    gradient = np.hypot(sobel(image, 0), sobel(image, 1))
    blurred = [gaussian_filter(image, scale) for scale in (2, 4)]
    return np.stack((image, *blurred, gradient, column, row, column**2, row**2), axis=-1)


def _reduced(image, shape=(64, 80)):
    """Means of the blocks of a 64 x 80 grid that an image is cut into."""
    rows, columns = (np.linspace(0, n, m + 1).astype(int) for n, m in zip(image.shape, shape, strict=True))
    totals = np.add.reduceat(np.add.reduceat(image, rows[:-1], axis=0), columns[:-1], axis=1)
    return totals / np.outer(np.diff(rows), np.diff(columns))
