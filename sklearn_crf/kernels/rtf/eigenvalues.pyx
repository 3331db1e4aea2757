"""Projection of small symmetric matrices, of which every training step projects thousands."""

from libc.math cimport hypot
from libc.stdint cimport int64_t


cdef inline double clipped(double value, double low, double high) noexcept nogil:
    return low if value < low else high if value > high else value


def clip_eigenvalues_in_place(
    double[::1] values,  # IN OUT (n,) matrices, row by row
    const int64_t[::1] starts,  # IN (n_matrices,) start of each matrix in values
    Py_ssize_t size,  # 1 or 2
    double low,
    double high,
):
    """Make matrices symmetric and clip their eigenvalues, in place. Matrices within the bounds are unchanged."""
    cdef:
        Py_ssize_t k
        double centre, half, cross, radius, upper, lower, scale
        double* own
    for k in range(starts.shape[0]):
        own = &values[starts[k]]
        if size == 1:
            own[0] = clipped(own[0], low, high)
            continue
        centre, half, cross = (own[0] + own[3]) / 2, (own[0] - own[3]) / 2, (own[1] + own[2]) / 2
        own[1] = own[2] = cross
        radius = hypot(half, cross)
        if centre - radius >= low and centre + radius <= high:
            continue
        upper, lower = clipped(centre + radius, low, high), clipped(centre - radius, low, high)
        # Scale the traceless part, which is 0 for a multiple of the identity.
        scale = (upper - lower) / 2 / radius if radius > 0 else 0.0
        own[0], own[3] = (upper + lower) / 2 + scale * half, (upper + lower) / 2 - scale * half
        own[1] = own[2] = scale * cross
