"""Bounds over series-parallel subgraphs, whose cliques have three nodes, in place of spanning trees."""

from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.graphs import Graph, SpanningTrees
from sklearn_crf.inference._proofs import ROUNDING
from sklearn_crf.inference.bounds import _tuning
from sklearn_crf.inference.bounds._shared_bound import (
    Averages,
    make_infeasible_error,
    marginals_from_pairs,
    mutual_information,
)
from sklearn_crf.inference.bounds._tree_choice import combine_component_trees, list_connected_parts
from sklearn_crf.inference.bounds._tree_scores import TreeGroup, TreeScores
from sklearn_crf.inference.exact._junction_tree import JunctionTree


class SeriesParallel(SpanningTrees):
    """A distribution over series-parallel subgraphs, which take the place of the trees of a graph."""

    @classmethod
    def covering(cls, graph: Graph) -> "SeriesParallel":
        """Return a few subgraphs that together contain all edges; they are chosen separately for each component."""

        def make() -> tuple[np.ndarray, np.ndarray]:
            parts = [(edges, SpanningTrees.trusted(part, _cover(part))) for edges, part in list_connected_parts(graph)]
            found = combine_component_trees(graph, parts).merged()
            return found.trees, found.weights

        return cls.trusted(graph, *graph.keep("series-parallel subgraphs", make))


def _cover(graph: Graph) -> np.ndarray:
    """Return series-parallel subgraphs that together contain all edges of a connected graph."""
    # returns: (n_subgraphs, E) of bool
    counts = np.zeros(graph.n_edges, dtype=np.int64)
    found: list[np.ndarray] = []
    # A tree is itself a series-parallel graph, and needs no second subgraph.
    if graph.is_forest:
        return np.ones((1, graph.n_edges), dtype=bool)
    while not counts.all() or len(found) < _tuning.FEWEST_SUBGRAPHS:
        found.append(grow_series_parallel(graph, np.where(counts, _tuning.WEIGHT_OF_COVERED / (1 + counts), 1.0)))
        counts += found[-1]
    return np.array(found)


def grow_series_parallel(graph: Graph, weight: np.ndarray) -> np.ndarray:
    """Return a series-parallel subgraph that prefers edges of large weight, as a mask of edges.

    Nodes are eliminated in the order of their degrees. The two neighbours of a node are joined by an additional edge.
    If a node has more than two neighbours, only the two strongest connections are kept. The others are cut where the
    least weight is lost.
    """
    # weight: (E,); returns: (E,) of bool
    # For each node and neighbour: the minimum weight that disconnects them, and the edges that have this weight.
    links: list[dict] = [{} for _ in range(graph.n_nodes)]
    for e, (s, t) in enumerate(graph.edges.tolist()):
        links[s][t] = links[t][s] = (float(weight[e]), (e,))
    kept = np.ones(graph.n_edges, dtype=bool)
    heap = [(len(own), s) for s, own in enumerate(links)]
    heapify(heap)
    while heap:
        degree, s = heappop(heap)
        if degree != len(links[s]):
            continue
        ranked = sorted(links[s].items(), key=lambda item: (-item[1][0], item[0]))
        for _, (_, cut) in ranked[2:]:
            kept[list(cut)] = False
        if len(ranked) > 1:
            (a, to_a), (b, to_b) = ranked[:2]
            total, cut = links[a].get(b, (0.0, ()))
            least = min(to_a, to_b)
            links[a][b] = links[b][a] = (total + least[0], cut + least[1])
        for t, _ in ranked:
            del links[t][s]
            heappush(heap, (len(links[t]), t))
        links[s] = {}
    return kept


class SeriesParallelShares(TreeScores):
    """Scores of series-parallel subgraphs, with the interface of :class:`NodeShares`.

    Subgraphs with equal marginals of nodes may differ in marginals of edges, so the scores of edges are also unknowns.
    """

    def __init__(self, model: Any, trees: SpanningTrees, mapped: Any) -> None:
        super().__init__(model, trees, mapped)
        self.model, self.trees, self.scale = model, trees, np.sqrt(trees.weights)

    def value_grad(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bound and its projected derivative with respect to x."""
        nodes, edges, terms = self._marginals(x)
        slope = (nodes * self.scale_of_nodes).ravel(), (edges * self.scale_of_edges).ravel()
        return float(self.weights @ terms.sum(axis=1)), self.project(np.concatenate(slope))

    def average(self, x: np.ndarray) -> Averages:
        """Return means over subgraphs. They are the derivatives of the bound, even if the subgraphs disagree."""
        x = self.project(x)
        nodes, edges, terms = self._marginals(x)
        unary, pairs = self.means.average_over_nodes(nodes), self.means.average_over_edges(edges)
        apart = max(np.abs(nodes - unary).max(), np.abs(edges - pairs[self.edge]).max(initial=0.0))
        of_nodes, of_edges = self._parts(x)
        # Shares add up to the scores of the model up to rounding errors.
        largest = self.scale @ np.abs(of_nodes).max(axis=2)
        np.add.at(largest, self.graph.edges[self.edge, 0], self.scale[self.tree] * np.abs(of_edges).max(axis=(1, 2)))
        marginals = marginals_from_pairs(self.model, unary, pairs, self.weights @ terms + ROUNDING * largest)
        return Averages(marginals, float(apart), partial(mutual_information, pairs))

    def _marginals(self, x: np.ndarray) -> tuple:
        """Return, for all n subgraphs, marginals of nodes (n, N, K) and edges (S, K, K), and terms of log Z (n, N)."""
        nodes, edges = self._parts(x)
        unary, tables = self.unary + nodes / self.scale_of_nodes, self.tables + edges / self.scale_of_edges
        found = self.mapped(lambda group: self._marginalise_group(group, unary, tables), self.groups)
        return tuple(np.concatenate(values) for values in zip(*found, strict=True))

    def _marginalise_group(self, group: TreeGroup, unary: np.ndarray, tables: np.ndarray) -> tuple:
        checkpoint()
        model = self._make_model(group, unary, tables)
        try:
            found = JunctionTree()._marginals(model)
        except ValueError as error:
            raise make_infeasible_error() from error
        shape = group.last - group.first, unary.shape[1]
        pairs = found.statistics.tables[: group.graph.n_edges, 0]
        return found.statistics.unary.reshape(*shape, -1), pairs, found.log_z_terms.reshape(shape)
