"""Elimination orders: in which order nodes are summed out, and what that costs."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee


class Elimination(NamedTuple):
    """Nodes in the order of their elimination, and what is joined to each when its turn comes."""

    order: list  # of nodes
    separators: list  # per node of the order: the neighbours it has left, in the order of their own elimination
    log_size: np.ndarray  # per node of the order: logarithm of the number of joint states of it and its neighbours

    @property
    def width(self):
        """Size of the largest clique less one: the tree width, if the order is the best."""
        return max((len(separator) for separator in self.separators), default=0)


def degeneracy(adjacency):
    """Largest smallest degree of a subgraph: a lower bound on the width of every elimination order.

    Parameters
    ----------
    adjacency : list of set
        Neighbours of each node.

    Returns
    -------
    int
    """
    degree = [len(neighbors) for neighbors in adjacency]
    heap = [(d, s) for s, d in enumerate(degree)]
    heapify(heap)
    bound = 0
    while heap:
        d, node = heappop(heap)
        if d != degree[node]:
            continue
        bound = max(bound, d)
        degree[node] = -1
        for other in adjacency[node]:
            if degree[other] > 0:
                degree[other] -= 1
                heappush(heap, (degree[other], other))
    return bound


def min_fill_order(adjacency, log_states):
    """Eliminate the node whose neighbours lack the fewest edges; of equals, the one with the smallest clique.

    Parameters
    ----------
    adjacency : list of set
        Neighbours of each node. Used up.
    log_states : list of float
        Logarithm of the number of states of each node.

    Returns
    -------
    list
        The nodes in the order of their elimination.
    """
    fill = _initial_fill(adjacency)
    log_size = [sum(log_states[t] for t in neighbors) + log_states[s] for s, neighbors in enumerate(adjacency)]
    heap = [(fill[s], log_size[s], s) for s in range(len(adjacency))]
    heapify(heap)
    order, done = [], [False] * len(adjacency)
    while heap:
        lacking, size, node = heappop(heap)
        if done[node] or lacking != fill[node] or size != log_size[node]:
            continue
        done[node] = True
        order.append(node)
        neighbors = adjacency[node]
        touched = set(neighbors)
        if lacking:
            _join(neighbors, adjacency, fill, log_size, log_states, touched)
        for other in neighbors:
            # The neighbours are a clique now: what the node lacked to `other` is all outside of it.
            fill[other] -= len(adjacency[other]) - len(neighbors)
            adjacency[other].discard(node)
            log_size[other] -= log_states[node]
        touched.discard(node)
        for other in touched:
            heappush(heap, (fill[other], log_size[other], other))
    return order


def _initial_fill(adjacency):
    """Number of pairs of neighbours of each node that are not joined."""
    fill = []
    for neighbors in adjacency:
        joined = sum(len(neighbors & adjacency[other]) for other in neighbors)
        fill.append((len(neighbors) * (len(neighbors) - 1) - joined) // 2)
    return fill


def _join(nodes, adjacency, fill, log_size, log_states, touched):
    """Join all nodes to each other; every node whose fill changes is put into `touched`."""
    for a in sorted(nodes):
        for b in sorted(nodes - adjacency[a]):
            if b <= a:
                continue
            common = adjacency[a] & adjacency[b]
            for node in common:
                fill[node] -= 1
            touched |= common
            fill[a] += len(adjacency[a]) - len(common)
            fill[b] += len(adjacency[b]) - len(common)
            adjacency[a].add(b)
            adjacency[b].add(a)
            log_size[a] += log_states[b]
            log_size[b] += log_states[a]


def eliminate(adjacency, order, log_states):
    """Separators of an elimination order.

    Parameters
    ----------
    adjacency : list of set
        Neighbours of each node. Used up.
    order : list of int
    log_states : list of float

    Returns
    -------
    Elimination
    """
    position = {node: k for k, node in enumerate(order)}
    separators, log_size = [], np.zeros(len(order))
    for k, node in enumerate(order):
        separator = sorted(adjacency[node], key=position.__getitem__)
        separators.append(separator)
        log_size[k] = log_states[node] + sum(log_states[other] for other in separator)
        if separator:
            # Enough for later separators: the next one of these to go passes the rest on.
            heir = adjacency[separator[0]]
            heir.update(separator[1:])
            for other in separator:
                adjacency[other].discard(node)
    return Elimination(list(order), separators, log_size)


# Below this many table cells a better order is not worth the search for it.
_FEW_CELLS = 2.0**14
_N_RESTARTS = 8


def best_order(adjacency, log_states):
    """Cheapest of several elimination orders of a connected graph, by the number of table cells.

    Candidates are the min-fill order, the same with its ties broken at random (from a fixed seed, so that the result is
    deterministic), and the order of smallest bandwidth, which is the better one on some lattices.

    Parameters
    ----------
    adjacency : list of set
        Neighbours of each node.
    log_states : list of float

    Returns
    -------
    Elimination
    """
    best = _planned(adjacency, min_fill_order(list(map(set, adjacency)), log_states), log_states)
    if _cost(best) <= np.log(_FEW_CELLS):
        return best
    rng = np.random.default_rng(0)
    candidates = [_band_order(adjacency)]
    for _ in range(_N_RESTARTS):
        new_name = rng.permutation(len(adjacency)).tolist()
        old_name = np.argsort(new_name).tolist()
        renamed = [{new_name[t] for t in adjacency[s]} for s in old_name]
        order = min_fill_order(renamed, [log_states[s] for s in old_name])
        candidates.append([old_name[s] for s in order])
    plans = [best, *(_planned(adjacency, order, log_states) for order in candidates)]
    return min(plans, key=_cost)


def _planned(adjacency, order, log_states):
    return eliminate(list(map(set, adjacency)), order, log_states)


def _cost(elimination):
    return np.logaddexp.reduce(elimination.log_size)


def _band_order(adjacency):
    rows = np.repeat(np.arange(len(adjacency)), [len(neighbors) for neighbors in adjacency])
    columns = np.array([t for neighbors in adjacency for t in sorted(neighbors)], dtype=np.int64)
    matrix = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(adjacency),) * 2)
    return reverse_cuthill_mckee(matrix, symmetric_mode=True).tolist()
