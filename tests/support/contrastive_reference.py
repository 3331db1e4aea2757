"""Reference implementation of the contrastive objective in plain NumPy, with loops over assignments."""

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.models import Statistics, compute_labeling_statistics, score


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
