"""Score and statistics of one labeling: a pass over the edges each."""

from cython cimport floating
from libc.stdint cimport int32_t


def labeling_terms(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) where every weight is one
    const int32_t[::1] labels,  # IN (N,)
    double[::1] terms,  # OUT (N,) unary score of each node, and the scores of the edges that begin there
):
    """Share of each node in the score of a labeling."""
    cdef:
        bint weighted = edge_weight.shape[0] > 0
        Py_ssize_t n_features = tables.shape[1]
        Py_ssize_t node, e, r
        int32_t tail, head, kind
        double edge_score
    with nogil:
        for node in range(labels.shape[0]):
            terms[node] = unary[node, labels[node]]
        for e in range(edges.shape[0]):
            tail, head, kind = edges[e, 0], edges[e, 1], edge_type[e]
            if weighted:
                edge_score = 0.0
                for r in range(n_features):
                    edge_score += <double> edge_weight[e, r] * tables[kind, r, labels[tail], labels[head]]
            else:
                edge_score = tables[kind, 0, labels[tail], labels[head]]
            terms[tail] += edge_score


def count_pairs(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) where every weight is one
    const int32_t[::1] labels,  # IN (N,)
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), zero before
):
    """Sum of the weights of the edges of each (type, feature, state, state)."""
    cdef:
        bint weighted = edge_weight.shape[0] > 0
        Py_ssize_t n_features = counts.shape[1]
        Py_ssize_t e, r
        int32_t a, b, kind
    with nogil:
        for e in range(edges.shape[0]):
            a, b, kind = labels[edges[e, 0]], labels[edges[e, 1]], edge_type[e]
            if weighted:
                for r in range(n_features):
                    counts[kind, r, a, b] += edge_weight[e, r]
            else:
                counts[kind, 0, a, b] += 1.0


def count_changed_pairs(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) where every weight is one
    const int32_t[::1] labels,  # IN (N,)
    const int32_t[::1] others,  # IN (N,)
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), zero before
):
    """Sums of the weights of edges by the pairs of labels, less those by the others: equal pairs are passed over."""
    cdef:
        bint weighted = edge_weight.shape[0] > 0
        Py_ssize_t n_features = counts.shape[1]
        Py_ssize_t e, r
        int32_t a, b, c, d, kind
        double value
    with nogil:
        for e in range(edges.shape[0]):
            a, b, c, d = labels[edges[e, 0]], labels[edges[e, 1]], others[edges[e, 0]], others[edges[e, 1]]
            if a == c and b == d:
                continue
            kind = edge_type[e]
            for r in range(n_features):
                value = edge_weight[e, r] if weighted else 1.0
                counts[kind, r, a, b] += value
                counts[kind, r, c, d] -= value
