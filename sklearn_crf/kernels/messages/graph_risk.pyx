# distutils: language = c++
"""Relaxed likelihood or marginals of graphs by tree-reweighted messages, in one call for all batches."""

from cython cimport floating
from libc.stdint cimport int64_t, uint8_t

from sklearn_crf.kernels.core.blas cimport dgemm, sgemm
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pool cimport Threads, threads_of

cdef extern from "messages/graph_risk.hpp" namespace "crf" nogil:
    cdef cppclass SweepPlan:
        int64_t n_combined, first, between
        double ridge, largest_growth
    cdef cppclass GraphBatch:
        pass
    cdef cppclass GraphExample:
        pass
    cdef cppclass GraphRisk[Real]:
        DenseFeatures[Real] features
        int64_t n_classes, n_types, n_features
        const Real* intercept
        const Real* tables
        bint is_potts
        const double* spread
        double largest_range, tol
        int64_t max_iter
        SweepPlan plan
        int64_t most_bytes
        const GraphBatch* batches
        int64_t n_batches
        const GraphExample* examples
        const double* weight
        const int64_t* blocks
        int64_t n_blocks
        double* sums
        unsigned char* failed
        int64_t n_sums()
        void run(const Threads&) except +


def risk_of_graphs(
    const int64_t[:, ::1] batches,  # IN (n_batches, 21) the fields of GraphBatch
    const int64_t[:, ::1] examples,  # IN (n_examples, 7) the fields of GraphExample
    const double[::1] weight,  # IN (n_examples,)
    const int64_t[::1] blocks,  # IN (n_blocks + 1,) first example of each block; a block lies within one batch
    int64_t n_classes,
    const floating[:, ::1] weights,  # IN (C, F) weights of features; C is 1 for two classes (score differences)
    const floating[::1] intercept,  # IN (C,) or empty
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    bint is_potts,  # whether all tables are Potts tables: one value on and one off the diagonal
    const double[:, ::1] spread,  # IN (T, R) range of the scores of each table
    double largest_range,  # largest score range of all messages to a node together
    double tol,
    int64_t max_iter,
    tuple plan,  # the fields of SweepPlan
    int64_t most_bytes,  # memory limit of extrapolations
    double[:, ::1] sums,  # OUT (n_blocks, S) loss, errors, gradients of intercepts, features and tables (T, R, K, K)
    uint8_t[::1] failed,  # OUT (n_examples,) whether messages did not converge, or the score range is too wide
    int n_threads,
):
    """Compute the loss and gradient of each block of examples, or marginals of graphs without labels.

    Sums of batches with failed examples, and marginals of failed examples, are undefined.
    """
    cdef:
        GraphRisk[floating] risk
        Threads threads = threads_of(n_threads)
    risk.features.n_features, risk.features.sum = weights.shape[1], dgemm
    risk.features.weights = &weights[0, 0] if weights.shape[1] else NULL
    risk.features.gemm = sgemm if floating is float else dgemm
    risk.n_classes, risk.n_types, risk.n_features = n_classes, tables.shape[0], tables.shape[1]
    risk.intercept = &intercept[0] if intercept.shape[0] else NULL
    risk.tables, risk.spread, risk.is_potts = &tables[0, 0, 0, 0], &spread[0, 0], is_potts
    risk.largest_range, risk.tol, risk.max_iter = largest_range, tol, max_iter
    risk.plan.n_combined, risk.plan.first, risk.plan.between, risk.plan.ridge, risk.plan.largest_growth = plan
    risk.most_bytes = most_bytes
    risk.batches, risk.n_batches = <const GraphBatch*> &batches[0, 0], batches.shape[0]
    risk.examples, risk.weight = <const GraphExample*> &examples[0, 0], &weight[0]
    risk.blocks, risk.n_blocks = &blocks[0], blocks.shape[0] - 1
    risk.sums, risk.failed = &sums[0, 0], &failed[0]
    with nogil:
        risk.run(threads)
