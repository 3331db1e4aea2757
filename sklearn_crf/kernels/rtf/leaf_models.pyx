"""Trees over the pixels of a plane, and the linear models at their leaves.

A factor sits at a pixel, or at a pixel and the one at an offset from it; the first pixels of the factors of one type
are a rectangle. Channels are looked up at offsets from the first pixel, beyond the border at the border. A volume is a
plane of its slices one below the other: the first pixels are then a rectangle in each of some slices.
"""

import numpy as np

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "leaf_rows.h" nogil:
    const Py_ssize_t BLOCK "LEAF_BLOCK"
    ctypedef struct leaf_test_float:
        double threshold
        Py_ssize_t first
        Py_ssize_t other
        int32_t next[2]
        uint32_t of_other
        uint32_t of_difference
    ctypedef struct leaf_test_double:
        double threshold
        Py_ssize_t first
        Py_ssize_t other
        int32_t next[2]
        uint64_t of_other
        uint64_t of_difference
    void leaf_walk_float(
        const float*, Py_ssize_t, const leaf_test_float*, Py_ssize_t, const int32_t*, Py_ssize_t, int32_t*)
    void leaf_walk_double(
        const double*, Py_ssize_t, const leaf_test_double*, Py_ssize_t, const int32_t*, Py_ssize_t, int32_t*)
    void leaf_values_float(
        const float*, const float*, Py_ssize_t, Py_ssize_t, const int32_t*, const float*, Py_ssize_t, Py_ssize_t,
        float*)
    void leaf_values_double(
        const double*, const double*, Py_ssize_t, Py_ssize_t, const int32_t*, const double*, Py_ssize_t, Py_ssize_t,
        double*)
    void leaf_gradient_float(
        const float*, const float*, Py_ssize_t, Py_ssize_t, const int32_t*, const double*, const double*, Py_ssize_t,
        Py_ssize_t, float*, int32_t*, double*)
    void leaf_gradient_double(
        const double*, const double*, Py_ssize_t, Py_ssize_t, const int32_t*, const double*, const double*, Py_ssize_t,
        Py_ssize_t, double*, int32_t*, double*)

# Channels that are multiplied side by side.
CHANNEL_BLOCK = BLOCK

# What a test compares: x[channel] at an offset, less another channel (if not negative) at another offset; or the
# magnitude of that. Offsets between slices are only in tests of volumes.
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
    """The row at an offset, within the slice and the volume."""
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
    """The node that one pixel ends at."""
    cdef:
        Py_ssize_t node = 0
        bint deep = test.shape[1] > SLICES
    while children[node, 0] >= 0:
        node = children[node, response(x, i, j, &test[node, 0], deep, height) > threshold[node]]
    return node


cdef inline Py_ssize_t place_of(const int32_t* test, bint other, Py_ssize_t row, bint deep, Py_ssize_t height,
                                Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t F) noexcept nogil:
    """Numbers from the first channel of a pixel of a row to what is compared, or subtracted from that."""
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


cdef fused walking:
    leaf_test_float
    leaf_test_double


cdef void set_tests(walking* tests, const int32_t[:, ::1] children, const int32_t[:, ::1] test,
                    const double[::1] threshold, Py_ssize_t row, Py_ssize_t height, Py_ssize_t n_rows,
                    Py_ssize_t width, Py_ssize_t F) noexcept nogil:
    """Tests of the pixels of a row that are away from the borders of columns."""
    cdef:
        Py_ssize_t node
        bint deep = test.shape[1] > SLICES
        const int32_t* own
        walking* to
    for node in range(children.shape[0]):
        own, to = &test[node, 0], &tests[node]
        to.threshold = threshold[node]
        to.first = to.other = 0
        to.next[0] = to.next[1] = <int32_t>node
        to.of_other = to.of_difference = 0
        if children[node, 0] < 0:
            continue
        to.next[0], to.next[1] = children[node, 0], children[node, 1]
        to.first = place_of(own, False, row, deep, height, n_rows, width, F)
        to.other = place_of(own, True, row, deep, height, n_rows, width, F)
        if own[OTHER_CHANNEL] >= 0:
            to.of_other = ~to.of_other
        to.of_difference = ~to.of_difference
        if own[MAGNITUDE]:
            to.of_difference >>= 1


