"""Filters of rows and of patches of images."""

import numpy as np

from libc.stdint cimport int64_t


# Responses of the pixels of an image to kernels that are products of a column and a row ------------------------------

cdef extern from "filter_rows.h" nogil:
    const Py_ssize_t FILTER_BLOCK
    ctypedef struct filter_task:
        const float* image
        Py_ssize_t stride
        Py_ssize_t margin
        Py_ssize_t width
        const float* taps
        const int64_t* first
        const int64_t* before
        const int64_t* column
        const int64_t* row
        const int64_t* channel
        const float* constant
        Py_ssize_t n_filters
        float* line
        float* responses
        float* out
        Py_ssize_t row_step
        Py_ssize_t pixel_step
        Py_ssize_t channel_step
    void filter_rows(const filter_task*, Py_ssize_t, Py_ssize_t)


def filter_stride(Py_ssize_t width, Py_ssize_t margin):
    """Length of the rows of an image of this width that is continued by a margin, as its kernel wants them."""
    return (whole_blocks(width) + 2 * margin + FILTER_BLOCK - 1) // FILTER_BLOCK * FILTER_BLOCK


cdef inline Py_ssize_t whole_blocks(Py_ssize_t width) noexcept nogil:
    return (width + FILTER_BLOCK - 1) // FILTER_BLOCK * FILTER_BLOCK


def separable_responses(
    const float[:, ::1] image,  # IN (H + 2 m, S) continued by m pixels on every side, anything behind that
    Py_ssize_t margin,  # m
    const float[::1] taps,  # IN of all profiles
    const int64_t[::1] first,  # IN (P + 1,) first tap of each profile
    const int64_t[::1] before,  # IN (P,) its taps before the origin
    const int64_t[::1] column,  # IN (K,) profile of each filter down, those of one next to each other
    const int64_t[::1] row,  # IN (K,) and across
    const int64_t[::1] channel,  # IN (K,) channel of out
    const float[::1] constant,  # IN (K,) added to the response
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image without its continuation are written
    float[:, :, :] out,  # OUT (H, W, channels)
):
    """Correlate rows of an image with every filter."""
    cdef:
        filter_task task
        Py_ssize_t K = column.shape[0]
        float[::1] line = np.empty(image.shape[1], dtype=np.float32)
        float[:, ::1] responses = np.empty((K, whole_blocks(out.shape[1])), dtype=np.float32)
    if stop <= start or K == 0:
        return
    task.image, task.stride, task.margin, task.width = &image[0, 0], image.shape[1], margin, out.shape[1]
    task.taps, task.first, task.before = &taps[0], &first[0], &before[0]
    task.column, task.row, task.channel, task.constant = &column[0], &row[0], &channel[0], &constant[0]
    task.n_filters, task.line, task.responses, task.out = K, &line[0], &responses[0, 0], &out[0, 0, 0]
    task.row_step = out.strides[0] // sizeof(float)
    task.pixel_step = out.strides[1] // sizeof(float)
    task.channel_step = out.strides[2] // sizeof(float)
    with nogil:
        filter_rows(&task, start, stop)


# Products of an image's overlaid masks, whose entries are never stored, with weights and with numbers of pixels ------
# Rows of a mask are runs of equal entries, so that all is done at the steps between runs: a mask is the sum of its
# steps along a row, and what is under it a sum of differences of sums along rows.


def add_steps(
    const int[:, ::1] steps,  # IN (n_steps, 3) row and column in the mask, change of the entry there, mask by mask
    const int[::1] starts,  # IN (P + 1,) first step of each mask
    const int[:, ::1] corners,  # IN (P, 2) upper left corner of each mask in the image
    const double[:, ::1] values,  # IN (n, P) factor of each mask; those of 0 are skipped
    double[:, :, ::1] planes,  # OUT (n, H, W + 1) added to; sums along rows are the sums of masks
):
    """Steps of masks at their places, each times the factor of its mask."""
    cdef:
        Py_ssize_t k, p, t
        double value
    with nogil:
        for k in range(values.shape[0]):
            for p in range(values.shape[1]):
                value = values[k, p]
                if value == 0.0:
                    continue
                for t in range(starts[p], starts[p + 1]):
                    planes[k, corners[p, 0] + steps[t, 0], corners[p, 1] + steps[t, 1]] += value * steps[t, 2]


