"""Training examples of a field in memory: in batches, with potentials for them, and in units that suit training."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sklearn_crf import encoding
from sklearn_crf.learning import checked_node_weights, with_node_weights
from sklearn_crf.objectives import FastRisk
from sklearn_crf.potentials import (
    FactorPotentials,
    FeaturePairs,
    FeatureScaling,
    LinearPotentials,
    SparseEdgePotentials,
    SparsePotentials,
    check_factors,
    factor_types,
    warn_of_minute_features,
    with_edge_columns,
    with_feature_columns,
)

# Numbers in the statistics of the nodes of a batch with sparse features (512 KB).
_MOST_STATISTICS = 2**16

# Most numbers in the tables of a batch whose examples differ in weight, of as many as nodes (32 MB).
_MOST_TABLES = 2**22

# Threads that share batches evenly.
_SHARING = 4


# Sums of weighted losses stay finite.
_LARGEST_WEIGHT = 1e100


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads X and y as the parameters of an estimator say."""

    estimator: Any  # Whose tags and names of features validation asks for
    edge_features: Any  # The parameter
    has_full_tables: bool  # Whether each pair of labels has a weight for each feature of edges on any graph
    edge_types: str
    takes_factors: bool
    class_weight: Any  # The parameter, or the weights themselves by class
    has_boundaries: bool  # Whether nodes have features that say which are the first and last of sequences
    of_fit: str | None = None  # What "auto" stood for in a fit, in whatever form X is now

    def encode(self, X, *, reset):
        """Encode X, with the features of edges if they do not depend on the classes."""
        field = self.estimator
        encoded = encoding.encode_X(
            X,
            lattice_ndim=field.lattice_ndim,
            connectivity=field.connectivity,
            edge_features="constant" if self._is_automatic else self.edge_features,
            edge_types=self.edge_types,
            estimator=field,
            reset=reset,
            # In training the error says which ways of learning take factors.
            allow_factors=reset or self.takes_factors,
            allow_empty=not reset,
        )
        return encoding.with_boundaries(encoded) if self.has_boundaries else encoded

    @property
    def _is_automatic(self):
        return isinstance(self.edge_features, str) and self.edge_features == "auto"

    def with_edge_features(self, encoded, classes):
        """Return encoded examples, or their outline, with the features of edges that suit their classes."""
        if not self._is_automatic:
            return encoded
        return encoded.with_edge_features(self.of_fit or self._automatic_edge_features(encoded, len(classes)))

    def _automatic_edge_features(self, encoded, n_classes):
        """Name the features of edges that "auto" stands for on encoded examples, or their outline."""
        if encoded.is_sparse or encoded.has_operators or encoded.lattice_ndim == 1:
            # Neighbours in a sequence follow each other, be they alike or not.
            return "constant"
        if not self.has_full_tables:
            return "difference"
        # Tables of more classes would have too many weights, and one feature's differences repeat the nodes' noise.
        suits = (encoded.lattice_ndim or 0) > 1 and encoding.n_inputs(encoded) > 1 and n_classes == 2
        return "difference" if suits else "constant"


