"""Reference implementation of the contrastive objective in plain NumPy, with loops over assignments."""

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.models import Statistics, compute_labeling_statistics, score
from sklearn_crf.objectives import AssignmentSets


def all_labelings(n_nodes, n_columns):
    """Return all labelings, (K ** N, N)."""
    return np.indices((n_columns,) * n_nodes).reshape(n_nodes, -1).T.astype(np.int32)


def single_node_sets(labels, n_columns):
    """Yield, for each node, the labelings that may differ from the labels only at the node."""
    for node in range(len(labels)):
        rows = np.tile(labels, (n_columns, 1))
        rows[:, node] = np.arange(n_columns)
        yield rows


def contrastive_reference(model, labels, sets, weights):
    """Return the loss and statistics of sets of labelings, each of which contains the truth."""
    value = 0.0
    statistics = Statistics(np.zeros(model.unary.shape), np.zeros(model.tables.shape))
    truth = compute_labeling_statistics(model, labels)
    for rows, weight in zip(sets, weights, strict=True):
        rows = np.unique(rows, axis=0)
        scores = np.array([score(model, row) for row in rows])
        value += weight * (logsumexp(scores) - score(model, labels))
        for row, share in zip(rows, weight * np.exp(scores - logsumexp(scores)), strict=True):
            statistics = statistics.plus(compute_labeling_statistics(model, row).minus(truth).scaled(share, share))
    return value, statistics


def tangent_sets(model, labels):
    r"""Return sets tangent to the likelihood at a model, one for each wrong labeling (Vickrey et al. 2010, Lemma 3).

    .. math::
        w_{jk} = |Y| \sum_{y \in \{y_j, y_k\}} \tfrac1{|Y|} \, p(y; \theta_0), \qquad
        \left. \frac{\partial \ell}{\partial \theta} \right|_{\theta_0} =
        \left. -\frac{\partial \log p(y^*; \theta)}{\partial \theta} \right|_{\theta_0}
    """
    labelings = all_labelings(*model.unary.shape)
    scores = np.array([score(model, labeling) for labeling in labelings])
    probability = np.exp(scores - np.logaddexp.reduce(scores))
    sets = AssignmentSets(model, labels)
    true_row = np.flatnonzero((labelings == sets.labels).all(axis=1))[0]
    for row, labeling in enumerate(labelings):
        if row != true_row:
            weight = probability[row] + probability[true_row]
            sets.add_set(model, np.stack((sets.labels, labeling)), weight=weight)
    return sets
