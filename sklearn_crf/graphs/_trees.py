"""Distributions over spanning trees, and minimum spanning trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse import csgraph

from sklearn_crf._numbers import as_integers, as_reals
from sklearn_crf._own_methods import ChecksPickles
from sklearn_crf.graphs._graph import Graph
from sklearn_crf.kernels.graphs.graphs import find_cheapest_forest


@dataclass(frozen=True, eq=False)
class SpanningTrees(ChecksPickles):
    r"""A distribution over spanning trees of a graph.

    .. math::
        \nu_e = \sum_T \rho(T) \, [e \in T]

    are the edge probabilities, which lie in the spanning tree polytope by construction. If the graph has several
    components, a tree is a spanning forest: one spanning tree of each component.

    A tree may appear several times. :meth:`merged` replaces copies by one tree with their summed weight, which is the
    same distribution. The weights then differ, and a projection that treats all trees alike (Jancsary 2012, Eq. 139) is
    the Euclidean projection for equal weights only.
    """

    graph: Graph
    trees: np.ndarray  # (n_trees, E) of bool
    weights: np.ndarray = None  # type: ignore[assignment]  # the argument may be None, the attribute never is

    def __post_init__(self):
        trees = np.ascontiguousarray(self.trees)
        if trees.ndim != 2 or not len(trees) or trees.shape[1] != self.graph.n_edges or trees.dtype != bool:
            raise ValueError(
                f"trees must be an array of bool of shape (n_trees, {self.graph.n_edges}), at least one tree, "
                f"got {trees.dtype} of shape {trees.shape}."
            )
        weights = np.full(len(trees), 1 / len(trees)) if self.weights is None else self.weights
        weights = as_reals(weights, "weights", np.float64)
        if weights.shape != (len(trees),) or not np.all(weights > 0) or abs(weights.sum() - 1) > 1e-9:
            raise ValueError(
                f"weights must be {len(trees)} positive numbers that sum to one, got an array of shape {weights.shape}."
            )
        for t, tree in enumerate(trees):
            _check_spanning(self.graph, tree, t)
        object.__setattr__(self, "trees", trees)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def trusted(cls, graph, trees, weights=None):
        """Build a distribution without checks, from trees found by this package."""
        made = cls.__new__(cls)
        weights = np.full(len(trees), 1 / len(trees)) if weights is None else weights
        for name, value in (("graph", graph), ("trees", trees), ("weights", weights)):
            object.__setattr__(made, name, value)
        return made

    @classmethod
    def from_edge_lists(
        cls, graph: Graph, edge_lists: Sequence[ArrayLike], weights: ArrayLike | None = None
    ) -> SpanningTrees:
        """Build a distribution from trees that are given by the indices of their edges."""
        # weights: (n_trees,)
        if not np.iterable(edge_lists):
            raise ValueError(f"edge_lists must be a sequence of rows of edges, got {edge_lists!r}.")
        edge_lists = list(edge_lists)
        trees = np.zeros((len(edge_lists), graph.n_edges), dtype=bool)
        for t, edges in enumerate(edge_lists):
            trees[t, as_integers(edges, f"edge_lists[{t}]", lowest=0, highest=graph.n_edges - 1)] = True
        return cls(graph, trees, weights)  # type: ignore[arg-type]

    @property
    def n_trees(self) -> int:
        """Number of trees, including copies."""
        return len(self.trees)

    @property
    def edge_probabilities(self) -> np.ndarray:
        """Probability that each edge is in a tree, (E,) float64; exactly one for edges in all trees."""
        uniform = np.all(self.weights == self.weights[0])
        if uniform:
            return self.trees.sum(axis=0) / self.n_trees
        return np.where(self.trees.all(axis=0), 1.0, np.minimum(self.weights @ self.trees, 1.0))

    def merged(self) -> Self:
        """Return the same distribution with copies of a tree merged into one tree."""
        _, first, inverse = np.unique(np.packbits(self.trees, axis=1), axis=0, return_index=True, return_inverse=True)
        weights = np.bincount(inverse.ravel(), weights=self.weights)
        order = np.argsort(first)
        return self.trusted(self.graph, self.trees[first[order]], weights[order])

    def stepped(self, tree: ArrayLike, step: float) -> Self:
        """Return a mixture of this distribution, with weight ``1 - step``, and a new tree, with weight ``step``.

        This is the step of the conditional gradient (Frank-Wolfe) method. A step of ``1 / (n_trees + 1)`` keeps the
        weights equal.
        """
        # tree: (E,) of bool
        if not 0 < step < 1:
            raise ValueError(f"step must lie between 0 and 1, got {step!r}.")
        # Check only the new tree.
        new = type(self)(self.graph, np.asarray(tree, dtype=bool)[None])
        trees = np.concatenate((self.trees, new.trees))
        is_even = np.all(self.weights == self.weights[0]) and np.isclose(step, 1 / len(trees), rtol=1e-12)
        return self.trusted(self.graph, trees, None if is_even else np.append(self.weights * (1 - step), step))


def _check_spanning(graph, tree, t):
    n_edges, needed = int(tree.sum()), graph.n_nodes - graph.n_components
    if n_edges != needed:
        raise ValueError(f"trees[{t}] must have {needed} edges to span the graph, got {n_edges}.")
    ends = graph.edges[tree]
    joined = sp.coo_matrix((np.ones(n_edges, dtype=np.int8), ends.T), shape=(graph.n_nodes, graph.n_nodes))
    if graph.n_nodes and csgraph.connected_components(joined, directed=False)[0] != graph.n_components:
        raise ValueError(f"trees[{t}] has a cycle and does not span the graph.")


def minimum_spanning_tree(graph: Graph, cost: ArrayLike) -> np.ndarray:
    """Return the spanning tree, or spanning forest, with the smallest total cost."""
    # cost: (E,); returns: (E,), bool
    cost = as_reals(cost, "cost")
    if cost.shape != (graph.n_edges,) or not np.all(np.isfinite(cost)):
        raise ValueError(f"cost must be {graph.n_edges} finite numbers, got an array of shape {cost.shape}.")
    return find_cheapest_tree(graph, cost, ())


def find_cheapest_tree(graph, cost, ties):
    """Return the minimum spanning tree without checks; ``ties``, if not empty, is a second cost that breaks ties."""
    tree = np.zeros(graph.n_edges, dtype=bool)
    if graph.n_edges:
        cost, ties = (np.ascontiguousarray(values, dtype=np.float64) for values in (cost, ties))
        parent = np.empty(graph.n_nodes, dtype=np.int32)
        find_cheapest_forest(np.ascontiguousarray(graph.edges), cost, ties, parent, tree.view(np.uint8))
    return tree
