"""Calibration error of the probabilities of ContrastiveCRF, before and after TemperatureScaling.

    python benchmarks/quality/contrastive_calibration.py       # a minute

The data are noisy digits (20 training and 20 test images), and chains of two labels that change in a tenth of the
steps (30 training and 30 test chains of 30 nodes). Nodes are divided into ten bins by the probability of their
likeliest label. The error is the mean difference between this probability and the fraction of correct labels in a
bin, weighted by the number of nodes in the bin.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import ContrastiveCRF
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.datasets import make_noisy_digits


def digits():
    """Return noisy images of digits."""
    X, y, _ = make_noisy_digits(40, random_state=0)
    return X, y


def chains():
    """Return chains whose labels seldom change, and a noisy feature."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((60, 30)) < 0.1, axis=1) % 2
    return (y + rng.normal(size=y.shape))[..., np.newaxis], y


def calibration_error(probability, y):
    """Return the expected calibration error of the most probable labels."""
    sure, right = probability.max(axis=-1).ravel(), (probability.argmax(axis=-1) == y).ravel()
    place = np.minimum((10 * sure).astype(int), 9)
    gaps = [np.mean(place == k) * abs(sure[place == k].mean() - right[place == k].mean()) for k in np.unique(place)]
    return float(np.sum(gaps))


def main():
    """Print both errors for each set."""
    for make in (digits, chains):
        X, y = make()
        half = len(X) // 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = TemperatureScaling(ContrastiveCRF(random_state=0), cv=3).fit(X[:half], y[:half])
        before, after = (
            calibration_error(field.predict_proba(X[half:]), y[half:]) for field in (found.estimator_, found)
        )
        print(
            f"{make.__name__:8} calibration error {before:.3f}, at the temperature {found.temperature_:.2f} {after:.3f}"
        )


if __name__ == "__main__":
    main()
