"""How assignments are kept: states of nodes listed or packed, changes of tables listed or in full."""

import numpy as np

from sklearn_crf.kernels.learning import contrastive

# Share of changed nodes below which a list of them is faster to look up than packed states, if not smaller.
_LEAST_PACKED = 0.25


class Rows:
    """Rows of different lengths in flat columns. Appended pieces are joined when they are read."""

    def __init__(self, *dtypes):
        self._pieces = [[np.zeros(0, dtype=dtype)] for dtype in dtypes]
        self._ptr_pieces = [np.zeros(1, dtype=np.int64)]

    def append(self, row, n_rows, *columns):
        """Append entries of more rows, ``row`` ascending from 0."""
        for pieces, column in zip(self._pieces, columns, strict=True):
            pieces.append(column.astype(pieces[0].dtype, copy=False))
        self._ptr_pieces.append(self._ptr_pieces[-1][-1] + np.cumsum(np.bincount(row, minlength=n_rows)))

    @property
    def columns(self):
        """Each as one array."""
        return tuple(_joined(pieces) for pieces in self._pieces)

    @property
    def ptr(self):
        """Row r is the entries ptr[r] to ptr[r + 1], (n_rows + 1,) int64."""
        return _joined(self._ptr_pieces)


class NodeStates:
    """States that assignments give to nodes: of the changed ones a number each, or of all nodes a few bits each.

    An assignment is kept in whichever way is smaller.
    """

    # labels: (N,) int32, the truth

    def __init__(self, labels, n_columns):
        self._labels, self._n_columns = labels, n_columns
        self._listed = Rows(smallest_codes(len(labels) * n_columns))
        self._packed = Rows(np.uint8)
        # More states than a byte tells apart are listed.
        self._n_bits = next((n_bits for n_bits in (1, 2, 4, 8) if n_columns <= 2**n_bits), 0)

    def append(self, changes, first, n_nodes):
        """Keep the :class:`Changes` of further assignments."""
        # first, n_nodes: (n_rows,) int64, the nodes of an assignment are those of its example, the n_nodes from first
        # on
        is_packed = self._is_packed(changes, n_nodes)
        listed = ~is_packed[changes.row]
        codes = changes.node[listed] * self._n_columns + changes.state[listed]
        self._listed.append(changes.row[listed], changes.n_rows, codes)
        row, packed = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint8)
        if is_packed.any():
            row, packed = self._pack(changes, is_packed, first, n_nodes)
        self._packed.append(row, changes.n_rows, packed)

    def _is_packed(self, changes, n_nodes):
        n_changed = np.diff(changes.ptr)
        if not self._n_bits:
            return np.zeros(changes.n_rows, dtype=bool)
        is_smaller = self._n_bits * n_nodes < 8 * self._listed.columns[0].itemsize * n_changed
        return is_smaller & (n_changed >= _LEAST_PACKED * n_nodes)

    def _pack(self, changes, is_packed, first, n_nodes):
        """Row and value of each byte."""
        per_byte = 8 // self._n_bits
        n_bytes = np.where(is_packed, -(-n_nodes // per_byte), 0)
        start = np.cumsum(n_bytes) - n_bytes
        states = np.zeros((int(n_bytes.sum()), per_byte), dtype=np.uint8)
        flat = states.reshape(-1)
        for r in np.flatnonzero(is_packed):
            place = start[r] * per_byte
            flat[place : place + n_nodes[r]] = self._labels[first[r] : first[r] + n_nodes[r]]
        changed = is_packed[changes.row]
        row = changes.row[changed]
        flat[start[row] * per_byte + changes.node[changed] - first[row]] = changes.state[changed]
        shifts = np.arange(0, 8, self._n_bits, dtype=np.uint8)
        return np.repeat(np.arange(len(n_bytes)), n_bytes), (states << shifts).sum(axis=1, dtype=np.uint8)

    @property
    def arrays(self):
        """The arrays that take memory."""
        return *self._listed.columns, self._listed.ptr, *self._packed.columns, self._packed.ptr

    def _packing(self, first, n_nodes):
        return *self._packed.columns, self._packed.ptr, first, n_nodes, self._n_bits, self._n_columns

    def gains(self, unary_gain, first, n_nodes):
        """Scores of the assignments less that of the truth, edges left out."""
        # returns (m,) float64
        # unary_gain: (N, K) float64, score of each state less that of the true one
        # first, n_nodes: (m,) int64, as they were when the assignments were appended
        gains = np.empty(len(first))
        contrastive.node_gains(*self._listed.columns, self._listed.ptr, unary_gain.reshape(-1), gains)
        if len(self._packed.columns[0]):
            contrastive.add_packed_gains(*self._packing(first, n_nodes), unary_gain.reshape(-1), gains)
        return gains

    def statistics(self, share, first, n_nodes):
        """The changes added up, each row as often as its share says: the adjoint of :meth:`gains`, (N, K) float64."""
        unary = np.zeros((len(self._labels), self._n_columns))
        contrastive.add_node_changes(*self._listed.columns, self._listed.ptr, share, unary.reshape(-1))
        truth = np.arange(len(unary)), self._labels
        if len(self._packed.columns[0]):
            contrastive.add_packed_changes(*self._packing(first, n_nodes), share, unary.reshape(-1))
            unary[truth] = 0
        # NumPy's sums over short axes take longer than all else here.
        unary[truth] = -(unary @ np.ones(self._n_columns))
        return unary


class ListedPairs:
    """Changes of the entries of the tables, of those that change: for many entries and few edges."""

    def __init__(self, n_cells, dtype):
        self._rows = Rows(smallest_codes(n_cells), dtype)

    def append(self, pairs, n_rows):
        """Keep the :class:`PairChanges` of further assignments."""
        self._rows.append(pairs.row, n_rows, pairs.code, pairs.change)

    @property
    def arrays(self):
        """The arrays that take memory."""
        return *self._rows.columns, self._rows.ptr

    def add_gains(self, tables, gains):
        """Add what the changes score."""
        contrastive.listed_pair_gains(*self.arrays, tables, gains)

    def add_statistics(self, share, tables):
        """Add the changes, each row as often as its share says."""
        contrastive.add_listed_pairs(*self.arrays, share, tables)


class AllPairs:
    """Changes of all entries of the tables: smaller and quicker where most entries change."""

    def __init__(self, n_cells, dtype):
        self._pieces = [np.zeros((0, n_cells), dtype=dtype)]

    def append(self, pairs, n_rows):
        """Keep the :class:`PairChanges` of further assignments."""
        changes = np.zeros((n_rows, self._pieces[0].shape[1]), dtype=self._pieces[0].dtype)
        changes[pairs.row, pairs.code] = pairs.change
        self._pieces.append(changes)

    @property
    def arrays(self):
        """The arrays that take memory."""
        return (_joined(self._pieces),)

    def add_gains(self, tables, gains):
        """Add what the changes score."""
        contrastive.all_pair_gains(*self.arrays, tables, gains)

    def add_statistics(self, share, tables):
        """Add the changes, each row as often as its share says."""
        contrastive.add_all_pairs(*self.arrays, share, tables)


def smallest_codes(n_codes):
    """The smallest integers that the kernels know and that count so far."""
    if n_codes > 2**32:
        raise ValueError(f"assignments need at most 2**32 states of nodes or entries of tables, got {n_codes}.")
    return np.uint16 if n_codes <= 2**16 else np.uint32


def _joined(pieces):
    """The arrays of a list as one, which takes their place in it."""
    if len(pieces) > 1:
        pieces[:] = [np.concatenate(pieces)]
    return pieces[0]
