"""Training examples in memory: encoding, batches, potentials, and scaling of features for training."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sklearn_crf import encoding
from sklearn_crf._reports import warn_caller
from sklearn_crf.inference import TreeInference
from sklearn_crf.inference._results import Infeasible
from sklearn_crf.learning import Learning, check_node_weights
from sklearn_crf.models import FactorGraph, clamped, compute_score_terms, find_label_runs, mark_short_runs
from sklearn_crf.objectives import FastRisk
from sklearn_crf.potentials import (
    FactorPotentials,
    FeaturePairs,
    FeatureScaling,
    LinearPotentials,
    PairwiseTables,
    SegmentPotentials,
    SparseEdgePotentials,
    SparsePotentials,
    check_factors,
    collect_factor_types,
    convert_to_edge_columns,
    convert_to_feature_columns,
    states_of,
    warn_of_small_features,
)

# Maximum number of node statistics of a batch with sparse features (512 KB as float64).
_MOST_STATISTICS = 2**16

# Maximum number of entries of pairwise tables in a batch whose examples differ in weight (32 MB as float64).
# This number is estimated as if each node were an example.
_MOST_TABLES = 2**22

# Larger numbers of batches are multiples of this number, so that up to this many threads get equal shares.
_SHARING = 4


# Maximum weight of an example. With larger weights, sums of weighted losses could overflow.
_LARGEST_WEIGHT = 1e100


@dataclass(frozen=True, eq=False)
class Reader:
    """Reader, which encodes X and y according to the parameters of an estimator."""

    estimator: Any  # estimator whose tags and feature names are used to check X
    tables: PairwiseTables
    learning: Learning
    class_weight: Any  # the parameter ``class_weight`` of the estimator, or a dict from classes to weights
    has_boundaries: bool  # whether two features mark the first and last nodes of sequences
    of_fit: str | None = None  # edge features that "auto" selected in fit; None during fit
    filling: Any = None  # Filling of missing features, known from fit, or None

    def encode(self, X, *, reset, fills=False, sample_weight=None):
        """Encode X. The choice of edge features for "auto" follows later, when the classes are known."""
        # fills: whether missing features are filled with means of X if no filling is known from a fit
        # sample_weight: weights of the examples in these means
        encoded = self.read(X, reset=reset, allow_nan=fills or self.filling is not None)
        filling = self.filling
        if fills and self.needs_filling(encoded):
            weight = encoding.validate_sample_weight(sample_weight, encoded.n_examples)
            filling = self.make_filling([encoding.sum_known_features(encoded, weight)])
        return self.complete(encoded, filling)

    def needs_filling(self, encoded: Any) -> bool:
        """Return whether the means of encoded training examples have to be computed."""
        is_always_filled = self.learning.missing_features == "mean" and not encoded.has_operators
        return self.filling is None and (encoded.has_nan or is_always_filled)

    def make_filling(self, sums: list) -> encoding.Filling:
        """Return the filling for missing features, from sums of known features."""
        return encoding.Filling.of(sums, self.learning.missing_features)

    def read(self, X, *, reset, allow_nan):
        """Encode X without filling missing features."""
        field = self.estimator
        return encoding.encode_X(
            X,
            lattice_ndim=field.lattice_ndim,
            connectivity=field.connectivity,
            edge_features="constant" if self._is_automatic else field.edge_features,
            edge_types=self.tables.edge_types,
            estimator=field,
            reset=reset,
            # In training, factors are accepted here. A later error says which learning methods support factors.
            allow_factors=reset or self.learning.takes_factors,
            allow_nan=allow_nan and self.learning.missing_features != "error",
        )

    def complete(self, encoded, filling):
        """Fill missing features of encoded examples, and add features for sequence ends and for distances."""
        if filling is not None:
            encoded = filling.fill(encoded)
        encoded = encoding.append_boundaries(encoded) if self.has_boundaries else encoded
        return encoded if self._is_automatic else self._add_distances(encoded, self.estimator.edge_features)

    def _add_distances(self, encoded: Any, edge_features: Any) -> Any:
        """If spacing is given, let the edge features of encoded examples, or of their outline, depend on distances."""
        if self.tables.spacing is None:
            return encoded
        return encoded.replace_edge_features(encoding.SpacedEdges.of(edge_features, self.tables.spacing, encoded))

    @property
    def _is_automatic(self):
        edge_features = self.estimator.edge_features
        return isinstance(edge_features, str) and edge_features == "auto"

    def replace_edge_features(self, encoded, classes):
        """Replace the edge features "auto" of encoded examples, or of their outline, by actual edge features."""
        if not self._is_automatic:
            return encoded
        name = self.of_fit or self._choose_edge_features(encoded, len(classes))
        return self._add_distances(encoded.replace_edge_features(name), name)

    def _choose_edge_features(self, encoded, n_classes):
        """Return the name of the edge features that "auto" stands for, given encoded examples or their outline."""
        if encoded.is_sparse or encoded.has_operators or encoded.lattice_ndim == 1:
            # In a sequence, labels of neighbours are related even if their features differ.
            return "constant"
        is_lattice = (encoded.lattice_ndim or 0) > 1
        if self.tables.form != "full" and (is_lattice or self.tables.form != "directed"):
            return "difference"
        # Full tables of more than two classes would have too many weights for each edge difference.
        # If nodes have a single feature, edge differences would only repeat the noise of the nodes.
        suits = is_lattice and encoding.n_inputs(encoded) > 1 and n_classes == 2
        return "difference" if suits else "constant"


def _warn_of_rows_of_an_image(field, encoded, labels):
    """Warn if X is probably one image that lacks its leading axis: most sequences have no label, and some have gaps."""
    if field.missing_label is None or field.lattice_ndim is not None or encoded.layout != "array":
        return
    if encoded.lattice_ndim == 1 and encoded.n_examples > 1:
        known = np.mean(np.asarray(labels) >= 0, axis=1)
        n_empty = np.count_nonzero(known == 0)
        # Collections of sequences with few labels usually have several complete sequences.
        if 2 * n_empty > len(known) and (np.any((known > 0) & (known < 1)) or n_empty == len(known) - 1):
            warn_caller(
                f"X of shape {encoded.array.shape} was read as {len(known)} sequences; {n_empty} have no label. "
                "If X is one image, pass X[np.newaxis] and y[np.newaxis]; if not, pass lattice_ndim=1."
            )


class TrainingExamples:
    """Encoded examples in memory, with their labels and, after :meth:`pack`, their batches."""

    # X, y, sample_weight, node_weight: as in ``fit``
    # classes: all classes, or None
    # reset: whether these are the first examples of the field
    # class_weight: (K,), or None if the field has no class weights
    # node_weight: list of arrays (n_nodes,), one for each example, or None
    # scaling: FeatureScaling of the batches, which :meth:`pack` sets
    # are_sharded: whether the examples are in shards, not in this object

    are_sharded = False

    def __init__(self, reader, X, y, sample_weight, node_weight, classes, reset=True):
        encoded = reader.encode(X, reset=reset, fills=reset, sample_weight=sample_weight)
        labels = encoding.encode_y(y, encoded, missing_label=reader.estimator.missing_label, classes=classes)
        _warn_of_rows_of_an_image(reader.estimator, encoded, labels.labels)
        self.encoded = reader.replace_edge_features(encoded, labels.classes_)
        self._weight = encoding.validate_sample_weight(sample_weight, encoded.n_examples)
        if self._weight is not None and self._weight.max() > _LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight must be at most {_LARGEST_WEIGHT:g} in training, found {self._weight.max():g}: divide "
                "all weights by the same number, and multiply C by it."
            )
        self.node_weight = check_node_weights(node_weight, encoded, _LARGEST_WEIGHT)
        self.labels = labels._replace(
            weights=encoding.compute_node_counts(
                labels.labels, encoding.scale_sample_weight(self._weight), self.node_weight
            )
        )
        self.class_weight = (
            None if reader.class_weight is None else encoding.compute_class_weights(reader.class_weight, self.labels)
        )

    def batch(self, plan, whole=None, packing=None):
        """Put the examples into batches; examples in shards get the form that the outline of all shards determines."""
        # whole: outline of the examples of all shards, or None if the examples are not in shards
        # packing: maximum sizes of batches, as arguments of ``make_batches``; None for the sizes of the plan
        weight, node_weight = self._weight, self.node_weight
        if self.class_weight is not None and not plan.learning.class_costs:
            # The last entry is the weight of unlabelled nodes, whose label is -1.
            by_label = np.append(self.class_weight, 1.0)
            of_nodes = [by_label[own] for own in self.labels.by_example]
            if self.encoded.layout != "nodes" and plan.learning.weighs_nodes:
                if node_weight is not None:
                    of_nodes = [own * given for own, given in zip(of_nodes, node_weight, strict=True)]
                node_weight = of_nodes
            else:
                means = _average_labelled_weights(of_nodes, self.labels.labels)
                weight = means if weight is None else weight * means
            counts = encoding.compute_node_counts(self.labels.labels, weight, node_weight)
            pairs = zip(counts, self.labels.by_example, strict=True)
            if whole is None and not any(np.any(own[known >= 0]) for own, known in pairs):
                raise ValueError("class_weight times sample_weight and node_weight is 0 for every labelled node.")
        prepare = plan.layout.prepare_runs(preparation(self.encoded if whole is None else whole), self.encoded)
        packing = self._packing(plan) if packing is None else packing
        if weight is not None and np.ptp(weight):
            # Examples of different weights need separate tables, one for each edge feature.
            # With sparse edge features, each edge has a single separate table in any case.
            n_tables = 1 if self.encoded.has_sparse_edges else max(self.encoded.n_edge_features, 1)
            most = max(1, _MOST_TABLES // (n_tables * max(len(self.labels.classes_), 1) ** 2))
            packing = packing | {"max_nodes": min(packing["max_nodes"], most)}
        batches = encoding.make_batches(
            self.encoded, self.labels.labels, weight, prepare=prepare, n_jobs=plan.n_jobs, **packing
        )
        if node_weight is not None:
            batches = [
                replace(batch, node_weight=np.concatenate([node_weight[i] for i in batch.members])) for batch in batches
            ]
        self.batches = batches

    def _packing(self, plan):
        """Return the maximum sizes of batches, which are smaller for sparse features and many classes."""
        packing = plan.learning.packing(plan, self.encoded)
        if not self.encoded.is_sparse:
            return packing
        most = min(packing["max_nodes"], max(1, _MOST_STATISTICS // max(len(self.labels.classes_), 1)))
        n_nodes = self.encoded.n_nodes
        n_batches = -(-n_nodes // most)
        if n_batches > _SHARING and most > 1:
            # All threads get the same number of batches, so that they do not wait for a thread with one more batch.
            most = -(-n_nodes // (_SHARING * round(n_batches / _SHARING)))
        return packing | {"max_nodes": most}

    def pack(self, plan):
        """Put the examples into batches with scaled features; return the plan, completed with their properties."""
        self.batch(plan)
        self.potentials = build_training_potentials(plan.layout, self.encoded, self.labels.classes_, self.batches)
        plan = plan.on(plan.collect_facts(self.batches, self.potentials), self.encoded, self.potentials)
        plan.learning.check_batches(self.batches, plan)
        require_terms(plan, plan.learning.finds_terms(self.batches))
        moments = FeatureScaling.moments(self.batches, self.potentials, plan.n_jobs)
        self.scaling = fit_scaling(
            plan, self.encoded, moments, self.potentials, lambda scaling: scaling.bulk(self.batches, self.potentials)
        )
        self.batches = self.scaling.scaled(self.batches)
        return plan

    def risk(self, plan, objective):
        """Return the empirical risk of the batches."""
        potentials, batches = plan.learning.charged(plan.learning.cost, self.potentials, self.batches)
        return FastRisk(objective, potentials, batches, n_jobs=plan.n_jobs, seed=plan.seed)

    def finish(self):
        """Do nothing, because only examples in shards occupy memory that has to be released."""


def fit_scaling(plan, encoded, moments, potentials, bulk_of):
    """Choose the scaling of features for training, and adapt the penalty of the potentials to this scaling."""
    # encoded: Encoded or Outline
    # bulk_of: function that takes a FeatureScaling and returns robust centres and spreads of the scaled features
    if moments is not None:
        warn_of_small_features(moments[0], plan.C)
    scaling = FeatureScaling.for_training(
        moments,
        plan.C,
        plan.layout.fit_intercept,
        plan.learning.penalises_intercept,
        bulk_of,
        compute_least_difference_scale(encoded, plan.layout.form),
    )
    scaling.rescale_penalty(potentials)
    return scaling


def compute_least_difference_scale(encoded, form):
    """Return the minimum size of an edge difference in the penalty, or None if edge features are no differences."""
    # The minimum size is 0 for tables with a single weight, which only depend on whether labels are equal.
    return float(form.n_weights > 1) if encoded.has_differences else None


def require_terms(plan: Any, found: bool) -> None:
    """Raise ValueError if the loss has no terms, such as pseudolikelihood without a labelled neighbourhood."""
    if not found:
        raise ValueError(
            f"y has no labelled node whose neighbours are all labelled, but learning={plan.learning.name!r} needs such "
            "nodes: use 'relaxation', which sums over missing labels."
        )


def require_node_losses(plan, examples, objective):
    """Raise ValueError if ``node_weight`` was passed but the loss is not a sum over nodes."""
    if examples.node_weight is not None and not objective.weighs_nodes:
        raise ValueError(
            f"node_weight weighs nodes, but the loss of learning={plan.learning.name!r} is not a sum over nodes and "
            "has no cost per node: use sample_weight or class_weight, or learning='pl', 'max_margin' or "
            "Relaxation(cost='hamming')."
        )


def sum_class_weights(labels, weight):
    """Return the total weight of the labelled nodes of each class, (K,)."""
    # labels: EncodedLabels; weight: (n_examples,) or None
    parts = labels.by_example
    counts = encoding.compute_node_counts(labels.labels, weight, None) or [np.ones(len(own)) for own in parts]
    columns, counts = np.concatenate(parts), np.concatenate(counts)
    return np.bincount(columns[columns >= 0], counts[columns >= 0], minlength=len(labels.classes_))


def _average_labelled_weights(of_nodes, labels):
    """Return, for each example, the mean weight of its labelled nodes, or 1 if none is labelled, (n_examples,)."""
    if isinstance(labels, np.ndarray):
        return of_nodes[0]
    labelled = [own >= 0 for own in labels]
    return np.array([w[known].mean() if known.any() else 1.0 for w, known in zip(of_nodes, labelled, strict=True)])


# Maximum number of node weights for which weights="auto" gives a weight to every pair of a feature and a class. Above
# it, only pairs that occur together in training have weights.
_MANY_WEIGHTS = 100_000


def have_many_weights(encoded, n_classes, batches):
    """Return whether ``weights="auto"`` restricts weights to pairs of a feature and a label that occur together."""
    n_weights = encoded.n_features * encoded.n_node_types * n_classes
    # Plain rows have all weights, as in logistic regression.
    # Examples in shards (no batches here) have all weights, because a shard does not know the labels in other shards.
    may = bool(batches) and encoded.layout != "nodes" and n_classes > 2 and n_weights > _MANY_WEIGHTS
    return may and all(np.all(batch.labels >= 0) for batch in batches)


def preparation(encoded):
    """Return a function that converts an example to the form in which many passes over it are fastest."""
    if encoded.has_sparse_edges:
        return partial(
            convert_to_edge_columns, n_node_types=encoded.n_node_types, n_edge_types=max(encoded.n_edge_types, 1)
        )
    if encoded.is_sparse:
        return partial(convert_to_feature_columns, n_node_types=encoded.n_node_types)
    return encoding.tie_constant_edges


def build_training_potentials(layout, encoded, classes, batches, types=None):
    """Build the training potentials, for prepared batches or, if the types of factors are given, for shards."""
    pairwise = _build_pairwise_potentials(layout, encoded, classes, batches)
    _require_completions(pairwise, layout, batches)
    if layout.segments is not None:
        if encoded.has_factors:
            raise ValueError(
                "segments do not support examples with factors besides nodes and edges: use segments=None."
            )
        return SegmentPotentials(pairwise, layout.segments, layout.segments.feature_kinds.count(encoded))
    if not encoded.has_factors:
        return pairwise
    return FactorPotentials(pairwise, collect_allowed_types(encoded, classes, batches) if types is None else types)


def collect_allowed_types(encoded, classes, batches):
    """Collect the types of factors in training examples; raise ValueError if a fixed factor forbids the labels."""
    types = collect_factor_types(encoded.items, batches, len(classes))
    check_factors(encoded.items, types, len(classes))
    for batch in batches:
        _require_allowed_labels(batch, len(classes))
    return types


def _require_allowed_labels(batch: encoding.Batch, n_classes: int) -> None:
    """Raise ValueError if a fixed factor forbids the labels of its nodes."""
    labels, example = batch.counted_labels, batch.example
    known = [(nodes, table) for nodes, table in example.fixed_factors if (labels[np.asarray(nodes)] >= 0).all()]
    fixed = FactorGraph.from_factors(states_of(example, n_classes), known)
    terms = compute_score_terms(fixed, np.maximum(labels, 0))
    forbidden = np.flatnonzero(np.isneginf(terms))
    if len(forbidden):
        i = batch.members[np.searchsorted(batch.node_ptr, forbidden[0], side="right") - 1]
        raise ValueError(
            f"X[{i}].fixed_factors forbid the labels y[{i}]: correct the labels, or train without these factors and "
            "use them only for prediction."
        )


def _build_pairwise_potentials(layout, encoded, classes, batches):
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
        edge_pairs = _list_edge_pairs(layout, batches, options["n_edge_features"] * options["n_edge_types"])
        return SparseEdgePotentials(pairs, edge_pairs, encoded.n_features, n_classes, form, **options)
    if layout.seen_tables:
        form = form.restricted(_mask_seen_pairs(batches, n_classes))
    return SparsePotentials(pairs, encoded.n_features, n_classes, form, **options)


def _list_edge_pairs(layout, batches, n_features):
    """Return the pairs of a sparse edge feature and an index of a table weight for which the field has a weight."""
    if not layout.seen_only_on_edges:
        return FeaturePairs.all(n_features, layout.form.n_weights)
    seen = ((batch.example.edge_features, _index_table_weights(batch, layout.form)) for batch in batches)
    return FeaturePairs.seen(n_features, layout.form.n_weights, seen)


def _mask_seen_pairs(batches, n_classes):
    """Return a mask of the pairs of labels that occur on an edge, (K, K) bool."""
    seen = np.zeros((n_classes, n_classes), dtype=bool)
    for batch in batches:
        tail, head, _ = batch.find_labelled_edges()
        seen[tail, head] = True
    return seen


def _index_table_weights(batch, form):
    """Return, for each edge, the index of the table weight that the edge's labels select, or -1 if there is none."""
    tail, head = batch.counted_labels[batch.example.graph.edges.T]
    known = (tail >= 0) & (head >= 0) & (form.sign[tail, head] != 0)
    return np.where(known, form.index[tail, head], -1)


