"""Checks and joins of many short arrays and matrices, and cuts of an array into copies, faster than with NumPy."""

from cpython.ref cimport Py_INCREF
from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cimport numpy as cnp

import numpy as np

cdef extern from "numpy/arrayobject.h":
    object PyArray_Empty(int, cnp.npy_intp*, cnp.dtype, int)

cnp.import_array()


def lengths_of_matrices(list arrays, dtype):
    """Return the lengths and addresses of matrices, or None unless all are contiguous, with one dtype and one width.

    Addresses, (n, 1), are valid as long as the arrays exist. None is also returned if a matrix is empty.
    """
    cdef:
        cnp.ndarray one
        cnp.npy_intp n_columns = -1
        Py_ssize_t i
        int64_t[::1] lengths = np.empty(len(arrays), dtype=np.int64)
        int64_t[:, ::1] places = np.empty((len(arrays), 1), dtype=np.int64)
    for i, one in enumerate(arrays):
        if one.ndim != 2 or not cnp.PyArray_IS_C_CONTIGUOUS(one):
            return None
        if n_columns < 0:
            n_columns = cnp.PyArray_DIM(one, 1)
        if cnp.PyArray_DIM(one, 1) != n_columns or not cnp.PyArray_SIZE(one) or not is_of(one, dtype):
            return None
        lengths[i], places[i, 0] = cnp.PyArray_DIM(one, 0), <Py_ssize_t> cnp.PyArray_DATA(one)
    return lengths.base, places.base


cdef inline bint is_of(cnp.ndarray array, object dtype):
    return array.dtype is dtype or array.dtype == dtype


def one_of_each_type(items):
    """Return a dict with one item of each type."""
    cdef:
        object one, last = None
        dict found = {}
    for one in items:
        if type(one) is not last:
            last = type(one)
            found[last] = one
    return found


def rows_of_matrices(list matrices, dtype):
    """Return the lengths, addresses and arrays of CSR matrices, or None unless all have one dtype and one width.

    A row of addresses, (n, 4), holds the addresses of values, indices and pointers, and the number of values. Addresses
    are valid as long as the arrays exist. Each matrix has three arrays, whose entries are not checked.
    """
    cdef:
        Py_ssize_t i, n_columns = -1
        object one
        tuple shape
        cnp.ndarray values, indices, pointers
        list arrays = []
        int64_t[::1] lengths = np.empty(len(matrices), dtype=np.int64)
        int64_t[:, ::1] places = np.empty((len(matrices), 4), dtype=np.int64)
    for i, one in enumerate(matrices):
        # Reading the property ``shape`` would take longer than all other steps of this loop.
        shape = one._shape
        if len(shape) != 2:
            return None
        if n_columns < 0:
            n_columns = shape[1]
        values, indices, pointers = one.data, narrow(one.indices), narrow(one.indptr)
        lengths[i], places[i, 3] = shape[0], values.shape[0]
        if shape[1] != n_columns or not n_columns or not lengths[i] or indices is None or pointers is None:
            return None
        if values.ndim != 1 or not cnp.PyArray_ISCARRAY_RO(values) or not is_of(values, dtype):
            return None
        if indices.shape[0] != places[i, 3] or pointers.shape[0] != lengths[i] + 1:
            return None
        places[i, 0], places[i, 1] = <Py_ssize_t> cnp.PyArray_DATA(values), <Py_ssize_t> cnp.PyArray_DATA(indices)
        places[i, 2] = <Py_ssize_t> cnp.PyArray_DATA(pointers)
        arrays += values, indices, pointers
    return lengths.base, places.base, arrays


cdef cnp.ndarray narrow(cnp.ndarray numbers):
    """Return a one-dimensional array of integers as int32, or None if that is not possible."""
    cdef bint are_signed = cnp.PyTypeNum_ISSIGNED(cnp.PyArray_TYPE(numbers))
    if numbers.ndim != 1 or not are_signed or not cnp.PyArray_ISCARRAY_RO(numbers):
        return None
    if cnp.PyArray_ITEMSIZE(numbers) == sizeof(int32_t):
        return numbers
    narrowed = numbers.astype(np.int32)
    return narrowed if np.array_equal(narrowed, numbers) else None


