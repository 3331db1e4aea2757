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
