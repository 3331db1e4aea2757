"""Products of the precision matrix of a Gaussian field on a lattice with a vector, for kernels that need one."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t


cdef inline void add_product(const floating* block, const floating* vector, Py_ssize_t D, bint transposed,
                             floating* out) noexcept nogil:
    """out += block @ vector, or block.T @ vector."""
    cdef Py_ssize_t a, b
    if transposed:
        for a in range(D):
            for b in range(D):
                out[b] += block[a * D + b] * vector[a]
    else:
        for a in range(D):
            for b in range(D):
                out[a] += block[a * D + b] * vector[b]


cdef inline void add_row(const floating* weight, const floating* vector, Py_ssize_t n, floating* out) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        out[j] += weight[j] * vector[j]


cdef inline void add_row_of_blocks(const int32_t* edge_type, const floating* blocks, const floating* vector,
                                   Py_ssize_t n, Py_ssize_t D, bint transposed, floating* out) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        add_product(blocks + edge_type[j] * D * D, vector + j * D, D, transposed, out + j * D)


cdef inline void stencil_row(
    Py_ssize_t i,  # row of the lattice, slice by slice
    const floating* diagonal,  # (N, D, D)
    const floating* weight,  # (E,) where D is 1
    const int32_t* kind,  # (E,) type of each edge
    const floating* block,  # (T, D, D)
    const int64_t* offsets,  # (n_offsets, 3) slices, rows and columns; edges are grouped by offset
    Py_ssize_t n_offsets,
    Py_ssize_t depth,
    Py_ssize_t height,
    Py_ssize_t width,
    Py_ssize_t D,
    const floating* p,  # (N, D) vector
    floating* q,  # (N, D) of which the row is written
) noexcept nogil:
    """q[row] = (J p)[row] on a lattice of three axes."""
    cdef Py_ssize_t j, k, below, down, right, front, top, left, slices, rows, columns, z, y, edge, step, origin = 0
    for j in range(i * width, (i + 1) * width):
        if D == 1:
            q[j] = diagonal[j] * p[j]
            continue
        for k in range(D):
            q[j * D + k] = 0
        add_product(diagonal + j * D * D, p + j * D, D, False, q + j * D)
    for k in range(n_offsets):
        below, down, right = offsets[3 * k], offsets[3 * k + 1], offsets[3 * k + 2]
        slices, rows = depth - max(below, -below), height - max(down, -down)
        columns = width - max(right, -right)
        if slices <= 0 or rows <= 0 or columns <= 0:
            continue
        front, top, left = max(-below, 0), max(-down, 0), max(-right, 0)
        step = (below * height + down) * width + right
        # Row i holds the first ends of some edges of this offset, and the second ends of others.
        z, y = i // height - front, i % height - top
        if 0 <= z < slices and 0 <= y < rows:
            edge = origin + (z * rows + y) * columns
            j = i * width + left
            if D == 1:
                add_row(weight + edge, p + j + step, columns, q + j)
            else:
                add_row_of_blocks(kind + edge, block, p + (j + step) * D, columns, D, False, q + j * D)
        z, y = z - below, y - down
        if 0 <= z < slices and 0 <= y < rows:
            edge = origin + (z * rows + y) * columns
            j = i * width + left + right
            if D == 1:
                add_row(weight + edge, p + j - step, columns, q + j)
            else:
                add_row_of_blocks(kind + edge, block, p + (j - step) * D, columns, D, True, q + j * D)
        origin += slices * rows * columns
