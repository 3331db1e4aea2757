"""Preconditioned conjugate gradients: the operations of one iteration for ranges of nodes, and all on a lattice."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.gaussian.iterations cimport Lattice, Progress, dot, iterate, step_along, turned


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
        Py_ssize_t made = 0
        Lattice of
        Progress at
    if solution.shape[0] == 0:
        return 0, 1.0, 0.0, 0.0, 0.0
    of.diagonal, of.D = &diagonal[0, 0, 0], solution.shape[1]
    of.edge_weight = &edge_weight[0] if edge_weight.shape[0] else NULL
    of.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    of.blocks = &blocks[0, 0, 0] if blocks.shape[0] else NULL
    of.offsets, of.n_offsets = &offsets[0, 0] if offsets.shape[0] else NULL, offsets.shape[0]
    of.depth, of.height, of.width = depth, height, width
    at.begins, at.weighted, at.squared, at.scale, at.curvature = begins, weighted, squared, scale, 1.0
    with nogil:
        made = iterate(&of, &b[0, 0], &inverse[0, 0, 0], &bounds[0], bounds.shape[0] - 1, n_iter, tol, &at,
                       &solution[0, 0], &residual[0, 0], &direction[0, 0], &product[0, 0], &scaled[0, 0])
    return made, at.curvature, at.weighted, at.squared, at.scale
