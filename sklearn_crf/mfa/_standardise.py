"""Units of training: every feature with mean 0 and variance 1, so that a fit does not depend on units."""

from typing import NamedTuple

import numpy as np


class Units(NamedTuple):
    """``z = (x - mean) / scale``."""

    mean: np.ndarray
    scale: np.ndarray

    def standardise(self, X):
        return (X - self.mean) / self.scale

    def to_standard(self, params):
        """Parameters of ``z`` from those of ``x``."""
        return params.rescale(-self.mean / self.scale, 1 / self.scale)

    def to_original(self, params):
        """Parameters of ``x`` from those of ``z``."""
        return params.rescale(self.mean, self.scale)

    @property
    def log_volume(self):
        """``log |dx / dz|``: what densities of ``z`` exceed densities of ``x`` by."""
        return float(np.log(self.scale).sum())


def measure(X, weight):
    """Weighted means and standard deviations of the observed values.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        May hold NaN.
    weight : ndarray of shape (n,)

    Returns
    -------
    units : Units
        The scale of a constant feature is 1.
    constant : ndarray of shape (d,), bool
    """
    observed = ~np.isnan(X)
    if observed.all():
        total = np.full(X.shape[1], weight.sum())
        mean = weight @ X / total
        centred = X - mean
    else:
        total = weight @ observed
        mean = (weight @ np.where(observed, X, 0.0)) / np.where(total > 0, total, 1.0)
        centred = np.where(observed, X - mean, 0.0)
    # The mean is rounded: without a second look a constant feature has a tiny variance instead of none.
    mean = mean + weight @ centred / np.where(total > 0, total, 1.0)
    variance = weight @ np.square(centred) / np.where(total > 0, total, 1.0)
    constant = variance <= (100 * np.finfo(float).eps * np.abs(mean)) ** 2
    return Units(mean, np.sqrt(np.where(constant, 1.0, variance))), constant
