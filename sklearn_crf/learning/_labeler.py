"""Prediction of labels and marginals of the nodes of examples under given weights."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sklearn_crf._threads import limit_blas_threads, map_coarse
from sklearn_crf.encoding import complete_batch
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import (
    AlphaBetaSwap,
    AlphaExpansion,
    AutoMap,
    AutoMarginals,
    GraphCut,
    Inference,
    NamedInference,
    TreeInference,
)
from sklearn_crf.inference.automatic._cost import choose_recursion
from sklearn_crf.inference.cuts._lattice_rows import LatticeRows
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.learning._prediction_paths import PREDICTION_PATHS
from sklearn_crf.models import (
    FactorGraph,
    PairwiseModel,
    SegmentModel,
    clamped,
    compute_score_terms,
    expand_edge_tables,
    expand_tables,
    extract_components,
    factor_graph_of,
    split_into_tables,
    unite_factors,
)
from sklearn_crf.models._row_models import RowModels
from sklearn_crf.objectives import apply_temperature
from sklearn_crf.objectives.fast_paths import applying


@dataclass(frozen=True, eq=False)
class Labeler:
    """Predictor of node labels and marginals with a given inference, temperature, error costs and class weights."""

    decoding: NamedInference
    n_classes: int
    has_distribution: bool = True
    temperature: float = 1.0
    cost: np.ndarray | None = None  # (K, K), cost[a, b] of predicting class a if the true class is b
    edge_cost: np.ndarray | None = None  # (K, K, K, K), cost[a, b, c, d] of predicting a and b if c and d are true
    factor_cost: dict[str, float] = field(default_factory=dict)  # cost of a factor with any wrong label, by type
    class_weight: np.ndarray | None = None  # (K,), factors by which marginals are multiplied
    n_jobs: int | None = None
    fallback: Inference | None = None  # Inference for tasks that ``decoding`` does not support

    @property
    def by_marginals(self) -> bool:
        """Whether each node is labelled by its marginals, with the label that has the largest gain."""
        # Max-margin learning defines no probabilities, so marginals are only used if there is no MAP inference.
        has_marginals_alone = "map" not in self.decoding.inference.tasks
        return self.decoding.rule == "mpm" and (self.has_distribution or has_marginals_alone)

    def able(self, task: str) -> Inference:
        """Return the inference of prediction if it supports the task, else the fallback, else an automatic choice."""
        for inference in (self.decoding.inference, self.fallback):
            if inference is not None and task in inference.tasks:
                return inference
        return AutoMarginals(budget="fast")

    def scores(self, potentials: Any, weights: np.ndarray, batch: Any) -> Any:
        """Return the model of a batch with scores divided by the temperature, without clamping known labels."""
        return apply_temperature(potentials.build_inference_model(weights, batch.example), self.temperature)

    def model(self, potentials: Any, weights: np.ndarray, batch: Any) -> Any:
        """Return the model of a batch clamped to its known labels."""
        return given(self.scores(potentials, weights, batch), batch.labels)

    def joined_by(self, *, labels: bool = True) -> Inference | None:
        """Return the inference that may process several graphs jointly; None if labels do not use marginals."""
        return None if labels and not self.by_marginals else self.able("marginals")

    def columns(self, batches: list, potentials: Any, voters: list[np.ndarray]) -> list:
        """Return the class indices of the nodes of each batch, by a vote if there are several weight vectors."""
        if self.by_marginals:
            return self._label_by_marginals(batches, potentials, voters)

        def run(batch, n_threads):
            if len(voters) == 1:
                return self._best_labels(potentials, voters[0], batch, n_threads)
            votes = np.zeros((batch.example.n_nodes, self.n_classes))
            for voter in voters:
                labels = self._best_labels(potentials, voter, batch, n_threads)
                votes[np.arange(len(labels)), labels] += 1
            # Majority labels may form a forbidden labeling, even if the labeling of every voter is allowed.
            may_forbid = potentials.forbids or batch.example.has_factors
            model = self.model(potentials, voters[0], batch) if may_forbid else None
            return labels_of_most_gain(model, votes, n_threads)

        return self._predict(run, batches, potentials, voters, self.decoding.inference, "map")

    def marginals(self, batches: list, potentials: Any, voters: list[np.ndarray]) -> list:
        """Compute the node marginals of every batch, averaged over the weight vectors `voters`."""
        chosen = self.able("marginals")

        def run(batch, n_threads):
            return self._average_voters(potentials, voters, batch, chosen, n_threads)[1]

        return self._predict(run, batches, potentials, voters, chosen, "marginals")

    def _label_by_marginals(self, batches, potentials, voters):
        """Label every batch by its node marginals, without keeping the marginals of all batches in memory."""
        chosen = self.able("marginals")

        def run(batch, n_threads):
            model, marginals = self._average_voters(potentials, voters, batch, chosen, n_threads)
            gain = self.gain(marginals, batch.node_ptr)
            with batch.named_in_errors():
                if self._charges_joint_labels(batch.example):
                    models = [self.model(potentials, voter, batch) for voter in voters]
                    if isinstance(model, FactorGraph):
                        of_type = potentials.number_factors(batch.example)
                        return self._find_least_cost_of_factors(models, gain, of_type, chosen, n_threads)
                    return self._find_least_cost(models, gain, chosen, n_threads)
                return labels_of_most_gain(model, gain, n_threads)

        return self._predict(run, batches, potentials, voters, chosen, "mpm")

    def _average_voters(self, potentials, voters, batch, inference, n_threads):
        """Return the model of a batch under the first voter, and the node marginals averaged over all voters."""
        found = [self.marginals_of(potentials, voter, batch, inference, n_threads) for voter in voters]
        model, marginals = found[0]
        return model, marginals if len(found) == 1 else sum(each for _, each in found) / len(found)

    def edge_marginals(self, model: Any, inference: Inference, n_threads: int) -> np.ndarray:
        """Compute the joint marginals of the two nodes of each edge, (E, K, K)."""
        chosen = choose_recursion(model) or inference
        if hasattr(chosen, "edge_marginals"):
            return chosen.edge_marginals(model, n_threads=n_threads)
        return chosen.marginals(expand_edge_tables(model), n_threads=n_threads).tables[:, 0]

    def _charges_joint_labels(self, example):
        """Return whether errors on edges or factors of an example have costs."""
        of_edges = self.edge_cost is not None and example.graph.n_edges
        return bool(of_edges or self.factor_cost.keys() & example.factors.keys())

    def _find_least_cost_of_factors(self, models, gain, of_type, inference, n_threads):
        r"""Return the labeling of a factor graph with the lowest expected total cost, (N,) int32.

        .. math:: \arg\max_y \sum_s \mathrm{gain}_s(y_s) - \sum_e \mathrm{E} \, e(y_e, y_e^*) + \sum_f g_f \, P(y_f)
        """
        # models: the model for each voter; gain: (N, K), gain of each label
        # of_type: indices of the factors of each type in a model
        costs = self.factor_cost if self.edge_cost is None else self.factor_cost | {"": 1.0}
        charged = {f: cost for name, cost in costs.items() for f in of_type.get(name, ())}
        joint: list[Any] = [0.0] * len(charged)
        for model in models:
            expanded = expand_tables(model, list(charged))
            found = inference.marginals(expanded, n_threads=n_threads).statistics.log_table / len(models)
            own = split_into_tables(found, model, list(charged))
            joint = [total + part for total, part in zip(joint, own, strict=True)]
        model, gains = models[0], []
        for (f, cost), own in zip(charged.items(), joint, strict=True):
            if self.edge_cost is not None and f in of_type[""]:
                a, b = own.shape
                own = -np.einsum("abcd,cd->ab", self.edge_cost[:a, :b, :a, :b], own)
            gains.append((model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]], cost * own))
        gain = np.where(np.arange(gain.shape[1]) < model.n_states[:, None], gain, -np.inf)
        model = unite_factors(_replace_scores_by_gains(model, gain), FactorGraph.from_factors(model.n_states, gains))
        return _label_all_components(model, n_threads)

    def _find_least_cost(self, models, gain, inference, n_threads):
        """Return the labeling with the lowest expected total cost of nodes and edges, (N,) int32."""
        # models: the model for each voter; gain: (N, K), gain of each label
        model = models[0]
        if not isinstance(model, PairwiseModel):
            raise ValueError("predictions with costs of edges do not support scores of durations.")
        assert self.edge_cost is not None, "only costs of edges need the marginals of pairs"
        pairs = sum(self.edge_marginals(each, inference, n_threads).astype(np.float64) for each in models)
        tables = -np.einsum("abcd,ecd->eab", self.edge_cost, pairs / len(models))
        tables[np.isneginf(model.edge_tables()[:, 0])] = -np.inf
        gain = np.where(np.isneginf(model.unary), -np.inf, gain)
        costs = PairwiseModel(
            model.graph, gain, tables, edge_type=np.arange(model.graph.n_edges), n_states=model.n_states
        )
        return _label_all_components(costs, n_threads)

    def _best_labels(self, potentials, weights, batch, n_threads):
        """Return the best labels of a batch, (N,) int32."""
        inference, graph = self.decoding.inference, batch.example.graph
        if batch.example.is_plain_lattice and LatticeRows.pays(graph):
            rows = RowModels(graph, lambda *ends: self.model(potentials, weights, batch.rows(*ends)))
            with batch.named_in_errors():
                labels = self._labels_by_rows(rows, batch.example.has_quick_edges, n_threads)
            if labels is not None:
                return labels
        model = self.model(potentials, weights, batch)
        with batch.named_in_errors():
            return inference.map(model, n_threads=n_threads).labels

    def _labels_by_rows(self, rows, is_quick, n_threads):
        """Return the labels of a lattice whose scores are computed a few rows at a time, or None if unsupported."""
        chosen = self.decoding.inference
        if self.n_classes == 2 and isinstance(chosen, _CUTS_OF_TWO):
            may_truncate = getattr(chosen, "nonsubmodular", None) != "error"
            return LatticeRows(rows).labels(n_threads, may_truncate=may_truncate)
        # Expansion and swap moves compute the edge scores about thirty times.
        # Labelling row by row is therefore only fast if edge features are cheap to compute.
        if self.n_classes > 2 and is_quick and isinstance(chosen, AlphaExpansion | AlphaBetaSwap):
            return chosen._labels_by_rows(rows, n_threads)
        return None

    def marginals_of(self, potentials, weights, batch, inference, n_threads):
        """Return the model of a batch and its node marginals, (N, n_classes) float64."""
        model = self.model(potentials, weights, batch)
        with batch.named_in_errors():
            unary = inference.node_marginals(model, n_threads=n_threads)
        # The marginals of a factor graph only have one column for each state of its largest node.
        missing = self.n_classes - unary.shape[1]
        unary = np.pad(unary, ((0, 0), (0, missing))) if missing else unary
        return model, unary.astype(np.float64, copy=False)

    def _find_by_fast_path(self, batches, potentials, voters, inference, rule):
        """Return the result of a fast path for each batch, or None for each batch that no fast path supports."""
        found = [None] * len(batches)
        needs_joint = (self.edge_cost is not None or self.factor_cost) and rule == "mpm"
        is_plain = (
            not needs_joint and len(voters) == 1 and self.temperature == 1 and batches and batches[0].labels is None
        )
        for path in applying(PREDICTION_PATHS, self, batches, potentials, rule) if is_plain else ():
            missing = [i for i, part in enumerate(found) if part is None]
            some = [batches[i] for i in missing]
            parts = path(self, some, potentials, voters[0], inference, rule).found(self.n_jobs) if some else []
            for i, part in zip(missing, parts, strict=True):
                found[i] = part
        return found

    def _predict(self, run, batches, potentials, voters, inference, rule):
        """Return a result for each batch: by a fast path, or by the function ``run`` if no fast path supports it."""
        found = self._find_by_fast_path(batches, potentials, voters, inference, rule)
        missing = [i for i, part in enumerate(found) if part is None]
        if missing:
            with limit_blas_threads():
                made = map_coarse(lambda i, n_threads: run(complete_batch(batches[i]), n_threads), missing, self.n_jobs)
            for i, part in zip(missing, made, strict=True):
                found[i] = part
        return found

    @property
    def weighs_marginals(self) -> bool:
        """Whether costs or class weights apply. If so, labels maximise a gain instead of the marginals."""
        return self.cost is not None or self.class_weight is not None

    def gain(self, probability, node_ptr):
        """Return the gain of each label of each node: its weighted probability, or its negative expected cost."""
        probability = weigh_marginals(probability, self.class_weight, np.diff(node_ptr))
        return probability if self.cost is None else -(probability @ self.cost.T)

    def largest_gain(self, probability, node_ptr):
        """Return, for each node, the label with the largest gain, (N,) int32."""
        return find_largest_gain(self.gain(probability, node_ptr))


def weigh_correct_nodes(columns: list, batches: list, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Return the total weight of the correctly predicted nodes, and the total weight of all labelled nodes."""
    # weight: weights of all examples, or None for the weights of the batches
    right = total = 0.0
    for batch, predicted in zip(batches, columns, strict=True):
        labelled = batch.labels >= 0
        own = batch.weight if weight is None else weight[batch.members]
        share = np.repeat(np.ones(len(batch.members)) if own is None else own, np.diff(batch.node_ptr))[labelled]
        right += float(share[predicted[labelled] == batch.labels[labelled]].sum())
        total += float(share.sum())
    return right, total