def sum_under_masks(
    const int[:, ::1] steps,  # IN (n_steps, 3)
    const int[::1] starts,  # IN (P + 1,)
    const int[:, ::1] corners,  # IN (P, 2)
    const double[::1] strengths,  # IN (P,) factor of each mask; those of 0 are skipped
    const double[:, :, ::1] sums_before,  # IN (n, H, W + 1) sums of the numbers of each row before each column
    double[:, ::1] sums,  # OUT (P, n)
):
    """Sum of the numbers under each mask, times its entries and its factor."""
    cdef:
        Py_ssize_t k, p, t
        double total
    with nogil:
        for k in range(sums_before.shape[0]):
            for p in range(strengths.shape[0]):
                total = 0.0
                if strengths[p] != 0.0:
                    for t in range(starts[p], starts[p + 1]):
                        total -= steps[t, 2] * sums_before[k, corners[p, 0] + steps[t, 0], corners[p, 1] + steps[t, 1]]
                sums[p, k] = strengths[p] * total


# Means over the pixels of a window, weighted by how much their surroundings look alike -------------------------------

cdef extern from "patch_averages.h" nogil:
    const Py_ssize_t ROWS "AVERAGE_ROWS"
    const Py_ssize_t COLUMNS "AVERAGE_COLUMNS"
    Py_ssize_t across "AVERAGE_ACROSS"(Py_ssize_t)
    ctypedef struct average_task:
        const float* image
        const float* guide
        Py_ssize_t stride
        Py_ssize_t width
        Py_ssize_t search
        Py_ssize_t patch
        const float* inverse
        Py_ssize_t n_widths
        float level
        float* squares
        float* column
        float* sums
        float* out
        Py_ssize_t row_step
        Py_ssize_t pixel_step
        Py_ssize_t channel_step
    void average_rows(const average_task*, Py_ssize_t, Py_ssize_t)


def average_stride(Py_ssize_t width, Py_ssize_t search, Py_ssize_t patch):
    """Length of the rows of an image of this width that is continued, as its kernel wants them."""
    return (width + COLUMNS - 1) // COLUMNS * COLUMNS + 2 * search + across(patch) - COLUMNS


def average_patches(
    const float[:, ::1] image,  # IN (H + 2 m, S) continued by m = search + patch pixels on every side
    const float[:, ::1] guide,  # IN the same, in which patches are compared
    Py_ssize_t search,  # pixels from the centre of the window to its border
    Py_ssize_t patch,  # the same of patches
    const float[::1] inverse,  # IN (T,) 1 / (sum of squared differences from which on a weight is 0)
    float level,  # added to the means
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image without its continuation are written
    float[:, :, :] out,  # OUT (H, W, 2 T) means, and sums of squared weights that add up to one
):
    """Means over windows around each pixel of some rows, and how much of the variance of noise is left in them."""
    cdef:
        average_task task
        Py_ssize_t T = inverse.shape[0]
        float[:, ::1] squares = np.empty((ROWS + 2 * patch + 1, across(patch)), dtype=np.float32)
        float[:, :, :, ::1] sums = np.empty((T, 3, ROWS, COLUMNS), dtype=np.float32)
    if stop <= start or T == 0:
        return
    task.image, task.guide, task.stride, task.width = &image[0, 0], &guide[0, 0], image.shape[1], out.shape[1]
    task.search, task.patch, task.inverse, task.n_widths, task.level = search, patch, &inverse[0], T, level
    task.squares, task.column, task.sums = &squares[0, 0], &squares[ROWS + 2 * patch, 0], &sums[0, 0, 0, 0]
    task.out, task.row_step = &out[0, 0, 0], out.strides[0] // sizeof(float)
    task.pixel_step, task.channel_step = out.strides[1] // sizeof(float), out.strides[2] // sizeof(float)
    with nogil:
        average_rows(&task, start, stop)


# Images whose similar 8 x 8 patches are shrunk together --------------------------------------------------------------

cdef extern from "patch_groups.h" nogil:
    const Py_ssize_t SIDE "GROUP_SIDE"
    const Py_ssize_t GROUP_BLOCK
    ctypedef struct group_task:
        const float* image
        const float* pilot
        Py_ssize_t stride
        Py_ssize_t height
        Py_ssize_t width
        Py_ssize_t search
        Py_ssize_t step
        const float* basis
        const float* turned
        float noise
        Py_ssize_t first_row
        Py_ssize_t n_rows
        float* eighth
        float* norm
        double* column
        Py_ssize_t start
        Py_ssize_t stop
        float* numerator
        float* denominator
    void group_rows(const group_task*)

PATCH_SIDE = SIDE

# Columns that are read behind the pixels by which an image is continued, but do not count.
BEHIND = GROUP_BLOCK


