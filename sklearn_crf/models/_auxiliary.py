"""Pairwise models of factor graphs: the joint state of each large factor is the state of an additional node."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.graphs import Graph
from sklearn_crf.models import _tuning
from sklearn_crf.models._factor_graph import FactorGraph
from sklearn_crf.models._factor_scores import FactorStatistics
from sklearn_crf.models._pairwise import PairwiseModel, Statistics


class ExpandedFactors(NamedTuple):
    r"""Pairwise model with a node for each factor of more than two nodes, and the origin of its scores.

    .. math:: \mathrm{score}(y, z) = \mathrm{score}(y) \text{ if } z_f = y_f \text{ for all large factors } f,
        \text{ else } -\infty

    An additional node precedes the last node of its factor, so that sweeps in the order of the nodes pass factors.
    """

    model: PairwiseModel
    place: np.ndarray  # (N,), the node of the pairwise model that stands for each node
    factors: list  # for each number of nodes above two: additional nodes (n,), scopes (n, arity) and shapes (n, arity)
    target: np.ndarray  # (n,), an entry of the unary scores and then of the tables, flat
    source: np.ndarray  # (n,), the score of the factor graph that the entry includes: its cell, or after all cells its
    # table's default

    def pullback(self, graph: FactorGraph, statistics: Statistics) -> FactorStatistics:
        """Return the derivatives by the scores of the factor graph, given derivatives by the pairwise scores."""
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


def expand_factors(graph: FactorGraph) -> ExpandedFactors:
    """Build the pairwise model of a factor graph; raise ValueError if a factor has too many joint states."""
    n_nodes, large = graph.n_nodes, np.flatnonzero(graph.arity > 2)
    sizes = np.array([n_joint_states(graph.n_states[_get_scope(graph, f)]) for f in large])
    if np.any(sizes > _tuning.MOST_STATES_OF_NODE):
        f = int(np.argmax(sizes))
        raise ValueError(
            f"factor {large[f]} has {sizes[f]:.3g} joint states, but factors that become nodes may have at most "
            f"{_tuning.MOST_STATES_OF_NODE}: use an inference of factor graphs, such as LoopyBP or NormProductBP."
        )
    last = np.array([_get_scope(graph, f).max() for f in large], dtype=np.int64)
    order = np.argsort(np.concatenate((2 * np.arange(n_nodes) + 1, 2 * last)), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    place, of_factor = rank[:n_nodes], np.full(graph.n_factors, -1)
    of_factor[large] = rank[n_nodes:]
    n_states = np.concatenate((graph.n_states, sizes.astype(np.int64)))[order]
    width = int(n_states.max(initial=1))
    pairs: dict[tuple, int] = {}
    kinds: dict[tuple, int] = {}
    edges, kept, targets, sources = [], [], [], []
    for factors, scope in graph.by_arity():
        shape = graph.n_states[scope].astype(np.int64)
        counts = shape.prod(axis=1)
        row = np.repeat(np.arange(len(factors)), counts)
        number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        states, left = np.empty((len(row), scope.shape[1]), dtype=np.int64), number.copy()
        for axis in reversed(range(scope.shape[1])):
            states[:, axis], left = left % shape[row, axis], left // shape[row, axis]
        cells = graph.cells(factors[row], states)
        source = np.where(cells >= 0, cells, graph.log_table.size + graph.table_id[factors[row]])
        if scope.shape[1] == 0:
            # Constants belong to all states of the first node.
            source = np.repeat(source, n_states[place[0]])
            target = place[0] * width + np.tile(np.arange(n_states[place[0]]), len(factors))
        elif scope.shape[1] == 1:
            target = place[scope[row, 0]] * width + number
        elif scope.shape[1] == 2:
            ends = place[scope]
            swapped = ends[:, 0] > ends[:, 1]
            edge = np.array([pairs.setdefault((min(pair), max(pair)), len(pairs)) for pair in ends.tolist()])
            states = np.where(swapped[row, None], states[:, ::-1], states)
            target = rank.size * width + (edge[row] * width + states[:, 0]) * width + states[:, 1]
        else:
            nodes = of_factor[factors]
            target = nodes[row] * width + number
            kept.append((nodes, scope, shape))
            for own, between, sizes_of_axes in zip(nodes.tolist(), place[scope].tolist(), shape.tolist(), strict=True):
                edges += [
                    (own, node, kinds.setdefault((axis, *sizes_of_axes), len(kinds)))
                    for axis, node in enumerate(between)
                ]
        targets.append(target)
        sources.append(source)
    tables = np.zeros((len(pairs) + len(kinds), width, width))
    for (axis, *shape_of_table), kind in kinds.items():
        state = np.indices(shape_of_table)[axis].ravel()
        tables[len(pairs) + kind] = -np.inf
        tables[len(pairs) + kind, np.arange(len(state)), state] = 0.0
    consistency = np.array(edges, dtype=np.int64).reshape(-1, 3)
    ends = np.concatenate((np.array(list(pairs), dtype=np.int64).reshape(-1, 2), consistency[:, :2]))
    pairwise = PairwiseModel(
        Graph(len(order), ends),
        np.zeros((len(order), width), dtype=graph.dtype),
        (tables if len(tables) else np.zeros((1, width, width))).astype(graph.dtype),
        np.concatenate((np.arange(len(pairs)), len(pairs) + consistency[:, 2])),
        n_states=n_states,
    )
    found = ExpandedFactors(pairwise, place, kept, *map(_join, (targets, sources)))
    return rescore(found, graph)


def rescore(expanded: ExpandedFactors, graph: FactorGraph) -> ExpandedFactors:
    """Return the pairwise model of a factor graph that differs from the expanded one in its scores only."""
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
