"""The scores of a model shared out among spanning trees, and the bound that each way of doing so gives."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._threads import checkpoint
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._tree import TreeInference
from sklearn_crf.models import PairwiseModel, score_terms

# Nodes of trees that are done in one go: many small trees at once save calls, few large ones can be shared by threads.
_NODES_AT_ONCE = 20_000


class TreeMarginals(NamedTuple):
    """Marginals of every tree at one way of sharing out the scores."""

    unary: np.ndarray  # (n_trees, N, K)
    tables: np.ndarray  # (S, K, K) of the S edges of all trees, tree after tree
    log_z_terms: np.ndarray  # (n_trees, N)


class TreeScores:
    r"""Scores :math:`\theta(T)` of trees with :math:`\sum_T \rho(T) \theta(T) = \theta`.

    They are kept as differences to an even share, :math:`u_s` for nodes and :math:`\theta_e / \nu_e` for edges, in
    one vector

    .. math::
        x_T = \sqrt{\rho(T)} \, (\theta(T) - \text{even share})

    in which the Euclidean metric is the one weighted by :math:`\rho(T)`: every tree then moves by its own marginals,
    whatever its probability, and projecting takes out weighted means. What is forbidden in the model is so in every
    tree.

    Parameters
    ----------
    model : PairwiseModel
    trees : SpanningTrees
        That cover all edges.
    mapped : callable
        As :func:`~sklearn_crf._threads.ordered_map` gives it.
    """

    def __init__(self, model, trees, mapped):
        graph, n_columns = model.graph, model.n_columns
        self.graph, self.mapped, self.weights = graph, mapped, trees.weights
        self.tree, self.edge = np.nonzero(trees.trees)
        self.probabilities = trees.edge_probabilities
        self.unary = model.unary.astype(np.float64)
        tables = model.edge_tables().astype(np.float64) / self.probabilities[:, None, None]
        self.tables = tables[self.edge]
        self.shape_of_nodes = (trees.n_trees, graph.n_nodes, n_columns)
        self.n_states = model.n_states
        self.scale_of_nodes = np.sqrt(self.weights)[:, None, None]
        self.scale_of_edges = self.scale_of_nodes[self.tree]
        places = (self.edge, np.arange(len(self.edge)))
        shape = (graph.n_edges, len(self.edge))
        self.mean_of_edges = sp.csr_matrix((self.weights[self.tree] / self.probabilities[self.edge], places), shape)
        self.groups = list(self._grouped())

    def _grouped(self):
        """Trees that are one model each time: the first, one past the last, the same of edges, and their graph."""
        n_trees, n_nodes, _ = self.shape_of_nodes
        step = max(1, _NODES_AT_ONCE // max(n_nodes, 1))
        for first, last in pairwise([*range(0, n_trees, step), n_trees]):
            start, stop = np.searchsorted(self.tree, (first, last)).tolist()
            ends = self.graph.edges[self.edge[start:stop]] + (self.tree[start:stop] - first)[:, None] * n_nodes
            edges = np.ascontiguousarray(ends, dtype=np.int32)
            yield first, last, start, stop, Graph._trusted((last - first) * n_nodes, edges)

    @property
    def size(self):
        """Number of unknowns."""
        return int(np.prod(self.shape_of_nodes)) + self.tables.size

    def value_grad(self, x):
        """The bound, sum_T rho(T) log_z(T), and its derivative by x."""
        found = self.marginals(x)
        gradient = (self.scale_of_nodes * found.unary).ravel(), (self.scale_of_edges * found.tables).ravel()
        return float(self.weights @ found.log_z_terms.sum(axis=1)), np.concatenate(gradient)

    def project(self, x):
        """The nearest vector whose weighted means over trees are zero: the scores then add up to the model's."""
        nodes, edges = self._parts(x)
        nodes, edges = nodes / self.scale_of_nodes, edges / self.scale_of_edges
        nodes -= self.mean_over_nodes(nodes)
        edges -= self.mean_over_edges(edges)[self.edge]
        return np.concatenate(((nodes * self.scale_of_nodes).ravel(), (edges * self.scale_of_edges).ravel()))

    def mean_over_nodes(self, values):
        """Mean over trees of what each node has in each of them, weighted by their probabilities."""
        return np.tensordot(self.weights, values, axes=1)

    def mean_over_edges(self, values):
        """The same of edges, over the trees that an edge is in."""
        means = self.mean_of_edges @ values.reshape(len(self.edge), -1)
        return means.reshape(self.graph.n_edges, *values.shape[1:])

    def marginals(self, x):
        """Sum-product on all trees, :class:`TreeMarginals`."""
        parts = self._of_groups(_marginals_of_trees, x)
        return TreeMarginals(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    def labelings(self, x):
        """Max-product on all trees: (n_trees, N) int32 labels, and the bound, sum_T rho(T) max score_T."""
        labels, terms = zip(*self._of_groups(_labels_of_trees, x), strict=True)
        return np.concatenate(labels), float(self.weights @ np.concatenate(terms).sum(axis=1))

    def subtract_labelings(self, x, labels, step):
        """Subtract, in place, ``step`` times the derivative of the bound by x, which counts the labels of each tree."""
        nodes, edges = self._parts(x)
        trees, kept = np.arange(len(labels)), np.arange(labels.shape[1])
        nodes[trees[:, None], kept, labels] -= step * self.scale_of_nodes[:, 0]
        ends = labels[self.tree[:, None], self.graph.edges[self.edge]]
        edges[np.arange(len(edges)), ends[:, 0], ends[:, 1]] -= step * self.scale_of_edges[:, 0, 0]

    def _of_groups(self, infer, x):
        """What ``infer`` makes of the model of each group of trees, shaped ``(n_trees, N)``."""
        nodes, edges = self._parts(x)
        unary = self.unary + nodes / self.scale_of_nodes
        tables = self.tables + edges / self.scale_of_edges
        return list(self.mapped(lambda group: self._of_group(infer, group, unary, tables), self.groups))

    def _of_group(self, infer, group, unary, tables):
        checkpoint()
        first, last, start, stop, graph = group
        n_columns = unary.shape[2]
        tables = tables[start:stop] if stop > start else np.zeros((1, n_columns, n_columns))
        n_states = None if self.n_states is None else np.tile(self.n_states, last - first)
        kinds = np.arange(stop - start, dtype=np.int32)
        model = PairwiseModel(graph, unary[first:last].reshape(-1, n_columns), tables, kinds, n_states=n_states)
        try:
            return infer(model, (last - first, unary.shape[1]))
        except ValueError as error:
            # Nodes have other numbers there than in the user's model.
            raise ValueError("model is infeasible: a spanning tree of its graph has no allowed labeling.") from error

    def _parts(self, x):
        n = int(np.prod(self.shape_of_nodes))
        return x[:n].reshape(self.shape_of_nodes), x[n:].reshape(self.tables.shape)


def _marginals_of_trees(model, shape):
    found = TreeInference()._marginals(model)
    tables = found.tables[: model.graph.n_edges, 0]
    return found.unary.reshape(*shape, -1), tables, found.log_z_terms.reshape(shape)


def _labels_of_trees(model, shape):
    labels = TreeInference()._map(model).labels
    return labels.reshape(shape), score_terms(model, labels).reshape(shape)
