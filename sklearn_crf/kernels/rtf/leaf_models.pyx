"""Trees over the pixels of a plane, and the linear models at their leaves.

A factor sits at a pixel, or at a pixel and the one at an offset from it; the first pixels of the factors of one type
are a rectangle. Channels are looked up at offsets from the first pixel, beyond the border at the border. A volume is a
plane of its slices one below the other: the first pixels are then a rectangle in each of some slices.
"""

import numpy as np

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

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


cdef inline void values_of_rows(
    const floating* x, Py_ssize_t width, Py_ssize_t F, const int32_t* leaf, const floating* weight, Py_ssize_t m,
    bint paired, Py_ssize_t size, const int32_t* row, Py_ssize_t left, Py_ssize_t columns, Py_ssize_t down,
    Py_ssize_t right, Py_ssize_t start, Py_ssize_t stop, floating* out,
) noexcept nogil:
    cdef:
        Py_ssize_t i
        const floating* first
        const floating* second
    for i in range(start, stop):
        first = x + (row[i] * width + left) * F
        second = x + ((row[i] + down) * width + left + right) * F if paired else NULL
        if floating is float:
            leaf_values_float(first, second, F, size, leaf + i * columns, weight, m, columns, out + i * columns * m)
        else:
            leaf_values_double(first, second, F, size, leaf + i * columns, weight, m, columns, out + i * columns * m)


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
    with nogil:
        values_of_rows(&x[0, 0, 0], x.shape[1], x.shape[2], &leaf[0], &weight[0, 0, 0], weight.shape[1],
                       weight.shape[2] > 1 + size, size, &row[0], left, columns, down, right, start, stop, &out[0, 0])


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


cdef inline void add_rows_of_factors(
    const floating* values, const floating* precision, const int32_t* place, Py_ssize_t m, Py_ssize_t D,
    Py_ssize_t width, const int32_t* of_first, const int32_t* of_second, Py_ssize_t left, Py_ssize_t columns,
    Py_ssize_t right, Py_ssize_t start, Py_ssize_t stop, floating* h, floating* diagonal,
) noexcept nogil:
    cdef Py_ssize_t i, row, s
    for i in range(start, stop):
        row = of_first[i]
        if row >= 0:
            s = i * width + left
            add_row_of_ends(values + row * columns * m, precision, place + row * columns, columns, m, D, h + s * D,
                            diagonal + s * D * D)
        row = of_second[i]
        if m > D and row >= 0:
            s = i * width + left + right
            add_row_of_ends(values + row * columns * m + D, precision + D * m + D, place + row * columns, columns, m, D,
                            h + s * D, diagonal + s * D * D)


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
    if values.shape[0] == 0:
        return
    with nogil:
        add_rows_of_factors(&values[0, 0], &precision[0, 0, 0], &place[0], values.shape[1], h.shape[1], width,
                            &of_row[0, 0], &of_row[1, 0], left, columns, right, start, stop, &h[0, 0],
                            &diagonal[0, 0, 0])


# The factors of one type, as kernels take those of all types in one call: calls for some thousands of pixels are short,
# and threads would hand the lock of the interpreter to and fro between them.
cdef struct OfType:
    const void* x
    Py_ssize_t F, size, left, columns, down, right, n_rows, n_leaves, m
    bint paired
    const int32_t* leaf
    const int32_t* row
    const int32_t* place
    const int32_t* of_first
    const int32_t* of_second
    const void* weight
    const void* precision
    const double* cross
    double* of_weight
    double* of_precision


cdef OfType place_of_type(object placed) except *:
    """Where the factors of a type are, from their leaf, F as packed, and rows of factors."""
    cdef:
        OfType own
        const int32_t[::1] leaf = placed[0], row = placed[2]
    own.size, own.left, own.columns, own.down, own.right = placed[1], placed[3], placed[4], placed[5], placed[6]
    # Rows without columns have no factors.
    own.n_rows = row.shape[0] if leaf.shape[0] else 0
    if own.n_rows:
        own.leaf, own.row = &leaf[0], &row[0]
    return own


