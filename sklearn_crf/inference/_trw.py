"""Tree-reweighted belief propagation."""

from dataclasses import replace

import numpy as np

from sklearn_crf.inference._beliefs import infeasible_at_node
from sklearn_crf.inference._edge_probabilities import edge_probabilities_of
from sklearn_crf.inference._field import make_field
from sklearn_crf.inference._message_passing import MessagePassing

# Numbers in the tables of the edges that are looked at together (16 MB).
_BLOCK = 2**21


class TRWMessagePassing(MessagePassing):
    r"""Tree-reweighted belief propagation: upper bounds on the log-partition and on the best score.

    With edge probabilities :math:`\nu` of a distribution over spanning trees, marginals and ``log_z`` solve

    .. math::
        \log Z \le \max_{\tau \in L} \;
            \langle \theta, \tau \rangle + \sum_s H(\tau_s) - \sum_{st} \nu_{st} I(\tau_{st})

    over the local polytope, a concave problem. Messages are renewed until none changes by more than ``tol``,

    .. math::
        m_{s \to t}(b) \propto \sum_a \exp\big(u_s(a) + \theta_{st}(a, b) / \nu_{st}\big)
            \frac{\prod_{q \ne t} m_{q \to s}(a)^{\nu_{qs}}}{m_{t \to s}(a)^{1 - \nu_{st}}},

    with a maximum in place of the sum for labels. All edge probabilities one is belief propagation, exact on forests.

    The fixed point is unique and its ``log_z`` an upper bound, whose derivatives the marginals are; but convergence is
    not certain. Before it, ``log_z`` bounds nothing (``bound`` is None). The bound of :meth:`map` on the best score
    holds for any messages, also where ``max_iter`` ends it.

    Parameters
    ----------
    edge_probabilities : {"auto", "uniform"} or array-like of shape (E,), default="auto"
        Probability of each edge to be in a spanning tree. ``"auto"`` is that in a tree drawn uniformly from all of
        them (effective resistances), valid on any graph. ``"uniform"`` is (nodes - 1) / edges in each component, an
        error where that is not valid, as on graphs with a bridge. An array is checked to lie in the spanning tree
        polytope.
    max_iter : int, default=200
        Most sweeps; a sweep renews every message once (``"residual"``: as many messages as that on average).
    tol : float, default=1e-4
        Largest change of a message that counts as none: of its probabilities for marginals, of its scores for
        labels, before damping.
    damping : float, default=0.0
        Share of the old message that is kept, in [0, 1). Strong interactions may need it. It is a share of the
        message's logarithm.
    schedule : {"auto", "sequential", "checkerboard", "residual"}, default="auto"
        Order of the messages, as in :class:`LoopyBP`.

    See Also
    --------
    TightenBound : The same bound by direct minimisation, which always converges.
    TRWS : Labels by messages in a fixed order, whose bound never rises.

    Notes
    -----
    Messages are kept raised to the power :math:`\nu`, so that a belief is a plain product. For max-product the scores
    are, exactly and for any messages,

    .. math::
        \mathrm{score}(y) = \sum_s \beta_s(y_s) + \sum_{st} \nu_{st} \lambda_{st}(y_s, y_t),

    an average over trees T of :math:`\sum_s \beta_s + \sum_{st \in T} \lambda_{st}`. With constants taken out so that
    the best state of every node has :math:`\beta = 0`, each tree scores at most
    :math:`\sum_{st \in T} \max(\lambda_{st} + \beta_t)`, t being the end away from its root. The bound is the average
    of that, with the worse end for each edge; at a fixed point both ends agree, and it is the optimum of each tree
    alone.

    References
    ----------
    M. J. Wainwright, T. S. Jaakkola, A. S. Willsky. A new class of upper bounds on the log partition function. IEEE
    Trans. Information Theory 51, 2005; MAP estimation via agreement on trees. IEEE Trans. Information Theory 51, 2005.
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. 135.
    """

    def __init__(self, edge_probabilities="auto", max_iter=200, tol=1e-4, damping=0.0, schedule="auto"):
        self.edge_probabilities = edge_probabilities
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.schedule = schedule

    def _make_field(self, model, maximum):
        probabilities = self._probabilities(model.graph)
        if np.all(probabilities == 1):
            return make_field(model, maximum)
        weight = 1.0 if model.edge_weight is None else model.edge_weight
        divided = replace(model, edge_weight=weight / probabilities[:, None])
        return make_field(divided, maximum, probabilities)

    def _probabilities(self, graph):
        return edge_probabilities_of(graph, self.edge_probabilities)

    def _sum_bound(self, graph):
        return "upper"

    def _decoding_field(self, model, field):
        weight = np.zeros((0, model.tables.shape[1]), field.unary.dtype)
        return field._replace(edge_weight=weight if model.edge_weight is None else model.edge_weight)

    def _max_bound(self, model, messages):
        graph = model.graph
        reparameterized = _Reparameterization(model, messages)
        probabilities = self._probabilities(graph)
        bound = reparameterized.constant
        step = max(1, _BLOCK // model.n_columns**2)
        for first in range(0, graph.n_edges, step):
            edges = slice(first, first + step)
            bound += reparameterized.largest_on_edges(edges, probabilities[edges]) @ probabilities[edges]
        if np.isneginf(bound):
            raise ValueError("model is infeasible: every labeling has a score of -inf.")
        return float(bound)


class _Reparameterization:
    """The same scores after messages went from edges to nodes.

    Attributes
    ----------
    nodes : ndarray of shape (N, K), float64
        beta, with a maximum of 0 in each row.
    constant : float
        What was taken out of beta for that.
    """

    def __init__(self, model, messages):
        incidence = model.graph.incidence
        self.model = model
        self.messages = messages.astype(np.float64)
        self.slot_of_half_edge = np.argsort(incidence.half_edge)
        self.nodes = model.unary.astype(np.float64)
        np.add.at(self.nodes, np.repeat(np.arange(model.graph.n_nodes), model.graph.degree), self.messages)
        best = self.nodes.max(axis=1, keepdims=True)
        if np.isneginf(best).any():
            raise infeasible_at_node(int(np.argmin(best)))
        self.nodes -= best
        self.constant = best.sum()

    def largest_on_edges(self, edges, probabilities):
        """Maximum of lambda plus beta of an end, the worse of both ends."""
        ends = self.model.graph.edges[edges].T
        numbers = np.arange(self.model.graph.n_edges)[edges]
        pair = self.model.edge_tables(edges).astype(np.float64)
        for side in (0, 1):
            message = self.messages[self.slot_of_half_edge[2 * numbers + side]]
            # What a message forbids counts at the node; here it must not become +inf.
            pair -= np.expand_dims(np.where(np.isneginf(message), np.inf, message), 2 - side)
        pair /= probabilities[:, None, None]
        largest = [(pair + np.expand_dims(self.nodes[ends[side]], 2 - side)).max(axis=(1, 2)) for side in (0, 1)]
        return np.maximum(*largest)