def are_sound_rows(const int64_t[:, ::1] places, const int64_t[::1] lengths, Py_ssize_t n_columns, dtype):
    """Return whether all CSR matrices have valid indices, ascending pointers and finite values."""
    cdef:
        Py_ssize_t i, k
        bint are_double = dtype == np.float64, found = True
        const int32_t* pointers
        const int32_t* indices
    with nogil:
        for i in range(places.shape[0]):
            indices, pointers = <const int32_t*> <Py_ssize_t> places[i, 1], <const int32_t*> <Py_ssize_t> places[i, 2]
            found = pointers[0] == 0 and pointers[lengths[i]] == places[i, 3]
            for k in range(lengths[i]):
                found &= pointers[k] <= pointers[k + 1]
            # Viewed as unsigned, negative indices are too large as well.
            for k in range(places[i, 3]):
                found &= <uint32_t> indices[k] < <size_t> n_columns
            if are_double:
                found = found and is_finite(<const double*> <Py_ssize_t> places[i, 0], places[i, 3])
            else:
                found = found and is_finite(<const float*> <Py_ssize_t> places[i, 0], places[i, 3])
            if not found:
                break
    return found


def joined_rows(
    const int64_t[:, ::1] places,  # IN (n, 4)
    const int64_t[::1] lengths,  # IN (n,)
    floating[::1] values,  # OUT (nnz,)
    int32_t[::1] indices,  # OUT (nnz,)
    int64_t[::1] pointers,  # OUT (N + 1,)
):
    """Write valid CSR matrices one after the other into the arrays of one matrix."""
    cdef:
        Py_ssize_t i, k, row = 0
        int64_t start = 0, n
        const int32_t* own
        floating* all_values = &values[0] if values.shape[0] else NULL
        int32_t* all_indices = &indices[0] if indices.shape[0] else NULL
    pointers[0] = 0
    with nogil:
        for i in range(places.shape[0]):
            n = places[i, 3]
            if n:
                memcpy(all_values + start, <const void*> <Py_ssize_t> places[i, 0], n * sizeof(floating))
                memcpy(all_indices + start, <const void*> <Py_ssize_t> places[i, 1], n * sizeof(int32_t))
            own = <const int32_t*> <Py_ssize_t> places[i, 2]
            for k in range(lengths[i]):
                pointers[row + k + 1] = start + own[k + 1]
            row += lengths[i]
            start += n


def are_finite(const int64_t[:, ::1] places, const int64_t[::1] sizes, dtype):
    """Return whether arrays of float32 or float64, given by address and size, hold neither NaN nor infinity."""
    cdef:
        Py_ssize_t i
        bint are_double = dtype == np.float64, found = True
    with nogil:
        for i in range(places.shape[0]):
            if are_double:
                found = is_finite(<const double*> <Py_ssize_t> places[i, 0], sizes[i])
            else:
                found = is_finite(<const float*> <Py_ssize_t> places[i, 0], sizes[i])
            if not found:
                break
    return found


cdef bint is_finite(const floating* values, Py_ssize_t size) noexcept nogil:
    # A number minus itself is 0, or NaN if it is not finite, and the sum keeps a NaN. With eight partial sums the loop
    # is as fast as memory allows.
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
    """Return the concatenation of arrays along the first axis, or None unless all are contiguous and have one dtype."""
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
            raise ValueError("all arrays must have the same shape, except along the first axis.")
        place = <char*> cnp.PyArray_DATA(whole)
        with nogil:
            for i in range(n):
                memcpy(place, sources[i], sizes[i])
                place += sizes[i]
    finally:
        free(sources)
        free(sizes)
    return whole


def copy_parts(cnp.ndarray values, const int64_t[::1] ptr, object[::1] parts):
    """Set ``parts[i]`` to a copy of ``values[ptr[i]:ptr[i + 1]]``; values are one-dimensional and not objects."""
    cdef:
        Py_ssize_t i, size = values.itemsize
        cnp.npy_intp length
        cnp.dtype kind = values.dtype
        object part
        const char* source = <const char*> cnp.PyArray_DATA(values)
    if values.ndim != 1 or not cnp.PyArray_IS_C_CONTIGUOUS(values) or kind.hasobject:
        raise ValueError("values must be a contiguous one-dimensional array without objects.")
    if ptr[0] < 0 or ptr[ptr.shape[0] - 1] > len(values) or parts.shape[0] != ptr.shape[0] - 1:
        raise ValueError("ptr must hold indices into values, and one entry more than parts.")
    for i in range(ptr.shape[0] - 1):
        length = ptr[i + 1] - ptr[i]
        if length < 0:
            raise ValueError("ptr must ascend.")
        Py_INCREF(kind)  # the new array takes over this reference
        part = PyArray_Empty(1, &length, kind, 0)
        memcpy(cnp.PyArray_DATA(<cnp.ndarray> part), source + ptr[i] * size, length * size)
        parts[i] = part
