"""Pairwise models of factor graphs: the joint state of each large factor becomes the state of an additional node."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.graphs import Graph
from sklearn_crf.models import _tuning
from sklearn_crf.models._factor_graph import FactorGraph
from sklearn_crf.models._factor_scores import FactorStatistics
from sklearn_crf.models._pairwise import PairwiseModel, Statistics


class ExpandedFactors(NamedTuple):
    r"""Pairwise model with an additional node for each factor of more than two nodes, and the source of each score.

    .. math:: \mathrm{score}(y, z) = \mathrm{score}(y) \text{ if } z_f = y_f \text{ for all large factors } f,
        \text{ else } -\infty

    An additional node has a lower number than the last node of its factor, so that a sweep in the order of the nodes
    passes messages through the factor.
    """

    model: PairwiseModel
    place: np.ndarray  # (N,), the node of the pairwise model that represents each node of the factor graph
    factors: list  # for each arity above two: additional nodes (n,), scopes (n, arity), shapes (n, arity)
    target: np.ndarray  # (n,), index of an entry of the pairwise model: flat unary scores, then flat tables
    # (n,), index of the factor graph's score that is added to the entry: cells first, then default scores of tables
    source: np.ndarray

    def pullback(self, graph: FactorGraph, statistics: Statistics) -> FactorStatistics:
        """Convert derivatives for scores of the pairwise model to derivatives for scores of the factor graph."""
        entries = np.concatenate((statistics.unary.ravel(), statistics.tables.ravel()))
        flat = np.bincount(self.source, entries[self.target], graph.log_table.size + graph.n_tables)
        return FactorStatistics(*np.split(flat, [graph.log_table.size]))

    def expand_labels(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels of all nodes of the pairwise model, -1 for factors with an unlabelled node."""
        expanded = np.empty(self.model.n_nodes, dtype=np.int32)
        expanded[self.place] = labels
        for nodes, scope, shape in self.factors:
            states = labels[scope]
            number = np.zeros(len(scope), dtype=np.int64)
            for axis in range(scope.shape[1]):
                number = number * shape[:, axis] + states[:, axis]
            expanded[nodes] = np.where((states >= 0).all(axis=1), number, -1)
        return expanded


class _Nodes(NamedTuple):
    """Nodes of the pairwise model."""

    place: np.ndarray  # (N,), the node that represents each node of the factor graph
    of_factor: np.ndarray  # (F,), the node that represents each factor of more than two nodes, -1 for other factors
    n_states: np.ndarray  # (N + n_large,)

    @property
    def width(self) -> int:
        """Largest number of states of a node."""
        return int(self.n_states.max(initial=1))


class _Cells(NamedTuple):
    """Joint states of factors of one arity, factor by factor."""

    row: np.ndarray  # (n,), the position of the factor in its group
    number: np.ndarray  # (n,), the number of the joint state, in C order
    states: np.ndarray  # (n, arity)
    source: np.ndarray  # (n,), as in ExpandedFactors


def expand_factors(graph: FactorGraph) -> ExpandedFactors:
    """Build the pairwise model of a factor graph; raise ValueError if a factor has too many joint states."""
    nodes = _place_nodes(graph)
    edges, large, targets, sources = _Edges(nodes.width), [], [], []
    for factors, scope in graph.by_arity():
        cells, arity = _list_cells(graph, factors, scope), scope.shape[1]
        source = cells.source
        if arity == 0:
            # Factors without nodes are constants, which are added to all states of the first node.
            first, n_first = nodes.place[0], nodes.n_states[nodes.place[0]]
            source = np.repeat(source, n_first)
            target = first * nodes.width + np.tile(np.arange(n_first), len(factors))
        elif arity == 2:
            target = len(nodes.n_states) * nodes.width + edges.locate(nodes.place[scope], cells)
        else:
            owner = nodes.place[scope[:, 0]] if arity == 1 else nodes.of_factor[factors]
            target = owner[cells.row] * nodes.width + cells.number
        if arity > 2:
            shape = graph.n_states[scope].astype(np.int64)
            large.append((owner, scope, shape))
            edges.join(owner, nodes.place[scope], shape)
        targets.append(target)
        sources.append(source)
    found = ExpandedFactors(edges.build_model(graph, nodes), nodes.place, large, *map(_join, (targets, sources)))
    return rescore(found, graph)


