"""Terms of a flow network for one edge, in C++."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t

ctypedef fused capacity:
    int32_t
    int64_t

cdef extern from "binary_edge.hpp" namespace "crf" nogil:
    int STOP "crf::kStop"
    int TRUNCATE "crf::kTruncate"

    cdef cppclass EdgeTerms:
        double first, second, there, back, lacking
        bint crossed

    cdef cppclass Choice:
        const int32_t* keep
        const int32_t* take

    cdef cppclass EdgeScores[Real]:
        const Real* tables
        int64_t n_features, n_states
        const int32_t* type
        const Real* weight
        double score(int64_t, int32_t, int32_t)
        EdgeTerms terms(int64_t, int32_t, int32_t, int32_t, int32_t, double, int)
        void settle(int64_t, const Choice&, int32_t, int32_t, double&)

    cdef cppclass Rounding:
        int64_t most
        double precision
        int mode
        void set_exponent(int64_t)
        int64_t capacity(double)
        bint excess[Cap](double, Cap&)

    cdef cppclass LatticeShape:
        int64_t n_nodes, guard, degree, n_axes
        const int64_t* counts
        const int64_t* delta
        const int64_t* shape
        const int64_t* box
        const int32_t* edges

    int64_t list_open(const Choice&, int64_t, uint8_t*, int32_t*)
    int64_t lattice_arcs[Real, Cap](
        const EdgeScores[Real]&, const LatticeShape&, const Choice&, const uint8_t*, int64_t, const Rounding&, double*,
        Cap*
    )


cdef inline EdgeScores[floating] edge_scores(
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
) noexcept:
    """Return the scores of edges with pointers to arrays, which the caller keeps alive."""
    cdef EdgeScores[floating] made
    made.n_features, made.n_states = tables.shape[1], tables.shape[3]
    made.tables = &tables[0, 0, 0, 0] if tables.size else NULL
    made.type = &edge_type[0] if edge_type.shape[0] else NULL
    made.weight = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    return made
