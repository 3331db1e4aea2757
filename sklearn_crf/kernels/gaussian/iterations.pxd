"""Iterations of preconditioned conjugate gradients, for kernels that solve linear systems.

Ranges of nodes have separate sums, so that totals do not depend on the distribution of work over threads.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from sklearn_crf.kernels.gaussian.stencil cimport multiply_blocks, stencil_row


cdef inline double dot(const floating* a, const floating* b, Py_ssize_t n) noexcept nogil:
    """Return the sum of a * b in float64, in an order that only depends on n.

    Eight independent sums are used, since a single sum would wait for each addition.
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
    """Compute out += factor * a."""
    cdef Py_ssize_t i
    for i in range(n):
        out[i] += factor * a[i]


cdef inline void start_round(
    floating unit, Py_ssize_t n, Py_ssize_t D, const floating* b, const floating* product, const floating* inverse,
    floating* residual, floating* scaled, floating* direction, double* sums,
) noexcept nogil:
    """Compute residual = unit * (b - product) and the first direction for n nodes; write the sums of step_along."""
    cdef Py_ssize_t i
    for i in range(n * D):
        residual[i] = unit * (b[i] - product[i])
    multiply_blocks(inverse, residual, n, D, scaled)
    memcpy(direction, scaled, n * D * sizeof(floating))
    sums[0] = dot(residual, scaled, n * D)
    sums[1] = dot(scaled, scaled, n * D)


cdef inline void step_along(
    floating length, floating unit, Py_ssize_t n, Py_ssize_t D, const floating* direction, const floating* product,
    const floating* inverse, floating* solution, floating* residual, floating* scaled, double* sums,
) noexcept nogil:
    """Move the solution of n nodes along the direction; write sums of residual * scaled and of scaled ** 2."""
    add_multiple(length / unit, direction, n * D, solution)
    add_multiple(-length, product, n * D, residual)
    multiply_blocks(inverse, residual, n, D, scaled)
    sums[0] = dot(residual, scaled, n * D)
    sums[1] = dot(scaled, scaled, n * D)


cdef inline void turned(floating share, const floating* scaled, Py_ssize_t n, floating* direction) noexcept nogil:
    """Compute direction = scaled + share * direction."""
    cdef Py_ssize_t i
    for i in range(n):
        direction[i] = scaled[i] + share * direction[i]


# Precision matrix on a lattice of three axes.
cdef struct Lattice:
    const void* diagonal  # (N, D, D)
    const void* edge_weight  # (E,) if D is 1
    const int32_t* edge_type  # (E,)
    const void* blocks  # (T, D, D)
    const int64_t* offsets  # (n_offsets, 3) slices, rows and columns; edges are grouped by offset
    Py_ssize_t n_offsets, depth, height, width, D


# State of the iterations: sums of residual * scaled and of scaled ** 2, and curvature along the last direction.
cdef struct Progress:
    double weighted, squared, curvature


cdef inline Py_ssize_t iterate(
    const Lattice* of, const floating* inverse, const int64_t* bounds, Py_ssize_t n_ranges, Py_ssize_t n_iter,
    double limit, floating unit, Progress* at, floating* solution, floating* residual, floating* direction,
    floating* product, floating* scaled,
) noexcept nogil:
    """Iterate until the norm of the scaled residual is at most the limit; return the number of iterations.

    Iterations stop at n_iter, or at a direction without positive curvature.
    """
    cdef:
        Py_ssize_t i, k, made = 0, D = of.D
        double former
        double[2] sums
    at.curvature = 1.0
    while made < n_iter and not at.squared <= limit * limit:
        for i in range(of.depth * of.height):
            stencil_row(i, <const floating*> of.diagonal, <const floating*> of.edge_weight, of.edge_type,
                        <const floating*> of.blocks, of.offsets, of.n_offsets, of.depth, of.height, of.width, D,
                        direction, product)
        at.curvature = 0.0
        for k in range(n_ranges):
            i = bounds[k] * D
            at.curvature += dot(direction + i, product + i, bounds[k + 1] * D - i)
        if not at.curvature > 0.0:
            break
        former, at.weighted, at.squared = at.weighted, 0.0, 0.0
        for k in range(n_ranges):
            i = bounds[k]
            step_along(<floating> (former / at.curvature), unit, bounds[k + 1] - i, D, direction + i * D,
                       product + i * D, inverse + i * D * D, solution + i * D, residual + i * D, scaled + i * D,
                       &sums[0])
            at.weighted += sums[0]
            at.squared += sums[1]
        turned(<floating> (at.weighted / former), scaled, of.depth * of.height * of.width * D, direction)
        made += 1
    return made
