"""What assignments change of the truth: states of nodes, and how often each entry of the tables is used."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.kernels.contrastive import count_pairs


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
    def ptr(self):
        """Row r is the entries ptr[r] to ptr[r + 1], (n_rows + 1,) int64."""
        return np.searchsorted(self.row, np.arange(self.n_rows + 1))

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
    code : ndarray of int64, in no order within a row
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
    n_types, n_features, n_columns = model.tables.shape[:3]
    n_cells, n_edges = n_types * n_features * n_columns**2, model.graph.n_edges
    node_ptr, neighbor, half_edge, _ = model.graph.incidence
    weight = np.ones((n_edges, n_features)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    n_most = 2 * n_features * int((node_ptr[changes.node + 1] - node_ptr[changes.node]).sum())
    counts, cells, change = np.zeros(changes.n_rows, dtype=np.int64), np.empty(n_most, dtype=np.int64), np.empty(n_most)
    n_entries = count_pairs(
        changes.node, changes.state, changes.ptr, truth, truth.copy(), node_ptr, neighbor, half_edge, model.edge_type,
        weight, n_columns, np.zeros(n_cells), np.full(n_cells, -1), counts, cells, change,
    )  # fmt: skip
    return PairChanges(np.repeat(np.arange(changes.n_rows), counts), cells[:n_entries], change[:n_entries])
