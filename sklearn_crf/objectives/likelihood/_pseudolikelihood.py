"""Pseudolikelihood, the probability of each node's label given the true labels of its neighbours."""

from typing import Any

import numpy as np
from scipy.special import logsumexp

from sklearn_crf._threads import allocate_workspace, make_range_runner, run_fixed_ranges
from sklearn_crf.inference._local_search import allocate_table_buffers, build_local_arguments
from sklearn_crf.kernels.learning.learning import pseudolikelihood_range
from sklearn_crf.models import (
    FactorGraph,
    FactorStatistics,
    Statistics,
    add_cells,
    check_labels,
    compute_changed_scores,
)
from sklearn_crf.objectives._base import Loss, Objective


def compute_factor_conditionals(model, labels, node_weight=None):
    r"""Compute each label's negative log-probability given all other labels, and the derivative of the weighted sum.

    .. math::
        \ell_s = \log \sum_k e^{f_s(k)} - f_s(y_s), \qquad
        f_s(k) = \sum_{f \ni s} \theta_f(y_f \text{ with } y_s = k)
    """
    # labels: (N,), state of each node
    # node_weight: (N,) or None, non-negative weights of the terms in the sum; None means ones
    # returns terms: (N,), negative log-probabilities without weights
    changed, scores = compute_changed_scores(model, labels)
    nodes = np.arange(model.n_nodes)
    weight = np.ones(model.n_nodes) if node_weight is None else check_node_weight(node_weight, model.n_nodes)
    impossible = np.flatnonzero(np.isneginf(scores[nodes, labels]) & (weight > 0))
    if len(impossible):
        s = impossible[0]
        raise ValueError(f"labels[{s}] is {labels[s]}, which the node's scores or the labels of other nodes forbid.")
    log_z = logsumexp(scores, axis=1)
    probability = np.exp(scores - log_z[:, None]) * weight[:, None]
    log_table, table_default = np.zeros(model.log_table.size), np.zeros(model.n_tables)
    for part in changed:
        add_cells(model, part.factors, part.cells, probability[part.node, part.state], log_table, table_default)
    # The true joint state of a factor counts once for each node of the factor, with the weight of the node.
    truth = np.zeros(len(log_table)), np.zeros(len(table_default))
    for factors, scope in model.by_arity():
        add_cells(model, factors, model.cells(factors, labels[scope]), weight[scope].sum(axis=1), *truth)
    return log_z - scores[nodes, labels], FactorStatistics(log_table, table_default).minus(FactorStatistics(*truth))


def compute_pseudolikelihood_terms(model, labels, node_weight=None, n_threads=1):
    r"""Compute each label's negative log-probability given the neighbours' labels, and the weighted sum's gradient.

    .. math::
        \ell_s = -\log p(y_s \mid y_{n(s)})
            = \log \sum_k \exp\big(f_s(k)\big) - f_s(y_s), \qquad
        f_s(k) = u_{s k} + \sum_{e \ni s} \theta_e(k, y_{n(e)})

    The gradient of :math:`\sum_s w_s \ell_s` is :math:`\sum_s w_s` times a difference: the statistics of node s and its
    edges expected under :math:`p(\cdot \mid y_{n(s)})`, minus the statistics of the labels. Each edge contributes once
    for each end.
    """
    # labels: (N,), state of each node
    # node_weight: (N,) or None, non-negative weights :math:`w_s`; None means ones
    # n_threads: number of threads for this model; results do not depend on it
    # returns terms: (N,) float64, :math:`\ell_s` without weights; gradient: derivatives of the weighted sum
    # The derivatives with respect to ``model.unary`` have the precision of ``model.unary``.
    # The derivatives with respect to ``model.tables`` are float64.
    labels = check_labels(model, labels)
    n_nodes = len(labels)
    weight = np.empty(0) if node_weight is None else check_node_weight(node_weight, n_nodes)
    arguments = build_local_arguments(model)
    terms = np.empty(n_nodes)
    unary = np.empty_like(model.unary)
    buffers = allocate_table_buffers(model, n_nodes)

    def kernel(k, start, stop):
        scores = allocate_workspace(model.n_columns)
        pseudolikelihood_range(start, stop, *arguments, labels, weight, scores, terms, unary, buffers[k])

    run_fixed_ranges(make_range_runner(n_threads), kernel, n_nodes, len(buffers))
    impossible = np.flatnonzero(np.isposinf(terms) & (True if node_weight is None else weight > 0))
    if len(impossible):
        s = impossible[0]
        raise ValueError(f"labels[{s}] is {labels[s]}, which the node's scores or its neighbours' labels forbid.")
    return terms, Statistics(unary, buffers.sum(axis=0))


def check_node_weight(node_weight, n_nodes):
    """Return weights of nodes as float64; raise ValueError unless the weights are finite and not negative."""
    weight = np.ascontiguousarray(node_weight, dtype=np.float64)
    if weight.shape != (n_nodes,):
        raise ValueError(f"node_weight must have shape ({n_nodes},), got {weight.shape}.")
    if not np.all((weight >= 0) & np.isfinite(weight)):
        raise ValueError("node_weight must be finite and not negative.")
    return weight


def mask_known_surroundings(model, labels):
    """Return a mask of the labelled nodes whose neighbours are all labelled, (N,) bool."""
    known = labels >= 0
    kept = known.copy()
    if isinstance(model, FactorGraph):
        for _, scope in model.by_arity():
            kept[scope[~known[scope].all(axis=1)]] = False
        return kept
    edges = model.graph.edges
    kept[edges[~known[edges].all(axis=1)]] = False
    return kept


class Pseudolikelihood(Objective):
    r"""Negative log-pseudolikelihood of the labels.

    .. math:: \ell(\theta) = -\sum_s w_s \log p(y_s \mid y_{N(s)}; \theta)

    Nodes have weights :math:`w_s` if ``node_weight`` is passed to ``fit``. The neighbours of a node of weight zero
    still depend on its label. The loss is convex and smooth, needs no inference, and its minimiser is consistent. On
    strongly coupled data it overestimates the pairwise weights. Unlabelled nodes and their neighbours, whose
    conditional distributions are unknown, are left out of the sum.

    Source: Besag 1975; Kumar et al. 2005, section 6.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Pseudolikelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = Pseudolikelihood().loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.774
    """

    missing = "left out"
    weighs_nodes = True

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, node_weight: Any = None, n_threads: int = 1, **unused: Any
    ) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        if np.any(labels < 0):
            kept = mask_known_surroundings(model, labels)
            node_weight = kept * (1.0 if node_weight is None else node_weight)
            # No node in the sum has an unlabelled neighbour, so the labels of unlabelled nodes can be arbitrary here.
            labels = np.maximum(labels, 0)
        if isinstance(model, FactorGraph):
            terms, statistics = compute_factor_conditionals(model, labels, node_weight)
        else:
            terms, statistics = compute_pseudolikelihood_terms(model, labels, node_weight, n_threads)
        if node_weight is not None:
            terms = np.multiply(terms, node_weight, where=node_weight > 0, out=np.zeros_like(terms))
        return Loss(statistics=statistics, terms=terms)
