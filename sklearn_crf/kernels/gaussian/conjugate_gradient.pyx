"""The vector operations of one iteration of preconditioned conjugate gradients.

Nodes are in ranges whose sums are kept apart, so that a total does not depend on which thread added what.
"""

from cython cimport floating
from libc.stdint cimport int64_t


cdef inline double dot(const floating* a, const floating* b, Py_ssize_t n) noexcept nogil:
    """Sum of a * b in float64, in an order that depends on n alone.

    Eight sums run side by side, as one would wait for each addition.
    """
    cdef:
        double[8] lane
        double total = 0.0
        Py_ssize_t i, k
    for k in range(8):
        lane[k] = 0.0
    for i in range(n // 8):
        for k in range(8):
            lane[k] += <double> a[8 * i + k] * <double> b[8 * i + k]
    for k in range(8):
        total += lane[k]
    for i in range(n - n % 8, n):
        total += <double> a[i] * <double> b[i]
    return total


cdef inline void add_multiple(floating factor, const floating* a, Py_ssize_t n, floating* out) noexcept nogil:
    """out += factor * a."""
    cdef Py_ssize_t i
    for i in range(n):
        out[i] += factor * a[i]


cdef inline void multiply_blocks(const floating* blocks, const floating* a, Py_ssize_t n, Py_ssize_t D,
                                 floating* out) noexcept nogil:
    """out = blocks times a, node by node."""
    cdef Py_ssize_t s, i, j
    if D == 1:
        for s in range(n):
            out[s] = blocks[s] * a[s]
        return
    for s in range(n):
        for i in range(D):
            out[s * D + i] = 0
            for j in range(D):
                out[s * D + i] += blocks[(s * D + i) * D + j] * a[s * D + j]


def inner_product(
    const floating[:, ::1] a,  # IN (N, D)
    const floating[:, ::1] b,  # IN (N, D)
    const int64_t[::1] bounds,  # IN (n_ranges + 1,) nodes of range k are bounds[k] to bounds[k + 1]
    Py_ssize_t start,
    Py_ssize_t stop,  # ranges start to stop
    double[:, ::1] sums,  # OUT (n_ranges, ...)
):
    """Sums of a * b over the nodes of ranges, in float64."""
    cdef Py_ssize_t k, D = a.shape[1]
    if a.shape[0] == 0:
        return
    with nogil:
        for k in range(start, stop):
            sums[k, 0] = dot(&a[bounds[k], 0], &b[bounds[k], 0], (bounds[k + 1] - bounds[k]) * D)


def take_step(
    double length,
    const floating[:, ::1] direction,  # IN (N, D)
    const floating[:, ::1] product,  # IN (N, D) precision times direction
    const floating[:, :, ::1] inverse,  # IN (N, D, D) inverse diagonal blocks
    const int64_t[::1] bounds,  # IN (n_ranges + 1,) nodes of range k are bounds[k] to bounds[k + 1]
    Py_ssize_t start,
    Py_ssize_t stop,  # ranges start to stop
    floating[:, ::1] solution,  # IN OUT (N, D)
    floating[:, ::1] residual,  # IN OUT (N, D)
    floating[:, ::1] scaled,  # OUT (N, D) inverse times residual
    double[:, ::1] sums,  # OUT (n_ranges, 2) of residual * scaled and of residual ** 2
):
    """Move the solution along the direction."""
    cdef Py_ssize_t k, first, n, D = direction.shape[1]
    if direction.shape[0] == 0:
        return
    with nogil:
        for k in range(start, stop):
            first, n = bounds[k], (bounds[k + 1] - bounds[k]) * D
            add_multiple(<floating> length, &direction[first, 0], n, &solution[first, 0])
            add_multiple(<floating> -length, &product[first, 0], n, &residual[first, 0])
            multiply_blocks(&inverse[first, 0, 0], &residual[first, 0], bounds[k + 1] - first, D, &scaled[first, 0])
            sums[k, 0] = dot(&residual[first, 0], &scaled[first, 0], n)
            sums[k, 1] = dot(&residual[first, 0], &residual[first, 0], n)


def turn(
    double share,
    const floating[:, ::1] scaled,  # IN (N, D)
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] direction,  # IN OUT (N, D)
):
    """direction = scaled + share * direction."""
    cdef:
        Py_ssize_t i
        floating kept = <floating> share
        const floating* a
        floating* b
    if start < stop:
        with nogil:
            a, b = &scaled[start, 0], &direction[start, 0]
            for i in range((stop - start) * scaled.shape[1]):
                b[i] = a[i] + kept * b[i]
