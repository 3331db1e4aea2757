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
    terms = np.empty(model.n_factors)
    log_table, table_default = np.zeros(model.log_table.size), np.zeros(model.n_tables)
    for factors, scope in model.by_arity():
        shape = model.n_states[scope]
        # Count tables may be shared by factors whose nodes differ in their numbers of states.
        key = np.column_stack((model.table_id[factors], shape))
        _, first, inverse, counts = np.unique(key, axis=0, return_index=True, return_inverse=True, return_counts=True)
        found = np.empty(len(first))
        for k, f in enumerate(first):
            table = model.table_id[factors[f]]
            cells = slice(*model.table_ptr[table : table + 2])
            log_number, log_rest = _log_numbers(model, table, shape[f])
            with np.errstate(invalid="ignore"):
                scores = np.append(model.log_table[cells] + log_number, model.table_default[table] + log_rest)
            # As many as none of whatever score are none.
            scores[np.isneginf(np.append(log_number, log_rest))] = -np.inf
            found[k] = logsumexp(scores)
            probability = np.exp(scores - found[k])
            log_table[cells] += counts[k] * probability[:-1]
            table_default[table] += counts[k] * probability[-1]
        terms[factors] = found[inverse.ravel()]
    return terms, FactorStatistics(log_table, table_default)


def _log_numbers(model, table, shape):
    """Logarithms of how many joint states have each stored score, and of how many the default one."""
    n_listed = int(model.table_ptr[table + 1] - model.table_ptr[table])
    if model.table_kind[table] == DENSE:
        return np.zeros(n_listed), -np.inf
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
