"""Product of the precision matrix of a Gaussian field on a lattice with a vector, for several kernels."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t


cdef inline void add_product(const floating* block, const floating* vector, Py_ssize_t D, bint transposed,
                             floating* out) noexcept nogil:
    """Compute out += block @ vector, or block.T @ vector."""
    cdef Py_ssize_t a, b
    if transposed:
        for a in range(D):
            for b in range(D):
                out[b] += block[a * D + b] * vector[a]
    else:
        for a in range(D):
            for b in range(D):
                out[a] += block[a * D + b] * vector[b]


cdef inline void multiply_blocks(const floating* blocks, const floating* a, Py_ssize_t n, Py_ssize_t D,
                                 floating* out) noexcept nogil:
    """Multiply the block of each node by its vector."""
    cdef Py_ssize_t s, i, j
    if D == 1:
        for s in range(n):
            out[s] = blocks[s] * a[s]
    elif D == 2:
        # Unrolled, since the overhead of loops of length two equals their work.
        for s in range(n):
            out[2 * s] = blocks[4 * s] * a[2 * s] + blocks[4 * s + 1] * a[2 * s + 1]
            out[2 * s + 1] = blocks[4 * s + 2] * a[2 * s] + blocks[4 * s + 3] * a[2 * s + 1]
    else:
        for s in range(n):
            for i in range(D):
                out[s * D + i] = 0
                for j in range(D):
                    out[s * D + i] += blocks[(s * D + i) * D + j] * a[s * D + j]


cdef inline void add_row(const floating* weight, const floating* vector, Py_ssize_t n, floating* out) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        out[j] += weight[j] * vector[j]


cdef inline void add_row_of_pairs(const int32_t* edge_type, const floating* blocks, const floating* vector,
                                  Py_ssize_t n, bint transposed, floating* out) noexcept nogil:
    """Add products with the blocks of a row of edges, for two values per node."""
    cdef:
        Py_ssize_t j, second = 1 if transposed else 2
        const floating* block
    for j in range(n):
        block = blocks + 4 * edge_type[j]
        out[2 * j] = out[2 * j] + block[0] * vector[2 * j] + block[3 - second] * vector[2 * j + 1]
        out[2 * j + 1] = out[2 * j + 1] + block[second] * vector[2 * j] + block[3] * vector[2 * j + 1]


cdef inline void add_row_of_blocks(const int32_t* edge_type, const floating* blocks, const floating* vector,
                                   Py_ssize_t n, Py_ssize_t D, bint transposed, floating* out) noexcept nogil:
    cdef Py_ssize_t j
    if D == 2:
        add_row_of_pairs(edge_type, blocks, vector, n, transposed, out)
    else:
        for j in range(n):
            add_product(blocks + edge_type[j] * D * D, vector + j * D, D, transposed, out + j * D)


cdef inline void stencil_row(
    Py_ssize_t i,  # row of the lattice, counted slice by slice
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
    floating* q,  # (N, D) result, of which this row is written
) noexcept nogil:
    """Compute q[row] = (J p)[row] on a lattice of three axes."""
    cdef Py_ssize_t j, k, below, down, right, front, top, left, slices, rows, columns, z, y, edge, step, origin = 0
    j = i * width * D
    multiply_blocks(diagonal + j * D, p + j, width, D, q + j)
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
