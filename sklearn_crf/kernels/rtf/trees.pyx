"""Leaves of regression trees, bins of responses, and eigenvalues of the matrices of leaves."""

import numpy as np
from cython cimport floating
from libc.math cimport hypot
from libc.stdint cimport int32_t, int64_t, uint8_t


# Trees over the pixels of a plane: leaves of factors, responses to tests, and sums for the split criterion.
#
# A factor belongs to one pixel, or to a pixel and its neighbour at an offset. The first pixels of the factors of one
# type form a rectangle. Tests read channels at offsets from the first pixel; positions beyond the border are moved to
# the border. The slices of a volume are stacked vertically into a plane; the first pixels then form a rectangle in each
# of some slices.

cdef extern from "leaf_rows.hpp" namespace "crf" nogil:
    cdef cppclass LeafTest[T]:
        double threshold
        Py_ssize_t first
        Py_ssize_t other
        int32_t next[2]
        void set_masks(bint, bint)
    void walk_to_leaves[T](
        const T*, Py_ssize_t, const LeafTest[T]*, Py_ssize_t, const int32_t*, Py_ssize_t, int32_t*
    )

# Columns of a test. Its response is x[channel] at an offset, minus another channel (if not negative) at another offset,
# or the magnitude of this difference. Only tests of volumes have offsets between slices.
cdef enum:
    CHANNEL = 0
    DOWN = 1
    RIGHT = 2
    OTHER_CHANNEL = 3
    OTHER_DOWN = 4
    OTHER_RIGHT = 5
    MAGNITUDE = 6
    SLICES = 7
    OTHER_SLICES = 8


cdef inline Py_ssize_t within(Py_ssize_t position, Py_ssize_t length) noexcept nogil:
    return 0 if position < 0 else length - 1 if position >= length else position


