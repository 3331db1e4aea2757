"""Piecewise likelihood: every node and every edge normalised by itself."""

from functools import partial
from math import log, prod

import numpy as np
from scipy.special import logsumexp

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import best_edge_shares, edge_shared_bound, nodes_of_edge_shares
from sklearn_crf.kernels.bounds.edge_entropy import normalise_edges
from sklearn_crf.kernels.factors import rows_below_best
from sklearn_crf.models import (
    COUNT,
    DENSE,
    FactorGraph,
    FactorStatistics,
    PairwiseModel,
    Statistics,
    add_cells,
    check_labels,
    clamped,
    excess_over_labels,
)
from sklearn_crf.objectives._base import Loss, Objective, observed_model
from sklearn_crf.objectives.likelihood._likelihood import free_less_fixed
from sklearn_crf.objectives.likelihood._pseudolikelihood import check_node_weight


def factor_pieces(model, factor_weight=None):
    r"""Log-partition of each factor by itself, and the derivative of their weighted sum.

    .. math:: \sum_f \log \sum_{y_f} e^{\theta_f(y_f)}

    All joint states that a table does not list have one score; a count of c nodes out of n stands for as many states as
    there are labelings with it. Factors that share a table are worked out once.
    """
    # factor_weight: (F,) or None, which is one; returns terms: (F,), without the weights
    statistics = FactorStatistics(np.zeros(model.log_table.size), np.zeros(model.n_tables))
    weight = np.ones(model.n_factors) if factor_weight is None else factor_weight
    terms = _dense_pieces(model, weight, statistics)[model.table_id]
    unknown = np.full(model.n_nodes, -1)
    is_dense = model.table_kind[model.table_id] == DENSE
    for factors, scope in model.by_arity():
        others = ~is_dense[factors]
        if others.any():
            terms[factors[others]] = _listed_pieces(model, factors[others], scope[others], unknown, weight, statistics)
    return terms, statistics


def observed_pieces(
    model: FactorGraph, labels: np.ndarray, factor_weight: np.ndarray
) -> tuple[np.ndarray, FactorStatistics]:
    r"""Log-partition of each factor by itself given the labels that are known, and the derivative of their sum.

    .. math:: \sum_f \log \sum_{y_f \text{ with the known labels}} e^{\theta_f(y_f)}

    A factor all of whose nodes are labelled has its score.
    """
    # labels: (N,), -1 where unknown; factor_weight: (F,); returns terms: (F,), without the weights
    statistics = FactorStatistics(np.zeros(model.log_table.size), np.zeros(model.n_tables))
    terms = np.empty(model.n_factors)
    for factors, scope in model.by_arity():
        known = (labels[scope] >= 0).all(axis=1)
        whole = factors[known]
        cells = model.cells(whole, labels[scope[known]])
        stored = cells >= 0
        terms[whole] = model.table_default[model.table_id[whole]]
        terms[whole[stored]] = model.log_table[cells[stored]]
        add_cells(model, whole, cells, factor_weight[whole], *statistics)
        is_dense = model.table_kind[model.table_id[factors]] == DENSE
        for pieces, chosen in ((_dense_pieces_given, ~known & is_dense), (_listed_pieces, ~known & ~is_dense)):
            if chosen.any():
                given = factors[chosen], scope[chosen], labels, factor_weight, statistics
                terms[factors[chosen]] = pieces(model, *given)
    return terms, statistics


def _dense_pieces(model, weight, statistics):
    """Log-partition of each dense table, those of one size at a time."""
    log_z = np.zeros(model.n_tables)
    counts = np.bincount(model.table_id, weight, minlength=model.n_tables)
    size = np.where(model.table_kind == DENSE, np.diff(model.table_ptr), 0)
    for n_cells in np.unique(size[size > 0]):
        tables = np.flatnonzero(size == n_cells)
        cells = model.table_ptr[tables][:, None] + np.arange(n_cells)
        scores = model.log_table[cells].astype(np.float64)
        log_z[tables] = logsumexp(scores, axis=1)
        statistics.log_table[cells] = counts[tables, None] * np.exp(scores - log_z[tables, None])
    return log_z


