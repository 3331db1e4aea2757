"""What assignments change of the truth: states of nodes, and how often each entry of the tables is used."""

from typing import NamedTuple

import numpy as np


class Changes(NamedTuple):
    """States that assignments give to nodes, other than the true ones.

    Attributes
    ----------
    row : ndarray of int64
        Number of the assignment, ascending from 0, none left out.
    node : ndarray of int64
        Ascending within a row.
    state : ndarray of int32
    """

    row: np.ndarray
    node: np.ndarray
    state: np.ndarray

    @property
    def n_rows(self):
        """Number of assignments."""
        return int(self.row[-1]) + 1 if len(self.row) else 0

    def chosen(self, rows):
        """Some of the assignments, numbered anew.

        Parameters
        ----------
        rows : ndarray of shape (n_rows,), bool

        Returns
        -------
        Changes
        """
        kept = rows[self.row]
        number = np.cumsum(rows) - 1
        return Changes(number[self.row[kept]], self.node[kept], self.state[kept])


class PairChanges(NamedTuple):
    """How many times more than the truth assignments use entries of the flat tables, edge weights counted.

    Attributes
    ----------
    row : ndarray of int64
        Ascending; a row without entries is one that no edge sees.
    code : ndarray of int64
        Entry ``((type * R + feature) * K + tail state) * K + head state``.
    change : ndarray of float64
    """

    row: np.ndarray
    code: np.ndarray
    change: np.ndarray


def pair_changes(model, truth, changes):
    """Changes of the statistics of the tables, from the edges of the changed nodes alone.

    Parameters
    ----------
    model : PairwiseModel
        Its graph, edge types and edge weights are read, its scores are not.
    truth : ndarray of shape (N,), int32
    changes : Changes

    Returns
    -------
    PairChanges
    """
    row, edge = _touched_edges(model.graph, changes)
    n_types, n_features, n_columns = model.tables.shape[:3]
    n_cells = n_types * n_features * n_columns**2
    tail, head = model.graph.edges[edge].T.astype(np.int64)
    lookup = _Lookup(truth, changes)
    pairs = (
        lookup(row, tail) * n_columns + lookup(row, head),
        truth[tail].astype(np.int64) * n_columns + truth[head],
    )
    first = (model.edge_type[edge].astype(np.int64)[:, None] * n_features + np.arange(n_features)) * n_columns**2
    weight = np.ones(first.shape) if model.edge_weight is None else model.edge_weight[edge].astype(np.float64)
    keys = np.concatenate([(row[:, None] * n_cells + first + pair[:, None]).ravel() for pair in pairs])
    cells, inverse = np.unique(keys, return_inverse=True)
    change = np.bincount(inverse.ravel(), np.concatenate((weight.ravel(), -weight.ravel())), minlength=len(cells))
    used = change != 0
    return PairChanges(cells[used] // n_cells, cells[used] % n_cells, change[used])


def _touched_edges(graph, changes):
    """Row and number of every edge that ends at a changed node, each once."""
    ptr, _, half_edge, _ = graph.incidence
    n_slots = ptr[changes.node + 1] - ptr[changes.node]
    start = np.cumsum(n_slots) - n_slots
    slot = np.arange(n_slots.sum()) + np.repeat(ptr[changes.node] - start, n_slots)
    n_edges = max(graph.n_edges, 1)
    key = np.unique(np.repeat(changes.row, n_slots) * n_edges + (half_edge[slot] >> 1))
    return key // n_edges, key % n_edges


class _Lookup:
    """State of a node in an assignment."""

    def __init__(self, truth, changes):
        self._truth, self._state = truth, changes.state
        self._keys = changes.row * len(truth) + changes.node

    def __call__(self, row, node):
        key = row * len(self._truth) + node
        place = np.searchsorted(self._keys, key).clip(max=len(self._keys) - 1)
        state = self._truth[node].astype(np.int64)
        hit = self._keys[place] == key
        state[hit] = self._state[place[hit]]
        return state
