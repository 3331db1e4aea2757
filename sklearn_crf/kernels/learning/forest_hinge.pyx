# distutils: language = c++
"""Structured hinge losses of forests and small graphs with linear scores: values, planes and Frank-Wolfe passes."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.pool cimport Threads, threads_of

cdef extern from "frank_wolfe.hpp" namespace "crf" nogil:
    cdef cppclass HingeExamples[Real]:
        pass

    cdef cppclass HingeBatches[Real]:
        const HingeExamples[Real]* batches
        int64_t n_batches

    cdef cppclass HingePart:
        pass

    cdef cppclass HingeDual:
        const int64_t* first_members
        const int64_t* first_nodes
        double* offsets
        double* slopes
        double* shares
        const int64_t* row_ptr
        int64_t* row_sizes
        int32_t* row_index
        double* row_values
        double* x
        double* lag
        double* free
        const int32_t* bounded
        int64_t n_bounded
        int64_t most_features

    void add_planes[Real](const HingeBatches[Real]&, const HingePart*, int64_t, const double*, double*, double*,
                          const Threads&) except +*
    int64_t make_steps[Real](const HingeBatches[Real]&, const HingeDual&, const int32_t*, int64_t, int64_t, int64_t,
                             int64_t, const Threads&, double&, double&) except +*


def sum_planes(
    const int64_t[:, ::1] batches,  # IN (n_batches, 33) the fields of HingeExamples
    const floating[::1] precision,  # IN any array in the precision of features
    const int64_t[:, ::1] parts,  # IN (P, 3) the fields of HingePart
    const double[::1] x,  # IN (n,) weights
    double[:, ::1] slopes,  # IN OUT (P, n) added to, or (P, 0) if not requested
    double[:, ::1] sums,  # OUT (P, 2) values and offsets
    int n_threads,
):
    """Sum the tangent planes at x of the hinges of each part."""
    cdef:
        HingeBatches[floating] hinges
        Threads threads = threads_of(n_threads)
        double* all_slopes = &slopes[0, 0] if slopes.shape[1] else NULL
    hinges.batches, hinges.n_batches = <const HingeExamples[floating]*> &batches[0, 0], batches.shape[0]
    with nogil:
        add_planes(hinges, <const HingePart*> &parts[0, 0], parts.shape[0], &x[0], all_slopes, &sums[0, 0], threads)


def frank_wolfe_steps(
    const int64_t[:, ::1] batches,  # IN (n_batches, 33) the fields of HingeExamples
    const floating[::1] precision,  # IN any array in the precision of features
    const int32_t[::1] members,  # IN examples in the order of their steps, numbered through all batches
    const int64_t[:, ::1] first,  # IN (2, n_batches + 1) first example and first node of each batch
    double[::1] offsets,  # IN OUT (m,) of the combined planes
    double[:, ::1] slopes,  # IN OUT (m, n) of the combined planes; (m, 0) for sparse features
    double[:, ::1] shares,  # IN OUT (N, K) share of each state at each node; (0, 0) for dense features
    rows,  # IN OUT table weights of each example with sparse features
    double[::1] x,  # IN OUT (n,) minus the sum of all slopes, projected
    double[::1] lag,  # IN OUT (n,) lag of the mean of x, see Group::run
    double[::1] free,  # IN OUT (n_bounded,) bounded entries of x before they are projected
    const int32_t[::1] bounded,  # IN (n_bounded,) entries of x that must not be negative
    int64_t most_features,  # largest number of sparse features of an example
    int64_t n_before,  # number of steps made before
    int64_t group,  # number of examples of the first group, which make their steps together
    int64_t largest,  # largest number of examples of a group
    int n_threads,
):
    """Make one step for each example; return the changes of offsets and of slacks, summed, and the next group size."""
    cdef:
        HingeBatches[floating] hinges
        HingeDual dual
        Threads threads = threads_of(n_threads)
        const int64_t[::1] row_ptr = rows.ptr
        int64_t[::1] row_sizes = rows.sizes
        int32_t[::1] row_index = rows.index
        double[::1] row_values = rows.values
        double gained = 0.0, slack = 0.0
    hinges.batches, hinges.n_batches = <const HingeExamples[floating]*> &batches[0, 0], batches.shape[0]
    dual.first_members, dual.first_nodes, dual.offsets = &first[0, 0], &first[1, 0], &offsets[0]
    dual.x, dual.lag, dual.n_bounded = &x[0], &lag[0], bounded.shape[0]
    if shares.shape[0]:
        dual.shares = &shares[0, 0]
        dual.row_ptr, dual.row_sizes, dual.row_index = &row_ptr[0], &row_sizes[0], &row_index[0]
        dual.row_values = &row_values[0]
    else:
        dual.slopes = &slopes[0, 0]
    if bounded.shape[0]:
        dual.free, dual.bounded = &free[0], &bounded[0]
    dual.most_features = most_features
    with nogil:
        group = make_steps(hinges, dual, &members[0], members.shape[0], n_before, group, largest, threads, gained,
                           slack)
    return gained, slack, group