def add_field(
    list types,  # of each (x, weight, precision, place, of_row, placed), as of linear_values and add_factors; placed is
    # (leaf, size, row, left, columns, down, right)
    Py_ssize_t width,  # pixels of a row of the plane
    floating[:, ::1] h,  # IN OUT (N, D)
    floating[:, :, ::1] diagonal,  # IN OUT (N, D, D)
):
    """Add the factors of all types to the field of their pixels, type by type."""
    cdef:
        Py_ssize_t t, n_types = 0, n_values = 0, D = h.shape[1], n_rows = h.shape[0] // max(width, 1)
        const floating[:, :, ::1] x, weight, precision
        const int32_t[::1] place
        const int32_t[:, ::1] of_row
        floating[::1] values
        OfType* own
        OfType* all_types = <OfType*> malloc(max(len(types), 1) * sizeof(OfType))
    if all_types == NULL:
        raise MemoryError
    try:
        for arrays in types:
            own = &all_types[n_types]
            own[0] = place_of_type(arrays[5])
            if own.n_rows == 0:
                continue
            x, weight, precision, place, of_row = arrays[:5]
            own.x, own.F = &x[0, 0, 0], x.shape[2]
            own.weight, own.m, own.paired = &weight[0, 0, 0], weight.shape[1], weight.shape[2] > 1 + own.size
            own.precision, own.place = &precision[0, 0, 0], &place[0]
            own.of_first, own.of_second = &of_row[0, 0], &of_row[1, 0]
            n_values = max(n_values, place.shape[0] * own.m)
            n_types += 1
        values = np.empty(max(n_values, 1), dtype=np.float32 if floating is float else np.float64)
        with nogil:
            for t in range(n_types):
                own = &all_types[t]
                values_of_rows(<const floating*> own.x, width, own.F, own.leaf, <const floating*> own.weight, own.m,
                               own.paired, own.size, own.row, own.left, own.columns, own.down, own.right, 0,
                               own.n_rows, &values[0])
                add_rows_of_factors(&values[0], <const floating*> own.precision, own.place, own.m, D, width,
                                    own.of_first, own.of_second, own.left, own.columns, own.right, 0, n_rows,
                                    &h[0, 0], &diagonal[0, 0, 0])
    finally:
        free(all_types)


cdef inline void add_linear_gradient(
    const floating* x, Py_ssize_t width, Py_ssize_t D, const double* linear, const OfType* own, floating* part,
    int32_t* count,
) noexcept nogil:
    """The adjoint of linear values: derivatives times 1 and the channels, summed by leaf.

    The workspaces, of as many numbers as the sums and of one for each leaf, are zero before and after it.
    """
    cdef:
        Py_ssize_t i, k, s, step = own.down * width + own.right
        Py_ssize_t n = own.n_leaves * own.m * (1 + (2 if own.paired else 1) * own.size)
        const floating* first
        const floating* second
        const double* of_second
    for i in range(own.n_rows):
        s = own.row[i] * width + own.left
        first = x + s * own.F
        second = x + (s + step) * own.F if own.paired else NULL
        of_second = linear + (s + step) * D if own.paired else NULL
        if floating is float:
            leaf_gradient_float(first, second, own.F, own.size, own.leaf + i * own.columns, linear + s * D, of_second,
                                D, own.columns, part, count, own.of_weight)
        else:
            leaf_gradient_double(first, second, own.F, own.size, own.leaf + i * own.columns, linear + s * D, of_second,
                                 D, own.columns, part, count, own.of_weight)
    for k in range(n):
        own.of_weight[k] += part[k]
    memset(part, 0, n * sizeof(floating))
    memset(count, 0, own.n_leaves * sizeof(int32_t))


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