# For two states and edges that prefer equal labels, each of these algorithms finds a minimum cut.
_CUTS_OF_TWO = (AutoMap, GraphCut, AlphaExpansion, AlphaBetaSwap)


def weigh_marginals(marginals, class_weight, sizes):
    """Return the marginals multiplied by the class weights.

    The marginals of single-node examples are left unchanged, because training already weights these examples by class.
    """
    # marginals: (N, n_classes); class_weight: (n_classes,) or None; sizes: (n_members,), each example's number of nodes
    is_weighed = np.repeat(sizes > 1, sizes)
    if class_weight is None or not is_weighed.any():
        return marginals
    found = marginals * np.where(is_weighed[:, np.newaxis], class_weight, 1.0)
    # A class of weight 0 is only predicted if no other class is possible.
    return np.where(found.any(axis=1, keepdims=True), found, marginals)


def labels_of_most_gain(model, gain, n_threads=1):
    """Return the labeling with the largest sum of node gains among the labelings that a model allows.

    If the gains are node marginals, the sum is the expected number of correctly labelled nodes. Every node gets its own
    best label, except in connected components where the best labels are not allowed together. Such a component gets the
    best labeling of a model that has the gains as scores and forbids the same states and tuples.
    """
    # model: model whose scores of -inf forbid labelings (other scores are ignored); None allows all labelings
    # gain: (N, n_classes) float64, gain of each label at each node; returns: (N,) int32, the label of each node
    if isinstance(model, SegmentModel):
        return _label_segments(model, gain, n_threads)
    is_pairwise = isinstance(model, PairwiseModel)
    if is_pairwise and model.unary.min(initial=0.0) == -np.inf:
        gain = np.where(np.isneginf(model.unary), -np.inf, gain[:, : model.n_columns])
    elif model is not None and not is_pairwise:
        gain = np.where(np.arange(gain.shape[1]) < model.n_states[:, None], gain, -np.inf)
    labels = find_largest_gain(gain)
    if model is None or not _forbids_tuples(model):
        return labels
    is_broken = np.zeros(model.n_components, dtype=bool)
    is_broken[model.component[np.isneginf(compute_score_terms(model, labels))]] = True
    if not is_broken.any():
        return labels
    _label_components(_replace_scores_by_gains(model, gain), is_broken, labels, n_threads)
    return labels


