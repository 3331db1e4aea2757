"""The relaxation whose entropy is the sum of the entropies of all edges, by messages."""

from dataclasses import replace

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._field import Messages, infeasible_at_node, initial_messages, make_field
from sklearn_crf.inference._relaxed_problem import in_double_precision, marginals_by_descent
from sklearn_crf.inference.bounds._edge_shares import edge_shared_bound
from sklearn_crf.kernels.bounds.edge_entropy import renew_messages, shares_of_messages


class EdgeEntropyBP(Inference):
    r"""Marginals of the trivial convex free energy of a pairwise model, whose entropy is that of all edges, summed.

    .. math::
        \log Z(\theta) \le \max_{\tau \in L} \; \langle \theta, \tau \rangle + \sum_e H(\tau_e)
            = \min_\lambda \sum_{e = (s, t)} \log \sum_{a, b}
                \exp \bigl( \theta_e(a, b) + \lambda_{es}(a) + \lambda_{et}(b) \bigr)

    Shares of the scores of nodes, :math:`\sum_{e \ni s} \lambda_{es} = u_s`, are made the best ones for one node after
    the other, forwards and backwards through the nodes,

    .. math::
        \lambda_{es} = \frac{1}{d_s} \Bigl( u_s + \sum_{q \ni s} m_{qs} \Bigr) - m_{es}, \qquad
        m_{es}(a) = \log \sum_b \exp \bigl( \theta_e(a, b) + \lambda_{et}(b) \bigr).

    Nodes without edges add their own entropy. ``log_z`` is the sum above, an upper bound on the log-partition after any
    number of iterations.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations, each of one pass forwards and one back.
    tol : float, default=1e-6
        Largest change of the probabilities of a message that counts as none.

    See Also
    --------
    NormProductBP : Other entropies, factors of any arity; the same result by slower messages.

    References
    ----------
    T. Hazan, A. Shashua. Norm-product belief propagation: primal-dual message-passing for approximate inference. IEEE
    Trans. Information Theory 56, 2010. Y. Weiss, C. Yanover, T. Meltzer. MAP estimation, linear programming and belief
    propagation with convex free energies. UAI 2007.

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
    """

    tasks = frozenset({"marginals"})

    def __init__(self, max_iter=500, tol=1e-6):
        self.max_iter = max_iter
        self.tol = tol

    def _marginals(self, model, *, init=None, n_threads=1):
        return marginals_by_descent(self, _EdgeEntropyBound(model, init), "upper")


def best_edge_shares(model, *, max_iter=100, tol=1e-3):
    """Shares of the scores of nodes at which the bound of the trivial entropy is least.

    Parameters
    ----------
    model : PairwiseModel
    max_iter : int, default=100
        Most iterations of :class:`EdgeEntropyBP`, whose messages give the shares; bounds hold after any number.
    tol : float, default=1e-3
        Its tolerance.

    Returns
    -------
    ndarray of shape (2 * E * K,)
        As :func:`edge_shared_bound` takes them.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import best_edge_shares, edge_shared_bound
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> bound = edge_shared_bound(model, best_edge_shares(model))
    >>> round(bound.marginals.log_z, 2)
    6.23
    """
    best = _EdgeEntropyBound(model, None)
    for _ in range(max_iter):
        checkpoint()
        if best.iterate() <= tol:
            break
    return _with_shares(best.model, best.field, best.messages, best.work)[1]


class _EdgeEntropyBound:
    """Current messages, in double precision."""

    def __init__(self, model, init):
        self.dtype, self.model = model.dtype, in_double_precision(model)
        self.field, _ = make_field(self.model, maximum=False, as_scores=True)
        self.messages, self.work = initial_messages(self.field, init), self.field.workspace()

    def iterate(self):
        """A pass forwards and one back; the largest change of a probability."""
        changes = [renew_messages(self.field, self.messages, direction, self.work) for direction in (1, -1)]
        if min(changes) < 0:
            raise infeasible_at_node(int(-1 - min(changes)))
        return max(changes)

    def marginals(self, **fields):
        state = Messages(np.ascontiguousarray(self.messages[:, : self.model.n_columns]), True)
        found = edge_shared_bound(*_with_shares(self.model, self.field, self.messages, self.work)).marginals
        return found._replace(unary=found.unary.astype(self.dtype), state=state, **fields)


def _with_shares(model, field, messages, work):
    """The model without states that an edge forbids, and what its edges have beyond an even share."""
    shares = np.empty_like(messages)
    shares_of_messages(field, messages, shares, work)
    graph, n_columns = model.graph, model.n_columns
    at_ends = np.empty((2 * graph.n_edges, n_columns))
    at_ends[field.half_edge] = shares[:, :n_columns]
    ends = graph.edges.ravel()
    # All edges of a node agree on what one of them forbids.
    unary = model.unary.copy()
    unary[ends] = np.where(np.isneginf(at_ends), -np.inf, unary[ends])
    even = unary[ends] / graph.degree[ends, None]
    possible = even > -np.inf
    beyond = np.subtract(at_ends, even, where=possible, out=np.zeros_like(even))
    return replace(model, unary=unary), beyond.ravel()
