"""The vector operations of one iteration of preconditioned conjugate gradients, on a range of nodes."""

from cython cimport floating


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
    Py_ssize_t start,
    Py_ssize_t stop,
):
    """Sum of a * b over nodes start to stop, in float64."""
    cdef double total = 0.0
    if start < stop:
        with nogil:
            total = dot(&a[start, 0], &b[start, 0], (stop - start) * a.shape[1])
    return total


def take_step(
    double length,
    const floating[:, ::1] direction,  # IN (N, D)
    const floating[:, ::1] product,  # IN (N, D) precision times direction
    const floating[:, :, ::1] inverse,  # IN (N, D, D) inverse diagonal blocks
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] solution,  # IN OUT (N, D)
    floating[:, ::1] residual,  # IN OUT (N, D)
    floating[:, ::1] scaled,  # OUT (N, D) inverse times residual
):
    """Move the solution along the direction; the sums of residual * scaled and of residual ** 2."""
    cdef:
        Py_ssize_t D = direction.shape[1], n = (stop - start) * D
        double weighted = 0.0, squared = 0.0
    if start < stop:
        with nogil:
            add_multiple(<floating> length, &direction[start, 0], n, &solution[start, 0])
            add_multiple(<floating> -length, &product[start, 0], n, &residual[start, 0])
            multiply_blocks(&inverse[start, 0, 0], &residual[start, 0], stop - start, D, &scaled[start, 0])
            weighted = dot(&residual[start, 0], &scaled[start, 0], n)
            squared = dot(&residual[start, 0], &residual[start, 0], n)
    return weighted, squared


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
