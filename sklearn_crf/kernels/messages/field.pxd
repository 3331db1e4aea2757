"""Arrays of models for the message passing kernels in C++.

A kernel takes the arrays of a model as one tuple, ``sklearn_crf.inference._field.Field``; ``open_field`` checks their
types and keeps their addresses.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

cdef extern from "messages/field.hpp" namespace "crf" nogil:
    cdef enum Semiring:
        SUM_PROBABILITY
        SUM_SCORE
        MAX_SCORE

    const Py_ssize_t FEW_EDGES "crf::kFewEdges"
    double count_change(double, double)

    cdef cppclass Workspace[Real]:
        double* total
        Real* cavity
        Real* fresh
        Real* shifted
        Real* factor
        void open(const Field[Real]&, double*)

    cdef cppclass Field[Real]:
        int semiring
        Py_ssize_t n_columns
        Py_ssize_t width
        Py_ssize_t n_features
        const int64_t* ptr
        const int32_t* neighbor
        const int32_t* half_edge
        const int32_t* reverse
        const int32_t* n_states
        const int32_t* factor
        const int32_t* edge_type
        const double* shift
        const Real* unary
        const Real* factors
        const int32_t* place
        const Real* on
        const Real* off
        const Real* tables
        const Real* edge_weight
        const Real* appearance
        Py_ssize_t states_of(Py_ssize_t)
        double pair_score(int32_t, Py_ssize_t, Py_ssize_t)
        void compute_factor(Py_ssize_t, Real*, double*)
        const Real* half_edge_factor(int32_t, Real*, double*)
        void apply_factor(int32_t, const Real*, Py_ssize_t, Real*, Real*, double*)
        double replace_sums_in_scores(int32_t, Workspace[Real]&, Real*, Py_ssize_t, Py_ssize_t, double, double)


cdef inline void open_field(object arrays, Field[floating]* f) except *:
    """Return the addresses of the arrays, which the caller must keep alive."""
    cdef:
        const int64_t[::1] ptr = arrays.ptr
        const int32_t[::1] neighbor = arrays.neighbor
        const int32_t[::1] half_edge = arrays.half_edge
        const int32_t[::1] reverse = arrays.reverse
        const int32_t[::1] n_states = arrays.n_states
        const int32_t[::1] factor = arrays.factor
        const int32_t[::1] edge_type = arrays.edge_type
        const double[::1] shift = arrays.shift
        const floating[:, ::1] unary = arrays.unary
        const floating[:, :, ::1] factors = arrays.factors
        const int32_t[:, ::1] place = arrays.place
        const floating[::1] on = arrays.on
        const floating[::1] off = arrays.off
        const floating[:, :, :, ::1] tables = arrays.tables
        const floating[:, ::1] edge_weight = arrays.edge_weight
        const floating[::1] appearance = arrays.appearance
    f.semiring = arrays.semiring
    f.n_columns = tables.shape[3]
    f.n_features = tables.shape[1]
    f.width = unary.shape[1]
    f.ptr = &ptr[0]
    f.neighbor = &neighbor[0] if neighbor.shape[0] else NULL
    f.half_edge = &half_edge[0] if half_edge.shape[0] else NULL
    f.reverse = &reverse[0] if reverse.shape[0] else NULL
    f.n_states = &n_states[0] if n_states.shape[0] else NULL
    f.factor = &factor[0] if factor.shape[0] else NULL
    f.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    f.shift = &shift[0] if shift.shape[0] else NULL
    f.unary = &unary[0, 0] if unary.shape[0] else NULL
    f.factors = &factors[0, 0, 0] if factors.shape[0] else NULL
    f.place = &place[0, 0] if place.shape[0] else NULL
    f.on = &on[0] if on.shape[0] else NULL
    f.off = &off[0] if off.shape[0] else NULL
    f.tables = &tables[0, 0, 0, 0] if tables.shape[0] else NULL
    f.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    f.appearance = &appearance[0] if appearance.shape[0] else NULL
