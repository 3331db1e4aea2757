"""Means over the pixels of a window, weighted by how much their surroundings look alike."""

import numpy as np

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
