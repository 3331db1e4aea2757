"""Prediction of the labels and marginals of the nodes of a batch."""

from dataclasses import replace

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.inference import AlphaBetaSwap, AlphaExpansion, AutoMap, GraphCut, TreeInference
from sklearn_crf.inference.cuts._lattice_rows import LatticeRows
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.models import (
    PairwiseModel,
    SegmentModel,
    clamped,
    compute_score_terms,
    extract_components,
    factor_graph_of,
    unite_factors,
)
from sklearn_crf.models._row_models import RowModels

# For two states whose edges prefer equal labels, each of these algorithms finds a minimum cut.
_CUTS_OF_TWO = (AutoMap, GraphCut, AlphaExpansion, AlphaBetaSwap)


def labels_of(labeler, potentials, weights, batch, inference, n_threads):
    """Return the best labels of a batch."""
    # returns: (N,) int32, the label of each node
    graph = batch.example.graph
    if batch.example.is_plain_lattice and LatticeRows.pays(graph):
        rows = RowModels(graph, lambda *ends: labeler.model(potentials, weights, batch.rows(*ends)))
        with batch.named_in_errors():
            labels = _labels_by_rows(inference, labeler.n_classes, rows, batch.example.has_quick_edges, n_threads)
        if labels is not None:
            return labels
    model = labeler.model(potentials, weights, batch)
    with batch.named_in_errors():
        return inference.map(model, n_threads=n_threads).labels


def _labels_by_rows(chosen, n_classes, rows, is_quick, n_threads):
    """Return the labels of a large lattice whose scores are computed a few rows at a time, or None if unsupported."""
    if n_classes == 2 and isinstance(chosen, _CUTS_OF_TWO):
        may_truncate = getattr(chosen, "nonsubmodular", None) != "error"
        return LatticeRows(rows).labels(n_threads, may_truncate=may_truncate)
    # Expansion and swap moves compute the edge scores about thirty times, which only pays for cheap edge features.
    if n_classes > 2 and is_quick and isinstance(chosen, AlphaExpansion | AlphaBetaSwap):
        return chosen._labels_by_rows(rows, n_threads)
    return None


def marginals_of(labeler, potentials, weights, batch, inference, n_threads):
    """Return the model of a batch and its node marginals."""
    # returns marginals: (N, n_classes) float64, probability of each label at each node
    model = labeler.model(potentials, weights, batch)
    with batch.named_in_errors():
        unary = inference.node_marginals(model, n_threads=n_threads)
    # The marginals of a factor graph have one column per state of the largest node, which may be fewer than n_classes.
    missing = labeler.n_classes - unary.shape[1]
    unary = np.pad(unary, ((0, 0), (0, missing))) if missing else unary
    return model, unary.astype(np.float64, copy=False)


def weigh_marginals(marginals, class_weight, sizes):
    """Return the marginals multiplied by the class weights.

    The marginals of single-node examples are left unchanged, because training already weights these examples by class.
    """
    # marginals: (N, n_classes); class_weight: (n_classes,) or None; sizes: (n_members,), nodes of each example
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
    topology = model.graph if is_pairwise else model
    component, n_components, is_forest = topology.component, topology.n_components, is_pairwise and topology.is_forest
    is_broken = np.zeros(n_components, dtype=bool)
    is_broken[component[np.isneginf(compute_score_terms(model, labels))]] = True
    if not is_broken.any():
        return labels
    constraints = _replace_scores_by_gains(model, gain)
    # Components with cycles are solved one by one, so that the result of AutoMap does not depend on other components.
    lots = [is_broken] if is_forest else np.eye(n_components, dtype=bool)[is_broken]
    for lot in lots:
        part, nodes = (constraints, slice(None)) if lot.all() else extract_components(constraints, lot)
        # Without ``bounded``, the search by AutoMap takes a hundred times as long, for 2 % more gain.
        inference = TreeInference() if is_forest else AutoMap(bounded=True)
        labels[nodes] = inference.map(part, n_threads=n_threads).labels
    return labels


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
    constraints = replace(model, pairwise=pairwise, durations=durations, ends=None, spans=None)
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
