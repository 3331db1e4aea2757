"""Sums, labels, samples and likelihoods of chains, for single labels and for runs of labels."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.core.blas cimport blas
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pair_weights cimport PairWeights
from sklearn_crf.kernels.core.pool cimport Threads, threads_of


# Marginals and labels of chains that share one table.

cdef extern from "prediction.hpp" namespace "crf" nogil:
    cdef cppclass ChainBatch:
        pass

    cdef cppclass PredictedBlock:
        pass

    cdef cppclass ChainPrediction[Real]:
        Transitions transitions
        const Real* table
        const Real* factor
        int64_t n_columns
        const double* intercept
        const double* ends
        const DenseFeatures[Real]* dense
        const PairWeights[Real]* sparse
        const ChainBatch* batches
        int64_t n_batches
        const PredictedBlock* blocks
        int64_t n_blocks
        int32_t* labels
        Real* posterior
        unsigned char* failed
        void run(const Threads&) except +


cdef inline int64_t longest_of(const int64_t[::1] ptr) noexcept nogil:
    cdef int64_t i, longest = 1
    for i in range(ptr.shape[0] - 1):
        longest = max(longest, ptr[i + 1] - ptr[i])
    return longest


def chain_marginals(
    const floating[:, ::1] unary,  # IN (N, K)
    const int64_t[::1] ptr,  # IN (n_chains + 1,) first node of each chain
    object transitions,  # IN the fields of Transitions
    floating[:, ::1] posterior,  # OUT (N, K) marginals; no rows if not requested
    double[:, ::1] pairs,  # IN OUT (K, W) pair marginals over factor, added to; no rows if not requested
    double[::1] terms,  # OUT (N,) terms of log Z, or (0,) if not requested
    int32_t[::1] predicted,  # OUT (N,) most probable state
):
    """Compute the marginals; return False, with undefined results, if the score range is too wide."""
    cdef:
        Transitions shared = transitions_of(transitions)
        Chains[floating] chains
        int64_t longest = longest_of(ptr)
        vector[double] work
        bint fits
    chains.n_chains, chains.ptr, chains.stride = ptr.shape[0] - 1, &ptr[0], unary.shape[1]
    chains.unary, chains.predicted = &unary[0, 0], &predicted[0]
    if posterior.shape[0]:
        chains.posterior = &posterior[0, 0]
    if pairs.shape[0]:
        chains.pairs = &pairs[0, 0]
    if terms.shape[0]:
        chains.terms = &terms[0]
    with nogil:
        work.resize(pass_workspace(longest, shared.width))
        fits = ChainPass[floating](shared, chains, longest, work.data()).run()
    return fits


def predict_chains(
    const int64_t[:, ::1] batches,  # IN (n_batches, 7) the fields of ChainBatch
    const int64_t[:, ::1] blocks,  # IN (n_blocks, 4) the fields of PredictedBlock
    const floating[:, ::1] dense_weights,  # IN (C, F) in the type of the features; (0, 0) for sparse features
    const int64_t[::1] pair_ptr,  # IN (F + 1,) first pair of each sparse feature
    const int32_t[::1] pair_column,  # IN (P,) column of each pair, ascending for each feature
    const double[::1] pair_weights,  # IN (P,)
    const double[::1] intercept,  # IN (C,): C is 1 for two states, which share a column
    const double[:, ::1] ends,  # IN (2, K) added to the scores of the first and last node of chains; or (0, K)
    object transitions,  # IN the fields of Transitions
    const floating[:, ::1] best_table,  # IN (K, K) the table if best labelings are requested, else no rows
    const floating[:, ::1] best_factor,  # IN (K, W) transposed table minus its maximum, padded with -inf
    int32_t[::1] labels,  # OUT (N,) most probable state of each node, or the best labeling
    floating[:, ::1] posterior,  # OUT (N, K) marginals; no rows if not requested
    uint8_t[::1] failed,  # OUT (n_batches,) whether the score range is too wide or all labelings are forbidden
    int n_threads,
):
    """Predict the labels of the chains of all batches; labels of failed batches are undefined."""
    cdef:
        ChainPrediction[floating] chains
        DenseFeatures[floating] dense
        PairWeights[floating] sparse
        Threads threads = threads_of(n_threads)
    chains.transitions = transitions_of(transitions)
    if best_table.shape[0]:
        chains.table, chains.factor = &best_table[0, 0], &best_factor[0, 0]
    chains.n_columns, chains.intercept = intercept.shape[0], &intercept[0]
    if ends.shape[0]:
        chains.ends = &ends[0, 0]
    if dense_weights.shape[0]:
        dense.n_features, dense.weights, dense.blas = dense_weights.shape[1], &dense_weights[0, 0], &blas
        chains.dense = &dense
    else:
        sparse.n_columns, sparse.ptr = intercept.shape[0], &pair_ptr[0]
        sparse.column = &pair_column[0] if pair_weights.shape[0] else NULL
        sparse.weights = &pair_weights[0] if pair_weights.shape[0] else NULL
        chains.sparse = &sparse
    chains.batches, chains.n_batches = <const ChainBatch*> &batches[0, 0], batches.shape[0]
    chains.blocks, chains.n_blocks = <const PredictedBlock*> &blocks[0, 0], blocks.shape[0]
    chains.labels, chains.failed = &labels[0], &failed[0]
    if posterior.shape[0]:
        chains.posterior = &posterior[0, 0]
    with nogil:
        chains.run(threads)


# Marginals, best labelings and samples of chains that score the runs of labels (semi-Markov chains).

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
        const Real* means
        int64_t least
        const int64_t* blocks
        int64_t n_blocks

    cdef cppclass SegmentMarginals[Real]:
        SegmentMarginals(
            const SegmentChains[Real]&, const Transitions*, const RunFactors*, Real*, Real*, Real*, Real*, double*,
            double*, int64_t
        )
        int64_t run(const Threads&) except +*

    int64_t sum_segments[Real](const SegmentChains[Real]&, const Threads&, double*) except +*
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
        const floating[:, ::1] means = fields[8]  # (N, K) scores whose means are scores of runs, or (0, K)
        int64_t least = fields[9]  # least duration of runs that do not touch an end of their chain
        const int64_t[::1] blocks = fields[10]  # (n_blocks + 1,) first chain of each block
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
    made.means = &means[0, 0] if means.shape[0] else NULL
    made.least, made.blocks, made.n_blocks = least, &blocks[0], blocks.shape[0] - 1
    return made


def segment_marginals(
    const floating[:, ::1] unary,  # IN (N, K), N > 0
    tuple fields,  # IN the arrays of chains_of
    object runs,  # IN a RunTransitions if all chains share one table and one table of durations, or None
    floating[:, ::1] posterior,  # OUT (N, K)
    floating[:, :, ::1] ends,  # OUT (2, N, K) probabilities that a run begins, or ends, at a node; or (0, N, K)
    floating[:, :, ::1] spans,  # IN/OUT (N, D - 1, K) zeros; probabilities of single runs; or (N, 0, K)
    floating[:, ::1] means,  # OUT (N, K) expected weight of each node in the means of runs; or (0, K)
    double[::1] terms,  # OUT (N,) terms of log Z
    double[:, ::1] sums,  # OUT (n_blocks, T R K K + S K D); the first row has the expected counts
    int n_threads,
):
    """Compute the marginals; return a chain whose labelings are all forbidden, or -1."""
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
            &means[0, 0] if means.shape[0] else NULL,
            &terms[0],
            &sums[0, 0],
            n_duration_types,
        ).run(threads)
    return failed


def log_partitions(
    const floating[:, ::1] unary,  # IN (N, K), N > 0
    tuple fields,  # IN the arrays of chains_of
    double[::1] log_z,  # OUT (n_chains,)
    int n_threads,
):
    """Compute the log-partition of each chain; return a chain whose labelings are all forbidden, or -1."""
    cdef:
        SegmentChains[floating] chains = chains_of(unary, fields)
        Threads threads = threads_of(n_threads)
        int64_t failed
    with nogil:
        failed = sum_segments(chains, threads, &log_z[0])
    return failed


def best_labels(
    const floating[:, ::1] unary,  # IN (N, K), N > 0
    tuple fields,  # IN the arrays of chains_of
    int32_t[::1] labels,  # OUT (N,)
    int n_threads,
):
    """Find the best labeling; return a chain whose labelings are all forbidden, or -1."""
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
    """Draw labelings; return a chain whose labelings are all forbidden, or -1."""
    cdef:
        SegmentChains[floating] chains = chains_of(unary, fields)
        Threads threads = threads_of(n_threads)
        int64_t failed
    with nogil:
        failed = sample_segments(chains, threads, uniform.shape[0], &uniform[0, 0], &labels[0, 0])
    return failed


# Likelihood of labelled chains and its gradient with respect to all weights, in one call for all batches.

cdef extern from "risk.hpp" namespace "crf" nogil:
    cdef cppclass SparseWeights[Real]:
        int64_t n_features
        const int64_t* pair_ptr
        const int32_t* pair_column
        const double* weights
        double* gradient
        const int32_t* row_of
        double* rows
        double* row_gradient

    cdef cppclass ChainBlock:
        pass

    cdef cppclass ChainPanel:
        pass

    cdef cppclass ChainRisk[Real]:
        Transitions transitions
        int64_t n_columns
        const double* intercept
        const double* ends
        const int64_t* ptr
        const int32_t* labels
        const double* weight
        const DenseFeatures[Real]* dense
        const SparseWeights[Real]* sparse
        const RunFactors* runs
        const ChainBlock* blocks
        const ChainPanel* panels
        int64_t n_panels
        double* columns
        int64_t most_kept
        const int32_t* range_ends
        int64_t n_ranges
        double* partial
        int run(const Threads&, double*) except +*


def risk_of_chains(
    const floating[:, ::1] dense_weights,  # IN (C, F) in the type of the features; (0, 0) for sparse features
    const int64_t[::1] pair_ptr,  # IN (F + 1,) first pair of each sparse feature
    const int32_t[::1] pair_column,  # IN (P,) column of each pair, ascending for each feature
    const double[::1] pair_weights,  # IN (P,)
    const int32_t[::1] row_of,  # IN (F,) row of features for which whole rows are faster than pairs, or -1
    double[:, :, ::1] rows,  # workspace (2, at least one, S) for these rows and their gradient
    const double[::1] intercept,  # IN (C,): C is 1 for two states, which share a column
    object runs,  # IN a RunTransitions
    const double[:, ::1] ends,  # IN (2, K) added to the scores of the first and last node of chains; or (0, K)
    const int64_t[::1] chains,  # IN (n_chains + 1,) first node of each chain
    const int32_t[::1] labels,  # IN (N,)
    const double[::1] chain_weight,  # IN (n_chains,), or (0,) if all are one
    const int64_t[:, ::1] blocks,  # IN (B, 2) first and last chain
    const int64_t[:, ::1] panels,  # IN (n_panels, 7) the fields of ChainPanel
    double[::1] columns,  # workspace: kept nodes times S, which is C padded as W is, or 1
    int64_t most_kept,  # largest number of nodes whose derivatives are kept at once
    const int32_t[::1] range_ends,  # IN ends of the feature ranges that threads process
    double[::1] gradient,  # IN OUT (P,) added to
    double[:, ::1] partial,  # workspace (B, S)
    double[::1] total,  # OUT (S,) loss, errors, intercepts, pairs (K, W), counts (K, K), runs, gradient (C, F)
    int n_threads,
):
    """Compute the weighted loss and its gradient; return False if the score range is too wide."""
    cdef:
        ChainRisk[floating] risk
        DenseFeatures[floating] dense
        SparseWeights[floating] sparse
        RunFactors factors
        Threads threads = threads_of(n_threads)
        int state
    risk.transitions = transitions_of(runs.pairs)
    risk.n_columns, risk.intercept = intercept.shape[0], &intercept[0]
    risk.ptr, risk.labels = &chains[0], &labels[0]
    risk.blocks, risk.partial = <const ChainBlock*> &blocks[0, 0], &partial[0, 0]
    risk.panels, risk.n_panels = <const ChainPanel*> &panels[0, 0], panels.shape[0]
    if ends.shape[0]:
        risk.ends = &ends[0, 0]
    if chain_weight.shape[0]:
        risk.weight = &chain_weight[0]
    if runs.scores is not None:
        factors = run_factors_of(runs)
        risk.runs = &factors
    if dense_weights.shape[0]:
        dense.n_features, dense.weights, dense.blas = dense_weights.shape[1], &dense_weights[0, 0], &blas
        risk.dense = &dense
    elif pair_weights.shape[0]:
        sparse.n_features, sparse.pair_ptr, sparse.pair_column = pair_ptr.shape[0] - 1, &pair_ptr[0], &pair_column[0]
        sparse.weights, sparse.gradient = &pair_weights[0], &gradient[0]
        sparse.row_of, sparse.rows, sparse.row_gradient = &row_of[0], &rows[0, 0, 0], &rows[1, 0, 0]
        risk.sparse, risk.columns, risk.most_kept = &sparse, &columns[0], most_kept
        risk.range_ends, risk.n_ranges = &range_ends[0], range_ends.shape[0]
    with nogil:
        state = risk.run(threads, &total[0])
    return state == 0
