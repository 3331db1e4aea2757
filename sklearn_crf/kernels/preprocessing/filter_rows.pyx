"""Responses of the pixels of an image to kernels that are products of a column and a row."""

import numpy as np

from libc.stdint cimport int64_t

cdef extern from "filter_rows.h" nogil:
    const Py_ssize_t BLOCK "FILTER_BLOCK"
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
    return (whole_blocks(width) + 2 * margin + BLOCK - 1) // BLOCK * BLOCK


cdef inline Py_ssize_t whole_blocks(Py_ssize_t width) noexcept nogil:
    return (width + BLOCK - 1) // BLOCK * BLOCK


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
