"""Gaussian fields: products with the precision, conjugate gradients, messages and Gibbs sampling."""

from cython cimport floating
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from sklearn_crf.kernels.gaussian.iterations cimport Lattice, Progress, dot, iterate, start_round, step_along, turned
from sklearn_crf.kernels.gaussian.stencil cimport add_product, stencil_row
from sklearn_crf.kernels.random_streams cimport normal


# Vector operations that keep Python's lock for short vectors ---------------------------------------------------------
# NumPy releases the lock for arrays of more than 500 numbers. Waking up a thread that waits for it takes longer than
# processing some thousands of numbers, so these functions only release the lock for long vectors.

cdef enum:
    LONG = 65536


cdef inline floating find_largest(const floating* values, Py_ssize_t n) noexcept nogil:
    cdef:
        Py_ssize_t i
        int finite = 1
        floating largest = 0
    for i in range(n):
        finite &= values[i] - values[i] == 0
        largest = max(largest, values[i] if values[i] > 0 else -values[i])
    return largest if finite else <floating> INFINITY


def find_largest_magnitude(
    const floating[::1] values,  # IN (n,)
):
    """Return the largest magnitude of the values, which is infinite if a value is NaN or infinite."""
    cdef floating largest = 0
    if values.shape[0] > LONG:
        with nogil:
            largest = find_largest(&values[0], values.shape[0])
    elif values.shape[0]:
        largest = find_largest(&values[0], values.shape[0])
    return largest


def copy_values(
    const floating[::1] values,  # IN (n,)
    floating[::1] out,  # OUT (n,)
):
    """Copy values to another array."""
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
    """Write the inverse of each value; return the smallest value."""
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
            # The pivot, which is positive for a positive definite matrix.
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
    """Write the inverse of each symmetric matrix; return the first matrix that is not positive definite, or n."""
    cdef Py_ssize_t n_sound = 0, n = blocks.shape[0], D = blocks.shape[1]
    if n * D * D * D > LONG:
        with nogil:
            n_sound = invert_all(&blocks[0, 0, 0], n, D, &workspace[0, 0], &out[0, 0, 0])
    elif n:
        n_sound = invert_all(&blocks[0, 0, 0], n, D, &workspace[0, 0], &out[0, 0, 0])
    return n_sound


# Products of the precision matrix of a Gaussian field with vectors, on lattices and on any graph ---------------------
# A call writes a range of rows or nodes. The order of each sum does not depend on the ranges.


def stencil_product(
    const floating[:, :, ::1] diagonal,  # IN (N, D, D)
    const floating[::1] edge_weight,  # IN (E,) where D is 1, else empty
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[:, ::1] offsets,  # IN (n_offsets, 3) slices, rows and columns; edges are grouped by offset
    Py_ssize_t depth,
    Py_ssize_t height,
    Py_ssize_t width,
    const floating[:, ::1] vector,  # IN (N, D)
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the lattice are written, slice by slice
    floating[:, ::1] out,  # OUT (N, D)
):
    """Compute out[rows] = (J vector)[rows] on a lattice of three axes."""
    cdef:
        Py_ssize_t i
        const floating* weight = &edge_weight[0] if edge_weight.shape[0] else NULL
        const int32_t* kind = &edge_type[0] if edge_type.shape[0] else NULL
        const floating* block = &blocks[0, 0, 0] if blocks.shape[0] else NULL
        const int64_t* offset = &offsets[0, 0] if offsets.shape[0] else NULL
    if vector.shape[0] == 0:
        return
    with nogil:
        for i in range(start, stop):
            stencil_row(i, &diagonal[0, 0, 0], weight, kind, block, offset, offsets.shape[0], depth, height, width,
                        vector.shape[1], &vector[0, 0], &out[0, 0])


