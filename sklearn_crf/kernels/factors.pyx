"""Scores made ready for message passing: padded rows, exponentiated tables."""

from cython cimport floating
from libc.stdint cimport int32_t

from sklearn_crf.kernels.field cimport Field, half_edge_factor, open_field
from sklearn_crf.kernels.rows cimport row_below_best


def rows_below_best(
    const floating[:, ::1] scores,  # IN (N, K)
    floating[:, ::1] shifted,  # OUT (N, width) less the best of the row, -inf in the padding
    double[::1] best,  # OUT (N,)
):
    """Shift rows so that the best of each is 0."""
    cdef Py_ssize_t s
    with nogil:
        for s in range(scores.shape[0]):
            best[s] = row_below_best(&scores[s, 0], scores.shape[1], shifted.shape[1], &shifted[s, 0])


def fill_factors(
    object field,  # IN arrays of a model without stored factors, its edges the rows to fill
    floating[:, :, :, ::1] factors,  # OUT (n, 2, K, width)
    double[::1] shift,  # OUT (n,) score taken out of each
):
    """Exponentiated (or, for maxima, plain) tables of edges in both directions."""
    cdef:
        Field f
        Py_ssize_t e
    open_field(field, &f, &factors[0, 0, 0, 0] if factors.shape[0] else NULL)
    with nogil:
        for e in range(factors.shape[0]):
            half_edge_factor(&f, <int32_t> (2 * e), &factors[e, 0, 0, 0], &shift[e])
            half_edge_factor(&f, <int32_t> (2 * e + 1), &factors[e, 1, 0, 0], &shift[e])
