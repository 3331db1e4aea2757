"""Products of matrices of SciPy's BLAS, as addresses for C++."""

cdef void* sgemm
cdef void* dgemm
