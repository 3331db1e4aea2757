"""Relaxation whose entropy is a sum of edge and node entropies: messages, and bounds for given splits of scores."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from sklearn_crf._numbers import check_choice
from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference import _field
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._relaxed_problem import convert_to_double, descend_to_marginals
from sklearn_crf.inference._results import Marginals
from sklearn_crf.inference.bounds._shared_bound import SharedBound
from sklearn_crf.kernels.messages.sweeps import normalise_edges, renew_messages, shares_of_messages
from sklearn_crf.models import Statistics

#: Weight of the entropy of a node with edges, in addition to the entropies of its edges.
NODE_NUMBERS = {"trivial": 0.0, "factors": 1.0}


def nodes_of_edge_shares(model):
    """Return the node to which each unknown of :func:`edge_shared_bound` belongs."""
    return np.repeat(model.graph.edges.ravel(), model.n_columns)


def edge_shared_bound(model, shares, entropy="trivial"):
    r"""Compute the bound that splits each node's scores among its edges and normalises every edge separately.

    .. math::
        \sum_{e = (i, j)} \log \sum_{a, b} \exp \bigl( \theta_e(a, b) + \lambda_{e i}(a) + \lambda_{e j}(b) \bigr)
            + c \sum_i \log \sum_a \exp \frac{u_i(a) - \sum_{e \ni i} \lambda_{e i}(a)}{c}

    With :math:`c = 0`, edges share all scores of nodes, :math:`\sum_{e \ni i} \lambda_{e i} = u_i`; with :math:`c = 1`,
    nodes keep the rest. Nodes without edges are normalised separately. For any shares, the value is an upper bound on
    the log-partition. This bound is jointly convex in model and shares. Its minimum over the shares is the bound of
    :class:`EdgeEntropyBP`.
    """
    # shares: (2 * E * K,)
    check_choice(entropy, "entropy", NODE_NUMBERS)
    graph, double, node_number = model.graph, convert_to_double(model), NODE_NUMBERS[entropy]
    ends, degree = graph.edges.ravel(), graph.degree
    sums = sp.csr_matrix((np.ones(len(ends)), (ends, np.arange(len(ends)))), shape=(graph.n_nodes, len(ends)))
    shares = shares.reshape(len(ends), model.n_columns)
    if not node_number:
        shares = shares - (sums @ shares / np.maximum(degree, 1)[:, None])[ends]
    numbers, parts = _compute_entropy_weights(graph, node_number)
    even = double.unary / parts[:, None]
    log_z_terms = np.zeros(graph.n_nodes)
    statistics, at_ends = np.zeros(model.tables.shape), np.empty((graph.n_edges, 2, model.n_columns))
    failed = normalise_edges(
        np.ascontiguousarray(double.tables),
        double.edge_type,
        np.zeros((0, 0)) if double.edge_weight is None else np.ascontiguousarray(double.edge_weight),
        graph.edges,
        (even[ends] + shares).reshape(at_ends.shape),
        statistics,
        at_ends,
        log_z_terms,
        np.empty(model.n_columns**2 + 1),
    )
    if failed >= 0:
        raise ValueError("model is infeasible: the scores around an edge forbid all pairs of its states.")
    at_ends = at_ends.reshape(shares.shape)
    own = _normalise_nodes(even, sums @ shares, numbers, log_z_terms)
    unary = (sums @ at_ends + numbers[:, None] * own) / parts[:, None]
    nodes = unary.astype(model.dtype)
    marginals = Marginals(nodes, Statistics(nodes, statistics), float(log_z_terms.sum()), log_z_terms, "upper")
    return SharedBound(marginals, (at_ends - (own if node_number else unary)[ends]).ravel())


def _compute_entropy_weights(graph, node_number):
    """Return each node's entropy weight (one for a node without edges), and its entropy weight plus its degree."""
    # returns: (N,), (N,)
    numbers = np.where(graph.degree == 0, 1.0, node_number)
    return numbers, graph.degree + numbers


