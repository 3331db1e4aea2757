"""Weights of a sparse model, one for each stored pair of a feature and a column of scores, in C++."""

from libc.stdint cimport int32_t, int64_t

cdef extern from "core/pair_weights.hpp" namespace "crf" nogil:
    cdef cppclass PairWeights[Real]:
        int64_t n_columns
        const int64_t* ptr
        const int32_t* column
        const double* weights
        void add_scores(const int32_t*, const Real*, int64_t, double*)
