"""Belief propagation, plain and tree-reweighted: sweeps until messages converge, and results from messages."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner
from sklearn_crf.graphs import follows_chains
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._field import (
    MAX_SCORE,
    SUM_PROBABILITY,
    Field,
    Messages,
    OddsField,
    build_initial_messages,
    can_use_log_odds,
    compute_beliefs,
    compute_node_marginals,
    equals_separate_fields,
    make_field,
    make_infeasible_error,
    marginals_of,
)
from sklearn_crf.inference._relaxed_problem import (
    compute_bound_rise,
    compute_reweighted_bound_terms,
    convert_to_double,
    descend_to_labeling,
    descend_to_marginals,
    is_coarse,
)
from sklearn_crf.inference._results import score_labeling
from sklearn_crf.inference.exact._edge_marginals import EdgeMarginals, compute_edge_beliefs
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.inference.messages._counting_numbers import choose_counting_numbers
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.inference.messages._extrapolation import choose_extrapolation
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._factor_messages import (
    compute_bethe_labeling,
    compute_bethe_marginals,
    compute_reweighted_labeling,
    compute_reweighted_marginals,
    make_still_changing_warning,
)
from sklearn_crf.inference.messages._norm_product import start_messages
from sklearn_crf.inference.messages._schedules import SCHEDULES, choose_schedule, send_at_once
from sklearn_crf.kernels.exact.labelings import decode
from sklearn_crf.models import FactorGraph, PairwiseModel, replace_edge_weight


@options
class MessagePassing(EdgeMarginals, Inference):
    """Base class of the algorithms that update messages until they converge.

    A subclass builds the field of a model, and states whether its results are upper or lower bounds.

    Parameters
    ----------
    max_iter : int, default=100
        Maximum number of sweeps; a sweep updates every message once (``"residual"``: once on average).
    tol : float, default=1e-4
        Iterations stop when no message changes by more than this, before damping. For marginals, the change is the
        change of a probability or, if larger, a hundredth of the change of its logarithm; for labels, it is the change
        of a score.
    damping : float, default=0.0
        Weight of the old message in each update, in [0, 1).
    schedule : {"auto", "sequential", "blocks", "checkerboard", "residual"}, default="auto"
        Order of the messages. ``"sequential"``: forwards, then backwards through the nodes, which needs the fewest
        sweeps on lattices (one on forests). ``"blocks"``: sequential within each of up to 16 blocks of consecutive
        nodes, with every second block in parallel. ``"checkerboard"``: all nodes of a colour in parallel.
        ``"residual"``: always the node whose input changed most, for hard problems. ``"auto"`` is sequential for up to
        20,000 nodes and on forests. On larger graphs it is blocks, or checkerboard if the numbers of neighbours differ
        so much that fewer than eight blocks would remain. Factor graphs only support the sequential schedule.
    """

    tasks = frozenset({"map", "marginals"})
    exact_on = "forest"
    takes = (PairwiseModel, FactorGraph)
    _choices: ClassVar[dict] = {"schedule": ("auto", *SCHEDULES)}
    _factor_schedules: ClassVar[tuple] = ("auto", "sequential")
    max_iter: int = 100
    tol: float = 1e-4
    damping: float = 0.0
    schedule: str = "auto"

    def _make_field(self, model, maximum):
        """Return the field and the shift of unary rows, as :func:`~sklearn_crf.inference._field.make_field` does."""
        raise NotImplementedError

    def _attach_bound(self, model, field, messages, found, run):
        """Return marginals whose log-partition is a bound, if the algorithm has a bound."""
        return found

    def _choose_schedule(self, graph):
        """Return the function that makes sweeps."""
        return choose_schedule(self.schedule, graph)

    def _extrapolates(self) -> bool:
        """Return whether sweeps are extrapolated, which requires a unique fixed point."""
        return False

    def _build_decoding_field(self, model, field):
        """Return the field with the model's original tables."""
        return field

    def _compute_max_bound(self, model, state):
        """Return an upper bound on the best score, from max-product messages that need not have converged."""
        return np.inf

    def _edge_marginals(self, model, edges, init, n_threads):
        field, _ = self._make_field(model, maximum=False)
        run = make_range_runner(n_threads)
        messages, _, _ = self._iterate(model.graph, field, init, run)
        return compute_edge_beliefs(field, model, messages, edges, run)

    def _check_model(self, model):
        super()._check_model(model)
        if isinstance(model, FactorGraph) and self.schedule not in self._factor_schedules:
            names = " or ".join(f'"{name}"' for name in self._factor_schedules)
            raise ValueError(f"schedule must be {names} for a FactorGraph, got {self.schedule!r}.")

    def _uses_factor_messages(self, model):
        """Return whether a model is solved by messages between nodes and factors."""
        return isinstance(model, FactorGraph)

    def _marginals(self, model, *, init=None, n_threads=1):
        return self._compute_message_marginals(model, init, n_threads, bounded=False)

    def _compute_bounded_marginals(self, model, *, init=None, n_threads=1):
        return self._compute_message_marginals(model, init, n_threads, bounded=True)

    def _compute_message_marginals(self, model, init, n_threads, bounded):
        if self._uses_factor_messages(model):
            return self._compute_factor_marginals(model, init, bounded)
        field, unary_shift = self._make_field(model, maximum=False)
        run = make_range_runner(n_threads)
        messages, n_iter, converged = self._iterate(model.graph, field, init, run)
        found = marginals_of(
            field,
            model.dtype,
            unary_shift,
            messages,
            run,
            bound="exact" if converged and model.graph.is_forest else None,
            n_iter=n_iter,
            converged=converged,
            state=_state(field, messages),
        )
        # Far from a fixed point, the Bethe log-partition is meaningless.
        is_bounded = found.bound is not None or (converged and not bounded)
        return found if is_bounded else self._attach_bound(model, field, messages, found, run)

    def _node_marginals(self, model, n_threads):
        # If tables forbid pairs, infeasibility is sometimes only visible in the sums over edges.
        if self._uses_factor_messages(model) or model.tables.min(initial=0.0) == -np.inf:
            return super()._node_marginals(model, n_threads)
        field, _ = self._make_field(model, maximum=False)
        run = make_range_runner(n_threads)
        messages, _, _ = self._iterate(model.graph, field, None, run)
        return compute_node_marginals(field, model.dtype, messages, run)

    def _map(self, model, *, init=None, n_threads=1):
        if self._uses_factor_messages(model):
            return self._compute_factor_labeling(model, init)
        graph = model.graph
        field, _ = self._make_field(model, maximum=True)
        run = make_range_runner(n_threads)
        messages, n_iter, converged = self._iterate(graph, field, init, run)
        labels, failed = _decode(graph, self._build_decoding_field(model, field), messages)
        if failed >= 0:
            # On a forest, a node without a possible state proves infeasibility.
            # On other graphs, only a node without beliefs proves infeasibility.
            compute_beliefs(field, messages, run)
            if graph.is_forest and converged:
                raise make_infeasible_error(failed)
        state = _state(field, messages)
        result = score_labeling(model, labels, n_iter=n_iter, converged=converged, state=state)
        if converged and graph.is_forest:
            return result._replace(bound=result.score)
        return result._replace(bound=max(self._compute_max_bound(model, state), result.score))

    @property
    def joined_nodes(self) -> int:
        return _tuning.MOST_JOINED if self.schedule in ("auto", "sequential") else 1

    def _marginalise_graphs_jointly(self, model, n_threads):
        self._require("marginals", model)
        unary, unsettled = np.empty_like(model.unary), np.ones(len(model.unary), dtype=bool)
        field, _ = self._make_field(model, maximum=False)
        if model.graph.n_nodes <= _tuning.MOST_JOINED and equals_separate_fields(field, model):
            messages = build_initial_messages(field)
            run = make_range_runner(n_threads)
            _, _, sweep = self._run_sweeps(model.graph, field, messages, run)
            beliefs, _ = compute_beliefs(field, messages, run)
            unary[...] = beliefs[:, : model.n_columns]
            unsettled.fill(False)
            unsettled[sweep.moving_nodes] = True
        return unary, unsettled

    def _iterate(self, graph, field, init, run):
        """Return the messages, the number of sweeps, and whether messages have converged."""
        messages = build_initial_messages(field, init)
        if graph.n_edges == 0:
            return messages, 0, True
        n_iter, change, _ = self._run_sweeps(graph, field, messages, run)
        if change <= self.tol:
            if graph.is_forest:
                # On a forest, one undamped sweep from any start is exact.
                SCHEDULES["sequential"](graph, field, messages, 0.0, self.tol, run)()
            return messages, n_iter, True
        warn_unconverged(make_still_changing_warning(self, field.semiring == MAX_SCORE, change))
        return messages, self.max_iter, False

    def _run_sweeps(self, graph, field, messages, run):
        """Update messages until they converge; return the number of sweeps, the last change, and the sweep function."""
        schedule = self._choose_schedule(graph)
        as_odds = can_use_log_odds(field) and schedule is not SCHEDULES["residual"]
        swept = OddsField.of(field) if as_odds else field
        values = swept.compute_log_odds(messages) if as_odds else messages
        sweep = schedule(graph, swept, values, self.damping, self.tol, run)
        extrapolation = choose_extrapolation(graph, field, values, as_odds) if self._extrapolates() else None
        n_iter, change = 0, np.inf
        while n_iter < self.max_iter and change > self.tol:
            checkpoint()
            change = sweep()
            if change < 0:
                raise make_infeasible_error(int(-1 - change))
            n_iter += 1
            if extrapolation is not None and change > self.tol:
                extrapolation.advance()
        if as_odds:
            swept.write_messages(values, messages)
        return n_iter, change, sweep


