"""Operations on vectors that are mostly short, by which a thread keeps Python's lock.

NumPy gives the lock away for arrays of more than 500 numbers. A thread that waits for it takes longer to wake up than
it takes to work through some thousands of numbers: these give it away for long vectors alone.
"""

from cython cimport floating
from libc.string cimport memcpy

cdef enum:
    LONG = 65536


cdef inline bint are_finite(const floating* values, Py_ssize_t n) noexcept nogil:
    cdef:
        Py_ssize_t i
        int finite = 1
    for i in range(n):
        finite &= values[i] - values[i] == 0
    return finite


def all_finite(
    const floating[::1] values,  # IN (n,)
):
    """Whether no value is infinite or NaN."""
    cdef bint finite = True
    if values.shape[0] > LONG:
        with nogil:
            finite = are_finite(&values[0], values.shape[0])
    elif values.shape[0]:
        finite = are_finite(&values[0], values.shape[0])
    return finite


def copy_values(
    const floating[::1] values,  # IN (n,)
    floating[::1] out,  # OUT (n,)
):
    """Copy values."""
    if values.shape[0] > LONG:
        with nogil:
            memcpy(&out[0], &values[0], values.shape[0] * sizeof(floating))
    elif values.shape[0]:
        memcpy(&out[0], &values[0], values.shape[0] * sizeof(floating))


cdef inline floating invert_values(const floating* values, Py_ssize_t n, floating* out) noexcept nogil:
    cdef:
        Py_ssize_t i
        floating least = values[0]
    for i in range(n):
        least = values[i] if values[i] < least else least
        out[i] = 1 / values[i]
    return least


def invert(
    const floating[::1] values,  # IN (n,), not empty
    floating[::1] out,  # OUT (n,)
):
    """Write the inverse of each value; returns the least value."""
    cdef floating least
    if values.shape[0] > LONG:
        with nogil:
            least = invert_values(&values[0], values.shape[0], &out[0])
    else:
        least = invert_values(&values[0], values.shape[0], &out[0])
    return least


cdef inline Py_ssize_t invert_all(
    const floating* blocks, Py_ssize_t n, Py_ssize_t D, double* a, floating* out
) noexcept nogil:
    cdef:
        Py_ssize_t s, i, j, k
        double pivot, factor
    for s in range(n):
        for i in range(D * D):
            a[i] = blocks[s * D * D + i]
        for k in range(D):
            # The variance of value k given those before it.
            if not a[k * D + k] > 0:
                return s
            pivot = 1 / a[k * D + k]
            a[k * D + k] = 1
            for j in range(D):
                a[k * D + j] *= pivot
            for i in range(D):
                if i != k:
                    factor = a[i * D + k]
                    a[i * D + k] = 0
                    for j in range(D):
                        a[i * D + j] -= factor * a[k * D + j]
        for i in range(D * D):
            out[s * D * D + i] = <floating> a[i]
    return n


def invert_blocks(
    const floating[:, :, ::1] blocks,  # IN (n, D, D)
    double[:, ::1] workspace,  # OUT (D, D)
    floating[:, :, ::1] out,  # OUT (n, D, D)
):
    """Write the inverse of each symmetric matrix; returns how many come before the first that is not positive definite.
    """
    cdef Py_ssize_t n_sound = 0, n = blocks.shape[0], D = blocks.shape[1]
    if n * D * D * D > LONG:
        with nogil:
            n_sound = invert_all(&blocks[0, 0, 0], n, D, &workspace[0, 0], &out[0, 0, 0])
    elif n:
        n_sound = invert_all(&blocks[0, 0, 0], n, D, &workspace[0, 0], &out[0, 0, 0])
    return n_sound
