"""Noise of the loss of a dense field as a function of its bandwidths: slopes over small steps, and their mean.

    python benchmarks/quality/dense_bandwidth_slope.py

The log-loss of a field with fixed weights is computed on synthetic images, for bandwidths within 10 % of the given
bandwidths, in steps of 0.5 %. Slopes are differences of the loss over these steps, divided by the differences of the
logarithm of the bandwidth. Prints the mean of the slopes, their standard deviation, the fraction of slopes whose sign
differs from the sign of the mean, and the loss at half and at twice the bandwidth.
"""

import argparse

import numpy as np
from scipy.ndimage import gaussian_filter, zoom

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.inference import DenseMeanField

SHAPE, SQUARE, N_CLASSES = (64, 80), 8, 3
COLOURS = np.array([[80.0, 100, 130], [150, 125, 90], [115, 135, 95]])
SPATIAL, POSITION, CHANNEL = 3.0, 15.0, 13.0


def make_example(rng):
    """Return regions, their noisy colours, and scores that are coarse and noisy."""
    labels = gaussian_filter(rng.normal(size=(N_CLASSES, *SHAPE)), (0, 6, 6)).argmax(axis=0)
    height, width = (n // SQUARE for n in SHAPE)
    squares = np.eye(N_CLASSES)[labels].reshape(height, SQUARE, width, SQUARE, N_CLASSES).mean(axis=(1, 3))
    coarse = 2.5 * squares + 0.8 * rng.normal(size=squares.shape)
    scores = zoom(coarse, (SQUARE, SQUARE, 1), order=1)
    return DenseExample(scores, COLOURS[labels] + rng.normal(scale=12, size=(*SHAPE, 3))), labels


def kernels(name, factor):
    """Return kernels with one bandwidth multiplied."""
    bandwidth = {"spatial": SPATIAL, "position": POSITION, "channel": CHANNEL}
    bandwidth[name] *= factor
    return [Spatial(bandwidth["spatial"]), Bilateral(bandwidth["position"], bandwidth["channel"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X, y = zip(*(make_example(rng) for _ in range(options.images)), strict=True)

    def loss(chosen):
        field = DenseCRF(chosen, learning="fixed", inference=DenseMeanField(max_iter=5)).fit(X, list(y))
        found = zip(field.predict_proba(X), y, strict=True)
        return -np.mean([np.log(np.take_along_axis(q, labels[..., None], axis=-1)).mean() for q, labels in found])

    heads = ("mean slope", "deviation", "wrong sign", "halved", "given", "doubled")
    print(f"{'bandwidth':12}" + "".join(f"{head:>12}" for head in heads))
    for name in ("spatial", "position", "channel"):
        at = np.linspace(-0.1, 0.1, options.steps + 1)
        slopes = np.diff([loss(kernels(name, factor)) for factor in np.exp(at)]) / np.diff(at)
        wrong = np.mean(np.sign(slopes) != np.sign(slopes.mean()))
        ends = "".join(f"{loss(kernels(name, factor)):12.4f}" for factor in (0.5, 1.0, 2.0))
        print(f"{name:12}{slopes.mean():12.3f}{slopes.std():12.3f}{wrong:12.2f}{ends}", flush=True)


if __name__ == "__main__":
    main()
