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