def find_leaves(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    Py_ssize_t height,  # rows of a slice
    const int32_t[::1] first,  # IN (rows,) row of the first pixels of each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    const int32_t[:, ::1] children,  # IN (n_nodes, 2) for responses up to the threshold and above; -1 at a leaf
    const int32_t[:, ::1] test,  # IN (n_nodes, 7), or (n_nodes, 9) for volumes
    const double[::1] threshold,  # IN (n_nodes,)
    const int32_t[::1] leaf,  # IN (n_nodes,) number of the leaf, -1 at inner nodes
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of factors
    int32_t[::1] out,  # OUT (n_factors,)
):
    """The leaf of each factor."""
    cdef:
        Py_ssize_t i, j, k, node, slice_of, depth = 0, n_nodes = children.shape[0], n_slices = x.shape[0] // height
        Py_ssize_t width = x.shape[1], F = x.shape[2]
        # Rows, columns and slices from where, and until where, offsets lead beyond no border.
        Py_ssize_t above = 0, below = 0, before = 0, behind = 0, outer = 0, inner = 0
        bint deep = test.shape[1] > SLICES, is_inside, are_inside = False
        int64_t[::1] level = np.zeros(n_nodes, dtype=np.int64)
        uint8_t[::1] memory = np.empty(
            n_nodes * (sizeof(leaf_test_float) if floating is float else sizeof(leaf_test_double)), dtype=np.uint8
        )
        const int32_t* own
    with nogil:
        for node in range(n_nodes):
            if children[node, 0] < 0:
                continue
            own = &test[node, 0]
            # Parents come before their children.
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
            # Where rows are few and short it takes longer to prepare tests than to do them one by one.
            if (is_inside and are_inside) or n_nodes <= columns:
                while j < before:
                    out[i * columns + j] = leaf[leaf_of(x, first[i], left + j, children, test, threshold, height)]
                    j += 1
                if not (is_inside and are_inside):
                    if floating is float:
                        set_tests(<leaf_test_float*>&memory[0], children, test, threshold, first[i], height,
                                  x.shape[0], width, F)
                    else:
                        set_tests(<leaf_test_double*>&memory[0], children, test, threshold, first[i], height,
                                  x.shape[0], width, F)
                are_inside = is_inside
                if behind > before:
                    if floating is float:
                        leaf_walk_float(&x[first[i], left + j, 0], F, <leaf_test_float*>&memory[0], depth, &leaf[0],
                                        behind - before, &out[i * columns + j])
                    else:
                        leaf_walk_double(&x[first[i], left + j, 0], F, <leaf_test_double*>&memory[0], depth, &leaf[0],
                                         behind - before, &out[i * columns + j])
                    j = behind
            while j < columns:
                out[i * columns + j] = leaf[leaf_of(x, first[i], left + j, children, test, threshold, height)]
                j += 1


def find_responses(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    Py_ssize_t height,  # rows of a slice
    const int32_t[:, ::1] pixels,  # IN (n, 2)
    const int32_t[:, ::1] tests,  # IN (T, 7), or (T, 9) for volumes
    const int64_t[::1] place,  # IN (n,)
    floating[:, ::1] out,  # OUT (T, ...) column place[k] has the responses at pixel k
):
    """The response to each test at some pixels."""
    cdef:
        Py_ssize_t first, k, t, block = 64
        bint deep = tests.shape[1] > SLICES
    with nogil:
        # Some pixels at a time, which are close together: their channels stay in the cache from test to test.
        for first in range(0, pixels.shape[0], 64):
            for t in range(tests.shape[0]):
                for k in range(first, min(first + block, pixels.shape[0])):
                    out[t, place[k]] = response(x, pixels[k, 0], pixels[k, 1], &tests[t, 0], deep, height)


cdef inline void add_multiple(double factor, const floating* a, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] += factor * a[i]