def propagate_messages(algorithm, model, init=None, n_threads=1):
    """Return the messages of belief propagation for marginals, and whether these messages have converged."""
    field, _ = algorithm._make_field(model, maximum=False)
    messages, _, converged = algorithm._iterate(model.graph, field, init, make_range_runner(n_threads))
    return _state(field, messages), converged


def build_sum_field(algorithm: MessagePassing, model: PairwiseModel) -> Field:
    """Convert a model to the arrays with which an algorithm sums over labelings."""
    return algorithm._make_field(model, maximum=False)[0]


def _decode(graph, field, messages):
    """Label nodes along a spanning forest, so that ties are broken consistently.

    Return labels, and a node without a possible state, or -1 if there is none.
    """
    order = graph.forest.order
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    labels = np.empty_like(order)
    return labels, decode(field, messages, order, rank, labels, field.workspace())


def _state(field, messages):
    n_columns = field.tables.shape[3]
    return Messages(np.ascontiguousarray(messages[:, :n_columns]), field.semiring != SUM_PROBABILITY)


@options
class LoopyBP(MessagePassing):
    r"""Loopy belief propagation: sum-product for marginals, max-product for labels.

    Messages are updated until none changes by more than ``tol``,

    .. math::
        m_{s \to t}(b) \propto \sum_a \exp(u_s(a) + \theta_{st}(a, b)) \prod_{q \ne t} m_{q \to s}(a),

    with a maximum in place of the sum for labels. Marginals are the normalised products of the messages to a node or an
    edge. ``log_z`` is the Bethe approximation, which is stationary at a fixed point:

    .. math::
        \log Z_B = \sum_s \log Z_s + \sum_{st} \log \frac{Z_{st}}{Z_s Z_t}.

    On a :class:`~sklearn_crf.models.FactorGraph` factors send messages,

    .. math::
        m_{F \to t}(b) \propto \sum_{y_F: y_t = b} \exp(\theta_F(y_F))
            \prod_{s \in F, s \ne t} \prod_{G \ni s, G \ne F} m_{G \to s}(y_s),

    whose cost is proportional to the number of entries of the factor's table, for dense, sparse and count tables.

    On a forest the fixed point is exact. On graphs with cycles convergence is not guaranteed, and ``log_z`` is not a
    bound. Damping helps if interactions are strong or have mixed signs.

    Parameters
    ----------
    damping : float, default=0.0
        Weight of the old message in each update, in [0, 1). On factor graphs, the weight of its scores.
    climb : bool, default=True
        Whether to improve the final labels by changing one node at a time while the score increases.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss. Constructing free-energy approximations and generalized belief propagation
    algorithms. IEEE Trans. Information Theory 51, 2005, :doi:`10.1109/TIT.2005.850085`. G. Elidan, I. McGraw, D.
    Koller. Residual belief propagation. UAI 2006, :arxiv:`1206.6837`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import LoopyBP
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> LoopyBP().marginals(model).unary.round(2)
    array([[0.22, 0.78],
           [0.42, 0.58],
           [0.22, 0.78]])
    """

    climb: bool = True

    _make_field = staticmethod(make_field)

    def _compute_factor_marginals(self, model, init, bounded):
        return compute_bethe_marginals(self, model, init)

    def _compute_factor_labeling(self, model, init):
        return compute_bethe_labeling(self, model, init)