def _dense_pieces_given(
    model: FactorGraph,
    factors: np.ndarray,
    scope: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
    statistics: FactorStatistics,
) -> np.ndarray:
    """Log-partition of each of some factors of one arity with dense tables given the known labels."""
    log_z = np.empty(len(factors))
    shapes, index = np.unique(model.n_states[scope], axis=0, return_inverse=True)
    for k, shape in enumerate(shapes):
        same = np.flatnonzero(index.ravel() == k)
        states, known = np.indices(shape).reshape(len(shape), -1).T, labels[scope[same], None]
        fits = ((known < 0) | (known == states.T)).all(axis=1)
        cells = model.table_ptr[model.table_id[factors[same]], None] + np.arange(len(states))
        scores = np.where(fits, model.log_table[cells].astype(np.float64), -np.inf)
        log_z[same] = logsumexp(scores, axis=1)
        np.add.at(statistics.log_table, cells, weight[factors[same], None] * np.exp(scores - log_z[same, None]))
    return log_z


def _listed_pieces(model, factors, scope, labels, weight, statistics):
    """Log-partition of each of some factors of one arity given the known labels, table by table."""
    shape, known = model.n_states[scope], labels[scope]
    # Count tables may be shared by factors whose nodes differ in their numbers of states.
    key = np.column_stack((model.table_id[factors], shape, known))
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weight[factors])
    log_z = np.empty(len(first))
    for k, f in enumerate(first):
        table = model.table_id[factors[f]]
        cells = slice(*model.table_ptr[table : table + 2])
        log_number, log_rest = _log_numbers(model, table, shape[f], known[f])
        with np.errstate(invalid="ignore"):
            scores = np.append(model.log_table[cells] + log_number, model.table_default[table] + log_rest)
        # A score of no joint state adds nothing, even if it is infinite.
        scores[np.isneginf(np.append(log_number, log_rest))] = -np.inf
        log_z[k] = logsumexp(scores)
        probability = np.exp(scores - log_z[k])
        statistics.log_table[cells] += counts[k] * probability[:-1]
        statistics.table_default[table] += counts[k] * probability[-1]
    return log_z[inverse.ravel()]


def _log_numbers(model, table, shape, known):
    """Logarithms of how many joint states with the known labels have each stored score, and the default one."""
    # known: (arity,), -1 where a label is not
    cells = slice(*model.table_ptr[table : table + 2])
    if model.table_kind[table] == COUNT:
        return _log_numbers_of_counts(cells.stop - cells.start, model.table_state[table], shape, known)
    is_known, fits = known >= 0, np.ones(cells.stop - cells.start, dtype=bool)
    if is_known.any():
        states = np.stack(np.unravel_index(model.table_cell[cells], shape), axis=1)
        fits = (states == known)[:, is_known].all(axis=1)
    n_others = prod(shape[~is_known].tolist()) - np.count_nonzero(fits)
    return np.where(fits, 0.0, -np.inf), log(n_others) if n_others else -np.inf


def _log_numbers_of_counts(n_listed, state, shape, known):
    """The same of a count table: labelings of the nodes by how many of these are in the counted state."""
    numbers = np.full(len(shape) + 1, -np.inf)
    numbers[0] = 0.0
    for n_states, label in zip(shape.tolist(), known.tolist(), strict=True):
        is_counted = label == state if label >= 0 else state < n_states
        counted = np.append(-np.inf, numbers[:-1]) if is_counted else -np.inf
        n_others = n_states - (state < n_states) if label < 0 else int(label != state)
        others = numbers + log(n_others) if n_others else -np.inf
        numbers = np.logaddexp(counted, others)
    padded = np.append(numbers, np.full(n_listed, -np.inf))
    with np.errstate(divide="ignore"):
        return padded[:n_listed], logsumexp(padded[n_listed:])


