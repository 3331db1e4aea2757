"""Training of a field on examples in shards, which each process encodes for the shards that it holds."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_consistent_length

from sklearn_crf import encoding
from sklearn_crf.distributed import ClusterGoneError, Shards, require_one_vector_level, take_shards
from sklearn_crf.estimators._training_examples import (
    TrainingExamples,
    build_training_potentials,
    collect_allowed_types,
    fit_scaling,
    require_allowed,
    require_terms,
    sum_class_weights,
)
from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.learning import Facts, FitPlan
from sklearn_crf.objectives import FastRisk, ShardedRisk
from sklearn_crf.potentials import FeatureBulk, FeatureMoments, FeatureScaling, join_factor_types


class ShardedExamples:
    """Training examples in shards.

    Each shard encodes its examples; this object has the properties of all examples.
    """

    node_weight: list | None = None
    are_sharded = True

    def __init__(self, reader, shards: Shards):
        field = reader.estimator
        # Callbacks only run in this process, so shards get a copy of the estimator without callbacks.
        self._reader = reader = replace(reader, estimator=type(field)(**field.get_params(deep=False)))
        found = shards.map(_survey, reader)
        # Leave out shards without nodes. Their examples still have entries in lists with one entry for each example.
        # Shards whose weights are all 0 only contribute their classes and the layout of their examples.
        ends = np.cumsum([0] + [part.n_examples for part in found])
        filled = [number for number, part in enumerate(found) if part.has_nodes]
        if not filled:
            raise ValueError("Shards have no nodes, because all of their examples are empty: pass at least one node.")
        weighted = [number for number in filled if found[number].has_weight]
        encoding.require_weight(weighted)
        self.first_examples = ends[weighted]
        self.shards, shards = take_shards(shards, weighted), take_shards(shards, filled)
        found = [found[number] for number in filled]
        if any(part.outline is None for part in found):
            sums = self.shards.map(_sum_known_features, reader)
            self._reader = reader = replace(reader, filling=reader.make_filling(sums))
            found = shards.map(_survey, reader)
        names = [part.name for part in found]
        require_one_vector_level(found)
        classes = encoding.sort_classes([labels for part in found for labels in part.labels], field.classes)
        outline = encoding.Outline.joined([part.outline for part in found], names)
        self.encoded = reader.replace_edge_features(replace(outline, n_examples=int(ends[-1])), classes)
        self.labels = encoding.EncodedLabels([], classes)
        self.class_weight = None
        if reader.class_weight is not None:
            one_of_each = encoding.EncodedLabels([np.arange(len(classes))], classes)
            if reader.class_weight == "balanced":
                counts = np.sum(shards.map(_sum_class_weights, (reader, classes)), axis=0)
                one_of_each = one_of_each._replace(weights=[counts])
            self.class_weight = encoding.compute_class_weights(reader.class_weight, one_of_each)
            weights = dict(zip(classes.tolist(), self.class_weight.tolist(), strict=True))
            self._reader = replace(reader, class_weight=weights)

    def pack(self, plan):
        """Make the batches of all shards; return the plan, completed with properties of the examples in all shards."""
        if plan.layout.seen_only:
            raise ValueError("weights='seen' needs all features in memory, not Shards: use weights='all'.")
        # A shard does not know the labels in other shards, so all pairs of an edge feature and a label have weights.
        plan = replace(plan, layout=plan.layout._replace(seen_only_on_edges=False))
        classes = self.labels.classes_
        parts = _BatchPlan(self._reader, plan, plan, self.encoded, classes, None, FeatureScaling())
        types = join_factor_types(self.shards.map(_collect_types, parts)) if self.encoded.has_factors else []
        self.potentials = build_training_potentials(plan.layout, self.encoded, classes, [], types)
        parts = parts._replace(potentials=self.potentials)
        facts, moments, find_terms = zip(*self.shards.map(_summarise, parts), strict=True)
        plan = plan.on(Facts.joined(facts), self.encoded, self.potentials)
        require_terms(plan, any(find_terms))
        whole = None if moments[0] is None else tuple(map(FeatureMoments.joined, zip(*moments, strict=True)))

        def bulk_of(scaling):
            found = self.shards.map(_measure_bulk, (parts, scaling))
            return tuple(map(FeatureBulk.joined, zip(*found, strict=True)))

        self.scaling = fit_scaling(plan, self.encoded, whole, self.potentials, bulk_of)
        if not self.scaling.is_identity:
            self.shards.map(_drop_all, None)
        self._parts = parts._replace(plan=plan, scaling=self.scaling)
        return plan

    def risk(self, plan, objective):
        """Return the empirical risk, whose terms are evaluated in the processes that hold the shards."""
        make_risk = partial(_build_shard_risk, self._parts, objective)
        return ShardedRisk(self.shards, make_risk, objective, self.potentials, plan.seed)

    def call_on_shards(self, function):
        """Call ``function(encoded, batches)`` for every shard, after :meth:`pack`, and return the results."""
        return self.shards.map(_call_on_shard, (self._parts, function))

    def finish(self):
        """Release memory in the processes of the shards that is only needed in training."""
        # If the cluster is gone, there is nothing to release.
        with suppress(ClusterGoneError):
            self.shards.map(_drop_all, None)


class _Survey(NamedTuple):
    """Properties of a shard that are determined before training."""

    name: str
    n_examples: int
    vector_level: str
    has_nodes: bool = True
    has_weight: bool = True
    outline: encoding.Outline | None = None  # None without nodes, or before missing features are filled
    labels: Any = ()


class _BatchPlan(NamedTuple):
    """Information that a shard needs to put its examples into batches."""

    reader: object
    draft: FitPlan  # preliminary plan, with which batches are made before the facts are known
    plan: FitPlan
    outline: encoding.Outline
    classes: np.ndarray
    potentials: object
    scaling: FeatureScaling


def _survey(shard, reader):
    field = reader.estimator
    X, y, weight = shard.load()
    with shard.named_in_errors():
        if not encoding.has_nodes(X):
            check_consistent_length(X, y)
            return _Survey(shard.name, X.shape[0] if hasattr(X, "shape") else len(X), VECTOR_LEVEL, has_nodes=False)
        encoded = reader.read(X, reset=True, allow_nan=True)
        weight = encoding.read_sample_weight(weight, encoded.n_examples)
        survey = _Survey(shard.name, encoded.n_examples, VECTOR_LEVEL, has_weight=weight is None or bool(weight.any()))
        if reader.needs_filling(encoded):
            return survey
        encoded = reader.complete(encoded, reader.filling)
        labels = []
        if field.classes is None:
            labels = encoding.collect_distinct_labels(y, encoded, missing_label=field.missing_label)
    distinct = [np.unique(np.concatenate(kind)) for kind in _split_by_kind(labels)]
    return survey._replace(outline=encoding.Outline.of(encoded), labels=distinct)


def _sum_known_features(shard, reader):
    """Return sums of features and sums of weights; all shards' sums give the means that fill missing features."""
    X, _, weight = shard.load()
    with shard.named_in_errors():
        encoded = reader.read(X, reset=True, allow_nan=True)
        return encoding.sum_known_features(encoded, encoding.validate_sample_weight(weight, encoded.n_examples))


