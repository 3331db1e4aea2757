# distutils: language = c++
"""Scores made ready for message passing: padded rows, exponentiated tables."""

from cython cimport floating
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.field cimport MAX_SCORE, Field, open_field
from sklearn_crf.kernels.rows cimport exponentiate_all, row_below_best


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
        Field[floating] f
        Py_ssize_t e, a, b
        Py_ssize_t K = factors.shape[1], W = factors.shape[2]
        floating padding
        floating* rows
        floating* columns
    if factors.shape[0] not in (place.shape[0], 2 * place.shape[0]):
        raise ValueError("place must have a row for each factor or for each two.")
    open_field(field, &f)
    padding = -INFINITY if f.semiring == MAX_SCORE else 0
    with nogil:
        for e in range(place.shape[0]):
            rows = &factors[place[e, 0], 0, 0]
            columns = &factors[place[e, 1], 0, 0]
            f.compute_factor(e, rows, &shift[e])
            if columns == rows:
                continue
            for a in range(K):
                for b in range(K):
                    columns[a * W + b] = rows[b * W + a]
                for b in range(K, W):
                    columns[a * W + b] = padding


def largest_range_of_edges(
    const floating[:, ::1] edge_weight,  # IN (E, R)
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, ::1] spread,  # IN (T, R) of the tables of types
):
    """Largest spread of the scores of an edge."""
    cdef:
        Py_ssize_t e, r
        double own, largest = 0
    with nogil:
        for e in range(edge_weight.shape[0]):
            own = 0
            for r in range(edge_weight.shape[1]):
                own += fabs(edge_weight[e, r]) * spread[edge_type[e], r]
            largest = own if own > largest else largest
    return largest


def fill_potts_factors(
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K) each of one value on the diagonal and one off it
    const int32_t[::1] edge_type,  # IN (n,)
    const floating[:, ::1] edge_weight,  # IN (n, R), or empty where R is 1
    bint exponentiated,
    floating[::1] on,  # OUT (n,)
    floating[::1] off,  # OUT (n,)
    double[::1] shift,  # OUT (n,) score taken out of each
):
    """Diagonal and rest of the tables of edges less the larger, or their exponentials."""
    cdef:
        Py_ssize_t first, e, r, n, R = tables.shape[1]
        bint weighted = edge_weight.shape[0] > 0
        floating same, different, top, weight
        floating of_same[64]
        floating of_different[64]
    with nogil:
        for first in range(0, on.shape[0], 64):
            n = min(on.shape[0] - first, 64)
            for e in range(n):
                same = different = 0
                for r in range(R):
                    weight = edge_weight[first + e, r] if weighted else 1
                    same += weight * tables[edge_type[first + e], r, 0, 0]
                    different += weight * tables[edge_type[first + e], r, 0, 1]
                top = same if same > different else different
                shift[first + e] = top
                of_same[e] = same - top if top > -INFINITY else -INFINITY
                of_different[e] = different - top if top > -INFINITY else -INFINITY
            if exponentiated:
                for e in range(n, 64):
                    of_same[e] = of_different[e] = 0
                exponentiate_all(&of_same[0], 64)
                exponentiate_all(&of_different[0], 64)
            for e in range(n):
                on[first + e], off[first + e] = of_same[e], of_different[e]
