# distutils: language = c++
"""Products of sparse features with weights of (feature, column of scores) pairs, and their adjoint.

Features are stored by column for a group of nodes, and only features that occur are stored. Weights are then read in
order, and the data of the group stay in the cache.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.pair_weights cimport PairWeights

cdef extern from "weight_rows.h" nogil:
    void sum_weighted_rows(const double*, const int32_t*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void add_to_rows(double*, const int32_t*, Py_ssize_t, Py_ssize_t, const double*)


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
    cdef:
        bint weighted = value.shape[0] > 0
        Py_ssize_t n_columns = scores.shape[1]
        Py_ssize_t i, k, q
        int64_t p, first, last
        double x = 1.0
        double* row
        double* dense = &work[0]
        double* all_scores = &scores[0, 0] if scores.shape[0] else NULL
    with nogil:
        for i in range(feature.shape[0]):
            first, last = pair_ptr[feature[i]], pair_ptr[feature[i] + 1]
            if 3 * (last - first) > n_columns:  # whole rows are faster than picking a third of their numbers
                for k in range(n_columns):
                    dense[k] = 0.0
                for p in range(first, last):
                    dense[pair_column[p]] = weights[p]
                if not weighted:
                    add_to_rows(all_scores, &node[ptr[i]], ptr[i + 1] - ptr[i], n_columns, dense)
                    continue
                for q in range(ptr[i], ptr[i + 1]):
                    row = all_scores + node[q] * n_columns
                    x = value[q]
                    for k in range(n_columns):
                        row[k] += x * dense[k]
            else:
                for q in range(ptr[i], ptr[i + 1]):
                    row = all_scores + node[q] * n_columns
                    if weighted:
                        x = value[q]
                    for p in range(first, last):
                        row[pair_column[p]] += x * weights[p]


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
    cdef:
        bint weighted = value.shape[0] > 0
        Py_ssize_t n_columns = statistics.shape[1]
        Py_ssize_t i, k, q
        int64_t p, first, last
        double x = 1.0
        const double* row
        const double* all_statistics = &statistics[0, 0] if statistics.shape[0] else NULL
        double* sums = &work[0]
    with nogil:
        for i in range(start, stop):
            first, last = pair_ptr[feature[i]], pair_ptr[feature[i] + 1]
            if 3 * (last - first) > n_columns:
                if weighted:
                    for k in range(n_columns):
                        sums[k] = 0.0
                    for q in range(ptr[i], ptr[i + 1]):
                        row = all_statistics + node[q] * n_columns
                        x = value[q]
                        for k in range(n_columns):
                            sums[k] += x * row[k]
                else:
                    sum_weighted_rows(all_statistics, &node[ptr[i]], NULL, ptr[i + 1] - ptr[i], n_columns, sums)
                for p in range(first, last):
                    gradient[p] += sums[pair_column[p]]
            else:
                for q in range(ptr[i], ptr[i + 1]):
                    row = all_statistics + node[q] * n_columns
                    if weighted:
                        x = value[q]
                    for p in range(first, last):
                        gradient[p] += x * row[pair_column[p]]
