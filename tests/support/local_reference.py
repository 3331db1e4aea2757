"""Reference implementations in plain NumPy of scores of one node given its neighbours, for small models."""

import numpy as np
from scipy.special import log_softmax


def scores_given_labels(model, labels, node):
    """Return the scores of the states of a node given its neighbours' labels, (K,) float64, -inf if forbidden."""
    scores = model.unary[node].astype(np.float64)
    for (tail, head), table in zip(model.graph.edges, model.edge_tables().astype(np.float64), strict=True):
        if tail == node:
            scores = scores + table[:, labels[head]]
        elif head == node:
            scores = scores + table[labels[tail]]
    return scores


def scores_given_marginals(model, marginals, node):
    """Return the expected score of each state of a node given independent marginals of neighbours, (K,) float64."""
    scores = model.unary[node].astype(np.float64)
    for (tail, head), table in zip(model.graph.edges, model.edge_tables().astype(np.float64), strict=True):
        if tail == node:
            scores = scores + weighted(table, marginals[head]).sum(axis=1)
        elif head == node:
            scores = scores + weighted(table.T, marginals[tail]).sum(axis=1)
    return scores


def weighted(scores, probability):
    """Return scores times probabilities, with 0 * -inf = 0."""
    probability = np.broadcast_to(probability, scores.shape)
    return np.where(probability > 0, probability * np.where(probability > 0, scores, 0), 0)


def log_conditional(model, labels, node):
    """Return the log-probabilities of the states of a node given its neighbours' labels, (K,)."""
    return log_softmax(scores_given_labels(model, labels, node))
