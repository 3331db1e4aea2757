# distutils: language = c++
"""Marginals after a fixed number of sweeps, their loss for given labels and its gradient, in one call."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.pool cimport Threads, threads_of
from sklearn_crf.kernels.local.local_model cimport LocalModel, describe
from sklearn_crf.kernels.messages.field cimport Field, open_field

cdef extern from "messages/fixed_sweeps.hpp" namespace "crf" nogil:
    cdef enum SweepLoss:
        pass

    cdef cppclass SweptLoss:
        SweepLoss loss
        int64_t n_sweeps
        const int32_t* nodes
        const int64_t* ranges
        const int64_t* blocks
        int64_t n_blocks
        const int32_t* labels
        const double* weight
        double* beliefs
        double* terms
        double* unary
        double* tables

    cdef cppclass SweptMessages[Real](SweptLoss):
        Field[Real] field
        const Real* scores
        const int32_t* rank
        int64_t n_slots, n_types, largest_degree
        Real* messages
        void run(const Threads&) except +

    cdef cppclass OddsTables[Real]:
        int64_t n_features
        const int32_t* edge_type
        const Real* tables
        const Real* edge_weight

    cdef cppclass SweptMeanField[Real](SweptLoss):
        LocalModel[Real] model
        int64_t n_nodes, n_types
        double* marginals
        const int32_t* rank
        void run(const Threads&) except +

cdef extern from "messages/swept_odds.hpp" namespace "crf" nogil:
    cdef cppclass SweptOdds[Real](SweptLoss):
        const int64_t* ptr
        const int32_t* neighbor
        const int32_t* half_edge
        const int32_t* reverse
        OddsTables[Real] of_edges
        const double* appearance
        const Real* scores
        const int32_t* rank
        int64_t n_nodes, n_edges, n_types
        void run(const Threads&) except +


cdef void open_loss(SweptLoss* swept, object how) except *:
    """Set the common arguments of both kinds of sweeps to the arrays of a SweepArguments."""
    cdef:
        const int32_t[::1] nodes = how.nodes, labels = how.labels
        const int64_t[:, ::1] ranges = how.ranges
        const int64_t[::1] blocks = how.blocks
        const double[::1] weight = how.weight
        double[:, ::1] beliefs = how.beliefs, unary = how.unary
        double[::1] terms = how.terms
        double[:, :, :, :, ::1] tables = how.tables
    swept.loss, swept.n_sweeps = <SweepLoss> <int> how.loss, how.n_sweeps
    swept.nodes, swept.ranges = &nodes[0], &ranges[0, 0]
    swept.blocks, swept.n_blocks = &blocks[0], blocks.shape[0] - 1
    swept.labels = &labels[0] if labels.shape[0] else NULL
    swept.weight = &weight[0] if weight.shape[0] else NULL
    swept.beliefs = &beliefs[0, 0]
    swept.terms = &terms[0] if terms.shape[0] else NULL
    swept.unary = &unary[0, 0] if unary.shape[0] else NULL
    swept.tables = &tables[0, 0, 0, 0, 0]


def sweep_messages(
    object field,  # IN the fields of Field
    const floating[:, ::1] scores,  # IN (N, K) scores of nodes
    floating[:, :, ::1] messages,  # INOUT (n_kept, 2E, width) initial messages, and messages after each sweep
    object how,  # IN OUT the fields of SweepArguments
    int64_t largest_degree,
    int n_threads,
):
    """Run sweeps of belief propagation; if there is a loss, compute its gradient by backpropagation."""
    cdef:
        SweptMessages[floating] swept
        Threads threads = threads_of(n_threads)
        const int32_t[::1] rank = how.rank
    open_loss(&swept, how)
    open_field(field, &swept.field)
    swept.scores, swept.rank = &scores[0, 0], &rank[0]
    swept.n_slots, swept.n_types, swept.largest_degree = messages.shape[1], how.tables.shape[1], largest_degree
    swept.messages = &messages[0, 0, 0] if messages.shape[1] else NULL
    with nogil:
        swept.run(threads)


def sweep_odds(
    const floating[:, ::1] scores,  # IN (N, 2) scores of nodes, finite
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2), finite
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or empty: all are 1
    const double[::1] appearance,  # IN (E,) edge appearance probabilities, or empty: all are 1
    tuple incidence,  # IN the incidence of the graph
    object how,  # IN OUT the fields of SweepArguments
    int n_threads,
):
    """Run sweeps of belief propagation between nodes of two states; with a loss, compute its gradient as well."""
    cdef:
        SweptOdds[floating] swept
        Threads threads = threads_of(n_threads)
        const int64_t[::1] ptr
        const int32_t[::1] neighbor, half_edge, reverse, rank = how.rank
    ptr, neighbor, half_edge, reverse = incidence
    open_loss(&swept, how)
    swept.n_nodes, swept.n_edges, swept.n_types = scores.shape[0], edge_type.shape[0], tables.shape[0]
    swept.ptr, swept.scores, swept.rank = &ptr[0], &scores[0, 0], &rank[0]
    swept.neighbor = &neighbor[0] if swept.n_edges else NULL
    swept.half_edge = &half_edge[0] if swept.n_edges else NULL
    swept.reverse = &reverse[0] if swept.n_edges else NULL
    swept.of_edges.n_features = tables.shape[1]
    swept.of_edges.tables = &tables[0, 0, 0, 0] if tables.shape[0] and tables.shape[1] else NULL
    swept.of_edges.edge_type = &edge_type[0] if swept.n_edges else NULL
    swept.of_edges.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] and edge_weight.shape[1] else NULL
    swept.appearance = &appearance[0] if appearance.shape[0] else NULL
    with nogil:
        swept.run(threads)


def sweep_mean_field(
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    double[:, :, ::1] marginals,  # OUT (n_kept, N, K) initial marginals, and marginals after each sweep
    object how,  # IN OUT the fields of SweepArguments
    int n_threads,
):
    """Run sweeps of mean field; if there is a loss, compute its gradient by backpropagation."""
    cdef:
        SweptMeanField[floating] swept
        Threads threads = threads_of(n_threads)
        const int32_t[::1] rank = how.rank
    open_loss(&swept, how)
    describe(&swept.model, unary, edges)
    swept.n_nodes, swept.n_types = unary.shape[0], how.tables.shape[1]
    swept.marginals, swept.rank = &marginals[0, 0, 0], &rank[0]
    with nogil:
        swept.run(threads)