def _label_all_components(model, n_threads):
    """Return the best labels of a model, (N,) int32."""
    labels = np.empty(model.n_nodes, dtype=np.int32)
    _label_components(model, np.ones(model.n_components, dtype=bool), labels, n_threads)
    return labels


def _label_components(model, is_wanted, labels, n_threads):
    """Write the best labelings of some components of a model to ``labels``."""
    # is_wanted: (n_components,) bool; labels: (N,) int32
    is_forest = isinstance(model, PairwiseModel) and model.graph.is_forest
    # Components with cycles are solved one by one, so that AutoMap's result for a component depends on no other one.
    lots = [is_wanted] if is_forest else np.eye(len(is_wanted), dtype=bool)[is_wanted]
    for lot in lots:
        part, nodes = (model, slice(None)) if lot.all() else extract_components(model, lot)
        # Without ``bounded``, the search by AutoMap takes a hundred times as long and increases the gain by 2 %.
        inference = TreeInference() if is_forest else AutoMap(bounded=True)
        labels[nodes] = inference.map(part, n_threads=n_threads).labels


def _label_segments(model: SegmentModel, gain: np.ndarray, n_threads: int) -> np.ndarray:
    """Return the result of :func:`labels_of_most_gain` for chains with scores of run durations."""
    gain = np.where(np.isneginf(model.unary), -np.inf, gain)
    labels = find_largest_gain(gain)
    is_broken = np.isneginf(compute_score_terms(model, labels))
    if not is_broken.any():
        return labels
    graph = model.graph
    durations = np.where(np.isneginf(model.durations), -np.inf, 0.0)
    pairwise = _replace_scores_by_gains(model.pairwise, gain)
    constraints = replace(model, pairwise=pairwise, durations=durations, ends=None, spans=None, means=None)
    allowed = SegmentInference().map(constraints, n_threads=n_threads).labels
    in_broken = np.bincount(graph.component, is_broken, graph.n_components)[graph.component] > 0
    return np.where(in_broken, allowed, labels)


