"""The kernels of filter banks, as images or as products of a column and a row."""

from typing import NamedTuple

import numpy as np


class Separable(NamedTuple):
    """A kernel that is the outer product of a column and a row."""

    column: np.ndarray
    row: np.ndarray

    @property
    def image(self):
        """The kernel written out."""
        return np.outer(self.column, self.row)


def rfs_kernels():
    """The 38 kernels of the RFS bank by name, each 49 x 49.

    Edges and bars (first and second derivatives of Gaussians three times as long as wide) at three scales and six
    orientations, then a Gaussian and a Laplacian of a Gaussian of standard deviation 10. All sum to zero but the
    Gaussian, which sums to one; the absolute values of the others do.
    """
    radius = 24
    down, right = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(float)
    kernels = {}
    for kind, order in (("edge", 1), ("bar", 2)):
        for scale in (1, 2, 4):
            for k in range(6):
                angle = np.pi * k / 6
                along = right * np.cos(angle) - down * np.sin(angle)
                across = right * np.sin(angle) + down * np.cos(angle)
                kernel = _gaussian(along, 3 * scale, 0) * _gaussian(across, scale, order)
                kernels[f"{kind}_{scale}_{30 * k}"] = _balanced(kernel)
    flat = _gaussian(down, 10, 0) * _gaussian(right, 10, 0)
    kernels["gaussian_10"] = flat / flat.sum()
    kernels["laplacian_10"] = _balanced(flat * (down**2 + right**2 - 2 * 10**2))
    return kernels


def gaussian_derivative_kernels(scales=(1.0, 2.0, 4.0)):
    """Gaussians and their first and second derivatives by name, six for each scale, times scale ** order."""
    kernels = {}
    for scale in scales:
        radius = int(4 * scale + 0.5)
        at = np.arange(-radius, radius + 1, dtype=float)
        smooth = _gaussian(at, scale, 0)
        profiles = {order: _gaussian(at, scale, order) / smooth.sum() * scale**order for order in (0, 1, 2)}
        for down, right in ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)):
            kernels[f"derivative_{down}{right}_{scale:g}"] = Separable(profiles[down], profiles[right])
    return kernels


def haar_kernels(sizes=(2, 4, 8, 16)):
    """Boxes by name, four for each size: mean, upper minus lower half, left minus right half, and their product."""
    kernels = {}
    for size in sizes:
        flat = np.full(size, 1 / size)
        step = np.where(np.arange(size) < size // 2, flat, -flat)
        for name, column, row in (
            ("mean", flat, flat),
            ("upper_lower", step, flat),
            ("left_right", flat, step),
            ("diagonal", step, step),
        ):
            kernels[f"haar_{name}_{size}"] = Separable(column, row)
    return kernels


BANKS = {"rfs": rfs_kernels, "gaussian_derivatives": gaussian_derivative_kernels, "haar": haar_kernels}


def _gaussian(x, scale, order):
    """A Gaussian or its first or second derivative by x, not normalised."""
    value = np.exp(-0.5 * (x / scale) ** 2)
    return value * {0: 1.0, 1: -x / scale**2, 2: (x**2 - scale**2) / scale**4}[order]


def _balanced(kernel):
    """Zero sum, absolute values summing to one."""
    kernel = kernel - kernel.mean()
    return kernel / np.abs(kernel).sum()
