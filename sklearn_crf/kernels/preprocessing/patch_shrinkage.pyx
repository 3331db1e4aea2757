"""Images whose 8 x 8 patches are shrunk in the domain of the cosine transform."""

import numpy as np

cdef extern from "patch_shrinkage.h" nogil:
    const Py_ssize_t SIDE "PATCH_SIDE"
    Py_ssize_t PATCH_STRIDE(Py_ssize_t)
    void shrink_rows(
        const float*, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t, const float*, float, Py_ssize_t, Py_ssize_t,
        float*, float*, float*, float*, float*, float*, float*, Py_ssize_t, Py_ssize_t, Py_ssize_t)

PATCH_SIDE = SIDE


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
