"""Products of an image's overlaid masks, whose entries are never stored, with weights and with numbers of pixels.

Rows of a mask are runs of equal entries, so that all is done at the steps between runs: a mask is the sum of its steps
along a row, and what is under it a sum of differences of sums along rows.
"""


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
