# distutils: language = c++
"""Marginals of nodes and edges from messages, and the contributions of both to the log-partition."""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.field cimport Field, open_field

cdef extern from "messages/beliefs.hpp" namespace "crf" nogil:
    cdef cppclass Beliefs[Real]:
        Field[Real] field
        const Real* messages
        Real* beliefs
        const Real* row_totals
        double* pair
        void open(double*)
        Py_ssize_t of_nodes(double*, Py_ssize_t, Py_ssize_t)
        Py_ssize_t add_log_normalisers(double*, Py_ssize_t)
        Py_ssize_t add_statistics(double*, bint, double*, Py_ssize_t, Py_ssize_t)
        double of_edge(Py_ssize_t, Py_ssize_t)


cdef void open_beliefs(object field, Beliefs[floating]* found, const floating[:, ::1] messages,
                       const floating[:, ::1] beliefs, double[::1] work) except *:
    open_field(field, &found.field)
    found.messages = &messages[0, 0] if messages.shape[0] else NULL
    found.beliefs = <floating*> &beliefs[0, 0] if beliefs.shape[0] else NULL
    found.row_totals = NULL
    found.open(&work[0])


def node_beliefs(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    floating[:, ::1] beliefs,  # OUT (N, width) probabilities, or their logarithms if the field keeps scores
    double[::1] log_z_terms,  # OUT (N,) log-normaliser of each node
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes start to stop - 1
    double[::1] work,  # workspace
):
    """Compute node beliefs; return -1, or the first node without a possible state."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t failed
    if start >= stop:
        return -1
    open_beliefs(field, &found, messages, beliefs, work)
    with nogil:
        failed = found.of_nodes(&log_z_terms[0], start, stop)
    return failed


def pair_statistics(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    double[:, :, :, ::1] statistics,  # INOUT (T, R, K, width) summed edge weight * pairwise belief
    bint without_factor,  # omit the factor of edges from the sums, if all edges of a type share it
    const floating[:, ::1] row_totals,  # IN (n, width) row sums of factors; empty if messages may not have converged
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    Py_ssize_t start,
    Py_ssize_t stop,  # the edges that start from nodes start to stop - 1
    double[::1] work,  # workspace
):
    """Sum the pairwise beliefs of edges by type; return -1, or the first edge without a possible pair."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t failed
    if start >= stop or not statistics.shape[0]:
        return -1
    open_beliefs(field, &found, messages, beliefs, work)
    if row_totals.shape[0]:
        found.row_totals = &row_totals[0, 0]
    with nogil:
        failed = found.add_statistics(&statistics[0, 0, 0, 0], without_factor, &log_z_terms[0], start, stop)
    return failed


def edge_log_normalisers(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    const floating[:, ::1] row_totals,  # IN (n, width) row sums of factors; empty if messages may not have converged
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    double[::1] work,  # workspace
):
    """Add the contributions of edges to the log-partition; return -1, or the first edge without a possible pair."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t failed = -1
    open_beliefs(field, &found, messages, beliefs, work)
    if row_totals.shape[0]:
        found.row_totals = &row_totals[0, 0]
    if beliefs.shape[0]:
        with nogil:
            failed = found.add_log_normalisers(&log_z_terms[0], beliefs.shape[0])
    return failed


def edge_beliefs(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    const int32_t[:, ::1] slots,  # IN (n, 2) first end of each requested edge, and its slot at this node
    floating[:, :, ::1] marginals,  # OUT (n, K, K)
    double[::1] work,  # workspace
):
    """Compute the pairwise beliefs of given edges; return -1, or the first edge without a possible pair."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t i, a, b, W = beliefs.shape[1], K = marginals.shape[1], failed = -1
    open_beliefs(field, &found, messages, beliefs, work)
    with nogil:
        for i in range(slots.shape[0]):
            if found.of_edge(slots[i, 0], slots[i, 1]) == -INFINITY:
                failed = i
                break
            for a in range(K):
                for b in range(K):
                    marginals[i, a, b] = <floating> found.pair[a * W + b]
    return failed