def require_allowed(layout, batches, classes):
    """Raise ValueError if the labels of an edge, or the label at an end of a chain, are forbidden."""
    for batch in batches if layout.forbidden is not None else ():
        tail, head, first_node = batch.find_labelled_edges()
        wrong = np.flatnonzero(layout.forbidden[tail, head])
        if len(wrong):
            pair = [classes[ends[wrong[0]]] for ends in (tail, head)]
            raise _make_forbidden_error(
                layout, batch, first_node[wrong[0]], f"contains {pair[0]} followed by {pair[1]}"
            )
    for batch in batches if layout.forbidden_ends is not None else ():
        labels = batch.counted_labels
        for k, (nodes, verb) in enumerate(zip(batch.example.graph.ends, ("begins", "ends"), strict=True)):
            wrong = nodes[(labels[nodes] >= 0) & layout.forbidden_ends[k, labels[nodes]]]
            if len(wrong):
                option = ("forbidden_first", "forbidden_last")[k] if layout.forbidden_by == "forbidden" else None
                raise _make_forbidden_error(layout, batch, wrong[0], f"{verb} with {classes[labels[wrong[0]]]}", option)
    for batch in batches if layout.segments is not None and layout.segments.min_duration > 1 else ():
        _require_durations(layout, batch, classes)


