"""Samples in shards: moments of all samples, a subset of samples for initial values, and sums over all samples."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.distributed import KeptObjects, Shard, Shards, take_shards
from sklearn_crf.encoding import has_nodes, require_weight, sort_classes
from sklearn_crf.mfa._input import SampleReading, compute_class_weights
from sklearn_crf.mfa._samples import SampleBlocks, StandardisedSamples, TrainingData, compute_units, numbered
from sklearn_crf.mfa._tuning import START_SAMPLES


class ShardMoments(NamedTuple):
    """For each feature, the total weight, mean, and weighted sum of squared deviations of its observed values."""

    total: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, X, weight):
        """Compute the moments of samples, in which NaN marks missing values."""
        observed = ~np.isnan(X)
        total = weight @ observed
        safe = np.where(total > 0, total, 1.0)
        mean = weight @ np.where(observed, X, 0.0) / safe
        centred = np.where(observed, X - mean, 0.0)
        shift = weight @ centred / safe
        return cls(total, mean + shift, weight @ np.square(centred) - total * np.square(shift))

    def joined(self, other):
        """Return the joint moments of these samples and the samples of ``other``."""
        total = self.total + other.total
        share = np.divide(other.total, total, out=np.zeros_like(total), where=total > 0)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + np.square(gap) * share * self.total
        return ShardMoments(total, self.mean + share * gap, squares)


@dataclass(frozen=True, eq=False)
class ShardedData(TrainingData):
    """Labelled training samples in shards, with a sample of each class in memory for finding initial values."""

    shards: Any = None
    reading: Any = None

    is_in_memory = False

    @contextmanager
    def blocks(self):
        """Yield the samples in blocks, which stay in the processes that hold the shards."""
        make = partial(_load_blocks, self.reading, self.classes[self.present], self.samples.units)
        kept = KeptObjects(self.shards, make)
        try:
            yield ShardedBlocks(kept, len(self.constant))
        finally:
            kept.drop()


def survey(shards: Shards, reading: SampleReading) -> ShardedData:
    """Collect the classes, the means and scales of features, and a few samples of each class from all shards."""
    if reading.class_weight is not None:
        reading = _set_class_weights(shards, reading)
    per_class = max(-(-START_SAMPLES // len(shards)), reading.n_components)
    found = shards.map(_survey, (reading, per_class))
    # Leave out shards without samples of positive weight.
    filled = [number for number, part in enumerate(found) if part is not None]
    require_weight(filled)
    shards, found = take_shards(shards, filled), [found[number] for number in filled]
    first = found[0]
    for part in found[1:]:
        before, now = (each["attributes"]["n_features_in_"] for each in (first, part))
        if before != now:
            raise ValueError(
                f"All shards need the same number of features: {first['name']} has {before}, {part['name']} has {now}."
            )
    names = sort_classes([part["classes"] for part in found])
    classes = names if reading.classes is None else found[0]["all_classes"]
    count = np.zeros(len(classes))
    for part in found:
        count[np.searchsorted(classes, part["classes"])] += part["class_count"]
    joined = reduce(ShardMoments.joined, [part["moments"] for part in found])
    units, constant = compute_units(joined.mean, joined.squares / np.where(joined.total > 0, joined.total, 1.0))
    X, y, weight = (np.concatenate([part["samples"][k] for part in found]) for k in range(3))
    labels = np.searchsorted(classes, y)
    # Scale the weights of the drawn samples so that the total weight of each class stays the same.
    drawn = np.bincount(labels, weights=weight, minlength=len(classes))
    weight = weight * np.divide(count, drawn, out=np.zeros_like(count), where=drawn > 0)[labels]
    return ShardedData(
        classes=classes,
        class_count=count,
        present=count > 0,
        samples=StandardisedSamples(units.standardise(X), numbered(labels, count > 0), weight, units),
        constant=constant,
        has_missing=any(part["has_missing"] for part in found),
        log_volume=float(joined.total @ np.log(units.scale) / count.sum()),
        attributes=found[0]["attributes"],
        shards=shards,
        reading=reading,
    )


def _set_class_weights(shards, reading):
    """Return a copy of ``reading`` with class weights computed over all shards, because a shard may lack classes."""
    found = [part for part in shards.map(_count_classes, replace(reading, class_weight=None)) if part is not None]
    require_weight(found)
    names = sort_classes([classes for classes, _ in found])
    count = np.zeros(len(names))
    for classes, own in found:
        count[np.searchsorted(names, classes)] += own
    weights = compute_class_weights(reading.class_weight, names, count).tolist()
    # A class of weight zero remains in the list of classes, although its samples are ignored.
    classes = names if reading.classes is None else reading.classes
    return replace(reading, classes=classes, class_weight=dict(zip(names.tolist(), weights, strict=True)))


def _read(shard: Shard, reading: SampleReading) -> Any:
    """Return the samples of a shard, or None if no sample has a positive weight."""
    X, y, weight = shard.load()
    with shard.named_in_errors():
        return reading.read_shard(X, y, weight) if has_nodes(X) else None


def _count_classes(shard, reading):
    """Return the classes in a shard and the total weight of the samples of each class, or None without samples."""
    found = _read(shard, reading)
    if found is None:
        return None
    _, classes, labels, weight, _ = found
    count = np.bincount(labels, weights=weight, minlength=len(classes))
    return classes[count > 0], count[count > 0]


def _survey(shard, request):
    reading, per_class = request
    shard.cache.clear()
    with limit_blas_threads():
        # Cache the checked samples to avoid loading them twice, unless memory is short or the shard moves.
        shard.cache["samples"] = found = _read(shard, reading)
        if found is None:
            return None
        attributes, classes, labels, weight, X = found
        rng, rows = np.random.default_rng(shard.number), []
        for c in range(len(classes)):
            own = np.flatnonzero(labels == c)
            rows.append(np.sort(rng.choice(own, per_class, replace=False)) if len(own) > per_class else own)
        chosen = np.concatenate(rows)
        count = np.bincount(labels, weights=weight, minlength=len(classes))
    occurs = count > 0
    return {
        "name": shard.name,
        "classes": classes[occurs],
        "all_classes": classes,
        "class_count": count[occurs],
        "moments": ShardMoments.of(X, weight),
        "has_missing": bool(np.isnan(X).any()),
        "samples": (X[chosen], classes[labels[chosen]], weight[chosen]),
        "attributes": attributes,
    }


class ShardedBlocks:
    """The :class:`SampleBlocks` of all shards, each stored in the process that holds its shard."""

    def __init__(self, kept, n_features):
        self._kept = kept
        self.n_features = n_features
        self.class_weight = kept.total(attrgetter("class_weight"), changes=False)
        self.total_weight = float(self.class_weight.sum())

    def total_of(self, function, params, *arguments, n_threads=1):
        """Return the sum over all samples of the quantities that ``function`` computes from a block."""
        return self._kept.total(SampleBlocks.total_of, function, params, *arguments, changes=False)


def _load_blocks(reading, classes, units, shard):
    """Load the samples of a shard and return them in blocks, with standardised features."""
    _, names, labels, weight, X = shard.cache.pop("samples", None) or _read(shard, reading)
    labels = np.searchsorted(classes, names[labels])
    return SampleBlocks(units.standardise(X), labels, weight, len(classes))
