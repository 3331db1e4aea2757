"""Chains that share one transition table, in C++."""

from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as bool_t

cdef extern from "chains.hpp" namespace "crf" nogil:
    cdef cppclass RunFactors:
        int64_t n_durations, shortest
        const double* score
        const double* factor
        const double* stay
        double best

    cdef cppclass Transitions:
        int64_t n_states, width
        const double* table
        const double* factor
        const double* transposed
        double best, widest, least

    cdef cppclass Chains[Real]:
        Chains()
        int64_t n_chains
        const int64_t* ptr
        int64_t stride
        const Real* unary
        const int32_t* labels
        const double* weight
        Real* posterior
        double* pairs
        double* counts
        double* terms
        int32_t* predicted

    cdef cppclass ChainPass[Real]:
        ChainPass(const Transitions&, const Chains[Real]&, int64_t, double*)
        bool_t run()

    int64_t pass_workspace(int64_t longest, int64_t width)


cdef inline Transitions transitions_of(object fields):
    """Return the transition table in the forms that the passes need, from arrays that the caller keeps alive."""
    cdef:
        const double[:, ::1] table = fields[0]  # (K, K)
        const double[:, ::1] factor = fields[1], transposed = fields[2]  # (K, W)
        Transitions made
    made.n_states, made.width = factor.shape[0], factor.shape[1]
    made.table, made.factor, made.transposed = &table[0, 0], &factor[0, 0], &transposed[0, 0]
    made.best, made.widest, made.least = fields[3:]
    return made


cdef inline RunFactors run_factors_of(object runs):
    """Return the factors of a RunTransitions with durations, from arrays that the caller keeps alive."""
    cdef:
        const double[:, ::1] scores = runs.scores, factor = runs.factor  # (K, D), (D, W)
        const double[::1] stay = runs.stay  # (W,)
        RunFactors made
    made.n_durations, made.shortest, made.best = factor.shape[0], runs.shortest, runs.best
    made.score, made.factor, made.stay = &scores[0, 0], &factor[0, 0], &stay[0]
    return made