class TrainingExamples:
    """Encoded examples in memory, their labels and, once they are packed, their batches."""

    # X, y, sample_weight, node_weight: as in ``fit``
    # classes: all classes, or None
    # reset: whether the field has not seen any before
    # class_weight: (K,), or None where the field has none; on shards balanced weights come by their classes
    # node_weight: (n_nodes,) of each example, or None
    # scaling: units of the features in the batches, once there are potentials
    # are_sharded: whether the examples are in shards, and not here

    are_sharded = False

    def __init__(self, reader, X, y, sample_weight, node_weight, classes, reset=True):
        encoded = reader.encode(X, reset=reset)
        labels = encoding.encode_y(y, encoded, missing_label=reader.estimator.missing_label, classes=classes)
        self.encoded = reader.with_edge_features(encoded, labels.classes_)
        self._weight = encoding.validate_sample_weight(sample_weight, encoded.n_examples)
        if self._weight is not None and self._weight.max() > _LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight must be at most {_LARGEST_WEIGHT:g} in training, found {self._weight.max():g}: divide "
                "all weights by one number, and multiply C by it."
            )
        self.node_weight = checked_node_weights(node_weight, encoded, _LARGEST_WEIGHT)
        self.labels = labels._replace(
            weights=encoding.counts_of_nodes(labels.labels, encoding.summable_weight(self._weight), self.node_weight)
        )
        self.class_weight = (
            None if reader.class_weight is None else encoding.class_weights(reader.class_weight, self.labels)
        )

    def batch(self, plan, whole=None, packing=None):
        """Put examples into batches, in the form that suits the examples of all shards."""
        # whole: outline of all shards, if these are the examples of one
        # packing: maximum sizes of batches by their names in ``make_batches``; None leaves them to the plan
        weight, node_weight = self._weight, self.node_weight
        if self.class_weight is not None and not plan.learning.class_costs:
            of_nodes = _weights_of_labels(self.class_weight, self.labels.labels)
            if self.encoded.layout != "nodes" and plan.learning.weighs_nodes:
                if node_weight is not None:
                    of_nodes = [own * given for own, given in zip(of_nodes, node_weight, strict=True)]
                node_weight = of_nodes
            else:
                means = _means_of_labelled(of_nodes, self.labels.labels)
                weight = means if weight is None else weight * means
            if whole is None and not _counts_any(self.labels.labels, weight, node_weight):
                raise ValueError("class_weight times sample_weight and node_weight is 0 for every labelled node.")
        prepare = preparation(self.encoded if whole is None else whole)
        packing = self._packing(plan) if packing is None else packing
        if weight is not None and np.ptp(weight):
            # Each weight has tables of its own; sparse features of edges make one for each edge in any case.
            n_tables = 1 if self.encoded.has_sparse_edges else max(self.encoded.n_edge_features, 1)
            most = max(1, _MOST_TABLES // (n_tables * max(len(self.labels.classes_), 1) ** 2))
            packing = packing | {"max_nodes": min(packing["max_nodes"], most)}
        batches = encoding.make_batches(
            self.encoded, self.labels.labels, weight, prepare=prepare, n_jobs=plan.n_jobs, **packing
        )
        self.batches = batches if node_weight is None else with_node_weights(node_weight, batches)

    def _packing(self, plan):
        """Largest sizes of batches: those of the plan, fewer nodes where sparse features come with many classes."""
        packing = plan.learning.packing(plan, self.encoded)
        if not self.encoded.is_sparse:
            return packing
        most = min(packing["max_nodes"], max(1, _MOST_STATISTICS // max(len(self.labels.classes_), 1)))
        n_nodes = self.encoded.n_nodes
        n_batches = -(-n_nodes // most)
        if n_batches > _SHARING and most > 1:
            # As many for each thread: the others wait for one that has a batch more.
            most = -(-n_nodes // (_SHARING * round(n_batches / _SHARING)))
        return packing | {"max_nodes": most}

    def pack(self, plan):
        """Put the examples into batches in units that suit training; return the plan that knows their graphs."""
        self.batch(plan)
        self.potentials = training_potentials(plan.layout, self.encoded, self.labels.classes_, self.batches)
        plan = plan.on(plan.facts_of(self.batches, self.potentials), self.encoded, self.potentials)
        plan.learning.check_batches(self.batches, plan)
        moments = FeatureScaling.moments(self.batches, self.potentials, plan.n_jobs)
        self.scaling = scaling_for_training(
            plan, self.encoded, moments, self.potentials, lambda scaling: scaling.bulk(self.batches, self.potentials)
        )
        self.batches = self.scaling.scaled(self.batches)
        return plan

    def risk(self, plan, objective):
        """The empirical risk of the batches."""
        return FastRisk(objective, self.potentials, self.batches, n_jobs=plan.n_jobs, seed=plan.seed)

    def finish(self):
        """Release memory that only training needs."""


def scaling_for_training(plan, encoded, moments, potentials, bulk_of):
    """Units that suit the training examples; the penalty of the potentials is for these from now on."""
    # encoded: Encoded or Outline; bulk_of(scaling): the bulk of those features of nodes and edges that have other units
    if moments is not None:
        warn_of_minute_features(moments[0], plan.C)
    scaling = FeatureScaling.for_training(
        moments,
        plan.C,
        plan.layout.fit_intercept,
        plan.learning.penalises_intercept,
        bulk_of,
        least_size_of_differences(encoded, plan.layout.form),
    )
    scaling.rescale_penalty(potentials)
    return scaling


def least_size_of_differences(encoded, form):
    """Return the least size in which the penalty counts differences on edges, or None for other edge features."""
    # A table of one weight compares labels alone.
    return float(form.n_weights > 1) if encoded.has_differences else None


def require_node_losses(plan, examples, objective):
    """Raise ValueError where nodes have weights, but the loss is not a sum over nodes."""
    if examples.node_weight is not None and not objective.weighs_nodes:
        raise ValueError(
            f"node_weight weighs nodes, but the loss of learning={plan.learning.name!r} is not a sum over nodes and "
            "has no cost here: use sample_weight or class_weight, or learning='pl', 'max_margin' or "
            "Relaxation(cost='hamming')."
        )


def _by_example(labels):
    """Columns of the labels of each example, of plain rows together."""
    return [labels] if isinstance(labels, np.ndarray) else labels


def count_of_classes(labels, weight):
    """Weight of the labelled nodes of each class, (K,)."""
    # labels: EncodedLabels; weight: (n_examples,) or None
    parts = _by_example(labels.labels)
    counts = encoding.counts_of_nodes(labels.labels, weight, None) or [np.ones(len(own)) for own in parts]
    columns, counts = np.concatenate(parts), np.concatenate(counts)
    return np.bincount(columns[columns >= 0], counts[columns >= 0], minlength=len(labels.classes_))


def _weights_of_labels(class_weight, labels):
    """The weight of the class of each node, 1 without a label, in the form of the labels."""
    by_label = np.append(class_weight, 1.0)
    return [by_label[own] for own in _by_example(labels)]


def _means_of_labelled(of_nodes, labels):
    """Mean over the labelled nodes of each example, 1 for one without any: (n_examples,)."""
    if isinstance(labels, np.ndarray):
        return of_nodes[0]
    labelled = [own >= 0 for own in labels]
    return np.array([w[known].mean() if known.any() else 1.0 for w, known in zip(of_nodes, labelled, strict=True)])


def _counts_any(labels, weight, node_weight):
    """Whether some labelled node has a positive weight."""
    counts = encoding.counts_of_nodes(labels, weight, node_weight)
    return any(bool(np.any(own[known >= 0])) for own, known in zip(counts, _by_example(labels), strict=True))


# With more weights of nodes than this, those of what never occurs in training cost more time than they are worth.
_MANY_WEIGHTS = 100_000


def have_many_weights(encoded, n_classes, batches):
    """Whether automatic weights are those of features and labels that occur together."""
    n_weights = encoded.n_features * encoded.n_node_types * n_classes
    # Rows are those of logistic regression; shards, whose batches are elsewhere, do not know each other's labels.
    may = bool(batches) and encoded.layout != "nodes" and n_classes > 2 and n_weights > _MANY_WEIGHTS
    return may and all(np.all(batch.labels >= 0) for batch in batches)


def preparation(encoded):
    """Function that converts an example to the form that is fastest for many passes."""
    if encoded.has_sparse_edges:
        return partial(with_edge_columns, n_node_types=encoded.n_node_types, n_edge_types=max(encoded.n_edge_types, 1))
    if encoded.is_sparse:
        return partial(with_feature_columns, n_node_types=encoded.n_node_types)
    return encoding.tie_constant_edges


def training_potentials(layout, encoded, classes, batches):
    """Potentials for training on prepared batches."""
    pairwise = _pairwise_potentials(layout, encoded, classes, batches)
    if not encoded.has_factors:
        return pairwise
    types = factor_types(encoded.items, batches, len(classes))
    check_factors(encoded.items, types, len(classes))
    return FactorPotentials(pairwise, types)


def _pairwise_potentials(layout, encoded, classes, batches):
    n_classes, form = len(classes), layout.form
    require_allowed(layout, batches, classes)
    options = {
        "n_edge_features": max(encoded.n_edge_features, 1),
        "n_node_types": encoded.n_node_types,
        "n_edge_types": max(encoded.n_edge_types, 1),
        "fit_intercept": layout.fit_intercept,
        "forbidden": layout.forbidden,
        "forbidden_ends": layout.forbidden_ends,
    }
    if layout.seen_only and not encoded.is_sparse:
        raise ValueError("weights='seen' needs sparse X, got dense features: use weights='all'.")
    if not (encoded.is_sparse or encoded.has_sparse_edges):
        return LinearPotentials(encoded.n_features, n_classes, form, **options)
    n_features = encoded.n_features * encoded.n_node_types
    if have_many_weights(encoded, n_classes, batches) if layout.seen_only is None else layout.seen_only:
        seen = ((batch.example.node_features, batch.counted_labels) for batch in batches)
        pairs = FeaturePairs.seen(n_features, n_classes, seen)
    else:
        pairs = FeaturePairs.all(n_features, 1 if n_classes == 2 else n_classes)
    if encoded.has_sparse_edges:
        edge_pairs = _edge_pairs(layout, batches, options["n_edge_features"] * options["n_edge_types"])
        return SparseEdgePotentials(pairs, edge_pairs, encoded.n_features, n_classes, form, **options)
    if layout.seen_tables:
        form = form.restricted(_seen_on_edges(batches, n_classes))
    return SparsePotentials(pairs, encoded.n_features, n_classes, form, **options)


def _edge_pairs(layout, batches, n_features):
    """Pairs of a sparse feature of edges and a weight of their tables."""
    if not layout.seen_only_on_edges:
        return FeaturePairs.all(n_features, layout.form.n_weights)
    seen = ((batch.example.edge_features, _table_weights(batch, layout.form)) for batch in batches)
    return FeaturePairs.seen(n_features, layout.form.n_weights, seen)


def _seen_on_edges(batches, n_classes):
    """Pairs of labels that occur on an edge, (K, K) of bool."""
    seen = np.zeros((n_classes, n_classes), dtype=bool)
    for batch in batches:
        tail, head, _ = batch.labelled_edges()
        seen[tail, head] = True
    return seen


def _table_weights(batch, form):
    """Index of the table weight that the labels of each edge select, -1 for none."""
    tail, head = batch.counted_labels[batch.example.graph.edges.T]
    known = (tail >= 0) & (head >= 0) & (form.sign[tail, head] != 0)
    return np.where(known, form.index[tail, head], -1)


def require_allowed(layout, batches, classes):
    """Raise ValueError where labels are forbidden, as a pair on an edge or at an end."""
    for batch in batches if layout.forbidden is not None else ():
        tail, head, first_node = batch.labelled_edges()
        wrong = np.flatnonzero(layout.forbidden[tail, head])
        if len(wrong):
            pair = [classes[ends[wrong[0]]] for ends in (tail, head)]
            raise _breaks(layout, batch, first_node[wrong[0]], f"contains {pair[0]} followed by {pair[1]}")
    for batch in batches if layout.forbidden_ends is not None else ():
        labels = batch.counted_labels
        for k, (nodes, verb) in enumerate(zip(batch.example.graph.ends, ("begins", "ends"), strict=True)):
            wrong = nodes[(labels[nodes] >= 0) & layout.forbidden_ends[k, labels[nodes]]]
            if len(wrong):
                option = ("forbidden_first", "forbidden_last")[k] if layout.forbidden_by == "forbidden" else None
                raise _breaks(layout, batch, wrong[0], f"{verb} with {classes[labels[wrong[0]]]}", option)


def _breaks(layout, batch, node, what, option=None):
    """Return the error for the labels of the example of a node."""
    member = np.searchsorted(batch.node_ptr, node, side="right") - 1
    return ValueError(f"Sequence {batch.members[member]} {what}, which {option or layout.forbidden_by} rules out.")
