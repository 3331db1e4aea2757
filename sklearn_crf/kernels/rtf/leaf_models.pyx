"""Linear models at the leaves of the factors of a plane, and their adjoint.

A factor belongs to one pixel, or to a pixel and its neighbour at an offset. The first pixels of the factors of one type
form a rectangle. The slices of a volume are stacked vertically into a plane; the first pixels then form a rectangle in
each of some slices.
"""

import numpy as np

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

cdef extern from "leaf_rows.hpp" namespace "crf" nogil:
    const Py_ssize_t BLOCK "crf::kBlock"
    void leaf_values[T](
        const T*, const T*, Py_ssize_t, Py_ssize_t, const int32_t*, const T*, Py_ssize_t, Py_ssize_t, T*
    )
    void leaf_gradient[T](
        const T*, const T*, Py_ssize_t, Py_ssize_t, const int32_t*, const double*, const double*, Py_ssize_t,
        Py_ssize_t, T*, int32_t*, double*
    )

# Number of channels multiplied in one vector operation.
CHANNEL_BLOCK = BLOCK

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
        leaf_values(first, second, F, size, leaf + i * columns, weight, m, columns, out + i * columns * m)


def linear_values(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    const int32_t[::1] leaf,  # IN (n_factors,)
    const floating[:, :, ::1] weight,  # IN (L, m, 1 + size) or, for pairs, (L, m, 1 + 2 size), packed
    Py_ssize_t size,  # F, padded as in packed_inputs
    const int32_t[::1] row,  # IN (rows,) row of the first pixels in each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t down,  # rows and (right) columns from the first pixel of a factor to the second
    Py_ssize_t right,
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of factors
    floating[:, ::1] out,  # OUT (n_factors, m)
):
    """Compute the linear values of factors: weights of the leaf times 1 and the channels of the pixels."""
    with nogil:
        values_of_rows(&x[0, 0, 0], x.shape[1], x.shape[2], &leaf[0], &weight[0, 0, 0], weight.shape[1],
                       weight.shape[2] > 1 + size, size, &row[0], left, columns, down, right, start, stop, &out[0, 0])


# Inputs may be written with a higher precision than the channels have.
ctypedef fused writing:
    float
    double


def factor_inputs(
    const floating[:, :, ::1] x,  # IN (H, W, F)
    bint paired,
    const int32_t[::1] row,  # IN (rows,) row of the first pixels in each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t down,  # rows and (right) columns from the first pixel of a factor to the second
    Py_ssize_t right,
    const int64_t[::1] own,  # IN (n,) indices of some factors
    const int64_t[::1] place,  # IN (n,) rows of out
    const double[::1] scale,  # IN (n,) factor of each row, or empty for 1
    writing[:, ::1] out,  # OUT (..., 1 + F), or (..., 1 + 2 F) for pairs
):
    """Write the inputs of linear models for some factors: 1 and the channels of their pixels."""
    cdef:
        Py_ssize_t k, f, first, F = x.shape[2], width = x.shape[1]
        double own_scale = 1.0
        const floating* channels
        writing* to
    with nogil:
        for k in range(own.shape[0]):
            first = row[own[k] // columns] * width + left + own[k] % columns
            if scale.shape[0]:
                own_scale = scale[k]
            to = &out[place[k], 0]
            to[0] = <writing> own_scale
            if F == 0:
                continue
            channels = &x[0, 0, 0] + first * F
            for f in range(F):
                to[1 + f] = <writing> (own_scale * channels[f])
            if paired:
                channels += (down * width + right) * F
                for f in range(F):
                    to[1 + F + f] = <writing> (own_scale * channels[f])


cdef inline void add_row_of_ends(const floating* values, const floating* precision, const int32_t* place,
                                 Py_ssize_t n, Py_ssize_t m, Py_ssize_t D, floating* h,
                                 floating* diagonal) noexcept nogil:
    """Add the linear values and precisions of n factors to a row of pixels; pointers select the end of the factors."""
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
    Py_ssize_t width,  # number of pixels in a row of the plane
    const int32_t[:, ::1] of_row,  # IN (2, H) rows of factors with first and with second pixels in a row, or -1
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t right,
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the plane are written
    floating[:, ::1] h,  # IN OUT (N, D)
    floating[:, :, ::1] diagonal,  # IN OUT (N, D, D)
):
    """Add the factors of one type to the field, except the blocks of edges."""
    if values.shape[0] == 0:
        return
    with nogil:
        add_rows_of_factors(&values[0, 0], &precision[0, 0, 0], &place[0], values.shape[1], h.shape[1], width,
                            &of_row[0, 0], &of_row[1, 0], left, columns, right, start, stop, &h[0, 0],
                            &diagonal[0, 0, 0])