def _sum_class_weights(shard, request):
    """Return the total weight of the nodes of each class in a shard, (K,)."""
    reader, classes = request
    X, y, weight = shard.load()
    with shard.named_in_errors():
        encoded = reader.encode(X, reset=True)
        labels = encoding.encode_y(y, encoded, missing_label=reader.estimator.missing_label, classes=classes)
        return sum_class_weights(labels, encoding.validate_sample_weight(weight, encoded.n_examples))


def _split_by_kind(labels):
    """Separate arrays of strings from other arrays, because a joined array would turn all labels into strings."""
    strings = [found for found in labels if len(found) and found.dtype.kind in "US"]
    others = [found for found in labels if len(found) and found.dtype.kind not in "US"]
    return [found for found in (strings, others) if found]


def _load_shard_batches(shard, plan):
    if "batches" not in shard.cache:
        X, y, weight = shard.load()
        with shard.named_in_errors():
            examples = TrainingExamples(plan.reader, X, y, weight, None, plan.classes)
            examples.batch(plan.draft, plan.outline)
            require_allowed(plan.draft.layout, examples.batches, plan.classes)
            if plan.outline.has_factors:
                shard.cache["types"] = collect_allowed_types(examples.encoded, plan.classes, examples.batches)
        shard.cache["batches"] = plan.scaling.scaled(examples.batches)
        if plan.draft.learning.of_examples:
            shard.cache["encoded"] = examples.encoded
    return shard.cache["batches"]


def _call_on_shard(shard, request):
    plan, function = request
    batches = _load_shard_batches(shard, plan)
    with shard.named_in_errors():
        return function(shard.cache["encoded"], batches)


def _collect_types(shard, plan):
    """Return the types of factors in a shard."""
    _drop_all(shard, None)
    _load_shard_batches(shard, plan)
    return shard.cache["types"]


def _summarise(shard, plan):
    # Remove batches of an earlier fit with other parameters.
    _drop_all(shard, None)
    batches = _load_shard_batches(shard, plan)
    facts, moments = (
        plan.draft.collect_facts(batches, plan.potentials),
        FeatureScaling.moments(batches, plan.potentials),
    )
    return facts, moments, plan.draft.learning.finds_terms(batches)


def _measure_bulk(shard, request):
    plan, scaling = request
    return scaling.bulk(_load_shard_batches(shard, plan), plan.potentials)


def _build_shard_risk(parts, objective, shard):
    batches, plan = _load_shard_batches(shard, parts), parts.plan
    plan.learning.check_batches(batches, plan)
    if objective.of_examples:
        objective = objective.objective(shard.cache["encoded"], batches, parts.potentials, shard.number)
    # Batch numbers start at 0 in every shard, so each shard needs a different seed.
    own_seed = int(np.random.SeedSequence([plan.seed, shard.number]).generate_state(1)[0])
    # Each worker of a cluster runs one thread per task.
    n_jobs = plan.n_jobs if shard.is_local else 1
    potentials, batches = plan.learning.charged(plan.learning.cost, parts.potentials, batches)
    return FastRisk(objective, potentials, batches, n_jobs=n_jobs, seed=own_seed)


def _drop_all(shard, _):
    shard.cache.clear()
    shard.memory.clear()
