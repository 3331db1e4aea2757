"""Addresses of the products of SciPy's BLAS, for use in C++."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

from scipy.linalg import cython_blas


# Looked up at import, not by ``cimport``, so that building does not require SciPy.
cdef void* address_of(name):
    capsule = cython_blas.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


blas.sgemm, blas.dgemm = address_of("sgemm"), address_of("dgemm")
blas.sgemv, blas.dgemv = address_of("sgemv"), address_of("dgemv")
