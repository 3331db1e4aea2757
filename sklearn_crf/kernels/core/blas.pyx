"""Products of matrices of SciPy's BLAS, as addresses for C++."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

from scipy.linalg import cython_blas


# Found when it is imported, and not by ``cimport``: SciPy need not be there to build this.
cdef void* address_of(name):
    capsule = cython_blas.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


sgemm = address_of("sgemm")
dgemm = address_of("dgemm")
