"""Scores and statistics of a single node of a pairwise model, given its neighbours, in C++."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

cdef extern from "local/local_model.hpp" namespace "crf" nogil:
    double FORBIDDEN_PAIR

    cdef cppclass LocalModel[Real]:
        int64_t n_columns, n_features
        const Real* unary
        const Real* tables
        const double* agreement
        const int32_t* edge_type
        const Real* edge_weight
        const int64_t* ptr
        const int32_t* neighbor
        const int32_t* half_edge
        void scores_given_labels(int64_t, const int32_t*, double*)
        void scores_given_marginals(int64_t, const double*, double*)
        void add_pairs(int64_t, const int32_t*, const double*, double, double*)
        double bound(int64_t, const double*, double*)
        double normalize(double*)


cdef inline describe(LocalModel[floating]* made, const floating[:, ::1] unary, edges):
    """Set the arrays of a model from a tuple (LocalEdges) that keeps them alive."""
    cdef:
        const floating[:, :, :, ::1] tables = edges[0]
        const double[:, ::1] agreement = edges[1]
        const int32_t[::1] edge_type = edges[2], neighbor = edges[5], half_edge = edges[6]
        const floating[:, ::1] edge_weight = edges[3]
        const int64_t[::1] ptr = edges[4]
    made.n_columns, made.n_features = tables.shape[3], tables.shape[1]
    made.unary = &unary[0, 0] if unary.shape[0] else NULL
    made.tables = &tables[0, 0, 0, 0] if tables.shape[0] else NULL
    made.agreement = &agreement[0, 0] if agreement.shape[0] else NULL
    made.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    made.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    made.ptr = &ptr[0]
    made.neighbor = &neighbor[0] if neighbor.shape[0] else NULL
    made.half_edge = &half_edge[0] if half_edge.shape[0] else NULL
