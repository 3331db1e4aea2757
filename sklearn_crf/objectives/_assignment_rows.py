"""How assignments are kept: rows in flat columns, and changes of tables listed or in full."""

import numpy as np

from sklearn_crf.kernels.contrastive import (
    add_all_pairs,
    add_listed_pairs,
    all_pair_gains,
    listed_pair_gains,
)


class Rows:
    """Rows of different lengths in flat columns. What is appended is put together when it is read, and not before.

    Parameters
    ----------
    *dtypes : dtype
        Of the columns.
    """

    def __init__(self, *dtypes):
        self._pieces = [[np.zeros(0, dtype=dtype)] for dtype in dtypes]
        self._ptr_pieces = [np.zeros(1, dtype=np.int64)]

    def append(self, row, n_rows, *columns):
        """Entries of further rows, ``row`` ascending from 0."""
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


class ListedPairs:
    """Changes of the entries of the tables, of those that change: for many entries and few edges."""

    def __init__(self, n_cells, dtype):
        self._rows = Rows(smallest_codes(n_cells), dtype)

    def append(self, pairs, n_rows):
        """Keep the :class:`PairChanges` of further assignments."""
        self._rows.append(pairs.row, n_rows, pairs.code, pairs.change)

    @property
    def arrays(self):
        """What takes memory."""
        return *self._rows.columns, self._rows.ptr

    def add_gains(self, tables, gains):
        """Add what the changes score."""
        listed_pair_gains(*self.arrays, tables, gains)

    def add_statistics(self, share, tables):
        """Add the changes, each row as often as its share says."""
        add_listed_pairs(*self.arrays, share, tables)


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
        """What takes memory."""
        return (_joined(self._pieces),)

    def add_gains(self, tables, gains):
        """Add what the changes score."""
        all_pair_gains(*self.arrays, tables, gains)

    def add_statistics(self, share, tables):
        """Add the changes, each row as often as its share says."""
        add_all_pairs(*self.arrays, share, tables)


def smallest_codes(n_codes):
    """The smallest integers that the kernels know and that count so far.

    Parameters
    ----------
    n_codes : int

    Returns
    -------
    dtype
    """
    if n_codes > 2**32:
        raise ValueError(f"assignments need at most 2**32 states of nodes or entries of tables, got {n_codes}.")
    return np.uint16 if n_codes <= 2**16 else np.uint32


def _joined(pieces):
    """The arrays of a list as one, which takes their place in it."""
    if len(pieces) > 1:
        pieces[:] = [np.concatenate(pieces)]
    return pieces[0]
