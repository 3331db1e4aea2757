# distutils: language = c++
"""Products of sparse features with weights of (feature, column of scores) pairs, and their adjoint.

Features are stored by column for a group of nodes, and only features that occur are stored. Weights are then read in
order, and the data of the group stay in the cache.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.pair_weights cimport PairWeights


def pair_scores(
    const int32_t[::1] feature,  # IN (n,) features that occur, ascending
    const int32_t[::1] ptr,  # IN (n + 1,)
    const int32_t[::1] node,  # IN (nnz,)
    const floating[::1] value,  # IN (nnz,), or (0,) if every value is one
    const int64_t[::1] pair_ptr,  # IN (F + 1,) first pair of each feature
    const int32_t[::1] pair_column,  # IN (P,) column of each pair, ascending for each feature
    const double[::1] weights,  # IN (P,)
    double[:, ::1] scores,  # IN OUT (N, n_columns), added to
    double[::1] work,  # workspace (n_columns,)
):
    """Add the weights of the features of each node to its scores."""
    with nogil:
        add_pair_scores(feature, ptr, node, value, pair_ptr, pair_column, weights, scores, work)


def pair_scores_of_rows(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] feature,  # IN (nnz,) features of the nodes, node by node
    const floating[::1] value,  # IN (nnz,)
    const int64_t[::1] pair_ptr,  # IN (F + 1,) first pair of each feature
    const int32_t[::1] pair_column,  # IN (P,) column of each pair, ascending for each feature
    const double[::1] weights,  # IN (P,)
    double[:, ::1] scores,  # IN OUT (N, n_columns), added to
):
    """Add the weights of features stored by node to the scores; faster if features are read once."""
    cdef:
        Py_ssize_t s
        PairWeights[floating] pairs
    pairs.n_columns, pairs.ptr = scores.shape[1], &pair_ptr[0]
    pairs.column = &pair_column[0] if weights.shape[0] else NULL
    pairs.weights = &weights[0] if weights.shape[0] else NULL
    with nogil:
        for s in range(scores.shape[0]):
            if ptr[s] < ptr[s + 1]:
                pairs.add_scores(&feature[ptr[s]], &value[ptr[s]], ptr[s + 1] - ptr[s], &scores[s, 0])


def pair_gradient(
    const int32_t[::1] feature,  # IN (n,)
    const int32_t[::1] ptr,  # IN (n + 1,)
    const int32_t[::1] node,  # IN (nnz,)
    const floating[::1] value,  # IN (nnz,), or (0,) if every value is one
    Py_ssize_t start,
    Py_ssize_t stop,  # entries start to stop - 1 of feature
    const int64_t[::1] pair_ptr,  # IN (F + 1,)
    const int32_t[::1] pair_column,  # IN (P,)
    const double[:, ::1] statistics,  # IN (N, n_columns)
    double[::1] gradient,  # IN OUT (P,), added to
    double[::1] work,  # workspace (n_columns,)
):
    """Add the statistics of nodes to the gradients of their features, for each stored pair."""
    with nogil:
        add_pair_gradient(feature, ptr, node, value, start, stop, pair_ptr, pair_column, statistics, gradient, work)