class Piecewise(Objective):
    r"""Negative log-likelihood with the log-partition of each node and each edge by itself.

    .. math::
        \ell(\theta) = \sum_s \log \sum_a e^{u_s(a)} + \sum_e \log \sum_{a, b} e^{\theta_e(a, b)}
            - \mathrm{score}(y; \theta)

    An upper bound on the exact loss, convex, without inference. It is the dual of the relaxation whose entropy counts
    nodes and edges alike (``entropy="factors"``) before scores are shared out between them, and never tighter than
    that, nor than :class:`SharedPieces`. Of a factor graph every factor is a piece. Weights of nodes are factors of the
    pieces of single nodes. Unlabelled nodes are summed out in each piece by itself: a piece is a model of its own, with
    copies of its nodes, and the loss is that of the labels that are known there.

    Source: Sutton and McCallum 2009; Jancsary 2012, Eq. 175.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Piecewise
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = Piecewise().loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    3.759
    """

    weighs_nodes = True

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels = check_labels(model, labels, may_miss=True)
        if node_weight is not None:
            node_weight = check_node_weight(node_weight, len(labels))
        if isinstance(model, FactorGraph):
            return _loss_of_factors(model, labels, node_weight)
        node_terms, free = _of_nodes_and_edges(model)
        excess = excess_over_labels(model, labels, free, node_terms)
        if excess is not None:
            terms, statistics, _ = excess
        else:  # a label is missing
            observed_terms, observed = _of_nodes_and_edges(model, labels)
            terms, statistics = node_terms - observed_terms, free.minus(observed)
        if node_weight is not None:
            own = _log_sums(model.unary.astype(np.float64, copy=False))
            known = _log_sums(clamped(model, labels).unary.astype(np.float64, copy=False))
            terms = terms + (node_weight - 1) * (own - known)[:, 0]
            statistics = Statistics(statistics.unary * node_weight[:, None].astype(model.dtype), statistics.tables)
        return Loss(statistics=statistics, terms=terms)


class SharedPieces(Objective):
    r"""Negative log-likelihood with the log-partition of each edge by itself, scores of nodes shared out among edges.

    .. math::
        \ell(\theta) = \sum_{e = (s, t)} \log \sum_{a, b}
            \exp \Bigl( \theta_e(a, b) + \tfrac{u_s(a)}{d_s} + \tfrac{u_t(b)}{d_t} \Bigr) - \mathrm{score}(y; \theta)

    A node of degree d gives each of its edges an even share, so that edges see what their nodes look like; nodes
    without edges are pieces themselves. An upper bound on the exact loss, convex, without inference: the dual of the
    relaxation by the trivial entropy before the shares are optimised, and never looser than :class:`Piecewise`. Of the
    two Jancsary 2012 has the latter alone (Eq. 175); the shares are those of his reparameterisation (recipe 4), left at
    their start. Unlabelled nodes are rejected.

    A ``state``, which ``loss_statistics`` passes on, holds other shares: the bound of a model at these.

    See Also
    --------
    sklearn_crf.inference.edge_shared_bound : The same bound at any shares.
    at_best_shares : The risk at the shares that are best at some weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import SharedPieces
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = SharedPieces().loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    1.666
    """

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        even = np.zeros(len(nodes_of_edge_shares(model)))
        of_free, of_observed = (even, even) if state is None else state
        free, observed = edge_shared_bound(model, of_free).marginals, observed_model(model, labels)
        fixed = None if observed is None else edge_shared_bound(observed, of_observed).marginals
        # Marginals of shares are not those that predict.
        return free_less_fixed(model, labels, free, fixed)._replace(predicted=None, state=state)


def at_best_shares(risk, coef):
    """The risk of :class:`SharedPieces` at the shares that are best at some weights.

    Parameters
    ----------
    risk : EmpiricalRisk
    coef : ndarray of shape (n_coef,)

    Returns
    -------
    EmpiricalRisk
        Of the weights alone: the shares stay as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.objectives import EmpiricalRisk, SharedPieces, at_best_shares
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X([[[0.0], [0.2], [0.9]], [[1.0], [0.8]]])
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> form = pairwise_form("potts", 2)
    >>> potentials = LinearPotentials(1, 2, form, n_edge_features=2)
    >>> risk, coef = (
    ...     EmpiricalRisk(SharedPieces(), potentials, batches),
    ...     [2.0, -1.0, 0.5, 0.0],
    ... )
    >>> better = at_best_shares(risk, np.array(coef))
    >>> better.value_grad(np.array(coef)).value < risk.value_grad(np.array(coef)).value
    True
    """
    found = risk.having()
    found.carried = map_tasks(partial(_best_shares, found, coef), range(len(found.batches)), found.n_jobs)
    return found


def _best_shares(risk, coef, i, *, n_threads=1):
    batch = risk.batches[i]
    model = risk.objective.augmented(risk.potentials.model(coef, batch.example), batch.labels, batch.node_weight)
    observed = observed_model(model, batch.labels)
    with batch.named_in_errors():
        return best_edge_shares(model), None if observed is None else best_edge_shares(observed)


