"""Error of Gaussian filtering on the permutohedral lattice, by bandwidth and dimension, against sums over all pairs.

    python benchmarks/quality/dense_filter_error.py

In the first part, points are spread evenly over a cube whose side is a multiple of the bandwidth. The second part
uses the kernels of a dense field on a noisy image of coloured regions. Prints mean absolute errors in per cent of the
mean of the exact sums, for one random channel, without and with symmetric normalisation, for both kinds of blur.
"""

import argparse

import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import Bilateral, DenseExample, Spatial
from sklearn_crf.models import PermutohedralFilter

WIDTHS = (1, 3, 10, 30)
DIMENSIONS = (1, 2, 3, 5, 7)
KERNELS = [
    *(Spatial(bandwidth) for bandwidth in (0.5, 1.0, 3.0, 10.0, 30.0)),
    *(Bilateral(position, channel) for position in (3.0, 20.0, 80.0) for channel in (3.0, 13.0, 50.0)),
]
BLURS, NORMALIZATIONS = ("single", "symmetric"), (None, "symmetric")


def exact_sums(features, values):
    """Return the sums over all pairs, without and with symmetric normalisation."""
    squares = np.square(features).sum(axis=1)
    matrix = np.exp(np.minimum(features @ features.T - 0.5 * squares[:, np.newaxis] - 0.5 * squares, 0.0))
    scale = 1 / np.sqrt(matrix.sum(axis=1))
    return matrix @ values, scale * (matrix @ (scale * values))


def row(name, features, values):
    """Print one line of a table."""
    exact = exact_sums(features, values)
    cells = []
    for blur in BLURS:
        for normalization, wanted in zip(NORMALIZATIONS, exact, strict=True):
            lattice = PermutohedralFilter(features, normalization=normalization, blur=blur)
            found = lattice.apply(values[:, np.newaxis])[:, 0]
            cells.append(100 * np.abs(found - wanted).mean() / wanted.mean())
    print(f"{name:64}" + "".join(f"{cell:12.2f}" for cell in cells), flush=True)


def head(title):
    print(f"{title:64}" + "".join(f"{blur:>12}" for blur in BLURS for _ in NORMALIZATIONS))
    print(f"{'':64}" + "".join(f"{name:>12}" for _ in BLURS for name in ("sums", "normalised")))


def picture(shape, rng):
    """Return an image of coloured regions with noise."""
    region = gaussian_filter(rng.normal(size=(6, *shape)), (0, 5, 5)).argmax(axis=0)
    return rng.uniform(30, 225, size=(6, 3))[region] + rng.normal(scale=6, size=(*shape, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=2000)
    n_points = parser.parse_args().points
    rng = np.random.default_rng(0)
    head(f"{n_points} points in a cube")
    for n_axes in DIMENSIONS:
        for width in WIDTHS:
            features = rng.uniform(0, width, size=(n_points, n_axes))
            row(f"{n_axes} dimensions, {width} bandwidths wide", features, rng.random(n_points))
    shape = (round(np.sqrt(0.75 * n_points)), round(np.sqrt(n_points / 0.75)))
    example = DenseExample(np.zeros((*shape, 2)), picture(shape, rng))
    head(f"image of {shape[0]} x {shape[1]} pixels")
    for kernel in KERNELS:
        row(repr(kernel), kernel.features(example, "kernel"), rng.random(example.rows.shape[0]))


if __name__ == "__main__":
    main()
