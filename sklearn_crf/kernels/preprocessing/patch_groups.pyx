"""Images whose similar 8 x 8 patches are shrunk together."""

import numpy as np

cdef extern from "patch_groups.h" nogil:
    const Py_ssize_t SIDE "GROUP_SIDE"
    const Py_ssize_t BLOCK "GROUP_BLOCK"
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
BEHIND = BLOCK


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
