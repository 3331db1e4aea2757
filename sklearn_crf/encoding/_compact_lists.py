"""Examples kept as what they are made of, and joined in one go: lists of chains, fields of the rows of a table."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import MAX_INT32
from sklearn_crf._threads import map_tasks, out_of_turn
from sklearn_crf.encoding._array_lists import are_finite, joined_arrays, lengths_of_matrices
from sklearn_crf.encoding._examples import Example
from sklearn_crf.graphs import Graph, lattice

# Formats in which a sparse chain is read as it is.
_KINDS = {sp.csr_matrix, sp.csr_array}


class ChainList(Sequence):
    """Examples of a list of chains, all sparse or all dense, each made when it is asked for.

    There may be many thousands, and training and prediction read them joined: :meth:`joined`.
    """

    def __init__(self, chains, lengths):
        self._chains = chains
        self.lengths = lengths
        self._graphs, self._unions = {}, {}

    @classmethod
    def of(cls, chains, dtype, n_jobs=1):
        """Of a list that was found to be sound, of one precision and finite; None says nothing of any of them."""
        kinds = {type(x) for x in chains}
        if kinds == {np.ndarray}:
            return cls._of_arrays(chains, dtype, n_jobs)
        if not kinds <= _KINDS or any(x.data.dtype != dtype for x in chains):
            return None
        # Properties of sparse matrices are slow: of many short ones their shapes are asked for once.
        shapes = [x.shape for x in chains]
        n_features = shapes[0][1]
        lengths = [n for n, _ in shapes]
        if not n_features or not min(lengths) or any(n != n_features for _, n in shapes):
            return None
        if any(len(x.indptr) != n + 1 for x, n in zip(chains, lengths, strict=True)):
            return None
        is_sound = _are_sound_rows(chains, lengths, n_features)
        return cls(chains, lengths) if is_sound else None

    @classmethod
    def _of_arrays(cls, chains, dtype, n_jobs):
        lengths = lengths_of_matrices(chains, np.dtype(dtype))
        if lengths is None:
            return None
        parts = [slice(k, k + _TOGETHER) for k in range(0, len(chains), _TOGETHER)]
        found = map_tasks(lambda part, n_threads: are_finite(chains[part]), parts, n_jobs)
        return cls(chains, lengths) if all(found) else None

    @property
    def is_dense(self):
        """Whether features are arrays."""
        return not sp.issparse(self._chains[0])

    def __len__(self):
        return len(self._chains)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        graph, edge_type = self._graph(self.lengths[i])
        return Example._trusted(self._chains[i], graph, edge_type=edge_type)

    def _graph(self, length):
        if length not in self._graphs:
            self._graphs[length] = lattice((length,)), np.zeros(length - 1, dtype=np.int32)
        return self._graphs[length]

    def joined(self, start, stop):
        """The disjoint union of some of them, one after the other."""
        chains, lengths = self._chains[start:stop], self.lengths[start:stop]
        if len(chains) == 1:
            return self[start]
        key = tuple(lengths)
        if key not in self._unions:
            # The same object for all of these lengths: its incidence and traversal are then made once.
            graph = _graph_of_chains(lengths)
            self._unions[key] = graph, np.zeros(graph.n_edges, dtype=np.int32)
        graph, edge_type = self._unions[key]
        with out_of_turn():
            features = joined_arrays(chains) if self.is_dense else _joined_rows(chains, lengths)
        return Example._trusted(features, graph, edge_type=edge_type)


def _are_sound_rows(chains, lengths, n_features):
    """Whether indices lie inside of all matrices, pointers ascend, and values are finite."""
    sizes = [len(x.data) for x in chains]
    if [len(x.indices) for x in chains] != sizes:
        return False
    pointers = np.concatenate([x.indptr for x in chains])
    last = np.cumsum(np.add(lengths, 1)) - 1
    first = last - lengths
    steps = np.diff(pointers)
    # From the last pointer of a matrix to the first of the next one.
    steps[last[:-1]] = 0
    if np.any(pointers[first]) or not np.array_equal(pointers[last], sizes) or np.min(steps) < 0:
        return False
    # Concatenated a part at a time, so that the copy stays small.
    parts = [slice(k, k + _TOGETHER) for k in range(0, len(chains), _TOGETHER)]
    return all(map(partial(_are_inside, n_features), [chains[part] for part in parts]))


_TOGETHER = 1024


def _are_inside(n_features, chains):
    indices = np.concatenate([x.indices for x in chains])
    values = np.concatenate([x.data for x in chains])
    if np.min(indices, initial=0) < 0 or np.max(indices, initial=0) >= n_features:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all())


def _joined_rows(chains, lengths):
    sizes = np.array([len(x.data) for x in chains])
    starts = np.repeat(np.cumsum(sizes) - sizes, lengths)
    indices = _joined([x.indices for x in chains])
    ptr = np.zeros(len(starts) + 1, dtype=indices.dtype if len(indices) <= MAX_INT32 else np.int64)
    np.add(_joined([x.indptr[1:] for x in chains]), starts, out=ptr[1:], casting="unsafe")
    # The constructor would look once more for what was checked of every chain.
    joined = sp.csr_matrix((1, chains[0].shape[1]), dtype=chains[0].dtype)
    joined.data, joined.indptr = _joined([x.data for x in chains]), ptr
    joined.indices = indices.astype(ptr.dtype, copy=False)
    joined._shape = len(starts), chains[0].shape[1]
    return joined


def _joined(arrays):
    """Arrays of one axis, one after the other, in a type into which all of them fit."""
    joined = joined_arrays(arrays)
    return np.concatenate(arrays) if joined is None else joined


def _graph_of_chains(lengths):
    is_last = np.zeros(sum(lengths), dtype=bool)
    is_last[np.cumsum(lengths) - 1] = True
    first = np.flatnonzero(~is_last).astype(np.int32)
    return Graph._trusted(len(is_last), np.stack((first, first + np.int32(1)), axis=1))


class RowFields(Sequence):
    """One example for each row of a table: a graph whose nodes all have the row, and weights of their own.

    Fields take it as X. Of many rows it is read much faster than a list of :class:`~sklearn_crf.Example` would be.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), float32 or float64
        Finite.
    graph : Graph
        That of each row; every node and every edge of it is of a type of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Graph
    >>> from sklearn_crf.encoding import RowFields
    >>> fields = RowFields(np.array([[1.0, 2.0], [3.0, 4.0]]), Graph(3, [[0, 1], [1, 2]]))
    >>> len(fields), fields[1].node_features.tolist()
    (2, [[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]])
    """

    def __init__(self, rows, graph):
        self.rows = rows
        self.graph = graph
        self.node_type = np.arange(graph.n_nodes, dtype=np.int32)
        self.edge_type = np.arange(graph.n_edges, dtype=np.int32)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return RowFields(self.rows[i], self.graph)
        ones = np.ones((self.graph.n_edges, 1), dtype=self.rows.dtype)
        return Example._trusted(self.features[i], self.graph, ones, self.node_type, self.edge_type)

    @property
    def features(self):
        """(n_rows, n_nodes, n_features), those of each node, a view of the rows."""
        return np.broadcast_to(self.rows[:, np.newaxis], (len(self), self.graph.n_nodes, self.rows.shape[1]))
