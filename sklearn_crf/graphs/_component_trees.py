"""Distributions over spanning trees of each component of a graph, with weights that can be optimised."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklearn_crf.graphs import _tuning
from sklearn_crf.graphs._covering import covering_trees
from sklearn_crf.graphs._graph import Graph
from sklearn_crf.graphs._trees import cheapest_tree

# Relative rounding error of sums over the edges of a tree.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class ComponentTrees:
    r"""A distribution over spanning trees for each component of a graph, stored as the weights of some trees.

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
    def covering(cls, graph: Graph) -> "ComponentTrees":
        """Return the covering trees of a graph, split into trees of its components."""
        forests = covering_trees(graph)
        component, trees = _parts(graph, forests.trees)
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

    def gradient(self, of_edges: np.ndarray) -> np.ndarray:
        """Convert a derivative by the edge probabilities to a derivative by the weights of the trees."""
        # of_edges: (E,); returns: (n_trees,)
        return (1 - _tuning.SHARE_OF_COVER) * (self.trees @ of_edges)

    def project(self, values: ArrayLike) -> np.ndarray:
        """Project values to the nearest weights that form a distribution in each component."""
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

    def grown(self, weights: np.ndarray, gain: np.ndarray) -> tuple["ComponentTrees", np.ndarray, np.ndarray]:
        """Keep the trees with positive weight and add the tree of largest gain in each component."""
        # weights: (n_trees,); gain: (E,); returns: the trees, their weights, and gap: (n_components,)
        steepest = cheapest_tree(self.graph, -gain, ())
        component, new = _parts(self.graph, steepest[None])
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


def _parts(graph, forests):
    """Return the distinct trees of the forests in each component with edges, in the order of components."""
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
