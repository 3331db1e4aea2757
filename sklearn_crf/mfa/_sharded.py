"""Samples in shards: what they have in common, samples of theirs to start from, and sums over all of them."""

from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.distributed import KeptObjects, Shards
from sklearn_crf.encoding import sorted_classes
from sklearn_crf.mfa._samples import SampleBlocks, Units, units_of

# Samples of each class, from all shards together, that initial values are found from.
_SAMPLES_TO_START = 3000


class ShardMoments(NamedTuple):
    """Weight, mean and weighted squares about it of the observed values of each feature."""

    total: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, X, weight):
        """Those of samples, NaN where a value is missing."""
        observed = ~np.isnan(X)
        total = weight @ observed
        safe = np.where(total > 0, total, 1.0)
        mean = weight @ np.where(observed, X, 0.0) / safe
        centred = np.where(observed, X - mean, 0.0)
        shift = weight @ centred / safe
        return cls(total, mean + shift, weight @ np.square(centred) - total * np.square(shift))

    def joined(self, other):
        """Those of the samples of both."""
        total = self.total + other.total
        share = np.divide(other.total, total, out=np.zeros_like(total), where=total > 0)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + np.square(gap) * share * self.total
        return ShardMoments(total, self.mean + share * gap, squares)


class SurveyedShards(NamedTuple):
    """Results of one pass over all shards."""

    classes: np.ndarray  # names of all classes
    class_weight: np.ndarray  # (n_classes,), of the samples of each
    units: Units
    constant: np.ndarray  # (n_features,) bool
    has_missing: bool
    samples: tuple  # X, labels and weight of some samples of each class
    input_attributes: dict  # such as ``n_features_in_``
    log_volume: float  # mean logarithm of the ratio of the densities of standardised and original samples

    @property
    def present(self):
        """Which classes have samples."""
        return self.class_weight > 0


def survey(estimator, shards: Shards) -> SurveyedShards:
    """Classes, units and some samples of all shards."""
    plain = clone(estimator)
    per_class = max(-(-_SAMPLES_TO_START // len(shards)), estimator.n_components)
    found = shards.map(_survey, (plain, per_class))
    _require_alike(found)
    names = sorted_classes([part["classes"] for part in found])
    classes = names if estimator.classes is None else found[0]["all_classes"]
    weight = np.zeros(len(classes))
    for part in found:
        weight[np.searchsorted(classes, part["classes"])] += part["class_weight"]
    joined = reduce(ShardMoments.joined, [part["moments"] for part in found])
    units, constant = units_of(joined.mean, joined.squares / np.where(joined.total > 0, joined.total, 1.0))
    X, y, w = (np.concatenate([part["samples"][k] for part in found]) for k in range(3))
    labels = np.searchsorted(classes, y)
    # Classes keep the weight of all of their samples.
    drawn = np.bincount(labels, weights=w, minlength=len(classes))
    w = w * np.divide(weight, drawn, out=np.zeros_like(weight), where=drawn > 0)[labels]
    log_volume = float(joined.total @ np.log(units.scale) / weight.sum())
    missing = any(part["has_missing"] for part in found)
    return SurveyedShards(classes, weight, units, constant, missing, (X, labels, w), found[0]["attributes"], log_volume)


def _require_alike(found):
    first = found[0]
    for part in found[1:]:
        before, now = (each["attributes"]["n_features_in_"] for each in (first, part))
        if before != now:
            raise ValueError(
                f"All shards need the same number of features: {first['name']} has {before}, {part['name']} has {now}."
            )


def _survey(shard, request):
    estimator, per_class = request
    shard.cache.clear()
    with shard.named_in_errors(), single_threaded_blas():
        # What is checked here need not be loaded again, unless memory is short or the shard moves.
        shard.cache["samples"] = classes, labels, weight, X = estimator._checked_samples(*shard.load())
        rng, rows = np.random.default_rng(shard.number), []
        for c in range(len(classes)):
            own = np.flatnonzero(labels == c)
            rows.append(np.sort(rng.choice(own, per_class, replace=False)) if len(own) > per_class else own)
        chosen = np.concatenate(rows)
        own_weight = np.bincount(labels, weights=weight, minlength=len(classes))
    occurs = own_weight > 0
    names = ("n_features_in_", "feature_names_in_")
    return {
        "name": shard.name,
        "classes": classes[occurs],
        "all_classes": classes,
        "class_weight": own_weight[occurs],
        "moments": ShardMoments.of(X, weight),
        "has_missing": bool(np.isnan(X).any()),
        "samples": (X[chosen], classes[labels[chosen]], weight[chosen]),
        "attributes": {name: getattr(estimator, name) for name in names if hasattr(estimator, name)},
    }


class ShardedBlocks:
    """The :class:`SampleBlocks` of every shard, which stay where the shard is."""

    # classes: names of the classes that have samples; width: as of SampleBlocks

    def __init__(self, estimator, shards, classes, units, width):
        self._kept = KeptObjects(shards, partial(_blocks, clone(estimator), classes, units, width))
        self.n_features = len(units.mean)
        self.class_weight = self._kept.total(_class_weight, changes=False)
        self.total_weight = float(self.class_weight.sum())

    def total_of(self, function, params, *arguments, run=map):
        """A sum over samples that a function of blocks gives."""
        return self._kept.total(_total, function, params, arguments, changes=False)

    def finish(self):
        """Release the memory of the shards."""
        self._kept.drop()


def _blocks(estimator, classes, units, width, shard):
    """Samples of a shard in standardised units, in blocks."""
    names, labels, weight, X = shard.cache.pop("samples", None) or estimator._checked_samples(*shard.load())
    labels = np.searchsorted(classes, names[labels])
    return SampleBlocks(units.standardise(X), labels, weight, len(classes), width)


def _class_weight(blocks):
    return blocks.class_weight


def _total(blocks, function, params, arguments):
    return function(params, blocks, *arguments, map)
