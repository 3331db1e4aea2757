"""Preparation of a model for algorithms of the linear relaxation, and bounds of its scores."""

import numpy as np

from sklearn_crf.models import PairwiseModel

# Numbers in the tables of the edges that are looked at together (16 MB).
_BLOCK = 2**21


def in_double_precision(model):
    """The same model with scores in float64, so that a bound can be trusted."""
    if model.dtype == np.float64:
        return model
    weight = None if model.edge_weight is None else model.edge_weight.astype(np.float64)
    unary, tables = model.unary.astype(np.float64), model.tables.astype(np.float64)
    return PairwiseModel(model.graph, unary, tables, model.edge_type, weight, model.n_states)


def table_blocks(model):
    """Slices of edges and their tables, some at a time, as all may not fit into memory."""
    step = max(1, _BLOCK // model.n_columns**2)
    for first in range(0, model.graph.n_edges, step):
        edges = slice(first, first + step)
        yield edges, model.edge_tables(edges)


def consistent(model):
    """The same model, without states that have no allowed pair with any state of some neighbour (arc consistency).

    No allowed labeling uses such a state, and no fractional one, but where its score stays finite a dual algorithm
    rules it out in the limit only.
    """
    if not np.isneginf(model.tables).any():
        return model
    possible = ~np.isneginf(model.unary)
    n_before = -1
    while n_before != (n_before := int(possible.sum())):
        for edges, tables in table_blocks(model):
            _rule_out(possible, model.graph.edges[edges], ~np.isneginf(tables))
    impossible = np.flatnonzero(~possible.any(axis=1))
    if len(impossible):
        raise ValueError(
            f"model is infeasible: every state of node {impossible[0]} is forbidden, by unary or by tables together."
        )
    unary = np.where(possible, model.unary, -np.inf)
    return PairwiseModel(model.graph, unary, model.tables, model.edge_type, model.edge_weight, model.n_states)


def _rule_out(possible, edges, allowed):
    """Take states out of ``possible``, in place, that no possible state at the other end of an edge goes with."""
    tails, heads = edges.T
    supported = (allowed & possible[heads][:, None, :]).any(axis=2)
    np.logical_and.at(possible, tails, supported)
    supported = (allowed & possible[tails][:, :, None]).any(axis=1)
    np.logical_and.at(possible, heads, supported)


def least_score(model):
    """Lower bound on the score of every allowed labeling: the sum of the least finite scores."""
    parts = [model.unary, *(tables.reshape(len(tables), -1) for _, tables in table_blocks(model))]
    return float(sum(np.where(np.isneginf(part), np.inf, part).min(axis=1).sum() for part in parts))


def spread_of_scores(model):
    """Standard deviation of all finite scores, unary ones and those of edges; 1 if there is none."""
    n, total, square = 0, 0.0, 0.0
    for part in [model.unary, *(tables for _, tables in table_blocks(model))]:
        finite = part[np.isfinite(part)]
        n, total, square = n + finite.size, total + finite.sum(), square + np.dot(finite, finite)
    variance = square / max(n, 1) - (total / max(n, 1)) ** 2
    # Less is rounding of equal scores.
    return float(np.sqrt(variance)) if variance > 1e-12 * square / max(n, 1) else 1.0


def check_not_below(bound, least):
    """Raise ValueError if an upper bound is below what every allowed labeling scores at least."""
    if bound < least - 1e-9 * max(1.0, abs(least)):
        raise ValueError("model is infeasible: an upper bound lies below the least score of an allowed labeling.")
