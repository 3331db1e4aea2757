"""Examples in shards: training of a field on them, and its predictions for them."""

from functools import partial
from typing import NamedTuple

import numpy as np

from sklearn_crf.distributed import Shards, refuse_labels, require_one_vector_level
from sklearn_crf.encoding import (
    EncodedLabels,
    Outline,
    class_weights,
    encode_y,
    found_labels,
    sorted_classes,
    validate_sample_weight,
)
from sklearn_crf.estimators._training_examples import (
    TrainingExamples,
    count_of_classes,
    require_allowed,
    risk_of,
    scaling_for_training,
    summary_of,
    training_potentials,
)
from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.learning import GraphSummary
from sklearn_crf.objectives import ShardedRisk
from sklearn_crf.potentials import FeatureBulk, FeatureMoments, FeatureScaling


def gather(field, shards: Shards, y, sample_weight, node_weight):
    """The training examples of a fit, encoded where their shards are."""
    field._check_shards()
    refuse_labels(y, sample_weight, node_weight)
    return ShardedExamples(field, shards)


class ShardedExamples:
    """Examples that are encoded where their shards are; this object holds their common properties."""

    node_weight: list | None = None
    are_sharded = True

    def __init__(self, field, shards: Shards):
        self.shards = shards
        # Callbacks stay in this process: the copy has none.
        self._field = type(field)(**field.get_params(deep=False))
        found = shards.map(_survey, self._field)
        names = [part.name for part in found]
        require_one_vector_level(found)
        classes = sorted_classes([labels for part in found for labels in part.labels], field.classes)
        self.encoded = field._with_edge_features(Outline.joined([part.outline for part in found], names), classes)
        self.labels = EncodedLabels([], classes)
        self.class_weight = None
        if field.class_weight is not None:
            one_of_each = EncodedLabels([np.arange(len(classes))], classes)
            if field.class_weight == "balanced":
                counts = np.sum(shards.map(_count_of_classes, (self._field, classes)), axis=0)
                one_of_each = one_of_each._replace(weights=[counts])
            self.class_weight = class_weights(field.class_weight, one_of_each)
            self._field.class_weight = dict(zip(classes.tolist(), self.class_weight.tolist(), strict=True))
        self.first_examples = np.cumsum([0] + [part.outline.n_examples for part in found])
        if self.encoded.has_factors or self.encoded.has_sparse_edges:
            what = "factors besides nodes and edges" if self.encoded.has_factors else "sparse edge features"
            raise ValueError(f"Examples with {what} have to be in memory, not in Shards: pass X and y.")

    def potentials(self, field, layout):
        """Potentials for training; the shards make their batches."""
        if layout.seen_only:
            raise ValueError("weights='seen' needs all features in memory, not Shards: use weights='all'.")
        potentials = training_potentials(layout, self.encoded, self.labels.classes_, [])
        self._plan = _BatchPlan(self._field, self.encoded, self.labels.classes_, potentials, FeatureScaling())
        graphs, moments = zip(*self.shards.map(_summarise, self._plan), strict=True)
        self.graphs = GraphSummary.joined(graphs)
        whole = None if moments[0] is None else tuple(map(FeatureMoments.joined, zip(*moments, strict=True)))
        self.scaling = scaling_for_training(field, whole, potentials, self._bulk)
        if not self.scaling.is_identity:
            self.shards.map(_drop_all, None)
            self._plan = self._plan._replace(scaling=self.scaling)
        return potentials

    def _bulk(self, scaling):
        """Bulk of the features of nodes and of edges that have other units."""
        parts = self.shards.map(_measure_bulk, (self._plan, scaling))
        return tuple(map(FeatureBulk.joined, zip(*parts, strict=True)))

    def risk(self, field, objective, potentials, seed):
        """The empirical risk, which the shards work out."""
        make_risk = partial(_shard_risk, self._plan, self.graphs, objective, seed)
        return ShardedRisk(self.shards, make_risk, objective, potentials, seed)

    def of_each(self, function):
        """Results of a function of the encoded examples and the batches of each shard, once there are potentials."""
        return self.shards.map(_of_shard, (self._plan, function))

    def finish(self):
        """Release memory of the shards that only training needs."""
        self.shards.map(_drop_all, None)


class _Survey(NamedTuple):
    """Result of one pass over a shard."""

    name: str
    outline: Outline
    labels: list
    vector_level: str


class _BatchPlan(NamedTuple):
    """Information that a shard needs to put its examples into batches."""

    field: object
    outline: Outline
    classes: np.ndarray
    potentials: object
    scaling: FeatureScaling


def _survey(shard, field):
    X, y, _ = shard.load()
    with shard.named_in_errors():
        encoded = field._encode(X, reset=True)
        labels = found_labels(y, encoded, missing_label=field.missing_label) if field.classes is None else []
    distinct = [np.unique(np.concatenate(kind)) for kind in _by_kind(labels)]
    return _Survey(shard.name, Outline.of(encoded), distinct, VECTOR_LEVEL)


def _count_of_classes(shard, request):
    """Weight of the nodes of each class in a shard, (K,)."""
    field, classes = request
    X, y, weight = shard.load()
    with shard.named_in_errors():
        encoded = field._encode(X, reset=True)
        labels = encode_y(y, encoded, missing_label=field.missing_label, classes=classes)
        return count_of_classes(labels, validate_sample_weight(weight, encoded.n_examples))


def _by_kind(labels):
    """Arrays of strings and arrays of numbers, apart: together they would become strings."""
    strings = [found for found in labels if len(found) and found.dtype.kind in "US"]
    others = [found for found in labels if len(found) and found.dtype.kind not in "US"]
    return [found for found in (strings, others) if found]


def _shard_batches(shard, plan):
    if "batches" not in shard.cache:
        field, layout = plan.field, plan.field._weight_layout(plan.classes, plan.outline.lattice_ndim)
        X, y, weight = shard.load()
        with shard.named_in_errors():
            examples = TrainingExamples(field, X, y, weight, None, plan.classes)
            examples.prepare(field, layout, plan.outline)
            require_allowed(layout, examples.batches, plan.classes)
        shard.cache["batches"] = plan.scaling.scaled(examples.batches)
        if field._keeps_encoded:
            shard.cache["encoded"] = examples.encoded
    return shard.cache["batches"]


def _of_shard(shard, request):
    plan, function = request
    batches = _shard_batches(shard, plan)
    with shard.named_in_errors():
        return function(shard.cache["encoded"], batches)


def _summarise(shard, plan):
    # Batches of a fit before this one, with other parameters, may still be there.
    _drop_all(shard, None)
    batches = _shard_batches(shard, plan)
    return summary_of(plan.field, batches, plan.potentials), FeatureScaling.moments(batches, plan.potentials)


def _measure_bulk(shard, request):
    plan, scaling = request
    return scaling.bulk(_shard_batches(shard, plan), plan.potentials)


def _shard_risk(plan, graphs, objective, seed, shard):
    batches = _shard_batches(shard, plan)
    plan.field._check_batches(batches, graphs)
    if objective.of_examples:
        objective = objective.objective(shard.cache["encoded"], batches, plan.potentials, shard.number)
    # Batch numbers start at 0 in every shard, so each shard needs its own seed.
    own_seed = int(np.random.SeedSequence([seed, shard.number]).generate_state(1)[0])
    # The workers of a cluster have a thread for each of their tasks.
    n_jobs = plan.field.n_jobs if shard.is_local else 1
    return risk_of(objective, plan.potentials, batches, n_jobs, own_seed)


def _drop_all(shard, _):
    shard.cache.clear()
    shard.memory.clear()
