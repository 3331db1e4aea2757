"""Coordinate ascent on the naive mean-field bound, and the bound itself."""

from cython cimport floating
from libc.math cimport fabs, log
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.local_scores cimport normalize, scores_given_marginals, weight_of


def mean_field_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,
    const floating[:, :, :, ::1] tables,
    const double[:, ::1] agreement,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int64_t[::1] ptr,
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    double damping,
    double[:, ::1] marginals,  # IN OUT (N, K)
    double[::1] scores,  # workspace (K,)
):
    """Move the marginals of nodes[start:stop], in turn, to their best given their neighbours'; largest change."""
    cdef:
        Py_ssize_t position, k
        int32_t node
        double change = 0, moved
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            scores_given_marginals(
                node, unary, tables, agreement, edge_type, edge_weight, ptr, neighbor, half_edge, marginals, scores
            )
            normalize(scores)
            for k in range(scores.shape[0]):
                moved = (1 - damping) * (scores[k] - marginals[node, k])
                change = max(change, fabs(moved))
                marginals[node, k] += moved
    return change


def mean_field_bound(
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,
    const floating[:, :, :, ::1] tables,
    const double[:, ::1] agreement,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int64_t[::1] ptr,
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    const double[:, ::1] marginals,  # IN (N, K)
    double[::1] terms,  # OUT (N,) expected score plus entropy, an edge at its first end
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) products of marginals times edge weights are added
):
    """Nodes start to stop."""
    cdef:
        Py_ssize_t node, k, j, feature
        Py_ssize_t n_columns = unary.shape[1]
        int64_t slot, edge
        int32_t kind, other
        double probability, weight, joint, total
    with nogil:
        for node in range(start, stop):
            total = 0
            for k in range(n_columns):
                probability = marginals[node, k]
                if probability > 0:
                    total += probability * (unary[node, k] - log(probability))
            for slot in range(ptr[node], ptr[node + 1]):
                if half_edge[slot] & 1:
                    continue
                edge = half_edge[slot] >> 1
                kind = edge_type[edge]
                other = neighbor[slot]
                for feature in range(tables.shape[1]):
                    weight = weight_of(edge_weight, edge, feature)
                    for k in range(n_columns):
                        for j in range(n_columns):
                            joint = marginals[node, k] * marginals[other, j]
                            if joint > 0:
                                total += joint * weight * tables[kind, feature, k, j]
                                pairs[kind, feature, k, j] += weight * joint
            terms[node] = total
