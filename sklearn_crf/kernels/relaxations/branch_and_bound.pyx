# distutils: language = c++
"""Branch and bound over the states of nodes, until optimality or the end of a budget."""

from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool


cdef extern from "branch_and_bound.hpp" namespace "sklearn_crf" nogil:
    cdef cppclass BranchAndBound:
        BranchAndBound(
            int32_t n_nodes, const int64_t* n_states, const double* unary, int64_t n_factors,
            const int64_t* factor_ptr, const int32_t* scope, const int64_t* start, const double* costs
        ) except +
        void run(double upper, double margin, int32_t n_sweeps, double most_work, int32_t* labels) except +
        double bound
        double best
        double work
        bool complete


def branch_and_bound(
    const int64_t[::1] n_states,  # IN (N,)
    const double[::1] unary,  # IN costs of states, node by node, not negative
    const int64_t[::1] factor_ptr,  # IN (F + 1,)
    const int32_t[::1] scope,  # IN at least two nodes for each factor
    const int64_t[::1] start,  # IN (F,) first cost of each factor
    const double[::1] costs,  # IN in C order, not negative
    double upper,  # cost of the best known labeling
    double margin,  # smallest improvement of a better labeling
    int n_sweeps,  # number of diffusion sweeps
    double most_work,  # limit on table entries read
    int32_t[::1] labels,  # INOUT (N,) the best labeling, or -1
):
    """Return a lower bound, the cost of the best labeling, the work, and whether the labeling is proven optimal."""
    cdef BranchAndBound* search
    with nogil:
        search = new BranchAndBound(
            <int32_t> n_states.shape[0],
            &n_states[0] if n_states.shape[0] else NULL,
            &unary[0] if unary.shape[0] else NULL,
            start.shape[0],
            &factor_ptr[0],
            &scope[0] if scope.shape[0] else NULL,
            &start[0] if start.shape[0] else NULL,
            &costs[0] if costs.shape[0] else NULL,
        )
        try:
            search.run(upper, margin, n_sweeps, most_work, &labels[0] if labels.shape[0] else NULL)
            with gil:
                found = search.bound, search.best, search.work, search.complete
        finally:
            del search
    return found