cdef inline void add_precision_gradient(
    const double* linear, const double* values, const double* square, Py_ssize_t D, Py_ssize_t width, const OfType* own,
) noexcept nogil:
    """Derivative by the precision of each leaf, out of those by the field."""
    cdef:
        Py_ssize_t i, j, k, s, t, a, b, m = own.m, step = own.down * width + own.right
        double product
        double* out
    for i in range(own.n_rows):
        k, s = i * own.columns, own.row[i] * width + own.left
        if D == 1 and own.cross == NULL:
            add_row_of_scalars(linear + s, values + s, square + s, own.leaf + k, own.columns, step, own.of_precision)
            continue
        for j in range(own.columns):
            k, s = i * own.columns + j, own.row[i] * width + own.left + j
            t, out = s + step, own.of_precision + own.leaf[k] * m * m
            for a in range(D):
                for b in range(D):
                    out[a * m + b] += square[(s * D + a) * D + b]
                    if step == 0:
                        continue
                    out[(D + a) * m + D + b] += square[(t * D + a) * D + b]
                    product = -0.5 * (linear[s * D + a] * values[t * D + b] + values[s * D + a] * linear[t * D + b])
                    if own.cross != NULL:
                        product += 0.5 * own.cross[(k * D + a) * D + b]
                    out[a * m + D + b] += product
                    out[(D + b) * m + a] += product


def add_gradients(
    list types,  # of each (x, of_weight, of_precision, cross, placed): x and placed as of add_field; derivatives by its
    # weights (L, m, 1 + size) or (L, m, 1 + 2 size), packed, and by its precisions (L, m, m), both IN OUT; what the
    # derivative by an edge has more (n_factors, D, D), or none
    Py_ssize_t width,  # pixels of a row of the plane
    const floating[:, :, ::1] any_x,  # of the type of numbers of all x
    const double[:, ::1] linear,  # IN (N, D) derivative by the linear values of each pixel
    const double[:, ::1] values,  # IN (N, D)
    const double[:, :, ::1] square,  # IN (N, D, D) derivative by the diagonal
):
    """The adjoint of add_field and of the blocks of edges, type by type."""
    cdef:
        Py_ssize_t t, n_types = 0, n_values = 1, n_leaves = 1, D = linear.shape[1]
        const floating[:, :, ::1] x
        double[:, :, ::1] of_weight, of_precision
        const double[:, :, ::1] cross
        floating[::1] part
        int32_t[::1] count
        OfType* own
        OfType* all_types = <OfType*> malloc(max(len(types), 1) * sizeof(OfType))
    if all_types == NULL:
        raise MemoryError
    try:
        for arrays in types:
            own = &all_types[n_types]
            own[0] = place_of_type(arrays[4])
            if own.n_rows == 0:
                continue
            x, of_weight, of_precision, cross = arrays[:4]
            own.x, own.F, own.n_leaves, own.m = &x[0, 0, 0], x.shape[2], of_weight.shape[0], of_weight.shape[1]
            own.paired = of_weight.shape[2] > 1 + own.size
            own.of_weight, own.of_precision = &of_weight[0, 0, 0], &of_precision[0, 0, 0]
            own.cross = &cross[0, 0, 0] if cross.shape[0] else NULL
            n_values = max(n_values, of_weight.shape[0] * of_weight.shape[1] * of_weight.shape[2])
            n_leaves = max(n_leaves, own.n_leaves)
            n_types += 1
        part = np.zeros(n_values, dtype=np.float32 if floating is float else np.float64)
        count = np.zeros(n_leaves, dtype=np.int32)
        with nogil:
            for t in range(n_types):
                own = &all_types[t]
                add_linear_gradient(<const floating*> own.x, width, D, &linear[0, 0], own, &part[0], &count[0])
                add_precision_gradient(&linear[0, 0], &values[0, 0], &square[0, 0, 0], D, width, own)
    finally:
        free(all_types)


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
