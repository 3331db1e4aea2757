# distutils: language = c++
"""Sparse features times weights that belong to pairs of a feature and a column of scores, and the adjoint of that.

Features are kept by column, those that occur among some nodes alone: weights are then read in their order, and what
belongs to these nodes stays in the cache.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.pair_weights cimport PairWeights


def pair_scores(
    const int32_t[::1] feature,  # IN (n,) ascending, those that occur
    const int32_t[::1] ptr,  # IN (n + 1,)
    const int32_t[::1] node,  # IN (nnz,)
    const floating[::1] value,  # IN (nnz,), or (0,) where every value is one
    const int64_t[::1] pair_ptr,  # IN (F + 1,) pairs of each feature
    const int32_t[::1] pair_column,  # IN (P,) ascending for each feature
    const double[::1] weights,  # IN (P,)
    double[:, ::1] scores,  # IN OUT (N, n_columns), added to
    double[::1] work,  # workspace (n_columns,)
):
    """Add to the scores of each node the weights of the pairs of its features."""
    with nogil:
        add_pair_scores(feature, ptr, node, value, pair_ptr, pair_column, weights, scores, work)


def pair_scores_of_rows(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] feature,  # IN (nnz,) of the nodes in turn
    const floating[::1] value,  # IN (nnz,)
    const int64_t[::1] pair_ptr,  # IN (F + 1,) pairs of each feature
    const int32_t[::1] pair_column,  # IN (P,) ascending for each feature
    const double[::1] weights,  # IN (P,)
    double[:, ::1] scores,  # IN OUT (N, n_columns), added to
):
    """The same for features that are kept by node, which is quicker where they are read once."""
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
    const floating[::1] value,  # IN (nnz,), or (0,) where every value is one
    Py_ssize_t start,
    Py_ssize_t stop,  # entries of feature to do
    const int64_t[::1] pair_ptr,  # IN (F + 1,)
    const int32_t[::1] pair_column,  # IN (P,)
    const double[:, ::1] statistics,  # IN (N, n_columns)
    double[::1] gradient,  # IN OUT (P,), added to
    double[::1] work,  # workspace (n_columns,)
):
    """Add the statistics of the nodes of each feature, for the columns that it is paired with."""
    with nogil:
        add_pair_gradient(feature, ptr, node, value, start, stop, pair_ptr, pair_column, statistics, gradient, work)