def graph_product(
    const floating[:, :, ::1] diagonal,  # IN (N, D, D)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const floating[:, ::1] vector,  # IN (N, D)
    Py_ssize_t start,
    Py_ssize_t stop,  # nodes start to stop are written
    floating[:, ::1] out,  # OUT (N, D)
):
    """Compute out[nodes] = (J vector)[nodes] on any graph."""
    cdef Py_ssize_t D = vector.shape[1], s, slot, d
    with nogil:
        for s in range(start, stop):
            for d in range(D):
                out[s, d] = 0
            add_product(&diagonal[s, 0, 0], &vector[s, 0], D, False, &out[s, 0])
            for slot in range(ptr[s], ptr[s + 1]):
                add_product(&blocks[edge_type[half_edge[slot] >> 1], 0, 0], &vector[neighbor[slot], 0], D,
                            half_edge[slot] & 1, &out[s, 0])


# Preconditioned conjugate gradients: operations of one iteration for ranges of nodes, and whole solves on a lattice ---


def inner_product(
    const floating[:, ::1] a,  # IN (N, D)
    const floating[:, ::1] b,  # IN (N, D)
    const int64_t[::1] bounds,  # IN (n_ranges + 1,) nodes of range k are bounds[k] to bounds[k + 1]
    Py_ssize_t start,
    Py_ssize_t stop,  # ranges start to stop
    double[:, ::1] sums,  # OUT (n_ranges, ...)
):
    """Compute the sum of a * b over the nodes of each range, in float64."""
    cdef Py_ssize_t k, D = a.shape[1]
    if a.shape[0] == 0:
        return
    with nogil:
        for k in range(start, stop):
            sums[k, 0] = dot(&a[bounds[k], 0], &b[bounds[k], 0], (bounds[k + 1] - bounds[k]) * D)


def begin(
    double unit,  # power of two that scales residuals so that their squares neither overflow nor underflow
    const floating[:, ::1] b,  # IN (N, D) right-hand side
    const floating[:, ::1] product,  # IN (N, D) precision times solution
    const floating[:, :, ::1] inverse,  # IN (N, D, D) inverse diagonal blocks
    const int64_t[::1] bounds,  # IN (n_ranges + 1,) nodes of range k are bounds[k] to bounds[k + 1]
    Py_ssize_t start,
    Py_ssize_t stop,  # ranges start to stop
    floating[:, ::1] residual,  # OUT (N, D) unit * (b - product)
    floating[:, ::1] scaled,  # OUT (N, D) inverse times residual
    floating[:, ::1] direction,  # OUT (N, D) equals scaled
    double[:, ::1] sums,  # OUT (n_ranges, 2) sums of residual * scaled and of scaled ** 2
):
    """Compute the residual and the first direction of conjugate gradients."""
    cdef Py_ssize_t k, first
    if b.shape[0] == 0:
        return
    with nogil:
        for k in range(start, stop):
            first = bounds[k]
            start_round(<floating> unit, bounds[k + 1] - first, b.shape[1], &b[first, 0], &product[first, 0],
                        &inverse[first, 0, 0], &residual[first, 0], &scaled[first, 0], &direction[first, 0],
                        &sums[k, 0])


def take_step(
    double length,
    double unit,  # as in `begin`
    const floating[:, ::1] direction,  # IN (N, D)
    const floating[:, ::1] product,  # IN (N, D) precision times direction
    const floating[:, :, ::1] inverse,  # IN (N, D, D) inverse diagonal blocks
    const int64_t[::1] bounds,  # IN (n_ranges + 1,) nodes of range k are bounds[k] to bounds[k + 1]
    Py_ssize_t start,
    Py_ssize_t stop,  # ranges start to stop
    floating[:, ::1] solution,  # IN OUT (N, D)
    floating[:, ::1] residual,  # IN OUT (N, D)
    floating[:, ::1] scaled,  # OUT (N, D) inverse times residual
    double[:, ::1] sums,  # OUT (n_ranges, 2) sums of residual * scaled and of scaled ** 2
):
    """Move the solution along the direction, and update the residual."""
    cdef Py_ssize_t k, first
    if direction.shape[0] == 0:
        return
    with nogil:
        for k in range(start, stop):
            first = bounds[k]
            step_along(<floating> length, <floating> unit, bounds[k + 1] - first, direction.shape[1],
                       &direction[first, 0], &product[first, 0], &inverse[first, 0, 0], &solution[first, 0],
                       &residual[first, 0], &scaled[first, 0], &sums[k, 0])


