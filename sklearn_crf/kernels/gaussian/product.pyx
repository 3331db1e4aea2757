"""Products of the precision matrix of a Gaussian field with vectors, on lattices and on any graph.

A kernel call writes a range of rows or nodes, and each number it writes is added up in one order, whatever the ranges.
"""

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
    """out[rows] = (J vector)[rows] on a lattice of three axes."""
    cdef:
        Py_ssize_t D = vector.shape[1], n_offsets = offsets.shape[0]
        Py_ssize_t i, j, k, below, down, right, front, top, left, slices, rows, columns, z, y, edge, origin, step
        const floating* weight = &edge_weight[0] if edge_weight.shape[0] else NULL
        const int32_t* kind = &edge_type[0] if edge_type.shape[0] else NULL
        const floating* block = &blocks[0, 0, 0] if blocks.shape[0] else NULL
        const floating* p
        floating* q
    if vector.shape[0] == 0:
        return
    with nogil:
        p = &vector[0, 0]
        q = &out[0, 0]
        for i in range(start, stop):
            for j in range(i * width, (i + 1) * width):
                if D == 1:
                    q[j] = diagonal[j, 0, 0] * p[j]
                    continue
                for k in range(D):
                    q[j * D + k] = 0
                add_product(&diagonal[j, 0, 0], p + j * D, D, False, q + j * D)
            origin = 0
            for k in range(n_offsets):
                below, down, right = offsets[k, 0], offsets[k, 1], offsets[k, 2]
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
    """out[nodes] = (J vector)[nodes] on any graph."""
    cdef Py_ssize_t D = vector.shape[1], s, slot, d
    with nogil:
        for s in range(start, stop):
            for d in range(D):
                out[s, d] = 0
            add_product(&diagonal[s, 0, 0], &vector[s, 0], D, False, &out[s, 0])
            for slot in range(ptr[s], ptr[s + 1]):
                add_product(&blocks[edge_type[half_edge[slot] >> 1], 0, 0], &vector[neighbor[slot], 0], D,
                            half_edge[slot] & 1, &out[s, 0])
