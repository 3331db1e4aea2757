"""Tree-reweighted bound for a given split of the scores among trees, for training that optimises the split."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy

from sklearn_crf._threads import checkpoint, run_alone
from sklearn_crf.graphs import SpanningTrees, minimum_spanning_tree
from sklearn_crf.inference import _field
from sklearn_crf.inference._proofs import ROUNDING
from sklearn_crf.inference._results import Marginals
from sklearn_crf.inference.bounds._tree_choice import choose_spanning_trees
from sklearn_crf.inference.bounds._tree_scores import TreeMeans, group_trees
from sklearn_crf.inference.exact._edge_marginals import compute_edge_beliefs
from sklearn_crf.inference.exact._tree import send_exact_messages
from sklearn_crf.kernels.messages.edges import edge_log_normalisers
from sklearn_crf.models import PairwiseModel, Statistics

# Replaces the logarithm of a zero message, because starts must be finite.
_LEAST_LOG_MESSAGE = -50.0


class Averages(NamedTuple):
    """Means over trees, and the maximum difference between the means and the marginals of a tree."""

    marginals: Marginals  # with the bound as ``log_z``
    disagreement: float
    information: Callable[[], np.ndarray]  # computes the negative derivative of the bound by edge probabilities


class _Group(NamedTuple):
    """Trees whose nodes and edges form one model."""

    first: int
    last: int  # index of the last tree, plus one
    model: PairwiseModel  # model without unary scores
    field: _field.Field
    row_totals: np.ndarray


class NodeShares:
    r"""Scores :math:`\theta(T)` of trees, whose mean :math:`\sum_T \rho(T) \theta(T)` is the model's :math:`\theta`.

    Each edge is divided evenly, :math:`\theta_e / \nu_e` in every tree that contains the edge. Trees differ only in the
    scores of nodes, whose differences from :math:`\theta_s` are stored in one vector

    .. math::
        x_T = \sqrt{\rho(T)} \, (\theta_s(T) - \theta_s)

    The Euclidean metric of this vector equals the metric weighted by :math:`\rho(T)`. Hence every tree moves by its own
    marginals, whatever its probability, and a projection subtracts weighted means.

    Restricting the unknowns to scores of nodes does not change the minimum. Trees that agree on the marginals of nodes
    also agree on the marginals of edges, because only one joint distribution with given marginals of the ends has the
    form :math:`\exp(\theta_e / \nu_e)` times a function of each end. With two states, there are only a third of the
    unknowns.
    """

    # trees: must cover all edges
    # mapped: a function from :func:`~sklearn_crf._threads.make_ordered_map`

    def __init__(self, model, trees, mapped):
        self.model, self.graph, self.trees, self.mapped = model, model.graph, trees, mapped
        self.weights = trees.weights
        self.edge = np.nonzero(trees.trees)[1]
        self.probabilities = trees.edge_probabilities
        self.unary = model.unary.astype(np.float64)
        self.shape = (trees.n_trees, *self.unary.shape)
        self.scale = np.sqrt(self.weights)
        self.means = TreeMeans(trees)
        try:
            self.groups = list(self._make_groups(model))
        except ValueError as error:
            raise make_infeasible_error() from error

    def _make_groups(self, model):
        weight = np.ones((1, 1)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
        weight = weight / self.probabilities[:, None]
        tables = model.tables.astype(np.float64)
        for first, last, edges, graph in group_trees(self.trees):
            number = self.edge[edges]
            n_states = None if model.n_states is None else np.tile(model.n_states, last - first)
            nothing = np.zeros((graph.n_nodes, self.shape[2]))
            part = PairwiseModel(graph, nothing, tables, model.edge_type[number], weight[number], n_states)
            field, _ = _field.make_field(part, maximum=False)
            stored = field.semiring == _field.SUM_PROBABILITY and len(field.factors) + len(field.on) > 0
            row_totals = _field.sum_factor_rows(field) if stored else np.zeros((0, field.width))
            yield _Group(first, last, part, field, row_totals)

    @property
    def size(self):
        """Number of unknowns, the length of x."""
        return int(np.prod(self.shape))

    def value_grad(self, x: np.ndarray) -> tuple:
        """Return the bound, sum_T rho(T) log_z(T), and its projected derivative with respect to x."""
        found = list(self.mapped(lambda group: self._compute_tree_sums(group, x), self.groups))
        log_z, gradient = (np.concatenate(values) for values in zip(*found, strict=True))
        return float(self.weights @ log_z), self._centre(gradient).ravel()

    def project(self, x: np.ndarray) -> np.ndarray:
        """Project a vector so that weighted means over trees are zero, and scores sum to the model's scores."""
        return self._centre(x.reshape(self.shape).copy()).ravel()

    def _centre(self, values: np.ndarray) -> np.ndarray:
        """Subtract weighted means over trees, in place, from values in the scaling of x."""
        mean = np.tensordot(self.scale, values, axes=1)
        for part, scale in zip(values, self.scale, strict=True):
            part -= scale * mean
        return values

    def average(self, x: np.ndarray) -> "Averages":
        """Return means over trees. They are the derivatives of the bound, even if the trees disagree."""
        # The sum of log-partitions is a bound only if the scores of the trees sum to the model's scores.
        x = self.project(x)
        of_trees, tables, log_z_terms = self.marginals(x)
        unary, pairs = self.means.average_over_nodes(of_trees), self.means.average_over_edges(tables)
        apart = max(np.abs(of_trees - unary).max(), np.abs(tables - pairs[self.edge]).max(initial=0.0))
        terms = self.weights @ log_z_terms + bound_rounding(self, x)
        marginals = marginals_from_pairs(self.model, unary, pairs, terms)
        return Averages(marginals, float(apart), partial(mutual_information, pairs))

    def find_steepest_tree(self, information: np.ndarray) -> np.ndarray:
        """Return the tree with the most information, in whose direction the bound decreases fastest."""
        return minimum_spanning_tree(self.graph, -information)

    def on(self, trees: SpanningTrees) -> "NodeShares":
        """Return the scores of the model for other trees."""
        return NodeShares(self.model, trees, self.mapped)

    def from_messages(self, messages):
        """Convert tree-reweighted messages to a vector x; a fixed point of the messages gives the minimum."""
        # messages: messages that were sent with the edge probabilities of these trees
        scores = messages.values
        if not messages.as_scores:
            with np.errstate(divide="ignore"):
                scores = np.log(scores)
        scores = np.maximum(scores.astype(np.float64), _LEAST_LOG_MESSAGE)
        incidence = self.graph.incidence
        edge_of_slot, slots = incidence.half_edge >> 1, np.arange(len(scores))
        start = np.empty(self.shape)
        for part, tree, scale in zip(start, self.trees.trees, self.scale, strict=True):
            # Every message to a node is added to its score, except for the part that the tree itself will send.
            share = 1 - (tree / self.probabilities)[edge_of_slot]
            part[:] = scale * (sp.csr_matrix((share, slots, incidence.ptr), (len(self.unary), len(scores))) @ scores)
        return start.ravel()

    def marginals(self, x):
        """Return all trees' marginals of nodes (n_trees, N, K) and edges (S, K, K), and terms of log Z (n_trees, N)."""
        parts = list(self.mapped(lambda group: self._compute_tree_marginals(group, x), self.groups))
        return tuple(np.concatenate(values) for values in zip(*parts, strict=True))

    def _compute_tree_sums(self, group: _Group, x: np.ndarray) -> tuple:
        """Return the log-partition of each tree, and node marginals times the square root of the tree's probability."""
        _, _, unary, log_z_terms = self._run_sum_product(group, x)
        unary = unary.reshape(group.last - group.first, *self.shape[1:])
        return log_z_terms.sum(axis=1), unary * self.scale[group.first : group.last, None, None]

    def _compute_tree_marginals(self, group: _Group, x: np.ndarray) -> tuple:
        field, messages, unary, log_z_terms = self._run_sum_product(group, x)
        pairs = compute_edge_beliefs(field, group.model, messages, None, run_alone)
        return unary.reshape(-1, *self.shape[1:]), pairs, log_z_terms

    def _run_sum_product(self, group: _Group, x: np.ndarray) -> tuple:
        """Run sum-product on a group; return its field, messages, node marginals and terms of the log-partition."""
        checkpoint()
        trees = slice(group.first, group.last)
        scores = x.reshape(self.shape)[trees] / self.scale[trees, None, None]
        scores += self.unary
        unary, shift = _field.pad_unary(
            scores.reshape(-1, self.shape[2]), group.field.semiring, group.field.unary.dtype
        )
        field = group.field._replace(unary=unary)
        try:
            messages = send_exact_messages(group.model.graph, field)
            beliefs, log_z_terms = _field.compute_beliefs(field, messages, run_alone)
        except ValueError as error:
            raise make_infeasible_error() from error
        log_z_terms += shift
        if edge_log_normalisers(field, messages, beliefs, group.row_totals, log_z_terms, field.workspace()) >= 0:
            raise make_infeasible_error()
        if field.semiring != _field.SUM_PROBABILITY:
            np.exp(beliefs, out=beliefs)
        beliefs = beliefs[:, : self.shape[2]]
        return field, messages, beliefs, log_z_terms.reshape(group.last - group.first, -1)


