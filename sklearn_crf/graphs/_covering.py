"""Spanning trees that cover all edges, and distributions over the spanning trees of each component of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf.graphs import _tuning
from sklearn_crf.graphs._graph import Graph
from sklearn_crf.graphs._trees import SpanningTrees, find_cheapest_tree
from sklearn_crf.kernels.graphs.graphs import covering_counts

# Relative rounding error of sums over the edges of a tree.
_ROUNDING = 1e-12


def snakes(graph: Graph) -> SpanningTrees:
    """Return the snakes of a lattice: paths that visit all nodes in alternating directions, two for each axis.

    A snake follows every line along its axis and moves to the next line at an end of the line. The second snake of an
    axis is the mirror image of the first. In two dimensions these are the four trees of 4SNAKES: inner edges have
    probability 1/2, boundary edges 3/4. In d dimensions there are 2 d snakes, and inner edges have probability 1/d.
    """
    if graph.shape is None:
        raise ValueError("graph must be a lattice for snakes; covering_trees supports any graph.")
    index = np.arange(graph.n_nodes).reshape(graph.shape)
    axes = [axis for axis, length in enumerate(graph.shape) if length > 1]
    number = _sort_edge_keys(graph)
    trees = []
    for k, axis in enumerate(axes):
        # Positions along the last axis change fastest.
        order = [*axes[k + 1 :], *axes[:k], axis]
        for mirrored in (False, True) if len(axes) > 1 else (False,):
            nodes = np.flip(index, axis) if mirrored else index
            trees.append(
                _mark_path_edges(_walk_to_and_fro(nodes.squeeze().transpose(_places(order, axes))), number, graph)
            )
    trees = np.array(trees) if trees else np.zeros((1, graph.n_edges), dtype=bool)
    if not trees.any(axis=0).all():
        e = int(np.argmin(trees.any(axis=0)))
        raise ValueError(
            f"edges[{e}] joins nodes {graph.edges[e].tolist()}, which are not axis neighbours: snakes need a lattice "
            "of connectivity=1; covering_trees supports any graph."
        )
    return SpanningTrees.trusted(graph, trees)


def _places(order, axes):
    return [axes.index(axis) for axis in order]


def _walk_to_and_fro(nodes):
    """Return a path through all nodes in which each step moves along one axis: a reflected Gray code."""
    if nodes.ndim == 0:
        return nodes.reshape(1)
    if nodes.ndim == 1:
        return nodes
    parts = [_walk_to_and_fro(part) for part in nodes]
    return np.concatenate([part[::-1] if k % 2 else part for k, part in enumerate(parts)])


def _sort_edge_keys(graph):
    """Return the keys of all edges in ascending order, and the index of each key's edge."""
    low, high = np.sort(graph.edges, axis=1).T.astype(np.int64)
    key = low * graph.n_nodes + high
    order = np.argsort(key)
    return key[order], order


def _mark_path_edges(path, number, graph):
    keys, edges = number
    ends = np.sort(np.stack((path[:-1], path[1:]), axis=1), axis=1).astype(np.int64)
    wanted = ends[:, 0] * graph.n_nodes + ends[:, 1]
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    missing = keys[place] != wanted if len(keys) else np.ones(len(wanted), dtype=bool)
    if missing.any():
        a, b = ends[np.argmax(missing)].tolist()
        raise ValueError(f"graph has no edge between the axis neighbours {a} and {b}: snakes need connectivity=1.")
    tree = np.zeros(graph.n_edges, dtype=bool)
    tree[edges[place]] = True
    return tree


