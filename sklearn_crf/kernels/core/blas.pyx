"""Addresses of the products of SciPy's BLAS for use in C++, and products of rows with the same bits in any company."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from cython cimport floating
from libc.stdint cimport int64_t

from scipy.linalg import cython_blas


# Looked up at import, not by ``cimport``, so that building does not require SciPy.
cdef void* address_of(name):
    capsule = cython_blas.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


blas.dgemm, blas.dgemv = address_of("dgemm"), address_of("dgemv")

cdef extern from "core/scored_rows.hpp" namespace "crf" nogil:
    void write_products "crf::score_rows"[Real](
        const Real*, int64_t, int64_t, const Real*, int64_t, int64_t, Real*
    )


def score_rows(
    const floating[:, ::1] rows,  # IN (n, F)
    const floating[:, ::1] weights,  # IN (C, F)
    floating[:, ::1] products,  # OUT (n, C)
):
    """Write the products of rows with the weights of each column."""
    cdef int64_t n = rows.shape[0], n_features = rows.shape[1], n_columns = weights.shape[0]
    if n == 0 or n_columns == 0:
        return
    if n_features == 0:
        products[:, :] = 0
        return
    with nogil:
        write_products(&rows[0, 0], n, n_features, &weights[0, 0], n_columns, n_columns, &products[0, 0])