def _forbids_tuples(model):
    """Return whether a table of edge or factor scores may contain -inf, which forbids a tuple of labels."""
    if isinstance(model, PairwiseModel):
        return bool(model.graph.n_edges and model.tables.min(initial=0.0) == -np.inf)
    return bool(min(model.log_table.min(initial=0.0), model.table_default.min(initial=0.0)) == -np.inf)


def find_largest_gain(gain):
    """Return the state with the largest gain for each node, or the first of several states with equal gains."""
    if gain.shape[1] == 2:
        # For two states, a comparison is much faster than argmax. Both choose the first of two equal gains.
        return (gain[:, 1] > gain[:, 0]).astype(np.int32)
    return np.argmax(gain, axis=1).astype(np.int32)


def _replace_scores_by_gains(model, gain):
    """Return a copy of the model with gains as node scores, and with all table scores other than -inf set to 0."""
    if isinstance(model, PairwiseModel):
        tables = np.where(np.isneginf(model.tables).any(axis=1, keepdims=True), -np.inf, 0.0)
        return PairwiseModel(model.graph, gain, tables, edge_type=model.edge_type, n_states=model.n_states)
    constraints = replace(
        model,
        log_table=np.where(np.isneginf(model.log_table), -np.inf, 0.0),
        table_default=np.where(np.isneginf(model.table_default), -np.inf, 0.0),
    )
    n_columns, no_edges = gain.shape[1], Graph(len(gain), np.zeros((0, 2), dtype=np.int32))
    tables, n_states = np.zeros((1, n_columns, n_columns)), model.n_states
    return unite_factors(factor_graph_of(PairwiseModel(no_edges, gain, tables, n_states=n_states)), constraints)


def given(model, labels):
    """Return the model clamped to the known labels, or the model itself if `labels` is None."""
    return model if labels is None else clamped(model, labels)
