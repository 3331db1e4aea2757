"""Reference implementation of belief propagation in plain NumPy, one message at a time."""

import numpy as np
from scipy.special import logsumexp


def edge_scores(model):
    """Return the scores of each edge in both directions, {(s, t): (K, K)}."""
    scores = {}
    for (i, j), table in zip(model.graph.edges.tolist(), model.edge_tables().astype(np.float64), strict=True):
        scores[i, j], scores[j, i] = table, table.T
    return scores


def sweep(model, messages, senders, *, maximum=False, only=lambda s, t: True, damping=0.0):
    """Update the log-messages that nodes send, one node at a time, in place. ``messages`` is {(s, t): (K,)}."""
    scores = edge_scores(model)
    for s in senders:
        fresh = {}
        for t in [t for a, t in scores if a == s and only(s, t)]:
            cavity = model.unary[s].astype(np.float64) + sum(messages[q, r] for q, r in messages if r == s and q != t)
            joint = cavity[:, None] + scores[s, t]
            fresh[s, t] = joint.max(axis=0) if maximum else logsumexp(joint, axis=0)
            fresh[s, t] -= fresh[s, t].max() if maximum else logsumexp(fresh[s, t])
        for edge, message in fresh.items():
            if damping and not maximum:
                message = np.log((1 - damping) * np.exp(message) + damping * np.exp(messages[edge]))
            messages[edge] = message


def uniform(model):
    """Return uniform log-messages."""
    return {edge: np.full(model.n_columns, -np.log(model.n_columns)) for edge in edge_scores(model)}


def by_slot(model, messages):
    """Return messages as an array ordered by the slots of receiving nodes, (2E, K)."""
    incidence = model.graph.incidence
    array = np.empty((len(incidence.neighbor), model.n_columns))
    for t in range(model.graph.n_nodes):
        for slot in range(incidence.ptr[t], incidence.ptr[t + 1]):
            array[slot] = messages[int(incidence.neighbor[slot]), t]
    return array
