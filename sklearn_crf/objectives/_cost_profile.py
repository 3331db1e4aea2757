"""The best score at every total cost, on forests whose costs are whole numbers."""

import numpy as np


def best_by_cost(model, cost):
    r"""Best score of a labeling of a forest at each total cost.

    .. math::
        m(c) = \max \{ \mathrm{score}(y) : \textstyle\sum_s c_s(y_s) = c \}

    By dynamic programming from the leaves: each node knows, for each of its states and each cost of what hangs below
    it, the best score there.

    Parameters
    ----------
    model : PairwiseModel
        On a forest.
    cost : ndarray of shape (N, K) of int
        Of every state of every node, not negative.

    Returns
    -------
    profile : ndarray of shape (most + 1,), float64
        -inf where no labeling costs that.
    labels_at : callable
        Total cost to the best labeling there, ndarray of shape (N,), int32.
    """
    graph, (order, slot) = model.graph, model.graph.forest
    _, neighbor, half_edge, _ = graph.incidence
    has_parent = slot >= 0
    parent = np.full(graph.n_nodes, graph.n_nodes)
    parent[has_parent] = neighbor[slot[has_parent]]
    tables = model.edge_tables().astype(np.float64)
    # A node beyond the last, of one state and no cost, is the parent of all roots.
    best = [_of_node(unary, own) for unary, own in zip(model.unary.astype(np.float64), cost, strict=True)]
    best.append(np.zeros((1, 1)))
    child_state, child_cost = [None] * graph.n_nodes, [None] * graph.n_nodes
    for s in order[::-1].tolist():
        if slot[s] < 0:
            table = np.zeros((model.n_columns, 1))
        else:
            # Half-edge 2e leads from the first node of an edge to the second.
            edge, turned = divmod(int(half_edge[slot[s]]), 2)
            table = tables[edge].T if turned else tables[edge]
        joint = best[s][:, :, None] + table
        message, child_state[s] = joint.max(axis=1), joint.argmax(axis=1)
        best[parent[s]], child_cost[s] = _joined(best[parent[s]], message)

    def labels_at(total):
        labels = np.zeros(graph.n_nodes + 1, dtype=np.int32)
        left = np.zeros(graph.n_nodes + 1, dtype=np.int64)
        left[-1] = total
        # The last child to join is the first to take its part away.
        for s in order.tolist():
            own = child_cost[s][left[parent[s]], labels[parent[s]]]
            left[parent[s]] -= own
            left[s], labels[s] = own, child_state[s][own, labels[parent[s]]]
        return labels[:-1]

    return best[-1][:, 0], labels_at


def _of_node(unary, cost):
    """(most + 1, K): the score of each state at its own cost."""
    own = np.full((int(cost.max()) + 1, len(unary)), -np.inf)
    own[cost, np.arange(len(unary))] = unary
    return own


def _joined(own, message):
    """Scores by cost of what hangs below a node and of one more child, and the cost of that child in the best sums."""
    longer, shorter = (own, message) if len(own) >= len(message) else (message, own)
    joined = np.full((len(own) + len(message) - 1, own.shape[1]), -np.inf)
    taken = np.zeros(joined.shape, dtype=np.int64)
    for k, row in enumerate(shorter):
        part = slice(k, k + len(longer))
        found = longer + row
        better = found > joined[part]
        joined[part][better] = found[better]
        in_message = np.arange(len(longer))[:, None] if longer is message else np.full((len(longer), 1), k)
        taken[part][better] = np.broadcast_to(in_message, better.shape)[better]
    return joined, taken
