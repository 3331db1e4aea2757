"""Piecewise likelihood, in which every node, edge and factor is normalised separately."""

from functools import partial
from math import log, prod

import numpy as np
from scipy.special import logsumexp

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import divide_scores, edge_shared_bound, nodes_of_edge_shares, optimise_edge_shares
from sklearn_crf.kernels.messages.edges import rows_below_best
from sklearn_crf.kernels.messages.sweeps import normalise_edges
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
    compute_label_excess,
)
from sklearn_crf.objectives._base import Loss, Objective, clamp_known_labels
from sklearn_crf.objectives.likelihood._likelihood import compute_marginal_loss
from sklearn_crf.objectives.likelihood._pseudolikelihood import check_node_weight


def compute_factor_partitions(model, factor_weight=None):
    r"""Compute a separate log-partition for each factor, and the derivative of the weighted sum of log-partitions.

    .. math:: \sum_f \log \sum_{y_f} e^{\theta_f(y_f)}

    All joint states that a table does not list share one score. An entry of a count table represents all joint states
    with that count. Factors that share a table are computed once.
    """
    # factor_weight: (F,), or None for ones
    # returns terms: (F,), log-partitions without weights
    statistics = FactorStatistics(np.zeros(model.log_table.size), np.zeros(model.n_tables))
    weight = np.ones(model.n_factors) if factor_weight is None else factor_weight
    terms = _compute_dense_partitions(model, weight, statistics)[model.table_id]
    unknown = np.full(model.n_nodes, -1)
    is_dense = model.table_kind[model.table_id] == DENSE
    for factors, scope in model.by_arity():
        others = ~is_dense[factors]
        if others.any():
            terms[factors[others]] = _compute_listed_partitions(
                model, factors[others], scope[others], unknown, weight, statistics
            )
    return terms, statistics


def compute_observed_partitions(
    model: FactorGraph, labels: np.ndarray, factor_weight: np.ndarray
) -> tuple[np.ndarray, FactorStatistics]:
    r"""Compute the results of :func:`compute_factor_partitions` given the known labels.

    .. math:: \sum_f \log \sum_{y_f \text{ with the known labels}} e^{\theta_f(y_f)}

    If all nodes of a factor are labelled, its log-partition is its score.
    """
    # labels: (N,), -1 for unknown labels
    # factor_weight: (F,)
    # returns terms: (F,), log-partitions without weights
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
        for pieces, chosen in (
            (_compute_observed_dense_partitions, ~known & is_dense),
            (_compute_listed_partitions, ~known & ~is_dense),
        ):
            if chosen.any():
                given = factors[chosen], scope[chosen], labels, factor_weight, statistics
                terms[factors[chosen]] = pieces(model, *given)
    return terms, statistics


def _compute_dense_partitions(model, weight, statistics):
    """Return the log-partition of each dense table, and store the derivatives in ``statistics``."""
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


def _compute_observed_dense_partitions(
    model: FactorGraph,
    factors: np.ndarray,
    scope: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
    statistics: FactorStatistics,
) -> np.ndarray:
    """Return the log-partitions of factors of one arity with dense tables, given the known labels."""
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


def _compute_listed_partitions(model, factors, scope, labels, weight, statistics):
    """Return the log-partitions of factors of one arity with sparse or count tables, given the known labels."""
    shape, known = model.n_states[scope], labels[scope]
    # Factors may share a count table even if their nodes have different numbers of states.
    key = np.column_stack((model.table_id[factors], shape, known))
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weight[factors])
    log_z = np.empty(len(first))
    for k, f in enumerate(first):
        table = model.table_id[factors[f]]
        cells = slice(*model.table_ptr[table : table + 2])
        log_number, log_rest = _compute_log_numbers(model, table, shape[f], known[f])
        with np.errstate(invalid="ignore"):
            scores = np.append(model.log_table[cells] + log_number, model.table_default[table] + log_rest)
        # Entries that no joint state uses get the score -inf, because their scores may be +inf, and would yield NaN.
        scores[np.isneginf(np.append(log_number, log_rest))] = -np.inf
        log_z[k] = logsumexp(scores)
        probability = np.exp(scores - log_z[k])
        statistics.log_table[cells] += counts[k] * probability[:-1]
        statistics.table_default[table] += counts[k] * probability[-1]
    return log_z[inverse.ravel()]


