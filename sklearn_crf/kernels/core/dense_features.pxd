"""Dense features of nodes and their products with weights, in C++."""

from libc.stdint cimport int64_t

from sklearn_crf.kernels.core.blas cimport Blas

cdef extern from "core/dense_features.hpp" namespace "crf" nogil:
    cdef cppclass DenseFeatures[Real]:
        int64_t n_features
        const Real* weights
        const Blas* blas
