"""Differences of the features at the two ends of an edge, and sums over them."""

from cython cimport floating
from libc.math cimport fabs
from libc.stdint cimport int32_t


def weighted_differences(
    const floating[:, ::1] features,  # IN (N, F)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,), or empty where there is one type
    const double[:, ::1] weights,  # IN (T, 1 + F)
    floating[::1] sums,  # OUT (E,)
):
    """Weight of 1 and weighted absolute differences of the features of each edge, added up."""
    cdef:
        Py_ssize_t edge, k, kind = 0
        const floating *tail
        const floating *head
        const double *weight
        double total
    with nogil:
        for edge in range(edges.shape[0]):
            if edge_type.shape[0]:
                kind = edge_type[edge]
            tail = &features[edges[edge, 0], 0]
            head = &features[edges[edge, 1], 0]
            weight = &weights[kind, 0]
            total = weight[0]
            for k in range(features.shape[1]):
                total += weight[k + 1] * fabs(<double> (tail[k] - head[k]))
            sums[edge] = <floating> total


def absolute_differences(
    const floating[:, ::1] features,  # IN (N, F)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    floating[:, ::1] values,  # OUT (E, 1 + F)
):
    """1 and the absolute differences of the features of each edge; whether all are finite."""
    cdef:
        Py_ssize_t edge, k
        const floating *tail
        const floating *head
        floating total = 0
    with nogil:
        for edge in range(edges.shape[0]):
            tail = &features[edges[edge, 0], 0]
            head = &features[edges[edge, 1], 0]
            values[edge, 0] = 1
            for k in range(features.shape[1]):
                values[edge, k + 1] = fabs(tail[k] - head[k])
                # 0, or NaN of what is not finite.
                total += 0 * values[edge, k + 1]
    return total == 0
