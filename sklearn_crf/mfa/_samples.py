"""Labelled samples with standardised features, stored in blocks for passes over the data."""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._reports import warn_caller
from sklearn_crf.mfa import _tuning
from sklearn_crf.mfa._densities import group_missing_patterns


class Units(NamedTuple):
    """Standardisation of features: ``z = (x - mean) / scale``."""

    mean: np.ndarray
    scale: np.ndarray

    def standardise(self, X):
        found = X - self.mean
        found /= self.scale
        return found

    def to_standard(self, params):
        """Convert parameters for samples ``x`` to parameters for standardised samples ``z``."""
        return params.rescale(-self.mean / self.scale, 1 / self.scale)

    def to_original(self, params):
        """Convert parameters for standardised samples ``z`` to parameters for samples ``x``."""
        return params.rescale(self.mean, self.scale)


def remove_isolated_values(X, labels):
    """Replace isolated values by NaN, and warn the user.

    A value is isolated if it is so extreme that no component can contain this value together with other values. A
    single isolated value, such as a sentinel or an error, would dominate the variance of its feature, or become a
    separate component.
    """
    found = np.zeros(X.shape, dtype=bool)
    for c in range(labels.max() + 1):
        rows = np.flatnonzero(labels == c)
        found[rows] = _mask_isolated_values(X[rows])
    if not found.any():
        return X
    row, feature = np.argwhere(found)[0]
    warn_caller(
        f"{np.count_nonzero(found)} value(s) of X, such as {X[row, feature]:g} in feature {feature}, are more than "
        f"{_tuning.TIMES_AS_FAR} times as far from other values as other values are from each other. Training treats"
        " these values as missing: if they stand for missing values, replace them by NaN and pass allow_nan=True."
    )
    return np.where(found, np.nan, X)