def _compute_log_numbers(model, table, shape, known):
    """Return, for each stored score and the default score, the logarithm of the number of its joint states."""
    # known: (arity,), known labels of the nodes, -1 for unknown labels
    cells = slice(*model.table_ptr[table : table + 2])
    if model.table_kind[table] == COUNT:
        return _compute_count_log_numbers(cells.stop - cells.start, model.table_state[table], shape, known)
    is_known, fits = known >= 0, np.ones(cells.stop - cells.start, dtype=bool)
    if is_known.any():
        states = np.stack(np.unravel_index(model.table_cell[cells], shape), axis=1)
        fits = (states == known)[:, is_known].all(axis=1)
    n_others = prod(shape[~is_known].tolist()) - np.count_nonzero(fits)
    return np.where(fits, 0.0, -np.inf), log(n_others) if n_others else -np.inf


def _compute_count_log_numbers(n_listed, state, shape, known):
    """Return the result of :func:`_compute_log_numbers` for a count table."""
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
    r"""Negative log-likelihood with a separate log-partition for each node and each edge.

    .. math::
        \ell(\theta) = \sum_s \log \sum_a e^{u_s(a)} + \sum_e \log \sum_{a, b} e^{\theta_e(a, b)}
            - \mathrm{score}(y; \theta)

    The loss is a convex upper bound on the exact loss and needs no inference. The bound is the dual of the relaxation
    whose entropy is the sum of the entropies of nodes and edges (``entropy="factors"``), before scores are shared
    between nodes and edges. The bound is never tighter than that relaxation, nor than :class:`SharedPieces`. In a
    factor graph every factor is a piece. Weights of nodes multiply the losses of the pieces of single nodes. Unlabelled
    nodes are summed out in each piece separately, as if each piece were a model with its own copies of the nodes.
    Source: Sutton and McCallum 2009; Jancsary 2012, Eq. 175.
    """

    weighs_nodes = True

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels = check_labels(model, labels, may_miss=True)
        if node_weight is not None:
            node_weight = check_node_weight(node_weight, len(labels))
        if isinstance(model, FactorGraph):
            return _compute_factor_loss(model, labels, node_weight)
        node_terms, free = _compute_node_edge_partitions(model)
        excess = compute_label_excess(model, labels, free, node_terms)
        if excess is not None:
            terms, statistics, _ = excess
        else:  # some labels are missing
            observed_terms, observed = _compute_node_edge_partitions(model, labels)
            terms, statistics = node_terms - observed_terms, free.minus(observed)
        if node_weight is not None:
            own = _compute_log_sums(model.unary.astype(np.float64, copy=False))
            known = _compute_log_sums(clamped(model, labels).unary.astype(np.float64, copy=False))
            terms = terms + (node_weight - 1) * (own - known)[:, 0]
            statistics = Statistics(statistics.unary * node_weight[:, None].astype(model.dtype), statistics.tables)
        return Loss(statistics=statistics, terms=terms)


class SharedPieces(Objective):
    r"""Negative log-likelihood with a separate log-partition for each edge; edges share the scores of their nodes.

    .. math::
        \ell(\theta) = \sum_{e = (s, t)} \log \sum_{a, b}
            \exp \Bigl( \theta_e(a, b) + \tfrac{u_s(a)}{d_s} + \tfrac{u_t(b)}{d_t} \Bigr) - \mathrm{score}(y; \theta)

    The scores of a node of degree d are divided equally among its edges, so that edges depend on the features of their
    nodes. The ``state`` passed to ``loss_statistics`` may contain other shares. Nodes without edges are separate
    pieces. The loss is a convex upper bound on the exact loss and needs no inference. The bound is the dual of the
    relaxation with the trivial entropy, before the shares are optimised, and is never looser than :class:`Piecewise`.
    Jancsary 2012 only describes :class:`Piecewise` (Eq. 175); the shares are the initial shares of his
    reparameterisation (recipe 4). Unlabelled nodes are summed out by the same bound; the loss is then a difference of
    convex functions.
    """

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        if isinstance(model, FactorGraph):
            return _compute_shared_factor_loss(model, labels)
        even = np.zeros(len(nodes_of_edge_shares(model)))
        of_free, of_observed = (even, even) if state is None else state
        free, observed = edge_shared_bound(model, of_free).marginals, clamp_known_labels(model, labels)
        fixed = None if observed is None else edge_shared_bound(observed, of_observed).marginals
        # Errors are not counted, because prediction does not use the marginals of separate edges.
        return compute_marginal_loss(model, labels, free, fixed)._replace(predicted=None, state=state)


