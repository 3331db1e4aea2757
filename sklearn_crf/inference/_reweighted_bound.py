"""Upper bounds from tree-reweighted messages that need not have converged."""

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.inference._beliefs import infeasible_at_node
from sklearn_crf.inference._relaxed_problem import table_blocks


def reweighted_bound_terms(model, messages, probabilities, *, maximum, along_chains=False):
    r"""What each node adds to an upper bound on the log-partition, or on the best score.

    The scores are, exactly and for any messages,

    .. math::
        \mathrm{score}(y) = \sum_s \beta_s(y_s) + \sum_{st} \nu_{st} \lambda_{st}(y_s, y_t),

    an average over trees T of :math:`\sum_s \beta_s + \sum_{st \in T} \lambda_{st}`. With constants taken out so that
    :math:`\log \sum_a \exp \beta_s(a) = 0`, eliminating the nodes of a tree one by one from its leaves adds at most

    .. math::
        \max_{y_s} \log \sum_{y_t} \exp\big(\lambda_{st}(y_s, y_t) + \beta_t(y_t)\big)

    for each edge, t being the end away from the root; for the best score, with maxima for sums. The bound is the
    average of that, with the worse end for each edge. At a fixed point both are zero.

    Parameters
    ----------
    model : PairwiseModel
    messages : ndarray of shape (2E, K)
        Scores by the slot of the receiving node, raised to the power of the edge probability.
    probabilities : ndarray of shape (E,)
    maximum : bool
    along_chains : bool, default=False
        The probabilities are those of chains that ascend through the nodes: t is always the later end.

    Returns
    -------
    ndarray of shape (N,), float64
        An edge counts for its first node.
    """
    graph = model.graph
    reparameterized = _Reparameterization(model, messages, maximum)
    terms = reparameterized.constants
    for edges, tables in table_blocks(model):
        ends = reparameterized.largest_on_edges(edges, tables, probabilities[edges])
        later = np.argmax(graph.edges[edges], axis=1)
        largest = np.take_along_axis(ends, later[None], axis=0)[0] if along_chains else ends.max(axis=0)
        np.add.at(terms, graph.edges[edges, 0], largest * probabilities[edges])
    if np.isneginf(terms).any():
        raise ValueError("model is infeasible: every labeling has a score of -inf.")
    return terms


class _Reparameterization:
    """The same scores after messages went from edges to nodes.

    Attributes
    ----------
    nodes : ndarray of shape (N, K), float64
        beta.
    constants : ndarray of shape (N,), float64
        What was taken out of beta.
    """

    def __init__(self, model, messages, maximum):
        incidence = model.graph.incidence
        self.model = model
        self.total = np.max if maximum else logsumexp
        self.messages = messages.astype(np.float64)
        self.slot_of_half_edge = np.argsort(incidence.half_edge)
        self.nodes = model.unary.astype(np.float64)
        np.add.at(self.nodes, np.repeat(np.arange(model.graph.n_nodes), model.graph.degree), self.messages)
        self.constants = self.total(self.nodes, axis=1)
        if np.isneginf(self.constants).any():
            raise infeasible_at_node(int(np.argmin(self.constants)))
        self.nodes -= self.constants[:, None]

    def largest_on_edges(self, edges, tables, probabilities):
        """Largest total of lambda plus beta of the first end, and of the second, (2, n_edges)."""
        ends = self.model.graph.edges[edges].T
        numbers = np.arange(self.model.graph.n_edges)[edges]
        pair = tables.astype(np.float64)
        for side in (0, 1):
            message = self.messages[self.slot_of_half_edge[2 * numbers + side]]
            # What a message forbids counts at the node; here it must not become +inf.
            pair -= np.expand_dims(np.where(np.isneginf(message), np.inf, message), 2 - side)
        pair /= probabilities[:, None, None]
        beliefs = [np.expand_dims(self.nodes[ends[side]], 2 - side) for side in (0, 1)]
        totals = [self.total(pair + beliefs[side], axis=1 + side) for side in (0, 1)]
        # A state that its own node rules out is in no labeling.
        possible = [self.nodes[ends[1 - side]] > -np.inf for side in (0, 1)]
        return np.stack([np.where(possible[side], totals[side], -np.inf).max(axis=1) for side in (0, 1)])