def turn(
    double share,
    const floating[:, ::1] scaled,  # IN (N, D)
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] direction,  # IN OUT (N, D)
):
    """Compute direction = scaled + share * direction."""
    if start < stop:
        with nogil:
            turned(<floating> share, &scaled[start, 0], (stop - start) * scaled.shape[1], &direction[start, 0])


def iterate_on_lattice(
    Py_ssize_t n_iter,  # maximum number of iterations
    double limit,  # norm of the scaled residual at which to stop
    double unit,  # as in `begin`
    double weighted,  # `weighted` and `squared` are results of the last call or of `begin`
    double squared,
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
    """Run conjugate gradients on a lattice; return the state after the iterations.

    Returns the number of iterations, the curvature along the last direction, and the inner products of the scaled
    residual with the residual and with itself. Results equal the results of the functions above. A single call is used
    since separate calls for small lattices are so short that threads would contend for the interpreter's lock.
    Iterations stop at a direction without positive curvature.
    """
    cdef:
        Py_ssize_t made = 0
        Lattice of
        Progress at
    if solution.shape[0] == 0:
        return 0, 1.0, 0.0, 0.0
    of.diagonal, of.D = &diagonal[0, 0, 0], solution.shape[1]
    of.edge_weight = &edge_weight[0] if edge_weight.shape[0] else NULL
    of.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    of.blocks = &blocks[0, 0, 0] if blocks.shape[0] else NULL
    of.offsets, of.n_offsets = &offsets[0, 0] if offsets.shape[0] else NULL, offsets.shape[0]
    of.depth, of.height, of.width = depth, height, width
    at.weighted, at.squared = weighted, squared
    with nogil:
        made = iterate(&of, &inverse[0, 0, 0], &bounds[0], bounds.shape[0] - 1, n_iter, limit, <floating> unit, &at,
                       &solution[0, 0], &residual[0, 0], &direction[0, 0], &product[0, 0], &scaled[0, 0])
    return made, at.curvature, at.weighted, at.squared


# One sweep of Gaussian belief propagation: messages sent by some nodes, given the messages of the last sweep ----------


cdef bint factorise(double* matrix, Py_ssize_t D) noexcept nogil:
    """Compute the lower Cholesky factor in place; return False if the matrix is not positive definite."""
    cdef Py_ssize_t a, b, c
    for a in range(D):
        for b in range(a + 1):
            for c in range(b):
                matrix[a * D + b] -= matrix[a * D + c] * matrix[b * D + c]
            if a > b:
                matrix[a * D + b] /= matrix[b * D + b]
            elif matrix[a * D + a] > 0.0:
                matrix[a * D + a] = sqrt(matrix[a * D + a])
            else:
                return False
    return True


cdef void solve_lower(const double* factor, double* vector, Py_ssize_t D) noexcept nogil:
    cdef Py_ssize_t a, b
    for a in range(D):
        for b in range(a):
            vector[a] -= factor[a * D + b] * vector[b]
        vector[a] /= factor[a * D + a]


def send_gaussians(
    const double[:, ::1] h,  # IN (N, D)
    const double[:, :, ::1] diagonal,  # IN (N, D, D)
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    const double[:, ::1] shift,  # IN (2E, D) linear part of the message received at a slot
    const double[:, :, ::1] precision,  # IN (2E, D, D) quadratic part of the message received at a slot
    double damping,  # weight of the old message
    const double[:, ::1] unit,  # IN (N, D) inverse root of the diagonal; changes are multiplied by two units
    double shift_unit,  # additional factor of the changes of shifts
    Py_ssize_t start,
    Py_ssize_t stop,  # nodes start to stop send
    double[:, ::1] new_shift,  # OUT (2E, D)
    double[:, :, ::1] new_precision,  # OUT (2E, D, D)
    double[::1] work,  # workspace (D + 1 + 2 D D,)
):
    """Send messages; return the largest relative change, or -1 - s if a cavity of node s is not positive definite."""
    cdef:
        Py_ssize_t D = h.shape[1], s, slot, other, target, receiver, a, b, c, kind
        double* vector = &work[0]
        double* cavity = &work[D]
        double* across = &work[D + D * D]  # row a: the block's column a, solved
        double value, worst = 0.0
    with nogil:
        for s in range(start, stop):
            for slot in range(ptr[s], ptr[s + 1]):
                for a in range(D):
                    vector[a] = h[s, a]
                    for b in range(D):
                        cavity[a * D + b] = diagonal[s, a, b]
                for other in range(ptr[s], ptr[s + 1]):
                    if other == slot:
                        continue
                    for a in range(D):
                        vector[a] += shift[other, a]
                        for b in range(D):
                            cavity[a * D + b] += precision[other, a, b]
                if not factorise(cavity, D):
                    worst = -1.0 - s
                    break
                solve_lower(cavity, vector, D)
                kind = edge_type[half_edge[slot] >> 1]
                for a in range(D):
                    for b in range(D):
                        # J_st[b, a]: a counts the entries of the receiver
                        across[a * D + b] = blocks[kind, a, b] if half_edge[slot] & 1 else blocks[kind, b, a]
                    solve_lower(cavity, across + a * D, D)
                target, receiver = reverse[slot], neighbor[slot]
                for a in range(D):
                    value = 0.0
                    for c in range(D):
                        value -= across[a * D + c] * vector[c]
                    value += damping * (shift[target, a] - value)
                    worst = max(
                        worst, fabs(value - shift[target, a]) * unit[receiver, a] * unit[receiver, a] * shift_unit
                    )
                    new_shift[target, a] = value
                    for b in range(D):
                        value = 0.0
                        for c in range(D):
                            value -= across[a * D + c] * across[b * D + c]
                        value += damping * (precision[target, a, b] - value)
                        worst = max(
                            worst,
                            fabs(value - precision[target, a, b]) * unit[receiver, a] * unit[receiver, b],
                        )
                        new_precision[target, a, b] = value
            if worst < 0.0:
                break
    return worst


# One sweep of Gibbs sampling in a Gaussian field over some nodes -----------------------------------------------------


def gaussian_gibbs_update(
    const int32_t[::1] nodes,  # IN nodes without edges among them
    Py_ssize_t start,
    Py_ssize_t stop,
    const double[:, ::1] h,  # IN (N, D)
    const double[:, :, ::1] covariance,  # IN (N, D, D) covariance of a node given its neighbours
    const double[:, :, ::1] root,  # IN (N, D, D) lower Cholesky factor of the covariance
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] half_edge,  # IN (2E,)
    uint64_t key,
    double[:, ::1] values,  # IN OUT (N, D)
    double[:, ::1] total,  # IN OUT (N, D) sums of conditional means, or empty
    double[:, :, ::1] total_square,  # IN OUT (N, D, D) sums of their outer products, or empty
    double[::1] work,  # workspace (2 D,)
):
    """Draw nodes[start:stop] from their conditionals given their neighbours."""
    cdef:
        Py_ssize_t position, slot, a, b, D = h.shape[1], kind
        int32_t s, t
        double* field = &work[0]
        double* mean = &work[D]
    with nogil:
        for position in range(start, stop):
            s = nodes[position]
            for a in range(D):
                field[a] = h[s, a]
            for slot in range(ptr[s], ptr[s + 1]):
                t = neighbor[slot]
                kind = edge_type[half_edge[slot] >> 1]
                for a in range(D):
                    for b in range(D):
                        field[a] -= (blocks[kind, b, a] if half_edge[slot] & 1 else blocks[kind, a, b]) * values[t, b]
            for a in range(D):
                mean[a] = 0.0
                for b in range(D):
                    mean[a] += covariance[s, a, b] * field[b]
            for a in range(D):
                values[s, a] = mean[a]
                for b in range(a + 1):
                    values[s, a] += root[s, a, b] * normal(key, s * D + b)
            if total.shape[0]:
                for a in range(D):
                    total[s, a] += mean[a]
                    for b in range(D):
                        total_square[s, a, b] += mean[a] * mean[b]