def _place_nodes(graph: FactorGraph) -> _Nodes:
    """Assign numbers to the nodes of the pairwise model; a large factor precedes its last node."""
    large = np.flatnonzero(graph.arity > 2)
    sizes = np.array([n_joint_states(graph.n_states[_get_scope(graph, f)]) for f in large])
    if np.any(sizes > _tuning.MOST_STATES_OF_NODE):
        f = int(np.argmax(sizes))
        raise ValueError(
            f"factor {large[f]} has {sizes[f]:.3g} joint states, but factors that become nodes may have at most "
            f"{_tuning.MOST_STATES_OF_NODE}: use an inference that supports factor graphs, such as LoopyBP or "
            "NormProductBP."
        )
    last = np.array([_get_scope(graph, f).max() for f in large], dtype=np.int64)
    order = np.argsort(np.concatenate((2 * np.arange(graph.n_nodes) + 1, 2 * last)), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    of_factor = np.full(graph.n_factors, -1)
    of_factor[large] = rank[graph.n_nodes :]
    n_states = np.concatenate((graph.n_states, sizes.astype(np.int64)))[order]
    return _Nodes(rank[: graph.n_nodes], of_factor, n_states)


def _list_cells(graph: FactorGraph, factors: np.ndarray, scope: np.ndarray) -> _Cells:
    """Return all joint states of the given factors, which all have the same arity."""
    shape = graph.n_states[scope].astype(np.int64)
    counts = shape.prod(axis=1)
    row = np.repeat(np.arange(len(factors)), counts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    states, left = np.empty((len(row), scope.shape[1]), dtype=np.int64), number.copy()
    for axis in reversed(range(scope.shape[1])):
        states[:, axis], left = left % shape[row, axis], left // shape[row, axis]
    cells = graph.cells(factors[row], states)
    source = np.where(cells >= 0, cells, graph.log_table.size + graph.table_id[factors[row]])
    return _Cells(row, number, states, source)


class _Edges:
    """Edges of the pairwise model: edges of two-node factors, each with its own table, then edges of large factors."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.pairs: dict[tuple, int] = {}
        self.kinds: dict[tuple, int] = {}
        self.joined: list[tuple] = []

    def locate(self, ends: np.ndarray, cells: _Cells) -> np.ndarray:
        """Return the indices of two-node factors' cells in the flat tables; factors on the same nodes share a table."""
        # ends: (n_factors, 2)
        pairs, width = self.pairs, self.width
        swapped = ends[:, 0] > ends[:, 1]
        edge = np.array([pairs.setdefault((min(pair), max(pair)), len(pairs)) for pair in ends.tolist()])
        states = np.where(swapped[cells.row, None], cells.states[:, ::-1], cells.states)
        return (edge[cells.row] * width + states[:, 0]) * width + states[:, 1]

    def join(self, owner: np.ndarray, ends: np.ndarray, shape: np.ndarray) -> None:
        """Add edges from large factors to their nodes; edges share a table if factor shapes and axes are equal."""
        # owner: (n_factors,); ends, shape: (n_factors, arity)
        for own, between, sizes in zip(owner.tolist(), ends.tolist(), shape.tolist(), strict=True):
            for axis, node in enumerate(between):
                self.joined.append((own, node, self.kinds.setdefault((axis, *sizes), len(self.kinds))))

    def build_model(self, graph: FactorGraph, nodes: _Nodes) -> PairwiseModel:
        """Return the pairwise model with scores of zero, except -inf where a large factor and its node disagree."""
        n_pairs, width = len(self.pairs), self.width
        tables = np.zeros((max(n_pairs + len(self.kinds), 1), width, width))
        for (axis, *shape), kind in self.kinds.items():
            state = np.indices(shape)[axis].ravel()
            tables[n_pairs + kind] = -np.inf
            tables[n_pairs + kind, np.arange(len(state)), state] = 0.0
        joined = np.array(self.joined, dtype=np.int64).reshape(-1, 3)
        ends = np.concatenate((np.array(list(self.pairs), dtype=np.int64).reshape(-1, 2), joined[:, :2]))
        return PairwiseModel(
            Graph(len(nodes.n_states), ends),
            np.zeros((len(nodes.n_states), width), dtype=graph.dtype),
            tables.astype(graph.dtype),
            np.concatenate((np.arange(n_pairs), n_pairs + joined[:, 2])),
            n_states=nodes.n_states,
        )


def rescore(expanded: ExpandedFactors, graph: FactorGraph) -> ExpandedFactors:
    """Return the pairwise model of a factor graph that differs from the expanded factor graph only in its scores."""
    model = expanded.model
    n_unary = model.unary.size
    entries = np.concatenate((np.zeros(n_unary), model.tables.ravel().astype(np.float64)))
    entries[expanded.target] = 0.0
    np.add.at(entries, expanded.target, np.concatenate((graph.log_table, graph.table_default))[expanded.source])
    unary = entries[:n_unary].reshape(model.unary.shape).astype(graph.dtype)
    tables = entries[n_unary:].reshape(model.tables.shape).astype(graph.dtype)
    return expanded._replace(model=PairwiseModel(model.graph, unary, tables, model.edge_type, n_states=model.n_states))


def _get_scope(graph, factor):
    return graph.scope[graph.scope_ptr[factor] : graph.scope_ptr[factor + 1]]


def _join(arrays):
    return np.concatenate([*arrays, np.zeros(0, dtype=np.int64)]).astype(np.int64)
