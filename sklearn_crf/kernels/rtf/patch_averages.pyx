"""Means over the pixels of a window, weighted by how much their surroundings look alike."""

import numpy as np

cdef extern from "patch_averages.h" nogil:
    const Py_ssize_t ROWS "AVERAGE_ROWS"
    void average_rows(
        const float*, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t,
        Py_ssize_t, Py_ssize_t, float*, float*, float*, float*, float*, float*)


def average_patches(
    const float[:, ::1] image,  # IN (H + 2 m, W + 2 m) continued by m = search + patch pixels on every side
    const float[:, ::1] guide,  # IN the same, in which patches are compared
    Py_ssize_t search,  # pixels from the centre of the window to its border
    Py_ssize_t patch,  # the same of patches
    const float[::1] inverse,  # IN (T,) 1 / (sum of squared differences from which on a weight is 0)
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image without its continuation are written
    float[:, :, :] out,  # OUT (H, W, 2 T) means, and sums of squared weights that add up to one
):
    """Means over windows around each pixel of some rows, and how much of the variance of noise is left in them."""
    cdef:
        Py_ssize_t i, j, t, first, n_rows, T = inverse.shape[0]
        Py_ssize_t width = image.shape[1] - 2 * (search + patch)
        float[:, ::1] squares = np.empty((ROWS + 2 * patch, width + 2 * patch), dtype=np.float32)
        float[:, ::1] lines = np.empty((2, width + 2 * patch), dtype=np.float32)
        float[:, :, :, ::1] sums = np.empty((3, T, ROWS, width), dtype=np.float32)
    if stop <= start or T == 0:
        return
    with nogil:
        first = start
        while first < stop:
            n_rows = min(<Py_ssize_t> ROWS, stop - first)
            average_rows(&image[0, 0], &guide[0, 0], image.shape[1], width, search, patch, &inverse[0], T, first,
                         n_rows, &squares[0, 0], &lines[0, 0], &lines[1, 0], &sums[0, 0, 0, 0], &sums[1, 0, 0, 0],
                         &sums[2, 0, 0, 0])
            for i in range(n_rows):
                for j in range(width):
                    for t in range(T):
                        # The pixel itself always has a weight of one.
                        out[first + i, j, t] = sums[0, t, i, j] / sums[1, t, i, j]
                        out[first + i, j, T + t] = sums[2, t, i, j] / (sums[1, t, i, j] * sums[1, t, i, j])
            first += n_rows