def _normalise_nodes(even: np.ndarray, given: np.ndarray, numbers: np.ndarray, log_z_terms: np.ndarray) -> np.ndarray:
    """Return marginals of the scores that nodes keep, and add the nodes' log-partitions to ``log_z_terms``."""
    # even: (N, K), scores of a node divided by its total weight; given: (N, K), sums of deviations at the node's edges
    # numbers: (N,), entropy weights; log_z_terms: (N,), modified in place
    own = np.zeros_like(even)
    keeps = np.flatnonzero(numbers)
    scores = even[keeps] - given[keeps] / numbers[keeps, None]
    log_z = logsumexp(scores, axis=1)
    log_z_terms[keeps] += numbers[keeps] * log_z
    own[keeps] = np.exp(scores - log_z[:, None])
    return own


@options(kw_only=False)
class EdgeEntropyBP(Inference):
    r"""Marginals of a pairwise model under a trivial convex free energy, which sums the entropies of edges.

    .. math::
        \log Z(\theta) \le \max_{\tau \in L} \; \langle \theta, \tau \rangle + \sum_e H(\tau_e) + c \sum_s H(\tau_s)
            = \min_\lambda \sum_{e = (s, t)} \log \sum_{a, b}
                \exp \bigl( \theta_e(a, b) + \lambda_{es}(a) + \lambda_{et}(b) \bigr)
                + c \sum_s \log \sum_a \exp \frac{u_s(a) - \sum_{e \ni s} \lambda_{es}(a)}{c}

    With :math:`c = 0`, the edges share all unary scores, :math:`\sum_{e \ni s} \lambda_{es} = u_s`; with :math:`c = 1`,
    nodes keep the rest. The shares are set to their optimum for one node after the other, forwards and backwards
    through the nodes:

    .. math::
        \lambda_{es} = \frac{1}{d_s + c} \Bigl( u_s + \sum_{q \ni s} m_{qs} \Bigr) - m_{es}, \qquad
        m_{es}(a) = \log \sum_b \exp \bigl( \theta_e(a, b) + \lambda_{et}(b) \bigr).

    Nodes without edges add their own entropy. ``log_z`` is the sum above, which is an upper bound on the log-partition
    after any number of iterations.

    Parameters
    ----------
    max_iter : int, default=500
        Maximum number of iterations, each with a forward and a backward pass.
    tol : float, default=1e-6
        Iterations stop when no message changes by more than this, in probabilities or a hundredth of log-probabilities.
    entropy : {"trivial", "factors"}, default="trivial"
        Weight of the entropies of nodes with edges. ``"trivial"``: c = 0, only the entropies of edges count.
        ``"factors"``: c = 1, as in a graph with a factor at each node, which gives a looser bound.

    See Also
    --------
    NormProductBP : Computes the same result by slower messages; also allows other entropies and factors of any arity.

    References
    ----------
    T. Hazan, A. Shashua. Norm-product belief propagation: primal-dual message-passing for approximate inference. IEEE
    Trans. Information Theory 56, 2010, :arxiv:`0903.3127`. Y. Weiss, C. Yanover, T. Meltzer. MAP estimation, linear
    programming and belief propagation with convex free energies. UAI 2007, :arxiv:`1206.5286`. J. Jancsary. Approximate
    discriminative training of graphical models, 2012, Eq. 127 and 158.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import EdgeEntropyBP
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = EdgeEntropyBP().marginals(model)
    >>> round(found.log_z, 2), found.bound
    (6.23, 'upper')
    >>> round(EdgeEntropyBP(entropy="factors").marginals(model).log_z, 2)
    8.27
    """

    tasks = frozenset({"marginals"})
    max_iter: int = 500
    tol: float = 1e-6
    _choices: ClassVar[dict] = {"entropy": NODE_NUMBERS}
    entropy: str = "trivial"

    def _marginals(self, model, *, init=None, n_threads=1):
        return descend_to_marginals(self, _EdgeEntropyBound(model, init, self.entropy), "upper")


def optimise_edge_shares(model, *, max_iter=100, tol=1e-3):
    """Split the unary scores of each node among its edges so that the bound with the trivial entropy is minimal."""
    # returns: (2 * E * K,)
    best = _EdgeEntropyBound(model, None)
    for _ in range(max_iter):
        checkpoint()
        if best.iterate() <= tol:
            break
    return best.build_model_and_shares()[1]


