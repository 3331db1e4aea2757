"""Bound of the trivial entropy for given shares of the unary scores among edges."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.special import logsumexp

from sklearn_crf._numbers import check_choice
from sklearn_crf.inference._relaxed_problem import in_double_precision
from sklearn_crf.inference._results import Marginals
from sklearn_crf.inference.bounds._shared_bound import SharedBound
from sklearn_crf.kernels.bounds.edge_entropy import normalise_edges
from sklearn_crf.models import Statistics

# States with smaller marginals count as unused.
_UNUSED = 1e-9

#: Weight of the entropy of a node with edges, in addition to the entropies of its edges.
NODE_NUMBERS = {"trivial": 0.0, "factors": 1.0}


def best_couplings(model, fractional):
    r"""Return the joint marginals of edges with the highest score, for given marginals of nodes.

    .. math::
        \max_{\tau_{st} \ge 0} \; \langle \theta_{st}, \tau_{st} \rangle, \qquad
        \sum_b \tau_{st}(a, b) = \tau_s(a), \quad \sum_a \tau_{st}(a, b) = \tau_t(b)

    Edges at a decided node have only one solution, and edges between nodes of two states have two extreme solutions.
    All other edges are solved by one linear program.
    """
    # fractional: (N, K), float64; returns: (E, K, K), float64
    tail, head = fractional[model.graph.edges[:, 0]], fractional[model.graph.edges[:, 1]]
    joint = tail[:, :, None] * head[:, None, :]
    free = np.flatnonzero(((tail > _UNUSED).sum(axis=1) > 1) & ((head > _UNUSED).sum(axis=1) > 1))
    if len(free):
        solve = _bound_of_two_states if model.n_columns == 2 else _bound_of_more_states
        joint[free] = solve(model.edge_tables(free).astype(np.float64), tail[free], head[free])
    return joint


def _bound_of_two_states(tables, tail, head):
    gain = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    together = np.where(gain > 0, np.minimum(tail[:, 1], head[:, 1]), np.maximum(tail[:, 1] - head[:, 0], 0.0))
    cells = tail[:, 0] - head[:, 1] + together, head[:, 1] - together, tail[:, 1] - together, together
    return np.maximum(np.stack(cells, axis=1), 0.0).reshape(-1, 2, 2)


def _bound_of_more_states(tables, tail, head):
    n_edges, n_columns = tail.shape
    # The last row of each edge is redundant; including it could make the program infeasible by rounding.
    cell = np.arange(n_edges * n_columns**2)
    edge, a, b = np.unravel_index(cell, tables.shape)
    kept = b < n_columns - 1
    rows = np.concatenate((edge * n_columns + a, n_edges * n_columns + (edge * (n_columns - 1) + b)[kept]))
    columns = np.concatenate((cell, cell[kept]))
    right = np.concatenate((tail.ravel(), head[:, :-1].ravel()))
    sums = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(right), len(cell)))
    found = linprog(-tables.ravel(), A_eq=sums, b_eq=right, bounds=(0, None), method="highs")
    if found.status != 0:
        raise RuntimeError(f"linprog found no marginals of edges: {found.message}")
    return np.maximum(found.x, 0.0).reshape(tables.shape)


def nodes_of_edge_shares(model):
    """Return the node to which each unknown of :func:`edge_shared_bound` belongs."""
    return np.repeat(model.graph.edges.ravel(), model.n_columns)


def even_shares(graph, unary, node_number):
    """Return each node's unary scores divided by its number of edges plus the weight of its entropy."""
    # unary: (N, K); returns: (N, K)
    return unary / _parts(graph, node_number)[1][:, None]


def edge_shared_bound(model, shares, entropy="trivial"):
    r"""Compute the bound that gives every edge a share of its nodes' scores and normalises each edge separately.

    .. math::
        \sum_{e = (i, j)} \log \sum_{a, b} \exp \bigl( \theta_e(a, b) + \lambda_{e i}(a) + \lambda_{e j}(b) \bigr)
            + c \sum_i \log \sum_a \exp \frac{u_i(a) - \sum_{e \ni i} \lambda_{e i}(a)}{c}

    With :math:`c = 0` edges have all scores, :math:`\sum_{e \ni i} \lambda_{e i} = u_i`; with :math:`c = 1` nodes keep
    the rest. Nodes without edges are normalised separately. For any shares it is an upper bound on the log-partition.
    It is jointly convex in model and shares. Its minimum over the shares is the bound of :class:`EdgeEntropyBP`.
    """
    # shares: (2 * E * K,)
    check_choice(entropy, "entropy", NODE_NUMBERS)
    graph, double, node_number = model.graph, in_double_precision(model), NODE_NUMBERS[entropy]
    ends, degree = graph.edges.ravel(), graph.degree
    sums = sp.csr_matrix((np.ones(len(ends)), (ends, np.arange(len(ends)))), shape=(graph.n_nodes, len(ends)))
    shares = shares.reshape(len(ends), model.n_columns)
    if not node_number:
        shares = shares - (sums @ shares / np.maximum(degree, 1)[:, None])[ends]
    numbers, parts = _parts(graph, node_number)
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
        raise ValueError("model is infeasible: the scores around an edge forbid all of its pairs of states.")
    at_ends = at_ends.reshape(shares.shape)
    own = _normalise_nodes(even, sums @ shares, numbers, log_z_terms)
    unary = (sums @ at_ends + numbers[:, None] * own) / parts[:, None]
    nodes = unary.astype(model.dtype)
    marginals = Marginals(nodes, Statistics(nodes, statistics), float(log_z_terms.sum()), log_z_terms, "upper")
    return SharedBound(marginals, (at_ends - (own if node_number else unary)[ends]).ravel())


def _parts(graph, node_number):
    """Return the weight of each node's entropy (one if it has no edges), and this weight plus the number of edges."""
    # returns: (N,), (N,)
    numbers = np.where(graph.degree == 0, 1.0, node_number)
    return numbers, graph.degree + numbers


def _normalise_nodes(even: np.ndarray, given: np.ndarray, numbers: np.ndarray, log_z_terms: np.ndarray) -> np.ndarray:
    """Return marginals of the scores that nodes keep, zero for nodes that keep none, and add up the log-partitions."""
    # even: (N, K), even shares; given: (N, K), sums of the edges' deviations; numbers, log_z_terms: (N,)
    own = np.zeros_like(even)
    keeps = np.flatnonzero(numbers)
    scores = even[keeps] - given[keeps] / numbers[keeps, None]
    log_z = logsumexp(scores, axis=1)
    log_z_terms[keeps] += numbers[keeps] * log_z
    own[keeps] = np.exp(scores - log_z[:, None])
    return own