@options(kw_only=False)
class TRWMessagePassing(MessagePassing):
    r"""Tree-reweighted belief propagation: upper bounds on the log-partition and on the best score.

    With edge probabilities :math:`\nu` of a distribution over spanning trees, marginals and ``log_z`` solve

    .. math::
        \log Z \le \max_{\tau \in L} \;
            \langle \theta, \tau \rangle + \sum_s H(\tau_s) - \sum_{st} \nu_{st} I(\tau_{st})

    over the local polytope, which is a concave problem. Messages are updated until none changes by more than ``tol``,

    .. math::
        m_{s \to t}(b) \propto \sum_a \exp\big(u_s(a) + \theta_{st}(a, b) / \nu_{st}\big)
            \frac{\prod_{q \ne t} m_{q \to s}(a)^{\nu_{qs}}}{m_{t \to s}(a)^{1 - \nu_{st}}},

    with a maximum in place of the sum for labels. If all edge probabilities are one, this is plain belief propagation,
    which is exact on forests.

    The fixed point is unique, and its value is an upper bound whose derivatives are the marginals. Convergence is not
    guaranteed, except with ``schedule="convergent"``. ``log_z`` is an upper bound that is valid for any messages and
    tight at the fixed point. The same is true of the bound of :meth:`map` on the best score.

    On a :class:`~sklearn_crf.models.FactorGraph` factors send messages as in :class:`LoopyBP`, and sets of factors
    without cycles take the place of spanning trees.

    Parameters
    ----------
    edge_probabilities : {"auto", "uniform", "chains", "covering", "snakes"}, SpanningTrees or array, default="auto"
        Probability of each edge to be in a spanning tree. ``"auto"``: in a tree drawn uniformly from all spanning trees
        (effective resistances), valid on any graph. ``"uniform"``: (nodes - 1) / edges in each component, an error if
        this is invalid, as on graphs with a bridge. ``"chains"``: even probabilities of chains with ascending nodes,
        one half on a grid; slightly less tight, but the convergent schedule is fast for them. ``"covering"``: in the
        few trees that :class:`TightenBound` chooses, which gives an equal bound. ``"snakes"``: in its snakes.
        SpanningTrees: in the given trees. An array of shape (E,) is checked to lie in the spanning tree polytope. If
        factors have more than two nodes: ``"covering"`` is a few sets of factors without cycles, and ``"auto"`` and
        ``"uniform"`` are many such sets.
    damping : float, default=0.0
        Weight of the old message in each update, in [0, 1). Strong interactions may need damping. Damping applies to
        the logarithm of messages.
    schedule : {"auto", "sequential", "blocks", "checkerboard", "residual", "convergent"}, default="auto"
        Order of the messages, as in :class:`LoopyBP`. With ``"convergent"`` and without damping, the bound decreases
        with every sweep. For ``edge_probabilities="chains"``, this is the sequential order. For other probabilities, it
        processes one node after the other with the messages of :class:`NormProductBP`, and returns the ``state`` of
        that class; these messages are slow on large graphs. Factor graphs support "auto", "sequential" and
        "convergent".

    See Also
    --------
    TightenBound : Computes the same bound by direct minimisation, which always converges.
    TRWS : Finds labels by messages in a fixed order, with a bound that never rises.
    NormProductBP : Computes the same bound for factors of any arity, by messages that always converge.

    Notes
    -----
    Messages are stored raised to the power :math:`\nu`, so that a belief is a plain product. For any messages, the
    score is exactly

    .. math::
        \mathrm{score}(y) = \sum_s \beta_s(y_s) + \sum_{st} \nu_{st} \lambda_{st}(y_s, y_t),

    an average over trees T of :math:`\sum_s \beta_s + \sum_{st \in T} \lambda_{st}`. If constants are removed so that
    :math:`\sum_a \exp \beta_s(a) = 1`, the log-partition of each tree is at most
    :math:`\sum_{st \in T} \max_{y_s} \log \sum_{y_t} \exp(\lambda_{st} + \beta_t)`, where t is the end away from the
    root. The bound is the average of this value, with the worse end for each edge. At a fixed point the sums are one.
    For labels, maxima take the place of sums. For factors of more nodes, the root may be any node of the factor.

    Extrapolation reduces the number of sweeps for marginals of connected factor graphs, and of connected graphs with
    more than 4,096 nodes. Without
    damping, after every second sweep, the latest four sweeps are combined. The combination is chosen so that the next
    sweep would change it least if sweeps were linear (Anderson 1965).

    Suppose that, at each node, the probabilities of the edges to later nodes sum to at most one, :math:`\sum_{t > s}
    \nu_{st} \le 1`, and so do the probabilities of the edges to earlier nodes. These probabilities then belong to
    chains with ascending nodes that contain each node once on average. Entropies of the chains bound the joint entropy
    by Shearer's inequality, although the chains need not span the graph. A sequential sweep makes the marginals of all
    chains through a node equal at this node, one node after the other. Such a sweep never increases the sum of the
    log-partitions of chains (Meltzer, Globerson, Weiss 2009).

    References
    ----------
    M. J. Wainwright, T. S. Jaakkola, A. S. Willsky. A new class of upper bounds on the log partition function. IEEE
    Trans. Information Theory 51, 2005; MAP estimation via agreement on trees. IEEE Trans. Information Theory 51, 2005,
    :doi:`10.1109/TIT.2005.856938`. T. Meltzer, A. Globerson, Y. Weiss. Convergent message passing algorithms: a
    unifying view. UAI 2009, :arxiv:`1205.2625`. J. Jancsary. Approximate discriminative training of graphical models,
    2012, Eq. 135. D. G. Anderson. Iterative procedures for nonlinear integral equations. Journal of the ACM 12, 1965,
    :doi:`10.1145/321296.321305`.

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
    _factor_schedules: ClassVar[tuple] = (*MessagePassing._factor_schedules, "convergent")
    convex = True
    edge_probabilities: Any = "auto"
    _: KW_ONLY
    max_iter: int = 200

    def _make_field(self, model, maximum):
        probabilities = choose_edge_probabilities(model.graph, self.edge_probabilities)
        if np.all(probabilities == 1):
            return make_field(model, maximum)
        if not maximum and is_coarse(model):
            model = convert_to_double(model)

        def weights():
            return (1.0 if model.edge_weight is None else model.edge_weight) / probabilities[:, None]

        choice = self.edge_probabilities
        # Edge probabilities chosen by name depend only on the graph.
        key = ("over edge probabilities", choice) if isinstance(choice, str) else None
        return make_field(replace_edge_weight(model, key, weights), maximum, probabilities)

    def _extrapolates(self) -> bool:
        return not self.damping and self.schedule not in ("residual", "convergent")

    def _build_decoding_field(self, model, field):
        weight = np.zeros((0, model.tables.shape[1]), field.unary.dtype)
        return field._replace(edge_weight=weight if model.edge_weight is None else model.edge_weight)

    @property
    def joined_nodes(self) -> int:
        # Edge probabilities of other choices depend on the whole graph.
        choice = self.edge_probabilities
        return super().joined_nodes if isinstance(choice, str) and choice in ("chains", "covering") else 1

    def _choose_schedule(self, graph):
        return SCHEDULES["sequential"] if self.schedule == "convergent" else super()._choose_schedule(graph)

    def _uses_factor_messages(self, model):
        if isinstance(model, FactorGraph):
            return True
        if self.schedule != "convergent" or model.graph.is_forest:
            return False
        return not follows_chains(model.graph, choose_edge_probabilities(model.graph, self.edge_probabilities))

    def _compute_factor_marginals(self, model, init, bounded):
        layered, node, factor, bound = self._build_layers_and_numbers(model)
        if self.schedule == "convergent" and not layered.is_forest:
            return descend_to_marginals(self, start_messages(layered, node, factor, 1, init, self.tol), bound)
        return compute_reweighted_marginals(self, layered, node, factor, init, bounded)

    def _compute_factor_labeling(self, model, init):
        layered, node, factor, _ = self._build_layers_and_numbers(model)
        if self.schedule == "convergent" and not layered.is_forest:
            return descend_to_labeling(self, model, start_messages(layered, node, factor, 0, init))
        return compute_reweighted_labeling(self, model, layered, node, factor, init)

    def _build_layers_and_numbers(self, model: Any) -> tuple:
        layered = LayeredModel(model)
        return layered, *choose_counting_numbers("trw", layered, self.edge_probabilities)

    def _edge_marginals(self, model, edges, init, n_threads):
        if self._uses_factor_messages(model):
            raise ValueError(
                'edge_marginals with schedule="convergent" needs edge_probabilities="chains": use these '
                "probabilities or another schedule."
            )
        return super()._edge_marginals(model, edges, init, n_threads)

    def _check_model(self, model):
        super()._check_model(model)
        if self.schedule == "convergent" and self.damping:
            raise ValueError(f'damping must be 0 with schedule="convergent", got {self.damping!r}.')

    def _attach_bound(self, model, field, messages, found, run):
        # The value at a fixed point is a bound, but these messages are only near a fixed point.
        fresh = send_at_once(model.graph, field, messages, run)
        share = found.unary.astype(np.float64)
        terms = found.log_z_terms + compute_bound_rise(field, share, messages, fresh, self._is_descent(model.graph))
        return found._replace(log_z=float(terms.sum()), log_z_terms=terms, bound="upper")

    def _is_descent(self, graph):
        """Return whether edge probabilities belong to ascending chains, for which no sweep increases the bound."""
        return self.schedule == "convergent" and not graph.is_forest

    def _compute_max_bound(self, model, state):
        with np.errstate(divide="ignore"):
            messages = state.values if state.as_scores else np.log(state.values)
        probabilities = choose_edge_probabilities(model.graph, self.edge_probabilities)
        terms = compute_reweighted_bound_terms(
            model, messages, probabilities, along_chains=self._is_descent(model.graph)
        )
        return float(terms.sum())
