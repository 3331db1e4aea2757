"""Addresses of the matrix products of SciPy's BLAS, for use in C++."""

cdef void* sgemm
cdef void* dgemm
