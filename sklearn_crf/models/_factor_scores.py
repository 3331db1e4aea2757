"""Scores, statistics and observed nodes of factor graphs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import as_integers, n_joint_states, offsets_from_lengths
from sklearn_crf.models import _tuning
from sklearn_crf.models._factor_graph import FactorGraph, build_trusted_factor_graph, read_cells
from sklearn_crf.models._factor_tables import DENSE
from sklearn_crf.models._pairwise import (
    check_allowed_states,
    check_labels,
    clamped,
    compute_labeling_statistics,
    compute_score_terms,
    require_states,
)


def unite_factors(*graphs):
    """Combine factor graphs on the same nodes into one factor graph, whose score is the sum of all their scores."""
    first = graphs[0]
    for graph in graphs[1:]:
        if not np.array_equal(graph.n_states, first.n_states):
            raise ValueError("factor graphs can only be combined if their nodes have the same numbers of states.")
    n_tables = np.cumsum([0, *(graph.n_tables for graph in graphs)], dtype=np.int32)
    is_sparse = any(graph.table_cell is not None for graph in graphs)
    # The given graphs were checked when they were built. In training, a second check would dominate the time.
    return build_trusted_factor_graph(
        n_states=first.n_states,
        scope=np.concatenate([graph.scope for graph in graphs]),
        scope_ptr=_join_offsets([graph.scope_ptr for graph in graphs]),
        table_id=np.concatenate([graph.table_id + n for graph, n in zip(graphs, n_tables[:-1], strict=True)]),
        log_table=np.concatenate([graph.log_table.astype(first.dtype, copy=False) for graph in graphs]),
        table_ptr=_join_offsets([graph.table_ptr for graph in graphs]),
        table_kind=np.concatenate([graph.table_kind for graph in graphs]),
        table_cell=np.concatenate([_cells(graph) for graph in graphs]) if is_sparse else None,
        table_default=np.concatenate([graph.table_default.astype(first.dtype, copy=False) for graph in graphs]),
        table_state=np.concatenate([graph.table_state for graph in graphs]),
    )


def split_into_tables(cells: np.ndarray, model: FactorGraph, factors: Sequence[int]) -> list[np.ndarray]:
    """Return views of the cells of the last tables of ``expand_tables``, in the shape of the table of each factor."""
    # cells: (n_cells,), a number for each cell of all tables
    shapes = [model.n_states[model.scope[slice(*model.scope_ptr[f : f + 2])]] for f in factors]
    ends = np.cumsum([0, *(shape.prod(dtype=np.int64) for shape in shapes)])
    ends += len(cells) - ends[-1]
    return [cells[a:b].reshape(shape) for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True)]


def expand_tables(model: FactorGraph, factors: Sequence[int]) -> FactorGraph:
    """Give each of the listed factors its own dense table, after all other tables.

    The statistics of the cells of these tables are the joint marginals of the factors.
    """
    n_cells = sum(n_joint_states(model.n_states[model.scope[slice(*model.scope_ptr[f : f + 2])]]) for f in factors)
    if n_cells > _tuning.MOST_EXPANDED_CELLS:
        raise ValueError(
            f"the {len(factors)} edges and factors with costs have {n_cells:.3g} joint states together, and their "
            f"probabilities may have at most {_tuning.MOST_EXPANDED_CELLS}: give costs to fewer types of factors in "
            "ErrorCost(factors={...}), or use smaller examples."
        )
    tables = [model.dense_table(f) for f in factors]
    n, ends = len(tables), model.log_table.size + np.cumsum([0, *(table.size for table in tables)])
    table_id = model.table_id.copy()
    table_id[list(factors)] = model.n_tables + np.arange(n)
    cell = model.table_cell
    return replace(
        model,
        table_id=table_id,
        log_table=np.concatenate([model.log_table, *map(np.ravel, tables)]),
        table_ptr=np.concatenate((model.table_ptr, ends[1:])),
        table_kind=np.pad(model.table_kind, (0, n), constant_values=DENSE),
        table_cell=None if cell is None else np.pad(cell, (0, ends[-1] - ends[0])),
        table_default=np.pad(model.table_default, (0, n), constant_values=-np.inf),
        table_state=np.pad(model.table_state, (0, n), constant_values=1),
    )


def _join_offsets(pointers):
    ends = np.cumsum([0, *(ptr[-1] for ptr in pointers)])
    return np.concatenate([[0], *(ptr[1:] + end for ptr, end in zip(pointers, ends[:-1], strict=True))])


def _cells(graph):
    return np.zeros(graph.log_table.size, dtype=np.int64) if graph.table_cell is None else graph.table_cell


class FactorStatistics(NamedTuple):
    """Derivatives of a scalar with respect to the scores of a :class:`FactorGraph`.

    The derivatives of ``log_z`` are the expected sufficient statistics. The derivatives of the score of a labeling are
    the sufficient statistics of this labeling.
    """

    log_table: np.ndarray  # (n_cells,), float64
    table_default: np.ndarray  # (T,), float64

    def minus(self, other):
        """Return ``self - other``, table by table."""
        n_cells, n_tables = len(self.log_table), len(self.table_default)
        return FactorStatistics(
            self.log_table - other.log_table[:n_cells], self.table_default - other.table_default[:n_tables]
        )

    def plus(self, other):
        """Return ``self + other``, table by table."""
        return FactorStatistics(self.log_table + other.log_table, self.table_default + other.table_default)

    def scaled(self, node_scale, scale):
        """Return the statistics of an example multiplied by the weight of the example."""
        # node_scale: (N, 1)
        return FactorStatistics(self.log_table * scale, self.table_default * scale)


@check_labels.register
def _check_labels(
    model: FactorGraph, labels: np.ndarray, *, may_miss: bool = False, name: str = "labels"
) -> np.ndarray:
    labels = as_integers(labels, name, shape=(model.n_nodes,), kinds="iub")
    require_states(labels, model.n_states, may_miss, name)
    return np.maximum(labels, -1)


@check_allowed_states.register
def _check_allowed_states(model: FactorGraph) -> None:
    allowed = np.bincount(
        np.repeat(np.arange(model.n_tables), np.diff(model.table_ptr)),
        weights=model.log_table > -np.inf,
        minlength=model.n_tables,
    )
    dense = model.table_kind == DENSE
    forbidding = (allowed == 0) & (dense | np.isneginf(model.table_default))
    factors = np.flatnonzero(forbidding[model.table_id])
    if len(factors):
        raise ValueError(f"model is infeasible: factor {factors[0]} forbids every joint state of its nodes.")


@compute_score_terms.register
def _compute_score_terms(model: FactorGraph, labels: np.ndarray) -> np.ndarray:
    labels = check_labels(model, labels)
    terms = np.zeros(model.n_nodes)
    for factors, scope in model.by_arity():
        first = scope[:, 0] if scope.shape[1] else np.zeros(len(factors), dtype=np.int64)
        terms += np.bincount(first, weights=model.factor_scores(factors, labels[scope]), minlength=model.n_nodes)
    return terms


@compute_labeling_statistics.register
def _compute_labeling_statistics(model: FactorGraph, labels):
    labels = check_labels(model, labels)
    log_table = np.zeros(model.log_table.size)
    table_default = np.zeros(model.n_tables)
    for factors, scope in model.by_arity():
        add_cells(model, factors, model.cells(factors, labels[scope]), None, log_table, table_default)
    return FactorStatistics(log_table, table_default)


def add_cells(model, factors, cells, weights, log_table, table_default):
    """Add weights to the statistics in place, at the given cell of each factor."""
    # factors: (G,) of int; cells: (G,) of int; weights: (G,) or None
    # log_table: (n_cells,), float64; table_default: (T,), float64
    stored = cells >= 0
    weights = np.broadcast_to(1.0 if weights is None else weights, cells.shape)
    # Add in place: this function runs once per factor, so its cost must not depend on the total size of the tables.
    np.add.at(log_table, cells[stored], weights[stored])
    np.add.at(table_default, model.table_id[factors[~stored]], weights[~stored])


@clamped.register
def _clamp(model: FactorGraph, labels):
    labels = check_labels(model, labels, may_miss=True)
    nodes = np.flatnonzero(labels >= 0)
    pairs = np.stack((model.n_states[nodes], labels[nodes]), axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    tables = [np.where(np.arange(n) == label, 0.0, -np.inf) for n, label in distinct.tolist()]
    observed = build_trusted_factor_graph(
        n_states=model.n_states,
        scope=nodes.astype(np.int32),
        scope_ptr=np.arange(len(nodes) + 1),
        table_id=inverse.ravel().astype(np.int32),
        log_table=np.concatenate([*tables, np.zeros(0)]),
        table_ptr=np.cumsum([0, *map(len, tables)], dtype=np.int64),
    )
    return unite_factors(model, observed)


class _Changed(NamedTuple):
    """Factors of one arity, each repeated for every state of one of its nodes."""

    factors: np.ndarray  # (n,), each factor, repeated for every state of the node
    node: np.ndarray  # (n,), the node whose state changes
    state: np.ndarray  # (n,), the new state of this node
    cells: np.ndarray  # (n,), cell of each factor after the change


def compute_changed_scores(model: FactorGraph, labels: np.ndarray) -> tuple[list[_Changed], np.ndarray]:
    r"""Return the scores of each node's states given the labels of all other nodes; also return the changed factors.

    .. math:: f_s(k) = \sum_{f \ni s} \theta_f(y_f \text{ with } y_s = k)
    """
    # labels: (N,), state of every node; returns: changes, and scores: (N, K), -inf beyond a node's number of states
    changed = list(_iterate_changes(model, labels))
    scores = np.where(np.arange(model.n_columns) < model.n_states[:, None], 0.0, -np.inf)
    for part in changed:
        np.add.at(scores, (part.node, part.state), read_cells(model, part.factors, part.cells))
    return changed, scores


def _iterate_changes(model, labels):
    for factors, scope in model.by_arity():
        for d in range(scope.shape[1]):
            counts = model.n_states[scope[:, d]].astype(np.int64)
            row = np.repeat(np.arange(len(factors)), counts)
            state = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
            states = labels[scope][row]
            states[:, d] = state
            yield _Changed(factors[row], scope[row, d], state, model.cells(factors[row], states))


class SmallFactors:
    """Positions of the scores of factors with at most one node in the tables of a factor graph."""

    def __init__(self, model):
        empty, single = (np.flatnonzero(model.arity == n) for n in (0, 1))
        nodes = model.scope[model.scope_ptr[single]]
        row = np.repeat(np.arange(len(single)), model.n_states[nodes])
        state = np.arange(len(row)) - offsets_from_lengths(model.n_states[nodes])[row]
        self._n_states, self._node, self._state = model.n_states, nodes[row], state
        self._of_nodes = single[row], model.cells(single[row], state[:, None])
        self._of_none = empty, model.cells(empty, np.zeros((len(empty), 0), dtype=np.int64))

    def constant(self, model) -> float:
        """Return the sum of the scores of factors without nodes."""
        return float(read_cells(model, *self._of_none).sum())

    def node_scores(self, model, n_columns) -> np.ndarray:
        """Return the summed scores of single-node factors, with -inf in columns beyond a node's number of states."""
        # returns: (N, n_columns)
        scores = np.where(np.arange(n_columns) < self._n_states[:, None], 0.0, -np.inf)
        np.add.at(scores, (self._node, self._state), read_cells(model, *self._of_nodes))
        return scores

    def add_statistics(self, model, unary, log_table, table_default) -> None:
        """Add derivatives with respect to the scores of small factors to statistics in place, given node marginals."""
        # unary: (N, K)
        self.add_node_statistics(model, unary, log_table, table_default)
        add_cells(model, *self._of_none, None, log_table, table_default)

    def add_node_statistics(self, model, unary, log_table, table_default) -> None:
        """Add a value for each state of each node to the statistics of single-node factors, in place."""
        # unary: (N, K)
        values = unary[self._node, self._state].astype(np.float64)
        add_cells(model, *self._of_nodes, values, log_table, table_default)
