"""The pseudolikelihood of a labeling of a factor graph and its derivatives."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.factor_graphs import FactorStatistics, add_cells


class _Changed(NamedTuple):
    """Factors of one arity with the state of one of their nodes changed to each of its states."""

    factors: np.ndarray  # (n,) each as often as that node has states
    node: np.ndarray  # (n,)
    state: np.ndarray  # (n,)
    cells: np.ndarray  # (n,) of the changed labels


def factor_conditionals(model, labels):
    r"""Negative log-probability of each label given all others, and the derivative of their sum.

    .. math::
        \ell_s = \log \sum_k e^{f_s(k)} - f_s(y_s), \qquad
        f_s(k) = \sum_{f \ni s} \theta_f(y_f \text{ with } y_s = k)

    Parameters
    ----------
    model : FactorGraph
    labels : ndarray of shape (N,) of int
        State of every node.

    Returns
    -------
    terms : ndarray of shape (N,)
    statistics : FactorStatistics

    Raises
    ------
    ValueError
        If a label is forbidden given the others.
    """
    changed = list(_changes(model, labels))
    scores = np.where(np.arange(model.n_columns) < model.n_states[:, None], 0.0, -np.inf)
    for part in changed:
        np.add.at(scores, (part.node, part.state), _scores_of(model, part))
    nodes = np.arange(model.n_nodes)
    impossible = np.flatnonzero(np.isneginf(scores[nodes, labels]))
    if len(impossible):
        s = impossible[0]
        raise ValueError(f"labels[{s}] is {labels[s]}, which its scores or the labels of other nodes forbid.")
    log_z = logsumexp(scores, axis=1)
    probability = np.exp(scores - log_z[:, None])
    log_table, table_default = np.zeros(model.log_table.size), np.zeros(model.n_tables)
    for part in changed:
        add_cells(model, part.factors, part.cells, probability[part.node, part.state], log_table, table_default)
    # Every node of a factor counts its true joint state once.
    truth = np.zeros(len(log_table)), np.zeros(len(table_default))
    for factors, scope in model.by_arity():
        counts = np.full(len(factors), float(scope.shape[1]))
        add_cells(model, factors, model.cells(factors, labels[scope]), counts, *truth)
    return log_z - scores[nodes, labels], FactorStatistics(log_table, table_default).minus(FactorStatistics(*truth))


def _changes(model, labels):
    for factors, scope in model.by_arity():
        for d in range(scope.shape[1]):
            counts = model.n_states[scope[:, d]].astype(np.int64)
            row = np.repeat(np.arange(len(factors)), counts)
            state = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
            states = labels[scope][row]
            states[:, d] = state
            yield _Changed(factors[row], scope[row, d], state, model.cells(factors[row], states))


def _scores_of(model, part):
    scores = model.table_default[model.table_id[part.factors]].astype(np.float64)
    stored = part.cells >= 0
    scores[stored] = model.log_table[part.cells[stored]]
    return scores