# Factors of one type. A kernel processes all types in one call, since calls for some thousands of pixels are so short
# that threads would contend for the interpreter's lock.
cdef struct OfType:
    const void* x
    Py_ssize_t F, size, left, columns, down, right, n_rows, n_leaves, m
    bint paired
    const int32_t* leaf
    const int32_t* row
    const double* cross
    double* of_weight
    double* of_precision
    # Next row of factors, as all types advance through the plane together, and starts of the type's workspaces.
    Py_ssize_t next_row, of_values, of_leaves


# Number of rows of the plane that all types process before the next rows, so that channels stay in the cache.
cdef enum:
    ROWS_AT_ONCE = 4


cdef inline Py_ssize_t rows_above(const OfType* own, Py_ssize_t end) noexcept nogil:
    """Return the first row of factors whose first pixels are in row ``end`` of the plane or below."""
    cdef Py_ssize_t i = own.next_row
    while i < own.n_rows and own.row[i] < end:
        i += 1
    return i


cdef OfType place_of_type(object placed) except *:
    """Read the location of a type's factors, a tuple (leaf, size, row, left, columns, down, right)."""
    cdef:
        OfType own
        const int32_t[::1] leaf = placed[0], row = placed[2]
    own.size, own.left, own.columns, own.down, own.right = placed[1], placed[3], placed[4], placed[5], placed[6]
    own.next_row = own.of_values = own.of_leaves = 0
    # Rows without columns have no factors.
    own.n_rows = row.shape[0] if leaf.shape[0] else 0
    if own.n_rows:
        own.leaf, own.row = &leaf[0], &row[0]
    return own


cdef inline void add_linear_gradient(
    const floating* x, Py_ssize_t width, Py_ssize_t D, const double* linear, const OfType* own, Py_ssize_t stop,
    floating* part, int32_t* count,
) noexcept nogil:
    """Add derivatives with respect to the weights of leaves, the adjoint of linear values, for some rows of factors."""
    cdef:
        Py_ssize_t i, s, step = own.down * width + own.right
        const floating* first
        const floating* second
        const double* of_second
    for i in range(own.next_row, stop):
        s = own.row[i] * width + own.left
        first = x + s * own.F
        second = x + (s + step) * own.F if own.paired else NULL
        of_second = linear + (s + step) * D if own.paired else NULL
        leaf_gradient(first, second, own.F, own.size, own.leaf + i * own.columns, linear + s * D, of_second, D,
                      own.columns, part, count, own.of_weight)


