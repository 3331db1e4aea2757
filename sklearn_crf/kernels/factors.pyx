"""Scores made ready for message passing: padded rows, exponentiated tables."""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from sklearn_crf.kernels.field cimport MAX_SCORE, Field, compute_factor, open_field
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


def copy_probabilities(
    const floating[:, ::1] given,  # IN (n, K)
    floating least,
    floating[:, ::1] out,  # OUT (n, width) what is given, at least this, and 0 in the padding
):
    """Start messages from those of a former result; False where one is not a number."""
    cdef:
        Py_ssize_t s, a, K = given.shape[1]
        bint are_numbers = True
        floating x
    with nogil:
        for s in range(given.shape[0]):
            for a in range(K):
                x = given[s, a]
                are_numbers = are_numbers and x == x
                out[s, a] = x if x > least else least
            for a in range(K, out.shape[1]):
                out[s, a] = 0
    return are_numbers


def range_of_tables(
    const floating[:, ::1] tables,  # IN (n, K * K) scores
    double[::1] largest_range,  # OUT (n,) between the finite scores of each table
):
    """Spread of the scores of tables; whether one of them forbids a pair."""
    cdef:
        Py_ssize_t i, cell
        floating low, high, x
        bint forbids = False
    with nogil:
        for i in range(tables.shape[0]):
            low = INFINITY
            high = -INFINITY
            for cell in range(tables.shape[1]):
                x = tables[i, cell]
                if x == -INFINITY:
                    forbids = True
                    continue
                low = x if x < low else low
                high = x if x > high else high
            largest_range[i] = <double> high - low if high > -INFINITY else 0
    return forbids


def fill_factors(
    object field,  # IN arrays of a model without stored factors, its edges the rows to fill
    floating[:, :, ::1] factors,  # OUT (m, K, width)
    const int32_t[:, ::1] place,  # IN (n, 2) where each goes, read from the first and from the second end, or both
    double[::1] shift,  # OUT (n,) score taken out of each
):
    """Exponentiated (or, for maxima, plain) tables of edges, for each direction or once for both."""
    cdef:
        Field f
        Py_ssize_t e, a, b
        Py_ssize_t K = factors.shape[1], W = factors.shape[2]
        floating padding
        floating* rows
        floating* columns
    if factors.shape[0] not in (place.shape[0], 2 * place.shape[0]):
        raise ValueError("place must have a row for each factor or for each two.")
    open_field(field, &f, &factors[0, 0, 0] if factors.shape[0] else NULL)
    padding = -INFINITY if f.semiring == MAX_SCORE else 0
    with nogil:
        for e in range(place.shape[0]):
            rows = &factors[place[e, 0], 0, 0]
            columns = &factors[place[e, 1], 0, 0]
            compute_factor(&f, e, rows, &shift[e])
            if columns == rows:
                continue
            for a in range(K):
                for b in range(K):
                    columns[a * W + b] = rows[b * W + a]
                for b in range(K, W):
                    columns[a * W + b] = padding
