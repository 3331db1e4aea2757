"""Products of the precision matrix of a Gaussian field with vectors, on lattices and on any graph.

A kernel call writes a range of rows or nodes, and each number it writes is added up in one order, whatever the ranges.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.gaussian.stencil cimport add_product, stencil_row


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
