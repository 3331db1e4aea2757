"""Images whose similar 8 x 8 patches are shrunk together."""

import numpy as np

cdef extern from "patch_groups.h" nogil:
    const Py_ssize_t SIDE "GROUP_SIDE"
    void group_rows(
        const float*, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*,
        const float*, float, Py_ssize_t, Py_ssize_t, float*, float*)

PATCH_SIDE = SIDE


def shrink_groups(
    const float[:, ::1] image,  # IN (H + 2 m, W + 2 m) continued by m = search + 7 pixels on every side
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
        Py_ssize_t i, j, margin = search + SIDE - 1, stride = image.shape[1]
        Py_ssize_t height = image.shape[0] - 2 * margin, width = stride - 2 * margin
        float[:, ::1] numerator = np.zeros((max(stop - start, 0), stride), dtype=np.float32)
        float[:, ::1] denominator = np.zeros((max(stop - start, 0), stride), dtype=np.float32)
    if stop <= start:
        return
    with nogil:
        group_rows(&image[0, 0], &pilot[0, 0], stride, height, width, search, step, &basis[0, 0], &turned[0, 0],
                   noise, start, stop, &numerator[0, 0], &denominator[0, 0])
        for i in range(stop - start):
            for j in range(width):
                out[start + i, j] = numerator[i, j + margin] / denominator[i, j + margin]
