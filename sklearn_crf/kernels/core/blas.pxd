"""Products of SciPy's BLAS, for use in C++."""

from libc.stdint cimport int64_t

cdef extern from "core/blas.hpp" namespace "crf" nogil:
    cdef cppclass Blas:
        void* dgemm
        void* dgemv
        void multiply(
            char, char, int64_t, int64_t, int64_t, const double*, int64_t, const double*, int64_t, double, double*,
            int64_t
        )

cdef Blas blas
