"""Labels of the nodes of a batch: by its model, or by scores of some rows at a time."""

from dataclasses import replace

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.inference import AlphaBetaSwap, AlphaExpansion, AutoMap, GraphCut, TreeInference
from sklearn_crf.inference.cuts._lattice_rows import LatticeRows
from sklearn_crf.models import (
    PairwiseModel,
    clamped,
    factor_graph_of,
    model_of_components,
    score_terms,
    union_of_factors,
)
from sklearn_crf.models._row_models import MadeRows

# Of two states whose edges prefer equal labels, all of these find a minimum cut.
_CUTS_OF_TWO = (AutoMap, GraphCut, AlphaExpansion, AlphaBetaSwap)


def labels_of(labeler, potentials, weights, batch, inference, n_threads):
    """Return the best labels of a batch."""
    # returns: (N,) int32
    graph = batch.example.graph
    if batch.example.is_plain_lattice and LatticeRows.pays(graph):
        rows = MadeRows(graph, lambda *ends: labeler.model(potentials, weights, batch.rows(*ends)))
        with batch.named_in_errors():
            labels = _labels_by_rows(inference, labeler.n_classes, rows, batch.example.has_quick_edges, n_threads)
        if labels is not None:
            return labels
    model = labeler.model(potentials, weights, batch)
    with batch.named_in_errors():
        return inference.map(model, n_threads=n_threads).labels


def _labels_by_rows(chosen, n_classes, rows, is_quick, n_threads):
    """Labels of a large lattice whose scores are made some rows at a time; None where that does not suit."""
    if n_classes == 2 and isinstance(chosen, _CUTS_OF_TWO):
        may_truncate = getattr(chosen, "nonsubmodular", None) != "error"
        return LatticeRows(rows).labels(n_threads, may_truncate=may_truncate)
    # Scores are made some thirty times.
    if n_classes > 2 and is_quick and isinstance(chosen, AlphaExpansion | AlphaBetaSwap):
        return chosen._labels_by_rows(rows, n_threads)
    return None


def marginals_of(labeler, potentials, weights, batch, inference, n_threads):
    """Return the model of a batch, and its node marginals."""
    # returns marginals: (N, n_classes) float64
    model = labeler.model(potentials, weights, batch)
    with batch.named_in_errors():
        unary = inference.node_marginals(model, n_threads=n_threads)
    # Factor graphs have as many columns as some node of theirs has states.
    missing = labeler.n_classes - unary.shape[1]
    unary = np.pad(unary, ((0, 0), (0, missing))) if missing else unary
    return model, unary.astype(np.float64, copy=False)


def weighed_marginals(marginals, class_weight, sizes):
    """Return marginals times the weights of their classes.

    The marginals of an example of one node are not weighed: in training such an example weighs as much as its class.
    """
    # marginals: (N, n_classes); class_weight: (n_classes,) or None; sizes: (n_members,), nodes of the examples
    is_weighed = np.repeat(sizes > 1, sizes)
    if class_weight is None or not is_weighed.any():
        return marginals
    found = marginals * np.where(is_weighed[:, np.newaxis], class_weight, 1.0)
    # A class of weight 0 is predicted where no other is possible.
    return np.where(found.any(axis=1, keepdims=True), found, marginals)


def labels_of_most_gain(model, gain, n_threads=1):
    """Return the labels that maximise a sum of gains of nodes among the labelings that a model allows.

    With node marginals as gains that is the expected number of right nodes. Each node has its best label where these
    are allowed together. A connected component where they are not is labelled by the best labeling of a model with the
    gains as scores and the same forbidden states and tuples.
    """
    # model: scores other than -inf do not matter; None allows all labelings
    # gain: (N, n_classes) float64; returns: (N,) int32
    is_pairwise = isinstance(model, PairwiseModel)
    if is_pairwise and model.unary.min(initial=0.0) == -np.inf:
        gain = np.where(np.isneginf(model.unary), -np.inf, gain[:, : model.n_columns])
    elif model is not None and not is_pairwise:
        gain = np.where(np.arange(gain.shape[1]) < model.n_states[:, None], gain, -np.inf)
    labels = of_largest(gain)
    if model is None or not _forbids_tuples(model):
        return labels
    topology = model.graph if is_pairwise else model
    component, n_components, is_forest = topology.component, topology.n_components, is_pairwise and topology.is_forest
    is_broken = np.zeros(n_components, dtype=bool)
    is_broken[component[np.isneginf(score_terms(model, labels))]] = True
    if not is_broken.any():
        return labels
    constraints = _with_gains(model, gain)
    # What AutoMap finds in a component should not hang on those beside it.
    lots = [is_broken] if is_forest else np.eye(n_components, dtype=bool)[is_broken]
    for lot in lots:
        part, nodes = (constraints, slice(None)) if lot.all() else model_of_components(constraints, lot)
        # Training asks for many such labelings: the search of AutoMap takes a hundred times as long for 2 % more gain.
        inference = TreeInference() if is_forest else AutoMap(bounded=True)
        labels[nodes] = inference.map(part, n_threads=n_threads).labels
    return labels


def _forbids_tuples(model):
    """Whether a table of edges or factors may hold -inf, so that the best labels of nodes need not fit together."""
    if isinstance(model, PairwiseModel):
        return bool(model.graph.n_edges and model.tables.min(initial=0.0) == -np.inf)
    return bool(min(model.log_table.min(initial=0.0), model.table_default.min(initial=0.0)) == -np.inf)


def of_largest(gain):
    """Return the first state of the largest gain of each node."""
    if gain.shape[1] == 2:
        # Many times faster than argmax, whose choice of equal ones is the first as well.
        return (gain[:, 1] > gain[:, 0]).astype(np.int32)
    return np.argmax(gain, axis=1).astype(np.int32)


def _with_gains(model, gain):
    """A model with gains for scores of nodes, and 0 for all scores of tables but -inf."""
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
    return union_of_factors(factor_graph_of(PairwiseModel(no_edges, gain, tables, n_states=n_states)), constraints)


def given(model, labels):
    """The model clamped to the labels that are known, if any are."""
    return model if labels is None else clamped(model, labels)
