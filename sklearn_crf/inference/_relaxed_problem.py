"""Tools for linear relaxations: preparation of models, bounds on scores, and minimisation of upper bounds."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference import _tuning
from sklearn_crf.inference._field import SUM_PROBABILITY, make_infeasible_error
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._results import Infeasible, score_labeling
from sklearn_crf.models import FactorGraph, PairwiseModel, score


def convert_to_double(model):
    """Return a model with float64 scores, so that bounds are reliable; factor graphs are returned unchanged."""
    if model.dtype == np.float64 or isinstance(model, FactorGraph):
        return model
    weight = None if model.edge_weight is None else model.edge_weight.astype(np.float64)
    unary, tables = model.unary.astype(np.float64), model.tables.astype(np.float64)
    return PairwiseModel(model.graph, unary, tables, model.edge_type, weight, model.n_states)


def iterate_table_blocks(model):
    """Yield slices of edges with their tables, in blocks, because all tables may not fit into memory."""
    step = max(1, _tuning.TABLES_AT_ONCE // model.n_columns**2)
    for first in range(0, model.graph.n_edges, step):
        edges = slice(first, first + step)
        yield edges, model.edge_tables(edges)


def enforce_arc_consistency(model):
    """Enforce arc consistency: forbid states that have no allowed pair with any state of a neighbour.

    No allowed labeling or fractional solution uses such a state. If its score stayed finite, a dual algorithm would
    exclude the state only in the limit.
    """
    if not np.isneginf(model.tables).any():
        return model
    possible = ~np.isneginf(model.unary)
    n_before = -1
    while n_before != (n_before := int(possible.sum())):
        for edges, tables in iterate_table_blocks(model):
            allowed = ~np.isneginf(tables)
            tails, heads = model.graph.edges[edges].T
            supported = (allowed & possible[heads][:, None, :]).any(axis=2)
            np.logical_and.at(possible, tails, supported)
            supported = (allowed & possible[tails][:, :, None]).any(axis=1)
            np.logical_and.at(possible, heads, supported)
    impossible = np.flatnonzero(~possible.any(axis=1))
    if len(impossible):
        raise Infeasible(f"model is infeasible: unary and tables together forbid every state of node {impossible[0]}.")
    unary = np.where(possible, model.unary, -np.inf)
    return PairwiseModel(model.graph, unary, model.tables, model.edge_type, model.edge_weight, model.n_states)


def compute_least_score(model: PairwiseModel) -> float:
    """Return a lower bound on the score of every allowed labeling: the sum of the smallest finite scores."""
    parts = [model.unary, *(tables.reshape(len(tables), -1) for _, tables in iterate_table_blocks(model))]
    return float(sum(np.where(np.isneginf(part), np.inf, part).min(axis=1).sum() for part in parts))


def compute_score_spread(model: PairwiseModel) -> float:
    """Return the standard deviation of all finite scores of nodes and edges, or 1 if they do not vary."""
    n, total, square = 0, 0.0, 0.0
    for part in [model.unary, *(tables for _, tables in iterate_table_blocks(model))]:
        finite = part[np.isfinite(part)]
        n, total, square = n + finite.size, total + finite.sum(), square + np.dot(finite, finite)
    variance = square / max(n, 1) - (total / max(n, 1)) ** 2
    # A smaller variance is only a rounding error of equal scores.
    return float(np.sqrt(variance)) if variance > 1e-12 * square / max(n, 1) else 1.0


def check_not_below(bound: float, least: float) -> None:
    """Raise ValueError if an upper bound is below the lower bound ``least`` on allowed labelings."""
    if bound < least - 1e-9 * max(1.0, abs(least)):
        raise Infeasible("model is infeasible: an upper bound lies below the minimum score of an allowed labeling.")


def compute_bound_rise(field, beliefs, messages, fresh, along_chains):
    r"""Return each node's contribution to the difference between an upper bound and the value that messages attain.

    For any messages, the scores are exactly

    .. math::
        \mathrm{score}(y) = \sum_s \beta_s(y_s) + \sum_{st} \nu_{st} \lambda_{st}(y_s, y_t),

    an average over trees T of :math:`\sum_s \beta_s + \sum_{st \in T} \lambda_{st}`. Constants are subtracted so that
    :math:`\sum_a \exp \beta_s(a) = 1`. If the nodes of a tree are then eliminated one by one, starting at the leaves,
    each edge adds at most

    .. math::
        \max_{y_s} \log r_{ts}(y_s), \qquad
        r_{ts}(y_s) = \sum_{y_t} \exp\big(\lambda_{st}(y_s, y_t) + \beta_t(y_t)\big)

    where t is the end away from the root. The bound is the average of these terms, with the worse end for each edge.
    The value that the messages attain has the mean :math:`\sum_{y_s} \exp(\beta_s) \, r_{ts}` instead of the maximum.
    Up to a constant, :math:`r^{\nu}` is the next message of t divided by its last message. At a fixed point, the
    difference is 0.
    """
    # beliefs: (N, K) float64, probabilities; messages: (2E, width), last messages
    # fresh: (2E, width), next parallel messages
    # along_chains: whether edge probabilities come from chains with ascending nodes, so that t is always the later end
    # returns (N,) float64; the contribution of an edge is added to its first node
    n_nodes, n_columns = beliefs.shape
    receiver = np.repeat(np.arange(n_nodes), np.diff(field.ptr))
    old, new, own = messages[:, :n_columns], fresh[:, :n_columns], field.unary[:, :n_columns]
    nothing = 0.0 if field.semiring == SUM_PROBABILITY else -np.inf
    # Ignore states that are forbidden at their node.
    possible = (old > nothing) & (own > nothing)[receiver]
    change = np.full(old.shape, -np.inf)
    if field.semiring == SUM_PROBABILITY:
        np.divide(new, old, out=change, where=possible)
        np.log(change, out=change, where=change > 0)
        change[~possible] = -np.inf
    else:
        np.subtract(new, old, out=change, where=possible)
    power = (
        np.ones(len(old)) if not len(field.appearance) else field.appearance[field.half_edge >> 1].astype(np.float64)
    )
    most = change.max(axis=1, initial=-np.inf)
    if np.isneginf(most).any():
        raise make_infeasible_error(int(receiver[np.argmin(most)]))
    below = most[:, None] - change
    below /= power[:, None]
    share = beliefs[receiver]
    mean = np.einsum("ij,ij->i", share, np.exp(-below))
    with np.errstate(divide="ignore", invalid="ignore"):
        # If the mean underflows, use the mean of the logarithms, which is a bound.
        above = np.where(mean > _LEAST_MEAN, -np.log(mean), np.where(share > 0, share * below, 0.0).sum(axis=1))
    above *= power
    ends = np.empty_like(above)
    ends[field.half_edge] = above
    ends = ends.reshape(-1, 2)
    numbered = np.empty_like(receiver)
    numbered[field.half_edge] = receiver
    first, second = numbered.reshape(-1, 2).T
    risen = np.where(first < second, *ends.T) if along_chains else ends.max(axis=1)
    return np.bincount(first, weights=risen, minlength=n_nodes)


# Smaller floating-point numbers have fewer significant digits.
_LEAST_MEAN = 1e-300


def compute_reweighted_bound_terms(model, messages, probabilities, *, along_chains=False):
    r"""Return each node's contribution to an upper bound on the best score.

    The bound is computed as in :func:`compute_bound_rise`, with maxima instead of sums. Constants are subtracted so
    that :math:`\max_a \beta_s(a) = 0`. The bound is the average over trees of the largest contributions of their edges.
    """
    # probabilities: (E,)
    # messages: (2E, K), scores by the slot of the receiving node, raised to the power of the edge probability
    # along_chains: whether the probabilities come from chains with ascending nodes
    # returns (N,) float64; an edge contributes to its first node
    graph, messages, slot_of_half_edge = (
        model.graph,
        messages.astype(np.float64),
        np.argsort(model.graph.incidence.half_edge),
    )
    nodes = model.unary.astype(np.float64)  # reparameterized scores, at most 0 after the constants are subtracted
    np.add.at(nodes, np.repeat(np.arange(graph.n_nodes), graph.degree), messages)
    terms = np.max(nodes, axis=1)
    if np.isneginf(terms).any():
        raise make_infeasible_error(int(np.argmin(terms)))
    nodes -= terms[:, None]
    for edges, tables in iterate_table_blocks(model):
        ends, numbers, pair = graph.edges[edges].T, np.arange(graph.n_edges)[edges], tables.astype(np.float64)
        for side in (0, 1):
            message = messages[slot_of_half_edge[2 * numbers + side]]
            # If a message forbids a state, the state is already forbidden at the node, and must not become +inf here.
            pair -= np.expand_dims(np.where(np.isneginf(message), np.inf, message), 2 - side)
        pair /= probabilities[edges][:, None, None]
        # For each end, maximise the pair's reparameterized score plus the score of the end.
        # States that are forbidden at the other end do not count.
        largest = np.empty(ends.shape)
        for side in (0, 1):
            totals = np.max(pair + np.expand_dims(nodes[ends[side]], 2 - side), axis=1 + side)
            largest[side] = np.where(nodes[ends[1 - side]] > -np.inf, totals, -np.inf).max(axis=1)
        later = np.argmax(graph.edges[edges], axis=1)
        chosen = np.take_along_axis(largest, later[None], axis=0)[0] if along_chains else largest.max(axis=0)
        np.add.at(terms, graph.edges[edges, 0], chosen * probabilities[edges])
    if np.isneginf(terms).any():
        raise Infeasible("model is infeasible: every labeling has a score of -inf.")
    return terms


class RecentFall:
    """Decrease of a bound over its last ten iterations, because one flat iteration may precede further decreases."""

    def __init__(self):
        self._bounds = []

    def after(self, bound: float) -> float:
        """Record the bound of an iteration; return the recent decrease, or inf while there are too few iterations."""
        self._bounds.append(bound)
        return self._bounds[-1 - _tuning.PATIENCE] - bound if len(self._bounds) > _tuning.PATIENCE else np.inf


def descend_to_labeling(algorithm, model, run):
    """Lower the bound until it converges or a labeling attains it; return the best labeling of all iterations."""
    # algorithm: object with ``max_iter`` and ``tol``; ``tol`` is relative to the size of the bound
    # run: ``run.lower()`` makes an iteration and returns the decrease of ``run.bound``
    # ``run.labels()`` returns the current labels; ``run.state`` is the state for a warm start
    best: Any = None
    best_score, converged, n_iter = -np.inf, False, 0
    recent, proof = RecentFall(), Proof(model)
    while not converged and n_iter < algorithm.max_iter:
        checkpoint()
        n_iter += 1
        fall = run.lower()
        labels = run.labels()
        found = score(model, labels)
        # While all labelings are forbidden, keep the last labeling, which is probably nearest to an allowed labeling.
        if found > best_score or np.isneginf(best_score):
            best, best_score = labels, found
        size = max(1.0, abs(run.bound))
        converged = recent.after(run.bound) <= algorithm.tol * size or proof.closes(best_score, run.bound)
    if not converged:
        warn_unconverged(make_still_falling_warning(algorithm, fall))
    result = score_labeling(model, best, n_iter=n_iter, converged=converged, state=run.state)
    return result._replace(bound=max(run.bound, result.score))


def make_still_falling_warning(algorithm, fall):
    """Return the warning that a bound has not converged, given its decrease in the last iteration."""
    stopped = f"{type(algorithm).__name__} stopped after max_iter={algorithm.max_iter} iterations"
    if np.isinf(fall):
        return f"{stopped}, which is too few to tell whether the bound is still decreasing: increase max_iter."
    return (
        f"{stopped} while the bound was still decreasing, by {fall:.2g} in the last iteration: increase max_iter or "
        f"tol (now {algorithm.tol:g})."
    )


def descend_to_marginals(algorithm, run, bound):
    """Lower the bound until messages converge, and return the marginals at convergence."""
    # algorithm: object with ``max_iter`` and ``tol``, the largest change of a message at convergence
    # run: ``run.iterate()`` makes an iteration and returns the largest change
    # ``run.marginals(**fields)`` returns the result with these fields
    # bound: kind of the bound on the log-partition, a field of the result
    change, n_iter = np.inf, 0
    while change > algorithm.tol and n_iter < algorithm.max_iter:
        checkpoint()
        n_iter += 1
        change = run.iterate()
    converged = bool(change <= algorithm.tol)
    if not converged:
        warn_unconverged(
            f"{type(algorithm).__name__} stopped after max_iter={algorithm.max_iter} iterations while messages were "
            f"still changing by {change:.2g} in probabilities, more than tol={algorithm.tol:g}: increase max_iter."
        )
    return run.marginals(bound=bound, n_iter=n_iter, converged=converged)


def is_coarse(model):
    """Return whether float32 rounds scores by more than 1, so that powers of messages could exclude all states."""
    if model.dtype == np.float64:
        return False
    most = 1.0 if model.edge_weight is None else float(np.abs(model.edge_weight).max(initial=1.0))
    largest = max(_compute_largest_score(model.unary), most * _compute_largest_score(model.tables))
    return largest * np.finfo(np.float32).eps > 1


def _compute_largest_score(scores: np.ndarray) -> float:
    return float(np.abs(scores).max(where=np.isfinite(scores), initial=0.0))


class ProgramRows:
    """Rows of a sparse matrix and their right-hand sides, collected in blocks for ``scipy.optimize.linprog``."""

    def __init__(self) -> None:
        self.n = 0
        self.rows: list[Any] = []
        self.columns: list[Any] = []
        self.values: list[Any] = []
        self.right: list[Any] = []

    def add(self, blocks: list[tuple], n_rows: int, right: Any = 0.0) -> int:
        """Add rows, given as blocks of (row, column, value); return the index of the first added row."""
        for rows, columns, values in blocks:
            self.rows.append(self.n + np.asarray(rows))
            self.columns.append(columns)
            self.values.append(np.broadcast_to(np.asarray(values, dtype=float), len(columns)))
        self.right.append(np.broadcast_to(np.asarray(right, dtype=float), n_rows))
        self.n += n_rows
        return self.n - n_rows

    def arrays(self, kind: str, n_columns: int) -> dict[str, Any]:
        """Return the matrix and the right-hand sides as arguments of linprog; return no arguments without rows."""
        if not self.n:
            return {}
        entries = (np.concatenate(self.values), (np.concatenate(self.rows), np.concatenate(self.columns)))
        matrix = sp.csr_matrix(entries, shape=(self.n, n_columns))
        return {f"A_{kind}": matrix, f"b_{kind}": np.concatenate(self.right)}
