"""Log-partitions of the factors of a factor graph, each by itself."""

from math import log, prod

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.factor_graphs import COUNT, DENSE, FactorStatistics


def factor_pieces(model):
    r"""Log-partition of each factor by itself, and the derivative of their sum.

    .. math:: \sum_f \log \sum_{y_f} e^{\theta_f(y_f)}

    What a table does not list is as many joint states of one score; a count of c nodes out of n is as many as there
    are labelings with it. Factors that share a table are worked out once.

    Parameters
    ----------
    model : FactorGraph

    Returns
    -------
    terms : ndarray of shape (F,)
    statistics : FactorStatistics
    """
    statistics = FactorStatistics(np.zeros(model.log_table.size), np.zeros(model.n_tables))
    terms = _dense_pieces(model, statistics)[model.table_id]
    is_dense = model.table_kind[model.table_id] == DENSE
    for factors, scope in model.by_arity():
        others = ~is_dense[factors]
        if others.any():
            terms[factors[others]] = _listed_pieces(model, factors[others], scope[others], statistics)
    return terms, statistics


def _dense_pieces(model, statistics):
    """Log-partition of each dense table, those of one size at a time."""
    log_z = np.zeros(model.n_tables)
    counts = np.bincount(model.table_id, minlength=model.n_tables)
    size = np.where(model.table_kind == DENSE, np.diff(model.table_ptr), 0)
    for n_cells in np.unique(size[size > 0]):
        tables = np.flatnonzero(size == n_cells)
        cells = model.table_ptr[tables][:, None] + np.arange(n_cells)
        scores = model.log_table[cells].astype(np.float64)
        log_z[tables] = logsumexp(scores, axis=1)
        statistics.log_table[cells] = counts[tables, None] * np.exp(scores - log_z[tables, None])
    return log_z


def _listed_pieces(model, factors, scope, statistics):
    """Log-partition of each of some factors of one arity, with sparse tables or by counts."""
    shape = model.n_states[scope]
    # Count tables may be shared by factors whose nodes differ in their numbers of states.
    key = np.column_stack((model.table_id[factors], shape))
    _, first, inverse, counts = np.unique(key, axis=0, return_index=True, return_inverse=True, return_counts=True)
    log_z = np.empty(len(first))
    for k, f in enumerate(first):
        table = model.table_id[factors[f]]
        cells = slice(*model.table_ptr[table : table + 2])
        log_number, log_rest = _log_numbers(model, table, shape[f])
        with np.errstate(invalid="ignore"):
            scores = np.append(model.log_table[cells] + log_number, model.table_default[table] + log_rest)
        # As many as none of whatever score are none.
        scores[np.isneginf(np.append(log_number, log_rest))] = -np.inf
        log_z[k] = logsumexp(scores)
        probability = np.exp(scores - log_z[k])
        statistics.log_table[cells] += counts[k] * probability[:-1]
        statistics.table_default[table] += counts[k] * probability[-1]
    return log_z[inverse.ravel()]


def _log_numbers(model, table, shape):
    """Logarithms of how many joint states have each stored score, and of how many the default one."""
    n_listed = int(model.table_ptr[table + 1] - model.table_ptr[table])
    if model.table_kind[table] == COUNT:
        return _log_numbers_of_counts(n_listed, model.table_state[table], shape)
    n_others = prod(shape.tolist()) - n_listed
    return np.zeros(n_listed), log(n_others) if n_others else -np.inf


def _log_numbers_of_counts(n_listed, state, shape):
    """The same of a count table: labelings of the nodes by how many of these are in the counted state."""
    numbers = np.full(len(shape) + 1, -np.inf)
    numbers[0] = 0.0
    for n_states in shape.tolist():
        counted = np.append(-np.inf, numbers[:-1]) if state < n_states else -np.inf
        n_others = n_states - (state < n_states)
        others = numbers + log(n_others) if n_others else -np.inf
        numbers = np.logaddexp(counted, others)
    padded = np.append(numbers, np.full(n_listed, -np.inf))
    with np.errstate(divide="ignore"):
        return padded[:n_listed], logsumexp(padded[n_listed:])