def _mask_isolated_values(X):
    """Return a mask of the isolated values among samples of one class."""
    if len(X) < _tuning.LEAST_VALUES:
        return np.zeros(X.shape, dtype=bool)
    some = X[:: -(-len(X) // _tuning.MOST_VALUES)]
    median = _compute_lower_quantile(some, 0.5)
    distances = np.abs(some - median)
    # If most values are equal, as in sparse counts, the other values are rare but not isolated.
    reach = np.where(_compute_lower_quantile(distances, 0.5) > 0, _compute_lower_quantile(distances, 0.9), np.inf)
    distance = X - median
    np.abs(distance, out=distance)
    isolated = distance > _tuning.TIMES_AS_FAR * reach
    most = max(_tuning.MOST_DISTINCT, _tuning.LARGEST_SHARE * len(X))
    for j in np.flatnonzero(isolated.any(axis=0)):
        own = isolated[:, j]
        # Distant values are not isolated if there is no gap (tail of a distribution), or if there are many (cluster).
        has_gap = distance[own, j].min() > _tuning.LEAST_GAP * np.nanmax(distance[~own, j])
        if not has_gap or len(np.unique(X[own, j])) > most:
            isolated[:, j] = False
    return isolated


def _compute_lower_quantile(X, share):
    """Return the ``share`` quantile of the observed values of each feature, without interpolation."""
    ordered, n_observed = np.sort(X, axis=0), np.count_nonzero(~np.isnan(X), axis=0)
    return ordered[(share * np.maximum(n_observed - 1, 0)).astype(int), np.arange(X.shape[1])]


def measure(X, weight):
    """Return the mean and scale of each feature, and a mask of constant features, whose scale is 1."""
    observed = ~np.isnan(X)
    if observed.all():
        total = np.full(X.shape[1], weight.sum())
        mean = weight @ X / total
        centred = X - mean
    else:
        total = weight @ observed
        mean = (weight @ np.where(observed, X, 0.0)) / np.where(total > 0, total, 1.0)
        centred = np.where(observed, X - mean, 0.0)
    # Correct the rounding error of the mean. Otherwise constant features would have a small variance instead of 0.
    mean = mean + weight @ centred / np.where(total > 0, total, 1.0)
    return compute_units(mean, weight @ np.square(centred, out=centred) / np.where(total > 0, total, 1.0))


def compute_units(mean, variance):
    """Return the units for features with a given mean and variance, and a mask of constant features."""
    constant = variance <= (100 * np.finfo(float).eps * np.abs(mean)) ** 2
    return Units(mean, np.sqrt(np.where(constant, 1.0, variance))), constant


class StandardisedSamples(NamedTuple):
    """Labelled samples with standardised features.

    Labels are indices into the classes that have samples.
    """

    X: np.ndarray  # (n, d), NaN where a value is missing
    labels: np.ndarray  # (n,) int
    weight: np.ndarray  # (n,)
    units: Units

    def batch(self, rows):
        return self._replace(X=self.X[rows], labels=self.labels[rows], weight=self.weight[rows])


class SampleBlocks:
    """Samples in blocks, grouped by missing-value pattern and by class."""

    # X: (n, d), NaN where a value is missing; labels: (n,); weight: (n,)

    def __init__(self, X, labels, weight, n_classes):
        self.n_features = X.shape[1]
        self.class_weight = np.bincount(labels, weights=weight, minlength=n_classes)
        self.total_weight = float(self.class_weight.sum())
        # Threads share the blocks. The size of blocks does not depend on the number of threads.
        size = int(np.clip(len(X) // 64, *_tuning.BLOCK_SAMPLES))
        # List of pairs, one for each missing-value pattern: observed features (full slice or index array), and samples.
        self.patterns = [
            (features, _copy_into_blocks(X, features, rows, labels, weight, size))
            for features, rows in group_missing_patterns(X)
        ]

    def total_of(self, function, params, *arguments, n_threads=1):
        """Return the sum over all samples of the quantities that ``function`` computes from a block."""
        return function(params, self, *arguments, n_threads)


def _copy_into_blocks(X, features, rows, labels, weight, size):
    """Copy the given rows into blocks of about ``size`` samples of one class each."""
    # returns four arrays: the concatenated blocks (d + 1, n), with a last row of 1; the weights (N,);
    # the index of the first sample of each block, followed by N; the class of each block
    own = labels[rows]
    rows = rows[np.argsort(own, kind="stable")]
    counts = np.bincount(own)
    n_blocks = -(-counts // size)
    label = np.repeat(np.arange(len(counts)), n_blocks)
    first = np.cumsum(n_blocks) - n_blocks
    place = np.arange(len(label)) - first[label]
    ptr = np.append((np.cumsum(counts) - counts)[label] + counts[label] * place // n_blocks[label], len(rows))
    n_rows = len(range(X.shape[1])[features]) + 1 if isinstance(features, slice) else len(features) + 1
    samples = np.empty(n_rows * len(rows))
    for start, stop in pairwise(ptr.tolist()):
        block = samples[n_rows * start : n_rows * stop].reshape(n_rows, -1)
        block[:-1] = X.take(rows[start:stop], axis=0)[:, features].T
        block[-1] = 1
    return samples, weight[rows], ptr, label


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The labelled samples passed to ``fit``."""

    classes: np.ndarray  # names of all classes
    class_count: np.ndarray  # (n_classes,), total weight of the samples of each class
    present: np.ndarray  # (n_classes,) bool: the classes that have samples
    samples: StandardisedSamples  # samples for initial values; labels are indices into the present classes
    constant: np.ndarray  # (n_features,) bool
    has_missing: bool
    log_volume: float  # mean difference between log-densities of standardised and of original samples
    attributes: dict  # fitted attributes, such as ``n_features_in_``

    is_in_memory = True

    @classmethod
    def of(cls, attributes, classes, labels, weight, X, *, units=None, present=None):
        """Build the training data from validated samples in memory."""
        # units, present: values determined from earlier samples; None to compute them from these samples
        units, constant = measure(X, weight) if units is None else (units, np.zeros(X.shape[1], dtype=bool))
        log_scale, missing = np.log(units.scale), np.isnan(X)
        per_row = (~missing) @ log_scale if missing.any() else np.full(len(X), log_scale.sum())
        log_volume = float(weight @ per_row / weight.sum())
        count = np.bincount(labels, weights=weight, minlength=len(classes))
        present = count > 0 if present is None else present
        samples = StandardisedSamples(units.standardise(X), numbered(labels, present), weight, units)
        return cls(classes, count, present, samples, constant, bool(missing.any()), log_volume, attributes)

    @contextmanager
    def blocks(self):
        """Yield the samples in blocks, grouped by missing-value pattern and by class."""
        samples = self.samples
        yield SampleBlocks(samples.X, samples.labels, samples.weight, int(self.present.sum()))


def numbered(labels, present):
    """Convert class indices to indices into the classes that have samples."""
    return (np.cumsum(present) - 1)[labels]