def covering_trees(graph: Graph, rule: str | int = "covering", *, random_state: Any = 0) -> SpanningTrees:
    r"""Compute spanning trees that cover all edges with the greedy algorithm COVERINGTREES.

    Each new tree is the spanning tree whose edges are in the fewest trees so far. This is the conditional
    gradient (Frank-Wolfe) method with steps 1 / (k + 1) for

    .. math::
        \min_\nu \; \| \nu - u \|^2 \quad \text{over the spanning tree polytope},

    where :math:`u` has equal entries. On uniformly dense graphs (grids, complete and most regular graphs) :math:`\nu`
    becomes uniform. Other graphs have edges whose probability cannot be lowered; the probability of a bridge is one.
    On these graphs :math:`\nu` approaches the most even distribution possible.
    """
    if isinstance(rule, str):
        is_known = rule in ("covering", "uniform")
    else:
        is_known = isinstance(rule, int | np.integer) and not isinstance(rule, bool) and 1 <= rule <= _tuning.MAX_TREES
    if not is_known:
        raise ValueError(
            f'rule must be "covering", "uniform" or a number of trees up to {_tuning.MAX_TREES}, got {rule!r}.'
        )
    rng = check_random_state(random_state)
    trees: list[np.ndarray] = []
    counts = np.zeros(graph.n_edges, dtype=np.int64)
    while True:
        tree = find_cheapest_tree(graph, counts, rng.random_sample(graph.n_edges))
        if rule == "uniform" and trees and _is_even(counts, tree, len(trees)):
            break
        trees.append(tree)
        counts += tree
        if len(trees) == rule or (rule == "covering" and counts.all()):
            break
    if not counts.all():
        raise ValueError(
            f'{len(trees)} trees leave {np.sum(counts == 0)} of {graph.n_edges} edges uncovered: rule="covering" '
            "covers all edges with few trees."
        )
    return SpanningTrees.trusted(graph, np.array(trees))


def _is_even(counts, next_tree, n_trees):
    """Return whether every edge is in a tree, and the counts of trees per edge are as even as the graph allows."""
    if not counts.all():
        return False
    if not len(counts) or n_trees >= _tuning.MOST_EVEN_TREES:
        return True
    if counts.min() >= _tuning.EVEN_RATIO * counts.max():
        return True
    # The gap <gradient, v - next tree> is an upper bound on |v - v*|^2 for the objective |v - u|^2.
    # The entries of v and of a tree have equal sums, so u does not matter.
    gap = 2 * np.dot(counts, counts / n_trees - next_tree) / n_trees
    return gap <= (_tuning.EVEN_TOL * counts.mean() / n_trees) ** 2 * len(counts)


def compute_covering_probabilities(graph: Graph) -> np.ndarray:
    """Return the edge probabilities of ``covering_trees(graph)``, computed without storing the trees."""
    # returns: (E,), float64
    if not graph.n_edges:
        return np.zeros(0)
    of_edge = graph.component[graph.edges[:, 0]]
    n_edges = np.bincount(of_edge, minlength=graph.n_components)
    ptr = offsets_from_lengths(n_edges)
    numbers = np.argsort(of_edge, kind="stable").astype(np.int32)
    counts, n_trees = np.empty(graph.n_edges, dtype=np.int64), np.empty(graph.n_components, dtype=np.int64)
    edges = np.ascontiguousarray(graph.edges)
    covering_counts(edges, numbers, ptr, np.empty(graph.n_nodes, dtype=np.int32), counts, n_trees)
    return counts / n_trees[of_edge]


