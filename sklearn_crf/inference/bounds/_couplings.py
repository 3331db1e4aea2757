"""Joint marginals of edges and factors with the highest score, for given marginals of nodes."""

from itertools import product

import numpy as np
from scipy.optimize import linprog

from sklearn_crf.inference._relaxed_problem import ProgramRows
from sklearn_crf.models import FactorGraph, FactorStatistics, PairwiseModel, Statistics, add_cells

# States with smaller marginals count as unused.
_UNUSED = 1e-9

# Maximum number of joint states of a factor, counting only used states of nodes.
_MOST_CELLS = 2**16


def best_coupling_statistics(
    model: PairwiseModel | FactorGraph, fractional: np.ndarray
) -> tuple[Statistics | FactorStatistics, np.ndarray]:
    r"""Return statistics of the local polytope's best point with the given node marginals, and the terms of its score.

    .. math::
        \max_{\tau_F \ge 0} \; \langle \theta_F, \tau_F \rangle, \qquad
        \sum_{y_F \sim y_s} \tau_F(y_F) = \tau_s(y_s) \ \text{ for each node } s \in F

    The score of a factor is added to the term of the first node of the factor.
    """
    # fractional: (N, K), float64; returns terms: (N,), float64
    if isinstance(model, FactorGraph):
        return _couple_factors(model, fractional)
    joint = best_couplings(model, fractional)
    tables = np.zeros(model.tables.shape)
    weight = np.ones((len(joint), 1)) if model.edge_weight is None else model.edge_weight
    for kind in range(len(tables)):
        own = model.edge_type == kind
        tables[kind] = np.einsum("er,eab->rab", weight[own], joint[own])
    scores = np.sum(fractional * np.where(fractional > 0, model.unary, 0.0), axis=1)
    edges = np.einsum("eab,eab->e", joint, model.edge_tables())
    scores += np.bincount(model.graph.edges[:, 0], edges, minlength=len(scores))
    return Statistics(fractional, tables), scores


def _couple_factors(model, fractional):
    log_table, default, terms = np.zeros(model.log_table.size), np.zeros(model.n_tables), np.zeros(model.n_nodes)
    used = [np.flatnonzero(row > _UNUSED) for row in fractional]
    for f in range(model.n_factors):
        scope = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
        n_cells = np.prod([len(used[node]) for node in scope], dtype=np.float64)
        if n_cells > _MOST_CELLS:
            raise ValueError(
                f"Factor {f} has {n_cells:.3g} joint states with positive marginals, more than {_MOST_CELLS}: use "
                "learning='max_margin', whose labelings are not fractional."
            )
        cells = list(product(*(used[node] for node in scope)))
        states = np.array(cells, dtype=np.int64).reshape(len(cells), len(scope))
        factors = np.full(len(states), f)
        scores = model.factor_scores(factors, states)
        marginals = [fractional[node, used[node]] / fractional[node, used[node]].sum() for node in scope]
        joint = _couple_factor(states, [used[node] for node in scope], marginals, scores)
        add_cells(model, factors, model.cells(factors, states), joint, log_table, default)
        terms[scope[0] if len(scope) else 0] += float(joint @ np.where(joint > 0, scores, 0.0))
    return FactorStatistics(log_table, default), terms


def _couple_factor(states, used, marginals, scores):
    """Return the best probabilities of the joint states of one factor, given the marginals of its nodes."""
    # states: (n_cells, arity); used, marginals: used states of each node, and their probabilities
    if sum(len(own) > 1 for own in used) <= 1:
        joint = np.ones(len(states))
        for column, own, probabilities in zip(states.T, used, marginals, strict=True):
            joint *= probabilities[np.searchsorted(own, column)]
        return joint
    rows = [(column == state).astype(np.float64) for column, own in zip(states.T, used, strict=True) for state in own]
    allowed, one = scores > -np.inf, np.eye(len(rows))
    # Marginals of inexact inference may be inconsistent with the factor. Slack then allows nearby marginals.
    for slack in (one[:, :0], np.hstack((one, -one))):
        price, most = (np.full(slack.shape[1], value) for value in (np.ptp(scores[allowed]) + 1.0, np.inf))
        found = linprog(
            np.append(-np.where(allowed, scores, 0.0), price),
            A_eq=np.hstack((rows, slack)),
            b_eq=np.concatenate(marginals),
            bounds=np.column_stack((np.zeros(len(states) + len(most)), np.append(allowed, most))),
            method="highs",
        )
        if found.status == 0:
            break
    return np.maximum(found.x[: len(states)], 0.0)


def best_couplings(model, fractional):
    r"""Return the joint marginals of edges with the highest score, for given marginals of nodes.

    .. math::
        \max_{\tau_{st} \ge 0} \; \langle \theta_{st}, \tau_{st} \rangle, \qquad
        \sum_b \tau_{st}(a, b) = \tau_s(a), \quad \sum_a \tau_{st}(a, b) = \tau_t(b)

    An edge with a decided node has only one solution, and an edge between nodes of two states has two extreme
    solutions. All other edges are solved by one linear program.
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
    # The last constraint of each edge is redundant.
    # With rounding errors, including this constraint could make the program infeasible.
    cell = np.arange(n_edges * n_columns**2)
    edge, a, b = np.unravel_index(cell, tables.shape)
    kept = b < n_columns - 1
    rows = ProgramRows()
    rows.add([(edge * n_columns + a, cell, 1.0)], tail.size, tail.ravel())
    of_head = edge * (n_columns - 1) + b
    rows.add([(of_head[kept], cell[kept], 1.0)], n_edges * (n_columns - 1), head[:, :-1].ravel())
    found = linprog(-tables.ravel(), **rows.arrays("eq", len(cell)), bounds=(0, None), method="highs")
    if found.status != 0:
        raise RuntimeError(f"linprog found no marginals of edges: {found.message}")
    return np.maximum(found.x, 0.0).reshape(tables.shape)
