"""The pseudolikelihood of a labeling and its derivatives: exact, in one pass over the nodes."""

import numpy as np

from sklearn_crf._threads import range_runner, run_fixed_ranges
from sklearn_crf.inference._local_updates import local_arguments, table_buffers
from sklearn_crf.kernels.pseudolikelihood import pseudolikelihood_range
from sklearn_crf.models import Statistics, check_labels


def pseudolikelihood_terms(model, labels, node_weight=None, n_threads=1):
    r"""Negative log-probability of each label given those of its neighbours, and the gradient of their weighted sum.

    .. math::
        \ell_s = -\log p(y_s \mid y_{n(s)})
            = \log \sum_k \exp\big(f_s(k)\big) - f_s(y_s), \qquad
        f_s(k) = u_{s k} + \sum_{e \ni s} \theta_e(k, y_{n(e)})

    The gradient of :math:`\sum_s w_s \ell_s` is :math:`\sum_s w_s` times the statistics of node s and its edges
    expected under :math:`p(\cdot \mid y_{n(s)})`, minus the counted ones: an edge enters once for each end.

    Parameters
    ----------
    model : PairwiseModel
    labels : array-like of shape (N,) of int
        State of every node.
    node_weight : array-like of shape (N,), optional
        Weights :math:`w_s`, not negative; None is one. A node of weight 0 still conditions its neighbours.
    n_threads : int, default=1
        Threads inside this one model; results do not depend on it.

    Returns
    -------
    terms : ndarray of shape (N,), float64
        :math:`\ell_s`, without the weights.
    gradient : Statistics
        Derivatives of the weighted sum by ``model.unary``, in its precision, and ``model.tables``, float64.

    Raises
    ------
    ValueError
        If ``labels`` or ``node_weight`` do not fit the model, or the label of a node of positive weight is
        forbidden given its neighbours'.

    References
    ----------
    J. Besag. Statistical Analysis of Non-Lattice Data. The Statistician 24, 1975.
    """
    labels = check_labels(model, labels)
    n_nodes = len(labels)
    weight = np.empty(0) if node_weight is None else _check_weight(node_weight, n_nodes)
    arguments = local_arguments(model)
    terms = np.empty(n_nodes)
    unary = np.empty_like(model.unary)
    buffers = table_buffers(model, n_nodes)

    def kernel(k, start, stop):
        scores = np.empty(model.n_columns)
        pseudolikelihood_range(start, stop, *arguments, labels, weight, scores, terms, unary, buffers[k])

    with range_runner(n_threads) as run:
        run_fixed_ranges(run, kernel, n_nodes, len(buffers))
    impossible = np.flatnonzero(np.isposinf(terms) & (True if node_weight is None else weight > 0))
    if len(impossible):
        s = impossible[0]
        raise ValueError(f"labels[{s}] is {labels[s]}, which its scores or its neighbours' labels forbid.")
    return terms, Statistics(unary, buffers.sum(axis=0))


def _check_weight(node_weight, n_nodes):
    weight = np.ascontiguousarray(node_weight, dtype=np.float64)
    if weight.shape != (n_nodes,):
        raise ValueError(f"node_weight must have shape ({n_nodes},), got {weight.shape}.")
    if not np.all((weight >= 0) & np.isfinite(weight)):
        raise ValueError("node_weight must be finite and not negative.")
    return weight
