"""Labelled samples in standardised units, in the layout that every pass over them uses."""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._reports import warn_caller
from sklearn_crf.mfa import _tuning
from sklearn_crf.mfa._densities import missing_patterns


class Units(NamedTuple):
    """``z = (x - mean) / scale``."""

    mean: np.ndarray
    scale: np.ndarray

    def standardise(self, X):
        found = X - self.mean
        found /= self.scale
        return found

    def to_standard(self, params):
        """Parameters of ``z`` from those of ``x``."""
        return params.rescale(-self.mean / self.scale, 1 / self.scale)

    def to_original(self, params):
        """Parameters of ``x`` from those of ``z``."""
        return params.rescale(self.mean, self.scale)


def without_isolated(X, labels):
    """Replace values that no component could share with others by NaN, and warn of them.

    One such value, a sentinel or a mistake, would set the variance of its feature or own a component.
    """
    found = np.zeros(X.shape, dtype=bool)
    for c in range(labels.max() + 1):
        rows = np.flatnonzero(labels == c)
        found[rows] = _isolated(X[rows])
    if not found.any():
        return X
    row, feature = np.argwhere(found)[0]
    warn_caller(
        f"{np.count_nonzero(found)} value(s) of X are more than {_tuning.TIMES_AS_FAR} times as far from the others as "
        f"these from each other, such as {X[row, feature]:g} in feature {feature}: training takes them for "
        "missing. Pass NaN with allow_nan=True if they stand for missing values."
    )
    return np.where(found, np.nan, X)


def _isolated(X):
    """Whether each value of the samples of one class is isolated."""
    if len(X) < _tuning.LEAST_VALUES:
        return np.zeros(X.shape, dtype=bool)
    some = X[:: -(-len(X) // _tuning.MOST_VALUES)]
    median = _lower_quantile(some, 0.5)
    distances = np.abs(some - median)
    # Where most values are the same, as in sparse counts, the others are rare and not isolated.
    reach = np.where(_lower_quantile(distances, 0.5) > 0, _lower_quantile(distances, 0.9), np.inf)
    distance = np.abs(X - median)
    isolated = distance > _tuning.TIMES_AS_FAR * reach
    most = max(_tuning.MOST_DISTINCT, _tuning.LARGEST_SHARE * len(X))
    for j in np.flatnonzero(isolated.any(axis=0)):
        own = isolated[:, j]
        # Tails have values of all sizes, and clusters many.
        has_gap = distance[own, j].min() > _tuning.LEAST_GAP * np.nanmax(distance[~own, j])
        if not has_gap or len(np.unique(X[own, j])) > most:
            isolated[:, j] = False
    return isolated


def _lower_quantile(X, share):
    """Return the largest observed value of each feature below which there is no more than a share."""
    ordered, n_observed = np.sort(X, axis=0), np.count_nonzero(~np.isnan(X), axis=0)
    return ordered[(share * np.maximum(n_observed - 1, 0)).astype(int), np.arange(X.shape[1])]


def measure(X, weight):
    """Weighted means and standard deviations of the observed values; the scale of a constant feature is 1."""
    observed = ~np.isnan(X)
    if observed.all():
        total = np.full(X.shape[1], weight.sum())
        mean = weight @ X / total
        centred = X - mean
    else:
        total = weight @ observed
        mean = (weight @ np.where(observed, X, 0.0)) / np.where(total > 0, total, 1.0)
        centred = np.where(observed, X - mean, 0.0)
    # The mean is rounded, which would give a constant feature a tiny variance instead of none.
    mean = mean + weight @ centred / np.where(total > 0, total, 1.0)
    return units_of(mean, weight @ np.square(centred, out=centred) / np.where(total > 0, total, 1.0))


def units_of(mean, variance):
    """Units of features of some mean and variance, and which features are constant."""
    constant = variance <= (100 * np.finfo(float).eps * np.abs(mean)) ** 2
    return Units(mean, np.sqrt(np.where(constant, 1.0, variance))), constant


class StandardisedSamples(NamedTuple):
    """Labelled samples in standardised units; every label from 0 on occurs."""

    X: np.ndarray  # (n, d), NaN where a value is missing
    labels: np.ndarray  # (n,) int
    weight: np.ndarray  # (n,)
    units: Units

    def batch(self, rows):
        return self._replace(X=self.X[rows], labels=self.labels[rows], weight=self.weight[rows])


class MissingPattern(NamedTuple):
    """Samples that have the same features observed, as kernels take them."""

    features: object  # the full slice or an index array
    # Blocks (d + 1, n) of samples of one class each, the last row 1, one after the other; weights (N,); the first
    # sample of each block, and N; its class
    blocks: tuple


class SampleBlocks:
    """Samples by the features they miss and by class, in blocks."""

    # X: (n, d), NaN where a value is missing; labels: (n,); weight: (n,)

    def __init__(self, X, labels, weight, n_classes):
        self.n_features = X.shape[1]
        self.class_weight = np.bincount(labels, weights=weight, minlength=n_classes)
        self.total_weight = float(self.class_weight.sum())
        # Threads share blocks, which they do whatever their number.
        size = int(np.clip(len(X) // 64, *_tuning.BLOCK_SAMPLES))
        self.patterns = [
            MissingPattern(features, _blocks_of_rows(X, features, rows, labels, weight, size))
            for features, rows in missing_patterns(X)
        ]

    def total_of(self, function, params, *arguments, n_threads=1):
        """Return a sum over samples that a function of blocks gives."""
        return function(params, self, *arguments, n_threads)


def _blocks_of_rows(X, features, rows, labels, weight, size):
    """Return some rows in blocks of about so many samples."""
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
    """The labelled samples of a fit."""

    classes: np.ndarray  # names of all
    class_count: np.ndarray  # (n_classes,), weight of the samples of each
    present: np.ndarray  # (n_classes,) bool: the classes that are trained
    samples: StandardisedSamples  # that initial values are found from; labels number the present classes
    constant: np.ndarray  # (n_features,) bool
    has_missing: bool
    log_volume: float  # mean logarithm of the ratio of the densities of standardised and original samples
    attributes: dict  # such as ``n_features_in_``

    is_in_memory = True

    @classmethod
    def of(cls, attributes, classes, labels, weight, X, *, units=None, present=None):
        """Return the data of samples in memory, as read."""
        # units, present: those of former samples; None takes those of these
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
        """Context with the samples in blocks."""
        samples = self.samples
        yield SampleBlocks(samples.X, samples.labels, samples.weight, int(self.present.sum()))


def numbered(labels, present):
    """Return labels as numbers of the classes that are present."""
    return (np.cumsum(present) - 1)[labels]
