"""Tree-reweighted belief propagation."""

from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.graphs import follows_chains
from sklearn_crf.inference._dual_descent import labeling_by_descent, marginals_by_descent
from sklearn_crf.inference._field import edge_probabilities_of, infeasible_at_node, make_field
from sklearn_crf.inference._relaxed_problem import in_double_precision, table_blocks
from sklearn_crf.inference.messages._belief_propagation import SCHEDULES, MessagePassing
from sklearn_crf.inference.messages._norm_product import start_messages


def reweighted_bound_terms(model, messages, probabilities, *, maximum, along_chains=False):
    r"""Share of each node in an upper bound on the log-partition, or on the best score.

    The scores are, exactly and for any messages,

    .. math::
        \mathrm{score}(y) = \sum_s \beta_s(y_s) + \sum_{st} \nu_{st} \lambda_{st}(y_s, y_t),

    an average over trees T of :math:`\sum_s \beta_s + \sum_{st \in T} \lambda_{st}`. With constants taken out so that
    :math:`\log \sum_a \exp \beta_s(a) = 0`, eliminating the nodes of a tree one by one from its leaves adds at most

    .. math::
        \max_{y_s} \log \sum_{y_t} \exp\big(\lambda_{st}(y_s, y_t) + \beta_t(y_t)\big)

    for each edge, t being the end away from the root; for the best score, with maxima for sums. The bound is the
    average of that, with the worse end for each edge. At a fixed point both are zero.
    """
    # probabilities: (E,)
    # messages: (2E, K), scores by the slot of the receiving node, raised to the power of the edge probability
    # along_chains: the probabilities are those of chains that ascend through the nodes: t is always the later end
    # returns (N,) float64, an edge counts for its first node
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


def _is_coarse(model):
    """Whether float32 rounds scores by more than one: powers of messages would then rule out all states of a node."""
    if model.dtype == np.float64:
        return False
    most = 1.0 if model.edge_weight is None else float(np.abs(model.edge_weight).max(initial=1.0))
    largest = max(_largest_score(model.unary), most * _largest_score(model.tables))
    return largest * np.finfo(np.float32).eps > 1


def _largest_score(scores):
    return float(np.abs(scores).max(where=np.isfinite(scores), initial=0.0))


