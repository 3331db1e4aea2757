"""Photographs of horses reduced to 64 x 80 pixels with eight features each, for ``defaults.py`` and others."""

import os
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, sobel
from sklearn.preprocessing import StandardScaler

from sklearn_crf.preprocessing import NodeTransformer
from support.bundles import load_weizmann_horses


def horse_photographs():
    """Return the Weizmann horses from the folder ``SKLEARN_CRF_DATA``."""
    if "SKLEARN_CRF_DATA" not in os.environ:
        raise SystemExit("the horses need the environment variable SKLEARN_CRF_DATA: the folder of weizmann_horses/")
    return load_weizmann_horses(Path(os.environ["SKLEARN_CRF_DATA"]) / "weizmann_horses")


def pixels_of(bunch, chosen):
    """Return features (n, 64, 80, 8) and masks (n, 64, 80) of the chosen photographs."""
    features = np.array([_features(_reduced(bunch.data[i][..., 0] / 255.0)) for i in chosen])
    masks = np.array([_reduced(bunch.target[i].astype(float)) >= 0.5 for i in chosen]).astype(int)
    return features, masks


def twenty_horses():
    """Return X, y, X_test and y_test: twenty training and twenty test photographs with scaled features."""
    bunch = horse_photographs()
    X_train, y_train = pixels_of(bunch, bunch.train[:20])
    X_test, y_test = pixels_of(bunch, bunch.test[:20])
    scaled = NodeTransformer(StandardScaler())
    return scaled.fit_transform(X_train), y_train, scaled.transform(X_test), y_test


def _features(image):
    """Return pixel features: grey value, two blurred grey values, gradient, position and squares of the position."""
    row, column = (np.arange(n) / n - 0.5 for n in image.shape)
    row, column = np.meshgrid(row, column, indexing="ij")
    gradient = np.hypot(sobel(image, 0), sobel(image, 1))
    blurred = [gaussian_filter(image, scale) for scale in (2, 4)]
    return np.stack((image, *blurred, gradient, column, row, column**2, row**2), axis=-1)


def _reduced(image, shape=(64, 80)):
    """Return the means of an image over the blocks of a 64 x 80 grid."""
    rows, columns = (np.linspace(0, n, m + 1).astype(int) for n, m in zip(image.shape, shape, strict=True))
    totals = np.add.reduceat(np.add.reduceat(image, rows[:-1], axis=0), columns[:-1], axis=1)
    return totals / np.outer(np.diff(rows), np.diff(columns))
