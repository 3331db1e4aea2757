"""Arrays of models for the message passing kernels in C++.

A kernel takes the arrays of a model as one tuple, ``sklearn_crf.inference._field.Field``; ``open_field`` checks their
types and keeps their addresses.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.addresses cimport set_address

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
        const floating[:, ::1] unary = arrays.unary
        const floating[:, :, ::1] factors = arrays.factors
        const int32_t[:, ::1] place = arrays.place
        const floating[:, :, :, ::1] tables = arrays.tables
        const floating[:, ::1] edge_weight = arrays.edge_weight
    f.semiring = arrays.semiring
    f.n_columns = tables.shape[3]
    f.n_features = tables.shape[1]
    f.width = unary.shape[1]
    set_address(&f.ptr, arrays.ptr)
    set_address(&f.neighbor, arrays.neighbor)
    set_address(&f.half_edge, arrays.half_edge)
    set_address(&f.reverse, arrays.reverse)
    set_address(&f.n_states, arrays.n_states)
    set_address(&f.factor, arrays.factor)
    set_address(&f.edge_type, arrays.edge_type)
    set_address(&f.shift, arrays.shift)
    f.unary = &unary[0, 0] if unary.shape[0] else NULL
    f.factors = &factors[0, 0, 0] if factors.shape[0] else NULL
    f.place = &place[0, 0] if place.shape[0] else NULL
    set_address(&f.on, arrays.on)
    set_address(&f.off, arrays.off)
    f.tables = &tables[0, 0, 0, 0] if tables.shape[0] else NULL
    f.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    set_address(&f.appearance, arrays.appearance)
