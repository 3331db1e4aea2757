"""Many short arrays looked at and joined, and one cut into copies: NumPy takes longer for each than to copy it."""

from cpython.ref cimport Py_INCREF
from cython cimport floating
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cimport numpy as cnp

import numpy as np

cdef extern from "numpy/arrayobject.h":
    object PyArray_Empty(int, cnp.npy_intp*, cnp.dtype, int)

cnp.import_array()


def lengths_of_matrices(list arrays, dtype):
    """Rows of contiguous matrices of one type and as many columns; None if there are others, or if one is empty."""
    cdef:
        cnp.ndarray one
        cnp.npy_intp n_columns = -1
        list lengths = []
    for one in arrays:
        if one.ndim != 2 or not cnp.PyArray_IS_C_CONTIGUOUS(one):
            return None
        if n_columns < 0:
            n_columns = cnp.PyArray_DIM(one, 1)
        if cnp.PyArray_DIM(one, 1) != n_columns or not cnp.PyArray_SIZE(one) or one.dtype != dtype:
            return None
        lengths.append(cnp.PyArray_DIM(one, 0))
    return lengths


def are_finite(list arrays):
    """Whether contiguous arrays of float32 or of float64 hold neither NaN nor infinity."""
    cdef:
        Py_ssize_t n = len(arrays), i
        cnp.ndarray one
        bint are_double = arrays[0].dtype == np.float64, found = True
        const void** sources = <const void**> malloc(n * sizeof(void*))
        Py_ssize_t* sizes = <Py_ssize_t*> malloc(n * sizeof(Py_ssize_t))
    if sources == NULL or sizes == NULL:
        free(sources)
        free(sizes)
        raise MemoryError
    for i in range(n):
        one = <cnp.ndarray> arrays[i]
        sources[i], sizes[i] = cnp.PyArray_DATA(one), cnp.PyArray_SIZE(one)
    with nogil:
        for i in range(n):
            if are_double:
                found = is_finite(<const double*> sources[i], sizes[i])
            else:
                found = is_finite(<const float*> sources[i], sizes[i])
            if not found:
                break
    free(sources)
    free(sizes)
    return found


cdef bint is_finite(const floating* values, Py_ssize_t size) noexcept nogil:
    # A number less itself is 0, or NaN where it is not finite, which the sum keeps: lanes let it run at memory's pace.
    cdef:
        floating[8] lanes
        Py_ssize_t i, k
        floating total = 0
    for k in range(8):
        lanes[k] = 0
    for i in range(size // 8):
        for k in range(8):
            lanes[k] += values[8 * i + k] - values[8 * i + k]
    for i in range(size - size % 8, size):
        total += values[i] - values[i]
    for k in range(8):
        total += lanes[k]
    return total == 0


def joined_arrays(list arrays):
    """Arrays of one type and one shape but for the first axis, one after the other; None if one is not contiguous or of
    another type.
    """
    cdef:
        Py_ssize_t n = len(arrays), i
        object kind = arrays[0].dtype
        cnp.ndarray one, whole
        size_t total = 0
        const char** sources = <const char**> malloc(n * sizeof(char*))
        size_t* sizes = <size_t*> malloc(n * sizeof(size_t))
        char* place
    if sources == NULL or sizes == NULL:
        free(sources)
        free(sizes)
        raise MemoryError
    try:
        for i in range(n):
            one = arrays[i]
            if not cnp.PyArray_IS_C_CONTIGUOUS(one) or (one.dtype is not kind and one.dtype != kind):
                return None
            sources[i], sizes[i] = <const char*> cnp.PyArray_DATA(one), cnp.PyArray_NBYTES(one)
            total += sizes[i]
        whole = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), kind)
        if cnp.PyArray_NBYTES(whole) != <cnp.npy_intp> total:
            raise ValueError("arrays must be of one shape but for the first axis.")
        place = <char*> cnp.PyArray_DATA(whole)
        with nogil:
            for i in range(n):
                memcpy(place, sources[i], sizes[i])
                place += sizes[i]
    finally:
        free(sources)
        free(sizes)
    return whole


def copied_parts(cnp.ndarray values, const int64_t[::1] ptr):
    """Copies of ``values[ptr[i]:ptr[i + 1]]``, of an array of one axis that holds no objects."""
    cdef:
        Py_ssize_t i, size = values.itemsize
        cnp.npy_intp length
        cnp.dtype kind = values.dtype
        cnp.ndarray part
        list parts = []
        const char* source = <const char*> cnp.PyArray_DATA(values)
    if values.ndim != 1 or not cnp.PyArray_IS_C_CONTIGUOUS(values) or kind.hasobject:
        raise ValueError("values must be contiguous, of one axis, and no objects.")
    if ptr[0] < 0 or ptr[ptr.shape[0] - 1] > len(values):
        raise ValueError("ptr must lie inside of values.")
    for i in range(ptr.shape[0] - 1):
        length = ptr[i + 1] - ptr[i]
        if length < 0:
            raise ValueError("ptr must ascend.")
        Py_INCREF(kind)  # which the new array takes over
        part = PyArray_Empty(1, &length, kind, 0)
        memcpy(cnp.PyArray_DATA(part), source + ptr[i] * size, length * size)
        parts.append(part)
    return parts
