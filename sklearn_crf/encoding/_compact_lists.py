"""Compact lists of chains or of fields on table rows, whose examples are joined directly from their arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import MAX_INT32
from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding import _array_lists, _tuning
from sklearn_crf.encoding._examples import make_trusted_example
from sklearn_crf.graphs import build_trusted_graph, lattice

# Sparse formats in which chains are read without conversion.
_KINDS = {sp.csr_matrix, sp.csr_array}


class ChainList(Sequence):
    """List of chains, all sparse or all dense, which makes each example only when the example is read.

    There may be many thousands of chains. Training and prediction read several chains at once, by :meth:`joined`.
    """

    def __init__(self, chains, lengths, places, arrays=None):
        # chains: feature matrices of the chains, unchanged
        # lengths: (n_chains,), number of nodes of each chain
        # places: addresses of the arrays of each chain; for sparse chains, column 3 contains the number of values
        # arrays: arrays of sparse chains, which keep the memory at ``places`` alive; None for dense chains
        self.chains, self.lengths, self.places, self._arrays = chains, lengths, places, arrays
        self._graphs, self._unions = {}, {}

    def __reduce__(self):
        # ``places`` contains memory addresses, which are not valid in another process.
        return ChainList.of, (self.chains, (self.dtype,))

    @classmethod
    def of(cls, chains, dtypes, n_jobs=1):
        """Make a ChainList of valid, finite chains with one of the given precisions, or return None for other lists."""
        kinds = _array_lists.one_of_each_type(chains).keys()
        are_arrays = kinds == {np.ndarray}
        if not are_arrays and not kinds <= _KINDS:
            return None
        dtype, n_features = chains[0].dtype, chains[0].shape[-1]
        if dtype not in dtypes:
            return None
        read = _array_lists.lengths_of_matrices if are_arrays else _array_lists.rows_of_matrices
        found: Any = read(chains, dtype)
        if found is None:
            return None

        def is_sound(part, n_threads):
            lengths, places = found[0][part], found[1][part]
            if are_arrays:
                return _array_lists.are_finite(places, lengths * n_features, dtype)
            return _array_lists.are_sound_rows(places, lengths, n_features, dtype)

        parts = [slice(k, k + _tuning.CHAINS_TOGETHER) for k in range(0, len(chains), _tuning.CHAINS_TOGETHER)]
        return cls(chains, *found) if all(map_tasks(is_sound, parts, n_jobs)) else None

    @property
    def is_dense(self):
        """Whether features are dense arrays."""
        return self._arrays is None

    @property
    def dtype(self):
        """Precision of the features."""
        return self.chains[0].dtype

    def __len__(self):
        return len(self.chains)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        graph, edge_type = self._graph(int(self.lengths[i]))
        return make_trusted_example(self.chains[i], graph, edge_type=edge_type)

    def _graph(self, length):
        if length not in self._graphs:
            self._graphs[length] = lattice((length,)), np.zeros(length - 1, dtype=np.int32)
        return self._graphs[length]

    def joined(self, start, stop):
        """Join consecutive chains to one example, their disjoint union."""
        if stop == start + 1:
            return self[start]
        lengths = self.lengths[start:stop]
        key = lengths.tobytes()
        if key not in self._unions:
            # Batches with equal sequences of chain lengths share a graph, whose neighbour lists are computed only once.
            n_nodes = int(lengths.sum())
            first = np.delete(np.arange(n_nodes, dtype=np.int32), np.cumsum(lengths) - 1)
            graph = build_trusted_graph(n_nodes, np.stack((first, first + np.int32(1)), axis=1))
            self._unions[key] = graph, np.zeros(graph.n_edges, dtype=np.int32)
        graph, edge_type = self._unions[key]
        features = self._features(start, stop)
        return make_trusted_example(features, graph, edge_type=edge_type)

    def _features(self, start, stop):
        """Concatenate the node features of consecutive chains."""
        if self.is_dense:
            return _array_lists.joined_arrays(self.chains[start:stop])
        places, lengths, dtype = self.places[start:stop], self.lengths[start:stop], self.dtype
        n_nodes, n_values = int(lengths.sum()), int(places[:, 3].sum())
        data, indices = np.empty(n_values, dtype=dtype), np.empty(n_values, dtype=np.int32)
        ptr = np.empty(n_nodes + 1, dtype=np.int64)
        _array_lists.joined_rows(places, lengths, data, indices, ptr)
        # The constructor with arrays is not used, because it would repeat checks that every chain has passed.
        joined = sp.csr_matrix((n_nodes, self.chains[0].shape[1]), dtype=dtype)
        index_type = np.int32 if n_values <= MAX_INT32 else np.int64
        joined.indices, joined.indptr = (part.astype(index_type, copy=False) for part in (indices, ptr))
        joined.data = data
        return joined


class RowFields(Sequence):
    """List of examples, one for each row of a table. All nodes of an example have the features of the example's row.

    Each node of an example has separate weights. Field classifiers accept the list as X. If there are many rows, it is
    read much faster than a list of :class:`~sklearn_crf.Example`.
    """

    # rows: (n_rows, n_features), float32 or float64

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
        return make_trusted_example(self.features[i], self.graph, ones, self.node_type, self.edge_type)

    @property
    def features(self):
        """Features of each node, (n_rows, n_nodes, n_features), as a view of the rows."""
        return np.broadcast_to(self.rows[:, np.newaxis], (len(self), self.graph.n_nodes, self.rows.shape[1]))