cdef inline Py_ssize_t row_at(Py_ssize_t row, Py_ssize_t down, Py_ssize_t slices, Py_ssize_t height,
                              Py_ssize_t n_rows) noexcept nogil:
    """Return the row at an offset, moved to the border of the slice and the volume if beyond."""
    cdef Py_ssize_t own
    if height == n_rows:
        return within(row + down, n_rows)
    own = row // height
    return within(own + slices, n_rows // height) * height + within(row - own * height + down, height)


cdef inline floating response(const floating[:, :, ::1] x, Py_ssize_t i, Py_ssize_t j, const int32_t* test, bint deep,
                              Py_ssize_t height) noexcept nogil:
    cdef floating value = x[row_at(i, test[DOWN], test[SLICES] if deep else 0, height, x.shape[0]),
                            within(j + test[RIGHT], x.shape[1]), test[CHANNEL]]
    if test[OTHER_CHANNEL] >= 0:
        value -= x[row_at(i, test[OTHER_DOWN], test[OTHER_SLICES] if deep else 0, height, x.shape[0]),
                   within(j + test[OTHER_RIGHT], x.shape[1]), test[OTHER_CHANNEL]]
    return -value if test[MAGNITUDE] and value < 0 else value


cdef inline Py_ssize_t leaf_of(const floating[:, :, ::1] x, Py_ssize_t i, Py_ssize_t j,
                               const int32_t[:, ::1] children, const int32_t[:, ::1] test,
                               const double[::1] threshold, Py_ssize_t height) noexcept nogil:
    """Return the leaf node that a pixel reaches."""
    cdef:
        Py_ssize_t node = 0
        bint deep = test.shape[1] > SLICES
    while children[node, 0] >= 0:
        node = children[node, response(x, i, j, &test[node, 0], deep, height) > threshold[node]]
    return node


cdef inline Py_ssize_t place_of(const int32_t* test, bint other, Py_ssize_t row, bint deep, Py_ssize_t height,
                                Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t F) noexcept nogil:
    """Return the distance in memory from the first channel of a pixel to the tested or the subtracted value."""
    cdef:
        Py_ssize_t channel = test[OTHER_CHANNEL] if other else test[CHANNEL]
        Py_ssize_t down = test[OTHER_DOWN] if other else test[DOWN]
        Py_ssize_t right = test[OTHER_RIGHT] if other else test[RIGHT]
        Py_ssize_t slices = 0
    if channel < 0:
        return 0
    if deep:
        slices = test[OTHER_SLICES] if other else test[SLICES]
    return ((row_at(row, down, slices, height, n_rows) - row) * width + right) * F + channel


cdef void set_tests(LeafTest[floating]* tests, const int32_t[:, ::1] children, const int32_t[:, ::1] test,
                    const double[::1] threshold, Py_ssize_t row, Py_ssize_t height, Py_ssize_t n_rows,
                    Py_ssize_t width, Py_ssize_t F) noexcept nogil:
    """Prepare tests for the pixels of a row that are away from the left and right borders."""
    cdef:
        Py_ssize_t node
        bint deep = test.shape[1] > SLICES
        const int32_t* own
        LeafTest[floating]* to
    for node in range(children.shape[0]):
        own, to = &test[node, 0], &tests[node]
        to.threshold = threshold[node]
        to.first = to.other = 0
        to.next[0] = to.next[1] = <int32_t>node
        to.set_masks(own[OTHER_CHANNEL] >= 0, own[MAGNITUDE])
        if children[node, 0] < 0:
            continue
        to.next[0], to.next[1] = children[node, 0], children[node, 1]
        to.first = place_of(own, False, row, deep, height, n_rows, width, F)
        to.other = place_of(own, True, row, deep, height, n_rows, width, F)


def find_leaves(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    Py_ssize_t height,  # number of rows of a slice
    const int32_t[::1] first,  # IN (rows,) row of the first pixels in each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    const int32_t[:, ::1] children,  # IN (n_nodes, 2) for responses up to the threshold and above; -1 at a leaf
    const int32_t[:, ::1] test,  # IN (n_nodes, 7), or (n_nodes, 9) for volumes
    const double[::1] threshold,  # IN (n_nodes,)
    const int32_t[::1] leaf,  # IN (n_nodes,) index of the leaf, -1 at inner nodes
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of factors
    int32_t[::1] out,  # OUT (n_factors,)
):
    """Find the leaf of each factor."""
    cdef:
        Py_ssize_t i, j, k, node, slice_of, depth = 0, n_nodes = children.shape[0], n_slices = x.shape[0] // height
        Py_ssize_t width = x.shape[1], F = x.shape[2]
        # Margins of rows, columns and slices inside which no offset leads beyond a border.
        Py_ssize_t above = 0, below = 0, before = 0, behind = 0, outer = 0, inner = 0
        bint deep = test.shape[1] > SLICES, is_inside, are_inside = False
        int64_t[::1] level = np.zeros(n_nodes, dtype=np.int64)
        uint8_t[::1] memory = np.empty(n_nodes * sizeof(LeafTest[floating]), dtype=np.uint8)
        LeafTest[floating]* tests = <LeafTest[floating]*> &memory[0]
        const int32_t* own
    with nogil:
        for node in range(n_nodes):
            if children[node, 0] < 0:
                continue
            own = &test[node, 0]
            # Parents precede their children.
            for k in range(2):
                level[children[node, k]] = level[node] + 1
            depth = max(depth, level[node] + 1)
            above, below = max(above, -own[DOWN], -own[OTHER_DOWN]), max(below, own[DOWN], own[OTHER_DOWN])
            before, behind = max(before, -own[RIGHT], -own[OTHER_RIGHT]), max(behind, own[RIGHT], own[OTHER_RIGHT])
            if deep:
                outer = max(outer, -own[SLICES], -own[OTHER_SLICES])
                inner = max(inner, own[SLICES], own[OTHER_SLICES])
        before = min(max(before - left, 0), columns)
        behind = max(min(width - behind - left, columns), before)
        for i in range(start, stop):
            slice_of = first[i] // height
            is_inside = (
                above <= first[i] - slice_of * height < height - below and outer <= slice_of < n_slices - inner
            )
            j = 0
            # For few short rows, preparing the tests takes longer than evaluating them one by one.
            if (is_inside and are_inside) or n_nodes <= columns:
                while j < before:
                    out[i * columns + j] = leaf[leaf_of(x, first[i], left + j, children, test, threshold, height)]
                    j += 1
                if not (is_inside and are_inside):
                    set_tests(tests, children, test, threshold, first[i], height, x.shape[0], width, F)
                are_inside = is_inside
                if behind > before:
                    walk_to_leaves(&x[first[i], left + j, 0], F, tests, depth, &leaf[0], behind - before,
                                   &out[i * columns + j])
                    j = behind
            while j < columns:
                out[i * columns + j] = leaf[leaf_of(x, first[i], left + j, children, test, threshold, height)]
                j += 1


def find_responses(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    Py_ssize_t height,  # number of rows of a slice
    const int32_t[:, ::1] pixels,  # IN (n, 2)
    const int32_t[:, ::1] tests,  # IN (T, 7), or (T, 9) for volumes
    const int64_t[::1] place,  # IN (n,)
    floating[:, ::1] out,  # OUT (T, ...) column place[k] holds the responses at pixel k
):
    """Compute the response to each test at some pixels."""
    cdef:
        Py_ssize_t first, k, t, block = 64
        bint deep = tests.shape[1] > SLICES
    with nogil:
        # Process blocks of neighbouring pixels, whose channels stay in the cache from test to test.
        for first in range(0, pixels.shape[0], 64):
            for t in range(tests.shape[0]):
                for k in range(first, min(first + block, pixels.shape[0])):
                    out[t, place[k]] = response(x, pixels[k, 0], pixels[k, 1], &tests[t, 0], deep, height)


cdef inline void add_multiple(double factor, const floating* a, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] += factor * a[i]


# Responses and terms may have different precisions.
ctypedef fused responding:
    float
    double


def add_to_bins(
    const floating[:, ::1] terms,  # IN (n, q)
    const responding[:, :] responses,  # IN (T, n), each row contiguous
    const responding[:, ::1] thresholds,  # IN (T, n_bins - 1), ascending
    double[:, :, ::1] out,  # IN OUT (T, n_bins, q)
):
    """Add each row of terms to the bin of its response, the number of thresholds below it, for every test."""
    cdef:
        Py_ssize_t first, k, t, n_here, own, n = terms.shape[0], q = terms.shape[1]
        responding above
        const responding* row
        int32_t[64] bins
    if responses.strides[1] != sizeof(responding):
        raise ValueError("responses must have contiguous rows.")
    with nogil:
        # Process blocks of rows, which stay in the cache from test to test.
        for first in range(0, n, 64):
            n_here = min(64, n - first)
            for t in range(responses.shape[0]):
                row = &responses[t, first]
                for k in range(n_here):
                    bins[k] = 0
                for own in range(thresholds.shape[1]):
                    above = thresholds[t, own]
                    for k in range(n_here):
                        bins[k] += row[k] > above
                for k in range(n_here):
                    add_multiple(1.0, &terms[first + k, 0], q, &out[t, bins[k], 0])


# Projection of small symmetric matrices, of which every training step projects thousands.

cdef inline double clipped(double value, double low, double high) noexcept nogil:
    return low if value < low else high if value > high else value


def clip_eigenvalues_in_place(
    double[::1] values,  # IN OUT (n,) matrices, row by row
    const int64_t[::1] starts,  # IN (n_matrices,) start of each matrix in values
    Py_ssize_t size,  # 1 or 2
    double low,
    double high,
):
    """Make matrices symmetric and clip their eigenvalues, in place. Matrices within the bounds are unchanged."""
    cdef:
        Py_ssize_t k
        double centre, half, cross, radius, upper, lower, scale
        double* own
    for k in range(starts.shape[0]):
        own = &values[starts[k]]
        if size == 1:
            own[0] = clipped(own[0], low, high)
            continue
        centre, half, cross = (own[0] + own[3]) / 2, (own[0] - own[3]) / 2, (own[1] + own[2]) / 2
        own[1] = own[2] = cross
        radius = hypot(half, cross)
        if centre - radius >= low and centre + radius <= high:
            continue
        upper, lower = clipped(centre + radius, low, high), clipped(centre - radius, low, high)
        # Scale the traceless part, which is 0 for a multiple of the identity.
        scale = (upper - lower) / 2 / radius if radius > 0 else 0.0
        own[0], own[3] = (upper + lower) / 2 + scale * half, (upper + lower) / 2 - scale * half
        own[1] = own[2] = scale * cross