class _EdgeEntropyBound:
    """Current messages in double precision, and the bound that they give."""

    def __init__(self, model, init, entropy="trivial"):
        self.dtype, self.model, self.entropy = model.dtype, convert_to_double(model), entropy
        node_number = NODE_NUMBERS[entropy]
        self.messages = _build_odds_messages(self.model, init, node_number) or _ScoreMessages(
            self.model, init, node_number
        )

    def iterate(self) -> float:
        """Make a forward and a backward pass, and return the largest change of a probability."""
        changes = [self.messages.renew(direction) for direction in (1, -1)]
        if min(changes) < 0:
            raise _field.make_infeasible_error(int(-1 - min(changes)))
        return max(changes)

    def build_model_and_shares(self) -> tuple:
        """Return the model without states that an edge forbids, and how shares of edges deviate from an even split."""
        graph, n_columns = self.model.graph, self.model.n_columns
        at_ends = np.empty((2 * graph.n_edges, n_columns))
        at_ends[graph.incidence.half_edge] = self.messages.shares()
        ends = graph.edges.ravel()
        # If one edge of a node forbids a state, all edges of the node do.
        unary = self.model.unary.copy()
        unary[ends] = np.where(np.isneginf(at_ends), -np.inf, unary[ends])
        even = (unary / _compute_entropy_weights(graph, NODE_NUMBERS[self.entropy])[1][:, None])[ends]
        possible = even > -np.inf
        beyond = np.subtract(at_ends, even, where=possible, out=np.zeros_like(even))
        return replace(self.model, unary=unary), beyond.ravel()

    def marginals(self, **fields):
        model, shares = self.build_model_and_shares()
        found = edge_shared_bound(model, shares, self.entropy).marginals
        state = _field.Messages(self.messages.scores(), True)
        return found.with_values(found.unary.astype(self.dtype), state=state, **fields)


class _ScoreMessages:
    """Messages stored as scores of all states."""

    def __init__(self, model, init, node_number):
        self.n_columns, self.node_number = model.n_columns, node_number
        self.field, _ = _field.make_field(model, maximum=False, as_scores=True)
        self.values, self.work = _field.build_initial_messages(self.field, init), self.field.workspace()

    def renew(self, direction: int) -> float:
        return renew_messages(self.field, self.values, direction, self.node_number, self.work)

    def scores(self) -> np.ndarray:
        return np.ascontiguousarray(self.values[:, : self.n_columns])

    def shares(self) -> np.ndarray:
        shares = np.empty_like(self.values)
        shares_of_messages(self.field, self.values, shares, self.node_number, self.work)
        return shares[:, : self.n_columns]


def _build_odds_messages(model, init, node_number):
    """Return messages of two-state models as log-odds, or None if log-odds cannot represent the model."""
    if model.n_columns != 2 or model.n_states is not None or np.isneginf(model.unary).all(axis=1).any():
        return None
    field, _ = _field.make_field(model, maximum=False, appearance=np.ones(model.graph.n_edges))
    return _OddsMessages(model.graph, field, init, node_number) if _field.can_use_log_odds(field) else None


class _OddsMessages:
    """Messages stored as log-odds of the second of two states, which is several times as fast."""

    def __init__(self, graph, field, init, node_number):
        self.share = 1 / np.maximum(graph.degree + node_number, 1)
        self.field = _field.OddsField.of(field, self.share)
        self.odds, self.work = (
            self.field.compute_log_odds(_field.build_initial_messages(field, init)),
            self.field.workspace(),
        )
        self.order = np.arange(graph.n_nodes, dtype=np.int32)
        self.node = np.repeat(self.order, graph.degree)

    def renew(self, direction: int) -> float:
        return self.field.send(self.odds, self.order, self.order, direction, 0.0, 0, len(self.order), self.work)

    def _values(self) -> np.ndarray:
        return self.odds[: len(self.node)]

    def scores(self) -> np.ndarray:
        values = self._values() + self.field.offset
        return np.stack((np.zeros_like(values), values), axis=1)

    def shares(self) -> np.ndarray:
        values, unary = self._values(), self.field.unary
        total = unary + np.bincount(self.node, weights=values, minlength=len(unary))
        second = (self.share * total)[self.node] - values - self.field.offset
        # A forbidden state has share -inf, no matter which of the two states it is.
        return np.stack((np.where(second == np.inf, -np.inf, 0.0), np.where(second == np.inf, 0.0, second)), axis=1)
