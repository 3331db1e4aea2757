# distutils: language = c++
"""Marginals and labels of chains that share one table."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.chains.chains cimport ChainPass, Chains, Transitions, pass_workspace, transitions_of
from sklearn_crf.kernels.core.blas cimport dgemm, sgemm
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pair_weights cimport PairWeights
from sklearn_crf.kernels.core.pool cimport Threads, threads_of

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
        dense.n_features, dense.weights = dense_weights.shape[1], &dense_weights[0, 0]
        dense.gemm = sgemm if floating is float else dgemm
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