def shrink_groups(
    const float[:, ::1] image,  # IN (H + 2 m, W + 2 m + BEHIND) continued by m = search + 7 pixels on every side
    const float[:, ::1] pilot,  # IN the same, less noisy
    Py_ssize_t search,  # rows and columns from a patch to the farthest of its group
    Py_ssize_t step,  # rows and columns from one group to the next
    const float[:, ::1] basis,  # IN (8, 8) rows of an orthonormal transform
    const float[:, ::1] turned,  # IN (8, 8) its transpose
    float noise,
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image without its continuation are written
    float[:, :] out,  # OUT (H, W)
):
    """Weighted mean over the patches around a pixel of what is left of each."""
    cdef:
        group_task task
        Py_ssize_t i, j, margin = search + SIDE - 1, stride = image.shape[1]
        # First rows of patches of groups that have a pixel in the rows.
        Py_ssize_t first_row = max(start - search, 0)
        Py_ssize_t last_row = min(stop + margin + 2 * search, image.shape[0] - SIDE + 1)
        float[:, ::1] numerator = np.zeros((max(stop - start, 0), stride), dtype=np.float32)
        float[:, ::1] denominator = np.zeros((max(stop - start, 0), stride), dtype=np.float32)
        float[:, :, ::1] of_patches
        double[::1] column = np.empty(2 * stride)
    if stop <= start:
        return
    of_patches = np.zeros((2, last_row - first_row + 1, stride), dtype=np.float32)
    task.image, task.pilot, task.stride = &image[0, 0], &pilot[0, 0], stride
    task.height, task.width, task.search, task.step = out.shape[0], out.shape[1], search, step
    task.basis, task.turned, task.noise = &basis[0, 0], &turned[0, 0], noise
    task.first_row, task.n_rows = first_row, last_row - first_row
    task.eighth, task.norm, task.column = &of_patches[0, 0, 0], &of_patches[1, 0, 0], &column[0]
    task.start, task.stop = start, stop
    task.numerator, task.denominator = &numerator[0, 0], &denominator[0, 0]
    with nogil:
        group_rows(&task)
        for i in range(stop - start):
            for j in range(out.shape[1]):
                out[start + i, j] = numerator[i, j + margin] / denominator[i, j + margin]


# Images whose 8 x 8 patches are shrunk in the domain of the cosine transform -----------------------------------------

cdef extern from "patch_shrinkage.h" nogil:
    Py_ssize_t PATCH_STRIDE(Py_ssize_t)
    void shrink_rows(
        const float*, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, const float*, float, Py_ssize_t, Py_ssize_t,
        float*, float*, float*, float*, float*, float*, float*, Py_ssize_t, Py_ssize_t, Py_ssize_t)


def patch_stride(Py_ssize_t width):
    """Length of the rows of an image of this width, as its kernel wants them."""
    return PATCH_STRIDE(width + 2 * (SIDE - 1))


def shrink_patches(
    const float[:, ::1] image,  # IN (H + 14, S) continued by 7 pixels on every side, anything behind that
    const float[:, :, ::1] thresholds,  # IN (T, 8, 8) of each coefficient
    float level,  # added to the result
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image without its continuation are written
    float[:, :, :] out,  # OUT (H, W, T)
):
    """Weighted mean over the patches around a pixel of what is left of each, for every threshold."""
    cdef:
        Py_ssize_t j, T = thresholds.shape[0], stride = image.shape[1], width = out.shape[1] + 2 * (SIDE - 1)
        float[:, ::1] columns = np.zeros((SIDE, stride), dtype=np.float32)
        float[:, :, :, ::1] sums = np.zeros((3, T, SIDE, stride), dtype=np.float32)
        float[:, ::1] weights = np.zeros((T + 1, stride), dtype=np.float32)
        float[:, ::1] lines = np.zeros((2, stride), dtype=np.float32)
    if stop <= start or T == 0:
        return
    for j in range(width - SIDE + 1):
        lines[0, j] = 1.0
    with nogil:
        shrink_rows(&image[0, 0], stride, width, &thresholds[0, 0, 0], T, &lines[0, 0], level, start, stop,
                    &columns[0, 0], &sums[0, 0, 0, 0], &weights[0, 0], &sums[1, 0, 0, 0], &sums[2, 0, 0, 0],
                    &lines[1, 0], &out[0, 0, 0], out.strides[0] // sizeof(float), out.strides[1] // sizeof(float),
                    out.strides[2] // sizeof(float))
