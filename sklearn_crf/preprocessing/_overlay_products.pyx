"""Products of an image's overlaid masks, whose entries are never stored, with weights and with numbers of pixels."""


def add_masks(
    const signed char[:, :, ::1] masks,  # IN (P, S, S)
    const int[:, ::1] corners,  # IN (P, 2) upper left corner of each mask in the image
    const double[:, ::1] values,  # IN (n, P) factor of each mask; those of 0 are skipped
    double[:, :, ::1] planes,  # OUT (n, H, W) added to
):
    """Sums of masks at their places, each times its factor."""
    cdef:
        Py_ssize_t k, p, i, j, side = masks.shape[1]
        double value
        double *row
        const signed char *mask
    with nogil:
        for k in range(values.shape[0]):
            for p in range(masks.shape[0]):
                value = values[k, p]
                if value == 0.0:
                    continue
                for i in range(side):
                    row = &planes[k, corners[p, 0] + i, corners[p, 1]]
                    mask = &masks[p, i, 0]
                    for j in range(side):
                        row[j] += value * mask[j]


def sum_under_masks(
    const signed char[:, :, ::1] masks,  # IN (P, S, S)
    const int[:, ::1] corners,  # IN (P, 2)
    const double[::1] strengths,  # IN (P,) factor of each mask; those of 0 are skipped
    const double[:, :, ::1] planes,  # IN (n, H, W)
    double[:, ::1] sums,  # OUT (P, n)
):
    """Sum of the numbers under each mask, times its entries and its factor."""
    cdef:
        Py_ssize_t k, p, i, j, side = masks.shape[1]
        double total
        const double *row
        const signed char *mask
    with nogil:
        for k in range(planes.shape[0]):
            for p in range(masks.shape[0]):
                total = 0.0
                if strengths[p] != 0.0:
                    for i in range(side):
                        row = &planes[k, corners[p, 0] + i, corners[p, 1]]
                        mask = &masks[p, i, 0]
                        for j in range(side):
                            total += row[j] * mask[j]
                sums[p, k] = strengths[p] * total
