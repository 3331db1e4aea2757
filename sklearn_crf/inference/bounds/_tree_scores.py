"""Split of a model's scores among spanning trees, and the bound on the best score for a given split."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._threads import checkpoint
from sklearn_crf.graphs import Graph, build_trusted_graph
from sklearn_crf.inference._base import run_map_unchecked
from sklearn_crf.inference.bounds import _tuning
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.models import PairwiseModel, compute_score_terms


class TreeGroup(NamedTuple):
    """Trees that are processed together as one graph."""

    first: int
    last: int  # index of the last tree, plus one
    edges: slice  # positions of the edges in the concatenated edge lists of all trees
    graph: Graph


def group_trees(trees):
    """Yield all trees in groups with similar numbers of nodes."""
    n_nodes = trees.graph.n_nodes
    tree, edge = np.nonzero(trees.trees)
    step = max(1, _tuning.NODES_AT_ONCE // max(n_nodes, 1))
    for first, last in pairwise([*range(0, trees.n_trees, step), trees.n_trees]):
        edges = slice(*np.searchsorted(tree, (first, last)).tolist())
        ends = trees.graph.edges[edge[edges]] + (tree[edges] - first)[:, None] * n_nodes
        graph = build_trusted_graph((last - first) * n_nodes, np.ascontiguousarray(ends, dtype=np.int32))
        yield TreeGroup(first, last, edges, graph)


class TreeMeans:
    """Weighted means, over trees, of node values and edge values."""

    def __init__(self, trees):
        self.weights = trees.weights
        self.tree, self.edge = np.nonzero(trees.trees)
        places = (self.edge, np.arange(len(self.edge)))
        shape = (trees.graph.n_edges, len(self.edge))
        self._of_edges = sp.csr_matrix((self.weights[self.tree] / trees.edge_probabilities[self.edge], places), shape)

    def average_over_nodes(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over trees of the values of each node."""
        return np.tensordot(self.weights, values, axes=1)

    def average_over_edges(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over trees of the values of each edge; values are in the order of the trees."""
        means = self._of_edges @ values.reshape(len(values), int(np.prod(values.shape[1:])))
        return means.reshape(self._of_edges.shape[0], *values.shape[1:])


class TreeScores:
    r"""Scores :math:`\theta(T)` of trees, whose mean :math:`\sum_T \rho(T) \theta(T)` is the model's :math:`\theta`.

    Scores are stored as deviations from even shares, which are :math:`u_s` for nodes and :math:`\theta_e / \nu_e` for
    edges, in one vector

    .. math::
        x_T = \sqrt{\rho(T)} \, (\theta(T) - \text{even share})

    The Euclidean metric of this vector equals the metric weighted by :math:`\rho(T)`. Hence every tree moves by its own
    labels, whatever its probability, and a projection subtracts weighted means. States and pairs that the model forbids
    are forbidden in every tree.
    """

    # trees: must cover all edges
    # mapped: a function from :func:`~sklearn_crf._threads.make_ordered_map`

    def __init__(self, model, trees, mapped):
        graph, n_columns = model.graph, model.n_columns
        self.graph, self.mapped, self.weights = graph, mapped, trees.weights
        self.tree, self.edge = np.nonzero(trees.trees)
        self.unary = model.unary.astype(np.float64)
        tables = model.edge_tables().astype(np.float64) / trees.edge_probabilities[:, None, None]
        self.tables = tables[self.edge]
        self.shape_of_nodes = (trees.n_trees, graph.n_nodes, n_columns)
        self.n_states = model.n_states
        self.scale_of_nodes = np.sqrt(self.weights)[:, None, None]
        self.scale_of_edges = self.scale_of_nodes[self.tree]
        self.means = TreeMeans(trees)
        self.groups = list(group_trees(trees))

    @property
    def size(self):
        """Number of unknowns, the length of x."""
        return int(np.prod(self.shape_of_nodes)) + self.tables.size

    def project(self, x: np.ndarray) -> np.ndarray:
        """Project a vector so that weighted means over trees are zero, and scores sum to the model's scores."""
        nodes, edges = self._parts(x)
        nodes, edges = nodes / self.scale_of_nodes, edges / self.scale_of_edges
        nodes -= self.means.average_over_nodes(nodes)
        edges -= self.means.average_over_edges(edges)[self.edge]
        return np.concatenate(((nodes * self.scale_of_nodes).ravel(), (edges * self.scale_of_edges).ravel()))

    def labelings(self, x: np.ndarray) -> tuple:
        """Run max-product on all trees; return labels (n_trees, N) int32 and the bound, sum_T rho(T) max score_T."""
        nodes, edges = self._parts(x)
        unary = self.unary + nodes / self.scale_of_nodes
        tables = self.tables + edges / self.scale_of_edges
        labels, terms = zip(
            *self.mapped(lambda group: self._label_group(group, unary, tables), self.groups), strict=True
        )
        return np.concatenate(labels), float(self.weights @ np.concatenate(terms).sum(axis=1))

    def subtract_labelings(self, x: np.ndarray, labels: np.ndarray, step: float) -> None:
        """Subtract ``step`` times the derivative of the bound with respect to x from x, in place.

        The derivative counts the labels of each tree.
        """
        nodes, edges = self._parts(x)
        trees, kept = np.arange(len(labels)), np.arange(labels.shape[1])
        nodes[trees[:, None], kept, labels] -= step * self.scale_of_nodes[:, 0]
        ends = labels[self.tree[:, None], self.graph.edges[self.edge]]
        edges[np.arange(len(edges)), ends[:, 0], ends[:, 1]] -= step * self.scale_of_edges[:, 0, 0]

    def _label_group(self, group: TreeGroup, unary: np.ndarray, tables: np.ndarray) -> tuple:
        checkpoint()
        model = self._make_model(group, unary, tables)
        try:
            labels = run_map_unchecked(TreeInference(), model).labels
        except ValueError as error:
            # The original error would name nodes by their numbers in the group.
            raise ValueError("model is infeasible: a spanning tree of its graph has no allowed labeling.") from error
        shape = group.last - group.first, unary.shape[1]
        return labels.reshape(shape), compute_score_terms(model, labels).reshape(shape)

    def _make_model(self, group: TreeGroup, unary: np.ndarray, tables: np.ndarray) -> PairwiseModel:
        """Return the model of the trees of a group, in which every edge has a table of its own."""
        first, last, edges, graph = group
        n_columns = unary.shape[2]
        tables = tables[edges] if graph.n_edges else np.zeros((1, n_columns, n_columns))
        n_states = None if self.n_states is None else np.tile(self.n_states, last - first)
        kinds = np.arange(graph.n_edges, dtype=np.int32)
        return PairwiseModel(graph, unary[first:last].reshape(-1, n_columns), tables, kinds, n_states=n_states)

    def _parts(self, x: np.ndarray) -> tuple:
        n = int(np.prod(self.shape_of_nodes))
        return x[:n].reshape(self.shape_of_nodes), x[n:].reshape(self.tables.shape)