@dataclass(frozen=True, eq=False)
class ComponentTrees:
    r"""Lists of spanning trees, one list for each component of a graph; tree weights define a distribution.

    .. math::
        \nu_e = \epsilon \, \nu^0_e + (1 - \epsilon) \sum_T \rho(T) \, [e \in T], \qquad
        \sum_{T \subseteq c} \rho(T) = 1 \ \text{ for each component } c

    where :math:`\nu^0` are the edge probabilities of covering trees and :math:`\epsilon = 10^{-3}`, so that no
    probability is zero. The probabilities lie in the spanning tree polytope for all weights. It therefore suffices to
    project weights onto a simplex for each component, instead of probabilities onto the polytope.
    """

    graph: Graph
    trees: sp.csr_array  # csr_(n_trees, E)
    component: np.ndarray  # (n_trees,), int
    cover: np.ndarray  # (E,)

    @classmethod
    def covering(cls, graph: Graph) -> ComponentTrees:
        """Return the covering trees of a graph, split into trees of its components."""
        forests = covering_trees(graph)
        component, trees = _split_by_component(graph, forests.trees)
        return cls(graph, trees, component, forests.edge_probabilities)

    @property
    def n_trees(self) -> int:
        """Number of trees of all components."""
        return len(self.component)

    def even_weights(self) -> np.ndarray:
        """Return equal weights for the trees of each component."""
        # returns: (n_trees,)
        return 1 / np.bincount(self.component)[self.component]

    def edge_probabilities(self, weights: ArrayLike) -> np.ndarray:
        """Return the probability of each edge."""
        # weights: (n_trees,); returns: (E,)
        return _tuning.SHARE_OF_COVER * self.cover + (1 - _tuning.SHARE_OF_COVER) * (np.asarray(weights) @ self.trees)

    @property
    def share_of_trees(self) -> float:
        """Total probability of the weighted trees: one minus the probability of the covering trees."""
        return 1 - _tuning.SHARE_OF_COVER

    def gradient(self, of_edges: np.ndarray) -> np.ndarray:
        """Convert a derivative with respect to edge probabilities to a derivative with respect to tree weights."""
        # of_edges: (E,); returns: (n_trees,)
        return (1 - _tuning.SHARE_OF_COVER) * (self.trees @ of_edges)

    def project(self, values: ArrayLike) -> np.ndarray:
        """Return the weights nearest to given values that form a probability distribution in each component."""
        # values: (n_trees,); returns: (n_trees,)
        values = np.asarray(values, dtype=np.float64)
        if not len(values):
            return values.copy()
        first = np.flatnonzero(np.diff(self.component, prepend=-1))
        sizes = np.diff(np.append(first, len(values)))
        descending = values[np.lexsort((-values, self.component))]
        rank = np.arange(len(values)) - np.repeat(first, sizes)
        total = np.cumsum(descending)
        total -= np.repeat(total[first] - descending[first], sizes)
        threshold = (total - 1) / (rank + 1)
        last = first + np.add.reduceat(descending > threshold, first) - 1
        return np.maximum(values - np.repeat(threshold[last], sizes), 0.0)

    def grown(self, weights: np.ndarray, gain: np.ndarray) -> tuple[ComponentTrees, np.ndarray, np.ndarray]:
        """Remove the trees with zero weight, and add the tree with the largest gain in each component."""
        # weights: (n_trees,); gain: (E,); returns: the trees, their weights, and gap: (n_components,)
        steepest = find_cheapest_tree(self.graph, -gain, ())
        component, new = _split_by_component(self.graph, steepest[None])
        of_trees = np.bincount(self.component, weights * (self.trees @ gain), self.graph.n_components)
        of_new = np.bincount(component, new @ gain, self.graph.n_components)
        gap = (1 - _tuning.SHARE_OF_COVER) * np.maximum(of_new - of_trees, 0.0)
        kept = weights > 0
        known = np.full(self.graph.n_components, -np.inf)
        np.maximum.at(known, self.component[kept], self.trees[kept] @ gain)
        is_new = of_new[component] > known[component] + _ROUNDING * np.abs(known[component])
        trees = sp.vstack((self.trees[kept], new[is_new]), format="csr")
        component = np.concatenate((self.component[kept], component[is_new]))
        order = np.argsort(component, kind="stable")
        grown = ComponentTrees(self.graph, trees[order], component[order], self.cover)
        return grown, np.concatenate((weights[kept], np.zeros(np.count_nonzero(is_new))))[order], gap


def _split_by_component(graph, forests):
    """Split forests into trees of connected components; return the distinct trees, ordered by component."""
    # forests: (n_forests, E) of bool; returns: component: (n_trees,), trees: csr (n_trees, E)
    of_edge = graph.component[graph.edges[:, 0]]
    found: dict[Any, Any] = {}
    for forest in forests:
        edges = np.flatnonzero(forest)
        edges = edges[np.argsort(of_edge[edges], kind="stable")]
        bounds = np.flatnonzero(np.diff(of_edge[edges], prepend=-1, append=-1))
        for begin, end in pairwise(bounds):
            part = edges[begin:end]
            found.setdefault((int(of_edge[part[0]]), part.tobytes()), part)
    keys = sorted(found, key=lambda key: key[0])
    parts = [found[key] for key in keys]
    ptr = np.cumsum([0, *map(len, parts)])
    column = np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp)
    trees = sp.csr_array((np.ones(len(column)), column, ptr), shape=(len(parts), graph.n_edges))
    return np.array([key[0] for key in keys], dtype=np.intp), trees
