# distutils: language = c++
"""Likelihood of labelled chains and its gradient with respect to all weights, in one call for all batches."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.chains.chains cimport RunFactors, Transitions, run_factors_of, transitions_of
from sklearn_crf.kernels.core.blas cimport dgemm, sgemm
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pool cimport Threads, threads_of

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
        dense.n_features, dense.weights, dense.sum = dense_weights.shape[1], &dense_weights[0, 0], dgemm
        dense.gemm = sgemm if floating is float else dgemm
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