def _loss_of_factors(model: FactorGraph, labels: np.ndarray, node_weight: np.ndarray | None) -> Loss:
    """Loss in which the factor of a single node counts by the weight of the node."""
    is_single = model.arity == 1
    first = np.zeros(model.n_factors, dtype=np.int64)
    # As everywhere, a factor counts for its first node, and one without nodes for the first of all.
    first[model.arity > 0] = model.scope[model.scope_ptr[:-1][model.arity > 0]]
    weight = np.ones(model.n_factors)
    if node_weight is not None:
        weight[is_single] = node_weight[first[is_single]]
    log_z, free = factor_pieces(model, weight)
    known, truth = observed_pieces(model, labels, weight)
    terms = np.bincount(first, weights=weight * (log_z - known), minlength=model.n_nodes)
    return Loss(statistics=free.minus(truth), terms=terms)


def _of_nodes_and_edges(model, labels=None):
    """Log-partitions of pieces, given the labels that are known, by nodes, and the derivative of their sum."""
    # labels: (N,), -1 where unknown; None without any
    unary = (model if labels is None else clamped(model, labels)).unary.astype(np.float64, copy=False)
    log_z = _log_sums(unary)
    edge_terms, tables = _pieces_of_edges(model) if labels is None else _observed_edges(model, labels)
    node_terms = log_z[:, 0] + np.bincount(model.graph.edges[:, 0], weights=edge_terms, minlength=len(unary))
    return node_terms, Statistics(np.exp(unary - log_z).astype(model.dtype), tables)


def _log_sums(scores):
    """``logsumexp(scores, axis=1, keepdims=True)`` in a third of the time, and as accurate."""
    n_nodes, n_columns = scores.shape
    shares, best = np.empty((n_nodes, n_columns + n_columns % 2)), np.empty(n_nodes)
    rows_below_best(scores, shares, best)
    shares = shares[:, :n_columns]
    if not np.isfinite(best).all():
        return logsumexp(scores, axis=1, keepdims=True)
    is_best = shares == 0
    np.exp(shares, out=shares)
    shares[is_best] = 0.0
    n_best = 1.0 if np.count_nonzero(is_best) == n_nodes else is_best.sum(axis=1)
    return (np.log1p(shares.sum(axis=1) / n_best) + np.log(n_best) + best)[:, np.newaxis]


def _pieces_of_edges(model):
    """Log-partition of every edge by itself, and the derivative of their sum by the tables."""
    edges = np.arange(model.graph.n_edges, dtype=np.int32)
    if model.edge_weight is not None:
        return _normalised(model, model.edge_type, edges, np.zeros((len(edges), 2, model.n_columns)))
    # Edges without weights are as their types, which are normalised once.
    counts = np.bincount(model.edge_type, minlength=len(model.tables))
    types = np.flatnonzero(counts).astype(np.int32)
    log_z, statistics = _normalised(model, types, types, np.zeros((len(types), 2, model.n_columns)))
    statistics *= counts[:, None, None, None]
    return log_z[model.edge_type], statistics


def _observed_edges(model: PairwiseModel, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same given the labels that are known."""
    ends = labels[model.graph.edges]
    forbids = (ends[:, :, None] >= 0) & (ends[:, :, None] != np.arange(model.n_columns))
    edges = np.arange(model.graph.n_edges, dtype=np.int32)
    return _normalised(model, model.edge_type, edges, np.where(forbids, -np.inf, 0.0))


def _normalised(model, types, places, at_ends):
    """Log-partitions of tables, at their places, and the sums of their derivatives."""
    # types, places: (n,) int32; at_ends: (n, 2, K), added to the scores of the states of both ends
    log_z, statistics = np.zeros(int(places.max(initial=-1)) + 1), np.zeros(model.tables.shape)
    weights = np.zeros((0, 0)) if model.edge_weight is None else model.edge_weight
    failed = normalise_edges(
        np.ascontiguousarray(model.tables, dtype=np.float64),
        types,
        np.ascontiguousarray(weights, dtype=np.float64),
        np.stack((places, places), axis=1),
        at_ends,
        statistics,
        np.empty_like(at_ends),
        log_z,
        np.empty(model.n_columns**2 + 1),
    )
    if failed >= 0:
        raise ValueError(f"model is infeasible: the table of edge type {types[failed]} allows no pair of states.")
    return log_z, statistics