cdef inline void add_row_of_scalars(const double* linear, const double* values, const double* square,
                                    const int32_t* leaf, Py_ssize_t n, Py_ssize_t step, double* out) noexcept nogil:
    """Add derivatives with respect to the precisions of leaves for a row of factors, if pixels have one value.

    Neighbouring factors often have the same leaf, so they are summed in registers first.
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
    Py_ssize_t stop,
) noexcept nogil:
    """Add derivatives with respect to the precision of each leaf, given derivatives of the field, for some rows."""
    cdef:
        Py_ssize_t i, j, k, s, t, a, b, m = own.m, step = own.down * width + own.right
        double product
        double* out
    for i in range(own.next_row, stop):
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
    list types,  # tuples (x, of_weight, of_precision, cross, placed), with x as in linear_values; derivatives by
    # weights (L, m, 1 + size) or (L, m, 1 + 2 size), packed, and by precisions (L, m, m), both IN OUT; additional
    # derivative by each edge (n_factors, D, D), or empty; placed is (leaf, size, row, left, columns, down, right)
    Py_ssize_t width,  # number of pixels in a row of the plane
    const floating[:, :, ::1] any_x,  # any array with the data type of all x
    const double[:, ::1] linear,  # IN (N, D) derivative by the linear values of each pixel
    const double[:, ::1] values,  # IN (N, D)
    const double[:, :, ::1] square,  # IN (N, D, D) derivative by the diagonal
):
    """Add derivatives with respect to all parameters, the adjoint of the sums of factors and of the blocks of edges."""
    cdef:
        Py_ssize_t t, i, j, k, n_types = 0, n_values = 0, n_leaves = 0, D = linear.shape[1]
        Py_ssize_t n_rows = linear.shape[0] // max(width, 1)
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
            own.of_values, own.of_leaves = n_values, n_leaves
            n_values += of_weight.shape[0] * of_weight.shape[1] * of_weight.shape[2]
            n_leaves += own.n_leaves
            n_types += 1
        part = np.zeros(max(n_values, 1), dtype=np.float32 if floating is float else np.float64)
        count = np.zeros(max(n_leaves, 1), dtype=np.int32)
        with nogil:
            for i from 0 <= i < n_rows by ROWS_AT_ONCE:
                for t in range(n_types):
                    own = &all_types[t]
                    j = rows_above(own, i + ROWS_AT_ONCE)
                    add_linear_gradient(<const floating*> own.x, width, D, &linear[0, 0], own, j, &part[own.of_values],
                                        &count[own.of_leaves])
                    add_precision_gradient(&linear[0, 0], &values[0, 0], &square[0, 0, 0], D, width, own, j)
                    own.next_row = j
            for t in range(n_types):
                own = &all_types[t]
                for k in range(own.n_leaves * own.m * (1 + (2 if own.paired else 1) * own.size)):
                    own.of_weight[k] += part[own.of_values + k]
    finally:
        free(all_types)


cdef inline void terms_of_factor(
    const double* linear, const double* values, const double* square, const double* cross, Py_ssize_t D, Py_ssize_t s,
    Py_ssize_t t, Py_ssize_t m, double* slope, double* whole,
) noexcept nogil:
    """Compute derivatives with respect to linear values and precision of a factor with pixels s and, for pairs, t."""
    cdef:
        Py_ssize_t a, b
        double product
    for a in range(D):
        slope[a] = linear[s * D + a]
        for b in range(D):
            whole[a * m + b] = square[(s * D + a) * D + b]
    if m == D:
        return
    for a in range(D):
        slope[D + a] = linear[t * D + a]
        for b in range(D):
            whole[(D + a) * m + D + b] = square[(t * D + a) * D + b]
            product = linear[s * D + a] * values[t * D + b] + values[s * D + a] * linear[t * D + b]
            if cross != NULL:
                product -= cross[a * D + b]
            whole[a * m + D + b] = whole[(D + b) * m + a] = -product / 2


def split_terms(
    const double[:, ::1] linear,  # IN (N, D) derivative by the linear values of each pixel
    const double[:, ::1] values,  # IN (N, D)
    const double[:, :, ::1] square,  # IN (N, D, D) derivative by the diagonal
    const double[:, :, ::1] cross,  # IN (n_factors, D, D) additional derivative by each edge, or empty
    Py_ssize_t width,  # number of pixels in a row of the plane
    bint paired,
    const int32_t[::1] row,  # IN (rows,) row of the first pixels in each row of factors
    Py_ssize_t left,
    Py_ssize_t columns,
    Py_ssize_t down,  # rows and (right) columns from the first pixel of a factor to the second
    Py_ssize_t right,
    const int64_t[::1] own,  # IN (n,) indices of some factors
    const double[::1] weight,  # IN (n,)
    double share,  # divisor of derivatives
    const floating[:, ::1] inputs,  # IN (n, B) whitened
    const floating[:, ::1] multipliers,  # IN (n, I)
    const int64_t[::1] place,  # IN (n,) rows of out
    floating[:, ::1] out,  # OUT (..., 1 + m m (1 + I) + m B) weight, derivatives by precision, slopes, linear model
):
    """Write the terms of some factors in the sums that the split criterion uses."""
    cdef:
        Py_ssize_t k, a, b, i, s, n = own.shape[0], D = linear.shape[1], m = 2 * D if paired else D
        double[::1] workspace = np.empty(m + m * m)
        double* slope = &workspace[0]
        double* whole = slope + m
        floating* to
    with nogil:
        for k in range(n):
            s = row[own[k] // columns] * width + left + own[k] % columns
            terms_of_factor(&linear[0, 0], &values[0, 0], &square[0, 0, 0],
                            &cross[own[k], 0, 0] if cross.shape[0] else NULL, D, s, s + down * width + right, m, slope,
                            whole)
            to = &out[place[k], 0]
            to[0] = <floating> weight[k]
            to += 1
            for a in range(m * m):
                to[a] = <floating> (whole[a] / share)
            to += m * m
            for i in range(multipliers.shape[1]):
                for a in range(m * m):
                    to[a] = <floating> (multipliers[k, i] * whole[a] / share)
                to += m * m
            for a in range(m):
                for b in range(inputs.shape[1]):
                    to[b] = <floating> (slope[a] * inputs[k, b] / share)
                to += inputs.shape[1]