class _Reparameterization:
    """The same scores after messages went from edges to nodes."""

    # nodes: (N, K) float64, beta
    # constants: (N,) float64, what was taken out of beta

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
    not certain, except with ``schedule="convergent"``. Where ``max_iter`` ends it, ``log_z`` is a looser upper bound
    that holds for any messages, and so is the bound of :meth:`map` on the best score.

    Parameters
    ----------
    edge_probabilities : {"auto", "uniform", "chains", "covering"}, SpanningTrees or array-like (E,), default="auto"
        Probability of each edge to be in a spanning tree. ``"auto"`` is that in a tree drawn uniformly from all of
        them (effective resistances), valid on any graph. ``"uniform"`` is (nodes - 1) / edges in each component, an
        error where that is not valid, as on graphs with a bridge. ``"chains"`` are even probabilities of chains that
        ascend through the nodes, one half on a grid: a little less tight, and what the convergent schedule is
        quick on. ``"covering"`` are those of the few trees that :class:`TightenBound` chooses, whose bound is then the
        same. Those of given trees. An array is checked to lie in the spanning tree polytope.
    max_iter : int, default=200
        Most sweeps; a sweep renews every message once (``"residual"``: as many messages as that on average).
    tol : float, default=1e-4
        Largest change of a message that counts as none: of its probabilities for marginals, of its scores for
        labels, before damping.
    damping : float, default=0.0
        Share of the old message that is kept, in [0, 1). Strong interactions may need it. It is a share of the
        message's logarithm.
    schedule : {"auto", "sequential", "checkerboard", "residual", "convergent"}, default="auto"
        Order of the messages, as in :class:`LoopyBP`. With ``"convergent"`` and without damping the bound falls with
        every sweep. For ``edge_probabilities="chains"`` that is the sequential order. For others it is one node after
        the other, by the messages of :class:`NormProductBP`, with a ``state`` of that kind; on large graphs these
        are slow.

    See Also
    --------
    TightenBound : The same bound by direct minimisation, which always converges.
    TRWS : Labels by messages in a fixed order, whose bound never rises.

    Notes
    -----
    Messages are kept raised to the power :math:`\nu`, so that a belief is a plain product. The scores are, exactly and
    for any messages,

    .. math::
        \mathrm{score}(y) = \sum_s \beta_s(y_s) + \sum_{st} \nu_{st} \lambda_{st}(y_s, y_t),

    an average over trees T of :math:`\sum_s \beta_s + \sum_{st \in T} \lambda_{st}`. With constants taken out so that
    :math:`\sum_a \exp \beta_s(a) = 1`, the log-partition of each tree is at most
    :math:`\sum_{st \in T} \max_{y_s} \log \sum_{y_t} \exp(\lambda_{st} + \beta_t)`, t being the end away from its root.
    The bound is the average of that, with the worse end for each edge; at a fixed point the sums are one. For labels,
    maxima take the place of sums.

    Where every node passes on no more than one to later nodes, :math:`\sum_{t > s} \nu_{st} \le 1`, and receives no
    more than one from earlier ones, the edge probabilities are those of chains that ascend through the nodes and
    contain each node once on average. Their entropies bound the joint one by Shearer's inequality, though the chains
    need not span the graph. A sequential sweep gives all chains through a node the same marginals there, one node after
    the other, which never raises their summed log-partitions (Meltzer, Globerson, Weiss 2009).

    References
    ----------
    M. J. Wainwright, T. S. Jaakkola, A. S. Willsky. A new class of upper bounds on the log partition function. IEEE
    Trans. Information Theory 51, 2005; MAP estimation via agreement on trees. IEEE Trans. Information Theory 51, 2005.
    T. Meltzer, A. Globerson, Y. Weiss. Convergent message passing algorithms: a unifying view. UAI 2009. J. Jancsary.
    Approximate discriminative training of graphical models, 2012, Eq. 135.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import TRWMessagePassing
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = TRWMessagePassing().marginals(model)
    >>> round(found.log_z, 2), found.bound
    (4.34, 'upper')
    """

    _choices: ClassVar[dict] = {"schedule": ("auto", *SCHEDULES, "convergent")}
    convex = True

    def __init__(self, edge_probabilities="auto", max_iter=200, tol=1e-4, damping=0.0, schedule="auto"):
        self.edge_probabilities = edge_probabilities
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.schedule = schedule

    def _make_field(self, model, maximum):
        probabilities = edge_probabilities_of(model.graph, self.edge_probabilities)
        if np.all(probabilities == 1):
            return make_field(model, maximum)
        if not maximum and _is_coarse(model):
            model = in_double_precision(model)
        weight = 1.0 if model.edge_weight is None else model.edge_weight
        return make_field(model._with_edge_weight(weight / probabilities[:, None]), maximum, probabilities)

    def _sum_bound(self, graph):
        return "upper"

    def _decoding_field(self, model, field):
        weight = np.zeros((0, model.tables.shape[1]), field.unary.dtype)
        return field._replace(edge_weight=weight if model.edge_weight is None else model.edge_weight)

    def _schedule(self, graph):
        return SCHEDULES["sequential"] if self.schedule == "convergent" else super()._schedule(graph)

    def _by_factors(self, model):
        graph = model.graph
        return self.schedule == "convergent" and not graph.is_forest and not self._along_chains(graph)

    def _factor_marginals(self, model, init):
        run, bound = start_messages(model, "trw", self.edge_probabilities, 1, init, self.tol)
        return marginals_by_descent(self, run, bound)

    def _factor_labeling(self, model, init):
        run, _ = start_messages(model, "trw", self.edge_probabilities, 0, init)
        return labeling_by_descent(self, model, run)

    def _edge_marginals(self, model, edges, init, n_threads):
        if self._by_factors(model):
            raise ValueError(
                'edge_marginals with schedule="convergent" needs edge_probabilities="chains"; other schedules take any.'
            )
        return super()._edge_marginals(model, edges, init, n_threads)

    def _along_chains(self, graph):
        return follows_chains(graph, edge_probabilities_of(graph, self.edge_probabilities))

    def _check_model(self, model):
        super()._check_model(model)
        if self.schedule == "convergent" and self.damping:
            raise ValueError(f'damping must be 0 with schedule="convergent", got {self.damping!r}.')

    def _bounded(self, model, found):
        graph = model.graph
        is_descent = self.schedule == "convergent" and not graph.is_forest
        if found.converged and not is_descent:
            return found
        terms = self._bound_terms(model, found.state, maximum=False, along_chains=is_descent)
        return found._replace(log_z=float(terms.sum()), log_z_terms=terms, bound="upper")

    def _bound_terms(self, model, state, **how):
        with np.errstate(divide="ignore"):
            messages = state.values if state.as_scores else np.log(state.values)
        return reweighted_bound_terms(
            model, messages, edge_probabilities_of(model.graph, self.edge_probabilities), **how
        )

    def _max_bound(self, model, state):
        is_descent = self.schedule == "convergent" and not model.graph.is_forest
        return float(self._bound_terms(model, state, maximum=True, along_chains=is_descent).sum())
