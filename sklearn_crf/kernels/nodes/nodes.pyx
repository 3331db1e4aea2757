# distutils: language = c++
"""Losses of single nodes with dense features and their gradient, in one call for all batches."""

from cython cimport floating
from libc.stdint cimport int64_t

from sklearn_crf.kernels.core.blas cimport dgemm, sgemm
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pool cimport Threads, threads_of

cdef extern from "nodes.hpp" namespace "crf" nogil:
    cdef cppclass RowFeatures[Real]:
        int64_t width
        const double* weights
        DenseFeatures[Real] matrix
    cdef cppclass NodeBlock:
        pass
    cdef cppclass NodeRisk[Real]:
        RowFeatures[Real] features, neighbours
        int64_t n_classes
        const double* intercept
        const NodeBlock* blocks
        const int64_t* parts
        int64_t n_parts
        int64_t n_sums()
        void run(double*, const Threads&) except +


def losses_of_nodes(
    const int64_t[:, ::1] blocks,  # IN (n_blocks, 5) addresses of features (n, F), of sums over neighbours (n, M), of
    # labels (n,) int32 and of weights (n,) or 0, and n
    const int64_t[::1] parts,  # IN (n_parts + 1,) first block of each part
    int64_t n_classes,
    const double[:, ::1] weights,  # IN (C, F) weights of features; C is 1 for two classes (score differences)
    const floating[:, ::1] rounded,  # IN (C, F) weights in the precision of features
    const double[:, ::1] of_neighbours,  # IN (C, M)
    const floating[:, ::1] neighbours_rounded,  # IN (C, M)
    const double[::1] intercept,  # IN (C,) or empty
    double[::1] sums,  # OUT loss, weight of wrong labels, gradients (C, F), (C, M) and (C,)
    int n_threads,
):
    """Compute the loss and gradient, summed over the nodes of all blocks."""
    cdef:
        Threads threads = threads_of(n_threads)
        NodeRisk[floating] risk
    describe(&risk.features, weights, rounded)
    describe(&risk.neighbours, of_neighbours, neighbours_rounded)
    risk.n_classes, risk.n_parts = n_classes, parts.shape[0] - 1
    risk.intercept = &intercept[0] if intercept.shape[0] else NULL
    risk.blocks = <const NodeBlock*> &blocks[0, 0] if blocks.shape[0] else NULL
    risk.parts = &parts[0]
    sums[:] = 0
    with nogil:
        risk.run(&sums[0], threads)


cdef describe(RowFeatures[floating]* features, const double[:, ::1] weights, const floating[:, ::1] rounded):
    features.width = weights.shape[1]
    features.weights = &weights[0, 0] if weights.shape[1] else NULL
    features.matrix.n_features = weights.shape[1]
    features.matrix.weights = &rounded[0, 0] if rounded.shape[1] else NULL
    features.matrix.gemm = sgemm if floating is float else dgemm
    features.matrix.sum = dgemm
