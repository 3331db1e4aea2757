"""Sparse node features stored by column, and the pairs of a feature and a score column that have weights."""

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

_MOST_FEATURES = np.iinfo(np.int32).max

# Maximum ratio of features to entries at which counting entries per feature is faster than sorting entries.
_COUNTED = 8


@dataclass(frozen=True, eq=False)
class FeatureColumns:
    """Sparse features of nodes or edges, stored as a list of nodes (or edges) for each feature that occurs.

    Features of a node of type t are numbered from ``t * n_features``, so that each type has its own weights.
    """

    shape: tuple
    dtype: np.dtype
    feature: np.ndarray  # (n,), int32, features that occur
    ptr: np.ndarray  # (n + 1,), int32, start of the entries of each feature
    node: np.ndarray  # (nnz,), int32
    value: np.ndarray  # (nnz,), or empty if all values are 1

    @property
    def arrays(self):
        """All arrays, in the order in which kernels take them as arguments."""
        return self.feature, self.ptr, self.node, self.value

    def by_node(self):
        """Return the features stored by node, as a CSR matrix."""
        # returns: CSR matrix of shape (N, n)
        value = self.value if len(self.value) else np.ones(len(self.node), dtype=self.dtype)
        index = np.repeat(self.feature, np.diff(self.ptr))
        shape = self.shape[0], int(self.feature.max(initial=-1)) + 1
        return sp.csr_matrix((value, (self.node, index)), shape=shape)


def build_feature_columns(features, node_type=None, what="features"):
    """Convert features to :class:`FeatureColumns`."""
    # features: ndarray or sparse matrix of shape (N, F); node_type: (N,)
    n_nodes, n_features = features.shape
    n_types = 1 if node_type is None else int(node_type.max(initial=0)) + 1
    if n_features * n_types > _MOST_FEATURES:
        raise ValueError(f"X has {n_features} {what} for {n_types} types: at most {_MOST_FEATURES} are supported.")
    features = sp.csr_matrix(features)
    index = features.indices
    if n_types > 1:
        index = index + n_features * np.repeat(node_type, np.diff(features.indptr)).astype(np.int64)
    occurring, width = None, n_features * n_types
    if width > _COUNTED * len(index):
        # Number only the features that occur, so that time does not depend on the number of possible features.
        occurring, index = np.unique(index, return_inverse=True)
        width = len(occurring)
    is_one = bool(np.all(features.data == 1))
    data = np.ones(len(index), dtype=np.int8) if is_one else features.data
    columns = sp.csr_matrix((data, index, features.indptr), shape=(n_nodes, width)).tocsc()
    ptr = columns.indptr
    if occurring is None:
        occurring = np.flatnonzero(np.diff(ptr))
        ptr = np.append(ptr[occurring], ptr[-1])
    return FeatureColumns(
        shape=(n_nodes, n_features),
        dtype=features.dtype,
        feature=occurring.astype(np.int32),
        ptr=ptr.astype(np.int32, copy=False),
        node=columns.indices.astype(np.int32, copy=False),
        value=np.zeros(0, dtype=features.dtype) if is_one else columns.data,
    )


@dataclass(frozen=True, eq=False)
class FeaturePairs:
    """Pairs of a feature and a score column for which there is a weight."""

    n_columns: int
    ptr: np.ndarray  # (n_features + 1,), int64
    column: np.ndarray  # (n_pairs,), int32
    # The matrix from which the pairs were read, and the values of the matrix in the order of the pairs.
    _weights: tuple | None = field(init=False, default=None, repr=False)

    def __len__(self):
        return len(self.column)

    @property
    def are_all(self):
        """Whether all pairs of a feature and a column have a weight."""
        return len(self) == (len(self.ptr) - 1) * self.n_columns

    @classmethod
    def all(cls, n_features, n_columns):
        """Return all pairs of a feature and a score column."""
        ptr = np.arange(n_features + 1, dtype=np.int64) * n_columns
        return cls(n_columns, ptr, np.tile(np.arange(n_columns, dtype=np.int32), n_features))

    @classmethod
    def seen(cls, n_features, n_columns, occurrences):
        """Return the pairs of a feature and a score column that occur together at a node."""
        # Use int32 for keys if possible, because keys and their copies need much memory.
        dtype = np.int32 if n_features * n_columns <= _MOST_FEATURES else np.int64
        keys = [_compute_keys(features, column, n_columns).astype(dtype) for features, column in occurrences]
        pairs = _sort_distinct(np.concatenate(keys))
        del keys
        feature, column = np.divmod(pairs, dtype(n_columns))
        ptr = np.concatenate(([0], np.cumsum(np.bincount(feature, minlength=n_features))))
        return cls(n_columns, ptr.astype(np.int64), column.astype(np.int32))

    @classmethod
    def of_matrix(cls, weights):
        """Return the pairs stored in a sparse weight matrix."""
        # weights: sparse matrix of shape (n_columns, n_features)
        by_feature = _arrange_by_feature(weights)
        pairs = cls(weights.shape[0], by_feature.indptr.astype(np.int64), by_feature.indices.astype(np.int32))
        # Cache the transposed matrix, because predictions read weights from the matrix that defines the pairs.
        object.__setattr__(pairs, "_weights", (weights, by_feature.data))
        return pairs

    def of_features(self, features):
        """Return the indices of the pairs that contain one of the given features."""
        # features: (n,) of int
        return np.concatenate([np.arange(0), *(np.arange(self.ptr[f], self.ptr[f + 1]) for f in features)])

    def matrix(self, values):
        """Convert weights to a sparse matrix without stored zeros."""
        # values: (n_pairs,); returns: CSR matrix of shape (n_columns, n_features)
        by_feature = sp.csr_matrix((values, self.column, self.ptr), shape=(len(self.ptr) - 1, self.n_columns))
        matrix = by_feature.T.tocsr()
        matrix.eliminate_zeros()
        return matrix

    def pick(self, weights):
        """Read the weights of these pairs from a matrix, the inverse of :meth:`matrix`."""
        # weights: ndarray or sparse matrix of shape (n_columns, n_features); returns: (n_pairs,), float64
        if self._weights is not None and weights is self._weights[0]:
            return self._weights[1].astype(np.float64)
        if sp.issparse(weights):
            by_feature = _arrange_by_feature(weights)
            if np.array_equal(by_feature.indptr, self.ptr) and np.array_equal(by_feature.indices, self.column):
                return by_feature.data.astype(np.float64)
            weights = weights.tocsr()
        elif len(self) == weights.size:
            return weights.T.astype(np.float64).ravel()
        feature = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        return np.asarray(weights[self.column, feature], dtype=np.float64).ravel()


def _arrange_by_feature(weights):
    """Transpose weights (n_columns, n_features) to a CSR matrix with a sorted row for each feature."""
    by_feature = weights.T.tocsr()
    by_feature.sort_indices()
    return by_feature


def _compute_keys(features, column_of_node, n_columns):
    """Return the distinct keys, ``feature * n_columns + column``, of the pairs that occur."""
    column = column_of_node[features.node]
    keys = np.repeat(features.feature.astype(np.int64) * n_columns, np.diff(features.ptr)) + column
    return _sort_distinct(keys[column >= 0])


def _sort_distinct(keys):
    """Return the sorted distinct keys; sorting needs much less memory than a hash table."""
    keys.sort()
    is_new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
    return keys[is_new]