def linear_values(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    const int32_t[::1] leaf,  # IN (n_factors,)
    const floating[:, :, ::1] weight,  # IN (L, m, 1 + size) or, for pairs, (L, m, 1 + 2 size), packed
    Py_ssize_t size,  # F as packed
    const int32_t[::1] row,  # IN (rows,) row of the first pixels of each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t down,  # rows and columns from the first pixel of a factor to the second
    Py_ssize_t right,
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of factors
    floating[:, ::1] out,  # OUT (n_factors, m)
):
    """Weights of each factor's leaf times 1, the channels of its first pixel, and those of its second."""
    cdef:
        Py_ssize_t i, F = x.shape[2], m = weight.shape[1]
        bint paired = weight.shape[2] > 1 + size
        const floating* first
        const floating* second
    with nogil:
        for i in range(start, stop):
            first = &x[row[i], left, 0]
            second = &x[row[i] + down, left + right, 0] if paired else NULL
            if floating is float:
                leaf_values_float(first, second, F, size, &leaf[i * columns], &weight[0, 0, 0], m, columns,
                                  &out[i * columns, 0])
            else:
                leaf_values_double(first, second, F, size, &leaf[i * columns], &weight[0, 0, 0], m, columns,
                                   &out[i * columns, 0])


cdef inline void add_row_of_ends(const floating* values, const floating* precision, const int32_t* place,
                                 Py_ssize_t n, Py_ssize_t m, Py_ssize_t D, floating* h,
                                 floating* diagonal) noexcept nogil:
    """Add n factors' linear values and precisions at one of their ends, which is where the pointers stand."""
    cdef Py_ssize_t j, a, b
    if D == 1:
        for j in range(n):
            h[j] += values[j * m]
            diagonal[j] += precision[place[j] * m * m]
        return
    for j in range(n):
        for a in range(D):
            h[j * D + a] += values[j * m + a]
            for b in range(D):
                diagonal[(j * D + a) * D + b] += precision[(place[j] * m + a) * m + b]


def add_factors(
    const floating[:, ::1] values,  # IN (n_factors, m) linear values
    const floating[:, :, ::1] precision,  # IN (P, m, m)
    const int32_t[::1] place,  # IN (n_factors,) precision of each factor
    Py_ssize_t width,  # pixels of a row of the plane
    const int32_t[:, ::1] of_row,  # IN (2, H) row of factors whose first, and whose second pixels are in a row; or -1
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t right,
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the plane are written
    floating[:, ::1] h,  # IN OUT (N, D)
    floating[:, :, ::1] diagonal,  # IN OUT (N, D, D)
):
    """Add the factors of one type to the field of their pixels, but for the blocks of pairs."""
    cdef:
        Py_ssize_t i, row, s, D = h.shape[1], m = values.shape[1]
    if columns == 0:
        return
    with nogil:
        for i in range(start, stop):
            row = of_row[0, i]
            if row >= 0:
                s = i * width + left
                add_row_of_ends(&values[row * columns, 0], &precision[0, 0, 0], &place[row * columns], columns, m, D,
                                &h[s, 0], &diagonal[s, 0, 0])
            row = of_row[1, i]
            if m > D and row >= 0:
                s = i * width + left + right
                add_row_of_ends(&values[row * columns, D], &precision[0, D, D], &place[row * columns], columns, m, D,
                                &h[s, 0], &diagonal[s, 0, 0])


def add_linear_gradient(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    const int32_t[::1] leaf,  # IN (n_factors,)
    const double[:, ::1] linear,  # IN (N, D) derivative by the linear values of each pixel
    Py_ssize_t size,  # F as packed
    const int32_t[::1] row,  # IN (rows,) row of the first pixels of each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t down,
    Py_ssize_t right,
    double[:, :, ::1] out,  # IN OUT (L, D, 1 + size) or, for pairs, (L, 2 D, 1 + 2 size), packed
):
    """The adjoint of linear_values: out += derivative times 1 and the channels, summed by leaf."""
    cdef:
        Py_ssize_t i, k, s, F = x.shape[2], D = linear.shape[1], step = down * x.shape[1] + right
        Py_ssize_t n_leaves = out.shape[0], n = out.shape[1] * out.shape[2]
        bint paired = out.shape[2] > 1 + size
        const floating* first
        const floating* second
        const double* of_second
        int32_t[::1] count = np.zeros(n_leaves, dtype=np.int32)
        floating[:, ::1] part = np.zeros((n_leaves, n), dtype=np.float32 if floating is float else np.float64)
    with nogil:
        for i in range(row.shape[0]):
            s = row[i] * x.shape[1] + left
            first = &x[row[i], left, 0]
            second = &x[row[i] + down, left + right, 0] if paired else NULL
            of_second = &linear[s + step, 0] if paired else NULL
            if floating is float:
                leaf_gradient_float(first, second, F, size, &leaf[i * columns], &linear[s, 0], of_second, D, columns,
                                    &part[0, 0], &count[0], &out[0, 0, 0])
            else:
                leaf_gradient_double(first, second, F, size, &leaf[i * columns], &linear[s, 0], of_second, D, columns,
                                     &part[0, 0], &count[0], &out[0, 0, 0])
        for i in range(n_leaves):
            for k in range(n):
                (&out[i, 0, 0])[k] += part[i, k]