def _compute_shared_factor_loss(model, labels):
    """Return the loss of separate edges and factors, each with an equal share of the scores of its nodes."""

    def bound(model):
        nodes, compute = divide_scores(model, "trivial")
        return compute(model, np.zeros(len(nodes))).marginals

    observed = clamp_known_labels(model, labels)
    fixed = None if observed is None else bound(observed)
    return compute_marginal_loss(model, labels, bound(model), fixed)._replace(predicted=None)


def set_best_edge_shares(risk, coef):
    """Return the risk of :class:`SharedPieces` in which the shares of node scores are optimal for the given weights.

    The shares stay fixed, so the result is a function of the weights only.
    """
    found = risk.having()
    found.carried = map_tasks(partial(_compute_best_shares, found, coef), range(len(found.batches)), found.n_jobs)
    return found


def _compute_best_shares(risk, coef, i, *, n_threads=1):
    batch = risk.batches[i]
    model = risk.objective.augmented(risk.potentials.model(coef, batch.example), batch.labels, batch.node_weight)
    observed = clamp_known_labels(model, batch.labels)
    with batch.named_in_errors():
        if isinstance(model, FactorGraph):
            raise ValueError("shares='optimized' supports only nodes and edges, not factors: use shares='even'.")
        return optimise_edge_shares(model), None if observed is None else optimise_edge_shares(observed)


def _compute_factor_loss(model: FactorGraph, labels: np.ndarray, node_weight: np.ndarray | None) -> Loss:
    """Return the piecewise loss of a factor graph; ``node_weight`` weights the factors of single nodes."""
    is_single = model.arity == 1
    first = np.zeros(model.n_factors, dtype=np.int64)
    # Add the loss of a factor to the term of its first node. A factor without nodes contributes to the term of node 0.
    first[model.arity > 0] = model.scope[model.scope_ptr[:-1][model.arity > 0]]
    weight = np.ones(model.n_factors)
    if node_weight is not None:
        weight[is_single] = node_weight[first[is_single]]
    log_z, free = compute_factor_partitions(model, weight)
    known, truth = compute_observed_partitions(model, labels, weight)
    terms = np.bincount(first, weights=weight * (log_z - known), minlength=model.n_nodes)
    return Loss(statistics=free.minus(truth), terms=terms)


def _compute_node_edge_partitions(model, labels=None):
    """Return the log-partitions of nodes and edges as one term per node, and the derivative of their total."""
    # labels: (N,), known labels, -1 for unknown labels; None if all labels are unknown
    unary = (model if labels is None else clamped(model, labels)).unary.astype(np.float64, copy=False)
    log_z = _compute_log_sums(unary)
    edge_terms, tables = (
        _compute_edge_partitions(model) if labels is None else _compute_observed_edge_partitions(model, labels)
    )
    node_terms = log_z[:, 0] + np.bincount(model.graph.edges[:, 0], weights=edge_terms, minlength=len(unary))
    return node_terms, Statistics(np.exp(unary - log_z).astype(model.dtype), tables)


def _compute_log_sums(scores):
    """Return ``logsumexp(scores, axis=1, keepdims=True)``, as accurate as SciPy's result, in a third of the time."""
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


def _compute_edge_partitions(model):
    """Return each edge's separate log-partition, and the gradient of the summed log-partitions for the tables."""
    edges = np.arange(model.graph.n_edges, dtype=np.int32)
    if model.edge_weight is not None:
        return _normalise(model, model.edge_type, edges, np.zeros((len(edges), 2, model.n_columns)))
    # Edges of one type without features have the same scores, so each type is normalised once.
    counts = np.bincount(model.edge_type, minlength=len(model.tables))
    types = np.flatnonzero(counts).astype(np.int32)
    log_z, statistics = _normalise(model, types, types, np.zeros((len(types), 2, model.n_columns)))
    statistics *= counts[:, None, None, None]
    return log_z[model.edge_type], statistics


def _compute_observed_edge_partitions(model: PairwiseModel, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of :func:`_compute_edge_partitions` given the known labels."""
    ends = labels[model.graph.edges]
    forbids = (ends[:, :, None] >= 0) & (ends[:, :, None] != np.arange(model.n_columns))
    edges = np.arange(model.graph.n_edges, dtype=np.int32)
    return _normalise(model, model.edge_type, edges, np.where(forbids, -np.inf, 0.0))


def _normalise(model, types, places, at_ends):
    """Return the log-partition of each edge, and for each table the derivative of the sum of log-partitions."""
    # types: (n,) int32, index of the table of each edge
    # places: (n,) int32, output position of each edge
    # at_ends: (n, 2, K), scores that are added to the states of the first and second node of each edge
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
