"""Images whose 8 x 8 patches are shrunk in the domain of the cosine transform."""

import numpy as np

cdef extern from "patch_shrinkage.h" nogil:
    const Py_ssize_t SIDE "PATCH_SIDE"
    const Py_ssize_t LANES "PATCH_LANES"
    void shrink_rows(
        const float*, Py_ssize_t, const float*, const float*, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, float*,
        float*, float*, float*, float*, Py_ssize_t)

PATCH_SIDE = SIDE


def shrink_patches(
    const float[:, ::1] image,  # IN (H + 14, W + 14) continued by 7 pixels on every side
    const float[:, ::1] basis,  # IN (8, 8) rows of an orthonormal transform
    const float[:, :, ::1] thresholds,  # IN (T, 8, 8) of each coefficient
    Py_ssize_t start,
    Py_ssize_t stop,  # rows start to stop of the image without its continuation are written
    float[:, :, :] out,  # OUT (H, W, T)
):
    """Weighted mean over the patches around a pixel of what is left of each, for every threshold."""
    cdef:
        Py_ssize_t i, j, t, width = image.shape[1], T = thresholds.shape[0], margin = SIDE - 1
        Py_ssize_t stride = width + LANES + SIDE
        float[:, ::1] columns = np.zeros((SIDE, stride), dtype=np.float32)
        float[:, ::1] sums = np.zeros((T * SIDE, stride), dtype=np.float32)
        float[:, ::1] weights = np.zeros((T, stride), dtype=np.float32)
        float[:, :, ::1] numerator = np.zeros((T, stop - start, stride), dtype=np.float32)
        float[:, :, ::1] denominator = np.zeros((T, stop - start, stride), dtype=np.float32)
        float[::1] is_patch = np.zeros(stride, dtype=np.float32)
    if stop <= start or T == 0:
        return
    for j in range(width - margin):
        is_patch[j] = 1.0
    with nogil:
        shrink_rows(&image[0, 0], width, &basis[0, 0], &thresholds[0, 0, 0], T, &is_patch[0], start, stop,
                    &columns[0, 0], &sums[0, 0], &weights[0, 0], &numerator[0, 0, 0], &denominator[0, 0, 0], stride)
        for i in range(stop - start):
            for j in range(width - 2 * margin):
                for t in range(T):
                    out[start + i, j, t] = numerator[t, i, j + margin] / denominator[t, i, j + margin]