cdef inline void add_row_of_scalars(const double* linear, const double* values, const double* square,
                                    const int32_t* leaf, Py_ssize_t n, Py_ssize_t step, double* out) noexcept nogil:
    """As add_precision_gradient, for a row of factors of one value a pixel.

    Neighbours are often in one leaf: their sum is kept aside, as sums in memory would wait for each other.
    """
    cdef:
        Py_ssize_t j = 0
        int32_t own
        double first, second, product
    while j < n:
        own, first, second, product = leaf[j], 0.0, 0.0, 0.0
        if step == 0:
            while j < n and leaf[j] == own:
                first += square[j]
                j += 1
            out[own] += first
            continue
        while j < n and leaf[j] == own:
            first += square[j]
            second += square[j + step]
            product -= 0.5 * (linear[j] * values[j + step] + values[j] * linear[j + step])
            j += 1
        out[4 * own] += first
        out[4 * own + 1] += product
        out[4 * own + 2] += product
        out[4 * own + 3] += second


def add_precision_gradient(
    const double[:, ::1] linear,  # IN (N, D) derivative by the linear values of each pixel
    const double[:, ::1] values,  # IN (N, D)
    const double[:, :, ::1] square,  # IN (N, D, D) derivative by the diagonal
    const double[:, :, ::1] cross,  # IN (n_factors, D, D) what the derivative by an edge has more; or none
    const int32_t[::1] leaf,  # IN (n_factors,)
    Py_ssize_t width,  # pixels of a row of the plane
    const int32_t[::1] row,  # IN (rows,) row of the first pixels of each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t step,  # pixels from the first of a factor to the second; 0 for factors of one pixel
    double[:, :, ::1] out,  # IN OUT (L, m, m)
):
    """Derivative by the precision of each leaf, out of those by the field."""
    cdef:
        Py_ssize_t i, j, k, s, t, a, b, own, D = linear.shape[1]
        bint has_cross = cross.shape[0] > 0
        double product
    with nogil:
        for i in range(row.shape[0]):
            k, s = i * columns, row[i] * width + left
            if D == 1 and not has_cross:
                add_row_of_scalars(&linear[s, 0], &values[s, 0], &square[s, 0, 0], &leaf[k], columns, step,
                                   &out[0, 0, 0])
                continue
            for j in range(columns):
                k, s = i * columns + j, row[i] * width + left + j
                t, own = s + step, leaf[k]
                for a in range(D):
                    for b in range(D):
                        out[own, a, b] += square[s, a, b]
                        if step == 0:
                            continue
                        out[own, D + a, D + b] += square[t, a, b]
                        product = -0.5 * (linear[s, a] * values[t, b] + values[s, a] * linear[t, b])
                        if has_cross:
                            product += 0.5 * cross[k, a, b]
                        out[own, a, D + b] += product
                        out[own, D + b, a] += product


def add_to_bins(
    const floating[:, ::1] terms,  # IN (n, q)
    const uint8_t[:, ::1] bins,  # IN (T, n)
    Py_ssize_t start,
    Py_ssize_t stop,  # tests start to stop
    double[:, :, ::1] out,  # IN OUT (T, n_bins, q)
):
    """Sum the rows of terms by the bin that each test puts them into."""
    cdef Py_ssize_t first, k, t, n = terms.shape[0], q = terms.shape[1], block = 64
    with nogil:
        # Some rows at a time, so that they stay in the cache from test to test.
        for first in range(0, n, 64):
            for t in range(start, stop):
                for k in range(first, min(first + block, n)):
                    add_multiple(1.0, &terms[k, 0], q, &out[t, bins[t, k], 0])
