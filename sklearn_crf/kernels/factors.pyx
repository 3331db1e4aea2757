# distutils: language = c++
"""Preparation of scores for message passing: padded rows and exponentiated tables."""

from cython cimport floating
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.field cimport MAX_SCORE, Field, open_field
from sklearn_crf.kernels.rows cimport exponentiate_all, row_below_best


def rows_below_best(
    const floating[:, ::1] scores,  # IN (N, K)
    floating[:, ::1] shifted,  # OUT (N, width) scores minus the maximum of the row, -inf in the padding
    double[::1] best,  # OUT (N,) maximum of each row
):
    """Shift every row so that its maximum is 0."""
    cdef Py_ssize_t s
    with nogil:
        for s in range(scores.shape[0]):
            best[s] = row_below_best(&scores[s, 0], scores.shape[1], shifted.shape[1], &shifted[s, 0])


def copy_probabilities(
    const floating[:, ::1] given,  # IN (n, K)
    floating least,
    floating[:, ::1] out,  # OUT (n, width) given values, raised to `least` if smaller; 0 in the padding
):
    """Copy the messages of a former result as starting values; return False if one of them is NaN."""
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
    double[::1] largest_range,  # OUT (n,) range of the finite scores of each table
):
    """Compute the score range of each table, and return whether a table forbids a pair."""
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
    object field,  # IN arrays of a model without stored factors, whose edges are the rows to fill
    floating[:, :, ::1] factors,  # OUT (m, K, width)
    const int32_t[:, ::1] place,  # IN (n, 2) row of each edge in `factors`, for its first and its second end
    double[::1] shift,  # OUT (n,) score subtracted from each edge
):
    """Store the tables of edges, exponentiated unless for maxima, for each direction or once for both."""
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
    const double[:, ::1] spread,  # IN (T, R) score range of the tables of each edge type
):
    """Return an upper bound on the score range of any edge."""
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
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K) each with one value on the diagonal and one value off it
    const int32_t[::1] edge_type,  # IN (n,)
    const floating[:, ::1] edge_weight,  # IN (n, R), or empty if R is 1
    bint exponentiated,
    floating[::1] on,  # OUT (n,)
    floating[::1] off,  # OUT (n,)
    double[::1] shift,  # OUT (n,) score subtracted from each edge
):
    """Compute the diagonal and off-diagonal value of each edge minus the larger of both, or their exponentials."""
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