def bound_rounding(scores, x):
    """Return for each node the maximum rounding error of the sum of its scores over trees, (N,)."""
    # If trees exclude states only in combination, deviations grow without limit. They cancel with rounding errors.
    return ROUNDING * (scores.scale @ np.abs(x.reshape(scores.shape)).max(axis=2))


def make_infeasible_error():
    """Return the error for trees without a labeling, which names no node, because trees number nodes differently."""
    return ValueError("model is infeasible: a spanning tree of its graph has no allowed labeling.")


class SharedBound(NamedTuple):
    """Result of :func:`compute_shared_bound`: an upper bound on the log-partition, with its derivatives."""

    marginals: Marginals
    gradient: np.ndarray  # (size,)


def list_share_nodes(model, trees="covering"):
    """Return the node to which each unknown of :func:`compute_shared_bound` belongs."""
    n_trees = choose_spanning_trees(model.graph, trees, 0).n_trees
    return np.tile(np.repeat(np.arange(model.graph.n_nodes), model.unary.shape[1]), n_trees)


def marginals_from_pairs(model, unary, pairs, log_z_terms, **fields):
    """Return marginals with an upper bound, given the joint marginals (E, K, K) of the edges."""
    weight = np.ones((len(pairs), 1)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    tables = np.zeros(model.tables.shape)
    np.add.at(tables, model.edge_type, weight[:, :, None, None] * pairs[:, None])
    unary = unary.astype(model.dtype)
    return Marginals(unary, Statistics(unary, tables), float(log_z_terms.sum()), log_z_terms, "upper", **fields)


def compute_shared_bound(model, shares, mapped=map, trees="covering"):
    r"""Compute the bound :math:`\sum_T \rho(T) \log Z(\theta(T))` for given scores of trees.

    The trees are chosen as in :class:`TightenBound`. For any shares, the sum is an upper bound. It is jointly convex in
    the model and the shares. Its minimum over the shares is the bound of :class:`TightenBound`.
    """
    # shares: (size,); mapped: callable, default=map; trees: as in TightenBound
    scores = NodeShares(model, choose_spanning_trees(model.graph, trees, 0), mapped)
    unary, tables, log_z_terms = scores.marginals(scores.project(shares))
    pairs = scores.means.average_over_edges(tables)
    marginals = marginals_from_pairs(model, scores.means.average_over_nodes(unary), pairs, scores.weights @ log_z_terms)
    # A projection is its own adjoint.
    return SharedBound(marginals, scores.project((unary * scores.scale[:, None, None]).ravel()))


def mutual_information(pairs):
    r"""Compute the mutual information of the two ends of each edge.

    .. math:: I(\tau_e) = \sum_{a, b} \tau_e(a, b) \log \frac{\tau_e(a, b)}{\tau_e(a) \, \tau_e(b)}
    """
    # pairs: (E, K, K); returns: (E,)
    if np.ndim(pairs) != 3:
        raise ValueError(f"pairs must contain joint marginals of edges, of shape (E, K, K), got {np.shape(pairs)}.")
    ends = pairs.sum(axis=2), pairs.sum(axis=1)
    entropies = [-xlogy(p, p).sum(axis=1) for p in ends]
    return np.maximum(entropies[0] + entropies[1] + xlogy(pairs, pairs).sum(axis=(1, 2)), 0.0)