def _require_completions(potentials: Any, layout: Any, batches: list) -> None:
    """Raise ValueError if the unlabelled nodes of a chain or tree have no allowed labels."""
    for batch in batches if potentials.forbids else ():
        if batch.example.graph.is_forest and (batch.counted_labels < 0).any():
            model = potentials.build_inference_model(np.zeros(potentials.n_coef), batch.example)
            try:
                TreeInference().map(clamped(model, batch.counted_labels))
            except Infeasible as error:
                what = "has no allowed labels for its unlabelled nodes"
                raise _make_forbidden_error(layout, batch, error.nodes[0], what) from None


def _require_durations(layout: Any, batch: Any, classes: np.ndarray) -> None:
    """Raise ValueError if a run of equal labels between two other labels is too short."""
    labels, ptr, least = batch.counted_labels, batch.example.graph.chain_ptr, layout.segments.min_duration
    if ptr is None:
        return  # building the model raises an error, because segments need chains
    runs = find_label_runs(labels, ptr)
    # A run next to an unlabelled node may include that node, so do not check it.
    is_known = np.append(labels >= 0, False)
    is_known = (runs.label >= 0) & is_known[runs.first - 1] & is_known[runs.first + runs.length]
    wrong = np.flatnonzero(is_known & mark_short_runs(runs, ptr, least))
    if len(wrong):
        run = wrong[0]
        what = f"contains a run of {runs.length[run]} nodes of {classes[runs.label[run]]}"
        raise _make_forbidden_error(layout, batch, runs.first[run], what, f"min_duration={least}")


def _make_forbidden_error(layout, batch, node, what, option=None):
    """Return the error about forbidden labels in the sequence that contains the given node."""
    member = np.searchsorted(batch.node_ptr, node, side="right") - 1
    return ValueError(f"Sequence {batch.members[member]} {what}, which {option or layout.forbidden_by} rules out.")
