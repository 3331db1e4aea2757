"""Symmetric matrices with eigenvalues between bounds."""

import numpy as np


def clip_eigenvalues(matrices, low, high):
    """The nearest symmetric matrices, in Frobenius norm, whose eigenvalues lie between bounds.

    Parameters
    ----------
    matrices : ndarray of shape (..., m, m)
        Symmetric.
    low, high : float

    Returns
    -------
    ndarray of the same shape

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. (268).
    """
    size = matrices.shape[-1]
    if size == 1:
        return np.clip(matrices, low, high)
    if size == 2:
        return _clip_pairs(matrices, low, high)
    values, vectors = np.linalg.eigh(matrices)
    return np.einsum("...ia,...a,...ja->...ij", vectors, np.clip(values, low, high), vectors)


def _clip_pairs(matrices, low, high):
    """The same of 2 x 2 matrices in closed form: thousands of them are projected in every step of training."""
    centre = (matrices[..., 0, 0] + matrices[..., 1, 1]) / 2
    half = (matrices[..., 0, 0] - matrices[..., 1, 1]) / 2
    cross = matrices[..., 0, 1]
    radius = np.hypot(half, cross)
    upper, lower = np.clip(centre + radius, low, high), np.clip(centre - radius, low, high)
    # A multiple of the identity stays one; elsewhere the traceless part keeps its direction.
    scale = np.divide((upper - lower) / 2, radius, out=np.zeros_like(radius), where=radius > 0)
    middle = (upper + lower) / 2
    inside = (centre - radius >= low) & (centre + radius <= high)
    out = np.empty_like(matrices)
    out[..., 0, 0], out[..., 1, 1] = middle + scale * half, middle - scale * half
    out[..., 0, 1] = out[..., 1, 0] = scale * cross
    # What is inside stays as it is, to the bit.
    out[inside] = matrices[inside]
    return out


class BoundedLogarithm:
    r"""Coordinates in which no bound is in the way: a symmetric matrix M for every J with eigenvalues between bounds.

    .. math::
        J = \exp \Big( c + r \tanh \frac{M - c}{r} \Big), \qquad c \pm r = \log \text{of the bounds}

    as a function of matrices. Well between the bounds M is the logarithm of J.

    Parameters
    ----------
    low, high : float
    """

    def __init__(self, low, high):
        self.centre = (np.log(low) + np.log(high)) / 2
        self.reach = (np.log(high) - np.log(low)) / 2

    def coordinates(self, matrices):
        """M of J, ndarray of shape (..., m, m); what lies at a bound is moved a little inside."""
        values, vectors = np.linalg.eigh(matrices)
        if self.reach == 0:
            return self._assembled(np.log(values), vectors)
        share = np.clip((np.log(values) - self.centre) / self.reach, -_NEAREST, _NEAREST)
        return self._assembled(self.centre + self.reach * np.arctanh(share), vectors)

    def matrices(self, coordinates):
        """J of M, and the function that turns a derivative by J into one by M."""
        values, vectors = np.linalg.eigh(coordinates)
        share = np.tanh((values - self.centre) / self.reach) if self.reach else np.zeros_like(values)
        bounded = np.exp(self.centre + self.reach * share)
        slope = bounded * (1 - share**2)

        def pulled_back(gradient):
            gap = values[..., :, None] - values[..., None, :]
            rise = bounded[..., :, None] - bounded[..., None, :]
            # Daleckii and Krein: quotients of differences, derivatives where eigenvalues coincide.
            same = np.abs(gap) <= 1e-7 * np.maximum(1.0, np.abs(values).max(axis=-1))[..., None, None]
            mean_slope = (slope[..., :, None] + slope[..., None, :]) / 2
            quotient = np.where(same, mean_slope, rise / np.where(same, 1.0, gap))
            inner = np.einsum("...ia,...ij,...jb->...ab", vectors, gradient, vectors)
            return np.einsum("...ia,...ab,...jb->...ij", vectors, quotient * inner, vectors)

        return self._assembled(bounded, vectors), pulled_back

    @staticmethod
    def _assembled(values, vectors):
        return np.einsum("...ia,...a,...ja->...ij", vectors, values, vectors)


# Nearer to a bound than this share of the way, coordinates would run away.
_NEAREST = 0.999
