# distutils: language = c++
"""Marginals, best labelings and samples of chains that score the runs of labels (semi-Markov chains)."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.chains.chains cimport RunFactors, Transitions, run_factors_of, transitions_of
from sklearn_crf.kernels.core.pool cimport Threads, threads_of

cdef extern from "segments.hpp" namespace "crf" nogil:
    cdef cppclass SegmentChains[Real]:
        int64_t n_chains
        const int64_t* ptr
        int64_t n_states, n_durations, n_tables, n_features
        const Real* unary
        const double* tables
        const int32_t* edge_type
        const Real* edge_weight
        const double* durations
        const int32_t* duration_type
        const Real* ends
        const Real* spans
        int64_t least
        const int64_t* blocks
        int64_t n_blocks

    cdef cppclass SegmentMarginals[Real]:
        SegmentMarginals(
            const SegmentChains[Real]&, const Transitions*, const RunFactors*, Real*, Real*, Real*, double*, double*,
            int64_t
        )
        int64_t run(const Threads&) except +*

    int64_t best_segments[Real](const SegmentChains[Real]&, const Threads&, int32_t*) except +*
    int64_t sample_segments[Real](
        const SegmentChains[Real]&, const Threads&, int64_t, const double*, int32_t*
    ) except +*


cdef SegmentChains[floating] chains_of(const floating[:, ::1] unary, tuple fields):
    """Return the chains in the form that the kernels read, from arrays that the caller keeps alive."""
    cdef:
        const int64_t[::1] ptr = fields[0]  # (n_chains + 1,) first node of each chain
        const double[:, :, :, ::1] tables = fields[1]  # (T, R, K, K)
        const int32_t[::1] edge_type = fields[2]  # (E,)
        const floating[:, ::1] edge_weight = fields[3]  # (E, R), or no rows for ones
        const double[:, :, ::1] durations = fields[4]  # (S, K, D) scores of runs, the last for all longer runs
        const int32_t[::1] duration_type = fields[5]  # (n_chains,)
        const floating[:, :, ::1] ends = fields[6]  # (2, N, K) scores of the first and last nodes of runs, or (0, N, K)
        const floating[:, :, ::1] spans = fields[7]  # (N, D - 1, K) scores of single runs, or (N, 0, K)
        int64_t least = fields[8]  # least duration of runs that do not touch an end of their chain
        const int64_t[::1] blocks = fields[9]  # (n_blocks + 1,) first chain of each block
        SegmentChains[floating] made
    made.n_chains, made.ptr = ptr.shape[0] - 1, &ptr[0]
    made.n_states, made.n_durations = unary.shape[1], durations.shape[2]
    made.n_tables, made.n_features = tables.shape[0], tables.shape[1]
    made.unary = &unary[0, 0]
    made.tables = &tables[0, 0, 0, 0] if tables.shape[0] else NULL
    made.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    made.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    made.durations, made.duration_type = &durations[0, 0, 0], &duration_type[0]
    made.ends = &ends[0, 0, 0] if ends.shape[0] else NULL
    made.spans = &spans[0, 0, 0] if spans.shape[1] else NULL
    made.least, made.blocks, made.n_blocks = least, &blocks[0], blocks.shape[0] - 1
    return made


def segment_marginals(
    const floating[:, ::1] unary,  # IN (N, K), N > 0
    tuple fields,  # IN the arrays of chains_of
    object runs,  # IN a RunTransitions if all chains share one table and one table of durations, or None
    floating[:, ::1] posterior,  # OUT (N, K)
    floating[:, :, ::1] ends,  # OUT (2, N, K) probabilities that a run begins, or ends, at a node; or (0, N, K)
    floating[:, :, ::1] spans,  # IN/OUT (N, D - 1, K) zeros; probabilities of single runs; or (N, 0, K)
    double[::1] terms,  # OUT (N,) terms of log Z
    double[:, ::1] sums,  # OUT (n_blocks, T R K K + S K D); the first row has the expected counts
    int n_threads,
):
    """Compute the marginals; return a chain of which every labeling is forbidden, or -1."""
    cdef:
        SegmentChains[floating] chains = chains_of(unary, fields)
        Threads threads = threads_of(n_threads)
        Transitions transitions
        RunFactors factors
        bint has_factors = runs is not None
        int64_t failed, n_duration_types = len(fields[4])
    if has_factors:
        transitions, factors = transitions_of(runs.pairs), run_factors_of(runs)
    with nogil:
        failed = SegmentMarginals[floating](
            chains,
            &transitions if has_factors else NULL,
            &factors if has_factors else NULL,
            &posterior[0, 0],
            &ends[0, 0, 0] if ends.shape[0] else NULL,
            &spans[0, 0, 0] if spans.shape[1] else NULL,
            &terms[0],
            &sums[0, 0],
            n_duration_types,
        ).run(threads)
    return failed


def best_labels(
    const floating[:, ::1] unary,  # IN (N, K), N > 0
    tuple fields,  # IN the arrays of chains_of
    int32_t[::1] labels,  # OUT (N,)
    int n_threads,
):
    """Find the best labeling; return a chain of which every labeling is forbidden, or -1."""
    cdef:
        SegmentChains[floating] chains = chains_of(unary, fields)
        Threads threads = threads_of(n_threads)
        int64_t failed
    with nogil:
        failed = best_segments(chains, threads, &labels[0])
    return failed


def sample_labels(
    const floating[:, ::1] unary,  # IN (N, K), N > 0
    tuple fields,  # IN the arrays of chains_of
    const double[:, ::1] uniform,  # IN (n_samples, N) numbers in [0, 1)
    int32_t[:, ::1] labels,  # OUT (n_samples, N)
    int n_threads,
):
    """Draw labelings; return a chain of which every labeling is forbidden, or -1."""
    cdef:
        SegmentChains[floating] chains = chains_of(unary, fields)
        Threads threads = threads_of(n_threads)
        int64_t failed
    with nogil:
        failed = sample_segments(chains, threads, uniform.shape[0], &uniform[0, 0], &labels[0, 0])
    return failed
