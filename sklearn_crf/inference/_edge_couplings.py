"""Marginals of edges that go best with given marginals of nodes."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

# Marginals below are of a state that is not used.
_UNUSED = 1e-9


def best_couplings(model, fractional):
    r"""Joint marginals of the ends of every edge, of the highest score among those with given marginals of nodes.

    .. math::
        \max_{\tau_{st} \ge 0} \; \langle \theta_{st}, \tau_{st} \rangle, \qquad
        \sum_b \tau_{st}(a, b) = \tau_s(a), \quad \sum_a \tau_{st}(a, b) = \tau_t(b)

    An edge at a decided node has no choice, and one between nodes of two states has two extremes; the others are one
    linear program.

    Parameters
    ----------
    model : PairwiseModel
    fractional : ndarray of shape (N, K), float64
        Marginals of nodes: rows sum to one.

    Returns
    -------
    ndarray of shape (E, K, K), float64
    """
    tail, head = fractional[model.graph.edges[:, 0]], fractional[model.graph.edges[:, 1]]
    joint = tail[:, :, None] * head[:, None, :]
    free = np.flatnonzero(((tail > _UNUSED).sum(axis=1) > 1) & ((head > _UNUSED).sum(axis=1) > 1))
    if len(free):
        solve = _of_two_states if model.n_columns == 2 else _of_more_states
        joint[free] = solve(model.edge_tables(free).astype(np.float64), tail[free], head[free])
    return joint


def _of_two_states(tables, tail, head):
    gain = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    together = np.where(gain > 0, np.minimum(tail[:, 1], head[:, 1]), np.maximum(tail[:, 1] - head[:, 0], 0.0))
    cells = tail[:, 0] - head[:, 1] + together, head[:, 1] - together, tail[:, 1] - together, together
    return np.maximum(np.stack(cells, axis=1), 0.0).reshape(-1, 2, 2)


def _of_more_states(tables, tail, head):
    n_edges, n_columns = tail.shape
    # The last row of each edge follows from the others: with it rounding could leave no solution.
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
