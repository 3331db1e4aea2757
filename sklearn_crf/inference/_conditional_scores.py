"""Scores of each node's states where its neighbours have given labels."""

import numpy as np
import scipy.sparse as sp

from sklearn_crf.models import check_labels

# Edges whose table rows are gathered at once.
_EDGES = 65536


def conditional_scores(model, labels):
    r"""Score of every state of every node, given a labeling of its neighbours.

    .. math:: f_s(k) = u_{s k} + \sum_{e \ni s} \theta_e(k, y_{n(e)})

    The log-potentials of :math:`p(y_s \mid y_{n(s)})`; a best labeling has a largest entry at every node.

    Parameters
    ----------
    model : PairwiseModel
    labels : array-like of shape (N,) of int

    Returns
    -------
    ndarray of shape (N, K), float64
    """
    labels = check_labels(model, labels)
    scores = model.unary.astype(np.float64)
    for start in range(0, model.graph.n_edges, _EDGES):
        edges = slice(start, start + _EDGES)
        tail, head = model.graph.edges[edges].T
        kind = model.edge_type[edges]
        weight = np.ones((len(kind), 1)) if model.edge_weight is None else model.edge_weight[edges]
        for node, rows in (
            (tail, model.tables[kind, :, :, labels[head]]),
            (head, model.tables[kind, :, labels[tail], :]),
        ):
            gather = sp.csr_matrix((np.ones(len(node)), (node, np.arange(len(node)))), (len(scores), len(node)))
            scores += gather @ np.einsum("er,erk->ek", weight, rows)
    return scores
