"""The vector operations of one iteration of preconditioned conjugate gradients.

Nodes are in ranges whose sums are kept apart, so that a total does not depend on which thread added what.
"""

from cython cimport floating
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from sklearn_crf.kernels.gaussian.stencil cimport stencil_row


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


cdef inline void step_along(
    floating length, Py_ssize_t n, Py_ssize_t D, const floating* direction, const floating* product,
    const floating* inverse, floating* solution, floating* residual, floating* scaled, double* sums,
) noexcept nogil:
    """Move the solution of n nodes along the direction; sums of residual * scaled and of residual ** 2."""
    add_multiple(length, direction, n * D, solution)
    add_multiple(-length, product, n * D, residual)
    multiply_blocks(inverse, residual, n, D, scaled)
    sums[0] = dot(residual, scaled, n * D)
    sums[1] = dot(residual, residual, n * D)


cdef inline void turned(floating share, const floating* scaled, Py_ssize_t n, floating* direction) noexcept nogil:
    """direction = scaled + share * direction."""
    cdef Py_ssize_t i
    for i in range(n):
        direction[i] = scaled[i] + share * direction[i]


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
    cdef Py_ssize_t k, first
    if direction.shape[0] == 0:
        return
    with nogil:
        for k in range(start, stop):
            first = bounds[k]
            step_along(<floating> length, bounds[k + 1] - first, direction.shape[1], &direction[first, 0],
                       &product[first, 0], &inverse[first, 0, 0], &solution[first, 0], &residual[first, 0],
                       &scaled[first, 0], &sums[k, 0])


def turn(
    double share,
    const floating[:, ::1] scaled,  # IN (N, D)
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] direction,  # IN OUT (N, D)
):
    """direction = scaled + share * direction."""
    if start < stop:
        with nogil:
            turned(<floating> share, &scaled[start, 0], (stop - start) * scaled.shape[1], &direction[start, 0])


def solve_on_lattice(
    Py_ssize_t n_iter,  # most iterations
    double tol,  # norm of the residual, as a share of that of the right-hand side, at which to stop
    bint begins,  # whether this is the first call for the right-hand side
    double weighted,
    double squared,
    double scale,  # as the last call returned them
    const floating[:, ::1] b,  # IN (N, D) right-hand side
    const floating[:, :, ::1] diagonal,  # IN (N, D, D)
    const floating[::1] edge_weight,  # IN (E,) where D is 1, else empty
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[:, ::1] offsets,  # IN (n_offsets, 3) slices, rows and columns; edges are grouped by offset
    Py_ssize_t depth,
    Py_ssize_t height,
    Py_ssize_t width,
    const floating[:, :, ::1] inverse,  # IN (N, D, D) inverse diagonal blocks
    const int64_t[::1] bounds,  # IN (n_ranges + 1,) nodes of range k are bounds[k] to bounds[k + 1]
    floating[:, ::1] solution,  # IN OUT (N, D)
    floating[:, ::1] residual,  # IN OUT (N, D)
    floating[:, ::1] direction,  # IN OUT (N, D)
    floating[:, ::1] product,  # OUT (N, D)
    floating[:, ::1] scaled,  # OUT (N, D)
):
    """Iterations made, the curvature along the last direction, and after them the inner products of the residual with
    the scaled one and with itself, and the norm of the right-hand side.

    The same numbers as by the functions above, in one call: those of small lattices are short, and threads would hand
    the lock of the interpreter to and fro. Iterations end at a direction without curvature.
    """
    cdef:
        Py_ssize_t i, k, made = 0, D = solution.shape[1], n = solution.shape[0] * D
        double curvature = 1.0, former = 1.0
        double[2] sums
        const floating* weight = &edge_weight[0] if edge_weight.shape[0] else NULL
        const int32_t* kind = &edge_type[0] if edge_type.shape[0] else NULL
        const floating* block = &blocks[0, 0, 0] if blocks.shape[0] else NULL
        const int64_t* offset = &offsets[0, 0] if offsets.shape[0] else NULL
        const floating* along
    if n == 0:
        return 0, 1.0, 0.0, 0.0, 0.0
    with nogil:
        while begins or (made < n_iter and not squared <= (tol * scale) * (tol * scale)):
            along = &solution[0, 0] if begins else &direction[0, 0]
            for i in range(depth * height):
                stencil_row(i, &diagonal[0, 0, 0], weight, kind, block, offset, offsets.shape[0], depth, height, width,
                            D, along, &product[0, 0])
            curvature = 0.0
            for k in range(bounds.shape[0] - 1):
                i = bounds[k]
                if begins:
                    curvature += dot(&b[i, 0], &b[i, 0], (bounds[k + 1] - i) * D)
                else:
                    curvature += dot(&direction[i, 0], &product[i, 0], (bounds[k + 1] - i) * D)
            if begins:
                scale = sqrt(curvature)
                if scale == 0.0:
                    memset(&solution[0, 0], 0, n * sizeof(floating))
                    break
                for i in range(n):
                    (&residual[0, 0])[i] = (&b[0, 0])[i] - (&product[0, 0])[i]
                memset(&direction[0, 0], 0, n * sizeof(floating))
            elif curvature <= 0.0:
                break
            former, weighted, squared = weighted, 0.0, 0.0
            for k in range(bounds.shape[0] - 1):
                i = bounds[k]
                step_along(<floating> (0.0 if begins else former / curvature), bounds[k + 1] - i, D, &direction[i, 0],
                           &product[i, 0], &inverse[i, 0, 0], &solution[i, 0], &residual[i, 0], &scaled[i, 0], &sums[0])
                weighted += sums[0]
                squared += sums[1]
            turned(<floating> (0.0 if begins else weighted / former), &scaled[0, 0], n, &direction[0, 0])
            made += 0 if begins else 1
            begins, curvature = False, 1.0
    return made, curvature, weighted, squared, scale
