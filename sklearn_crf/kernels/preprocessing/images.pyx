"""Separable filters, filter masks, and denoising by patches, for images."""

import numpy as np

from libc.stdint cimport int64_t


# Responses of the pixels of an image to separable kernels, products of a column and a row ----------------------------

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
    """Return the row length of a padded image that separable_responses requires."""
    return (whole_blocks(width) + 2 * margin + FILTER_BLOCK - 1) // FILTER_BLOCK * FILTER_BLOCK


cdef inline Py_ssize_t whole_blocks(Py_ssize_t width) noexcept nogil:
    return (width + FILTER_BLOCK - 1) // FILTER_BLOCK * FILTER_BLOCK


def separable_responses(
    const float[:, ::1] image,  # IN (H + 2 m, S) padded by m pixels on every side; other values are ignored
    Py_ssize_t margin,  # m
    const float[::1] taps,  # IN taps of all profiles
    const int64_t[::1] first,  # IN (P + 1,) first tap of each profile
    const int64_t[::1] before,  # IN (P,) number of taps before the origin
    const int64_t[::1] column,  # IN (K,) vertical profile of each filter; filters with equal profiles are consecutive
    const int64_t[::1] row,  # IN (K,) horizontal profile of each filter
    const int64_t[::1] channel,  # IN (K,) channel of out for each filter
    const float[::1] constant,  # IN (K,) added to the response
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image, without padding, are written
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


# Products of overlapping masks in an image with weights, and with values of pixels, without storing the masks ---------
# Rows of a mask consist of runs of equal entries, so only the steps between runs are processed. A mask is the
# cumulative sum of its steps along rows. The sum of the values under a mask consists of cumulative sums along rows at
# the steps.


def add_steps(
    const int[:, ::1] steps,  # IN (n_steps, 3) row, column and change of the entry, mask by mask
    const int[::1] starts,  # IN (P + 1,) first step of each mask
    const int[:, ::1] corners,  # IN (P, 2) upper left corner of each mask in the image
    const double[:, ::1] values,  # IN (n, P) factor of each mask; masks with factor 0 are skipped
    double[:, :, ::1] planes,  # OUT (n, H, W + 1) added to; cumulative sums along rows are the sums of masks
):
    """Add the steps of masks at their positions, times the factor of each mask."""
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
    const double[::1] strengths,  # IN (P,) factor of each mask; masks with factor 0 are skipped
    const double[:, :, ::1] sums_before,  # IN (n, H, W + 1) sum of the values before each column, for each row
    double[:, ::1] sums,  # OUT (P, n)
):
    """Compute the sum of values weighted by each mask, times its factor."""
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


# Means over the pixels of a window, weighted by the similarity of their surroundings (non-local means) ---------------

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
    """Return the row length of a padded image that average_patches requires."""
    return (width + COLUMNS - 1) // COLUMNS * COLUMNS + 2 * search + across(patch) - COLUMNS


def average_patches(
    const float[:, ::1] image,  # IN (H + 2 m, S) padded by m = search + patch pixels on every side
    const float[:, ::1] guide,  # IN image of equal shape, in which patches are compared
    Py_ssize_t search,  # pixels from the centre of the window to its border
    Py_ssize_t patch,  # pixels from the centre of a patch to its border
    const float[::1] inverse,  # IN (T,) 1 / (sum of squared differences above which a weight is 0)
    float level,  # added to the means
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image, without padding, are written
    float[:, :, :] out,  # OUT (H, W, 2 T) means, and sums of squared normalised weights
):
    """Compute weighted means over windows around the pixels of some rows, and the fraction of noise variance left."""
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


# Denoising by jointly shrinking groups of similar 8 x 8 patches ------------------------------------------------------

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

# Number of columns behind the padding that are read but have no effect.
BEHIND = GROUP_BLOCK


def shrink_groups(
    const float[:, ::1] image,  # IN (H + 2 m, W + 2 m + BEHIND) padded by m = search + 7 pixels on every side
    const float[:, ::1] pilot,  # IN less noisy image of equal shape
    Py_ssize_t search,  # largest distance, in rows and columns, of patches in a group
    Py_ssize_t step,  # distance between groups, in rows and columns
    const float[:, ::1] basis,  # IN (8, 8) rows of an orthonormal transform
    const float[:, ::1] turned,  # IN (8, 8) its transpose
    float noise,
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image, without padding, are written
    float[:, :] out,  # OUT (H, W)
):
    """Compute the weighted mean of all shrunk patches that contain a pixel."""
    cdef:
        group_task task
        Py_ssize_t i, j, margin = search + SIDE - 1, stride = image.shape[1]
        # First rows of all patches in groups that contribute to the rows to write.
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


# Denoising by shrinking 8 x 8 patches in the cosine transform domain -------------------------------------------------

cdef extern from "patch_shrinkage.h" nogil:
    Py_ssize_t PATCH_STRIDE(Py_ssize_t)
    void shrink_rows(
        const float*, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, const float*, float, Py_ssize_t, Py_ssize_t,
        float*, float*, float*, float*, float*, float*, float*, Py_ssize_t, Py_ssize_t, Py_ssize_t)


def patch_stride(Py_ssize_t width):
    """Return the row length of a padded image that shrink_patches requires."""
    return PATCH_STRIDE(width + 2 * (SIDE - 1))


def shrink_patches(
    const float[:, ::1] image,  # IN (H + 14, S) padded by 7 pixels on every side; values behind the padding are ignored
    const float[:, :, ::1] thresholds,  # IN (T, 8, 8) threshold of each coefficient
    float level,  # added to the result
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image, without padding, are written
    float[:, :, :] out,  # OUT (H, W, T)
):
    """Compute the weighted mean of all shrunk patches that contain a pixel, for every set of thresholds."""
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
