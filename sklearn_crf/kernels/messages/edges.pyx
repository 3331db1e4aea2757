"""Factors, messages and beliefs of edges, as probabilities, scores and log-odds."""

from cython cimport floating
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.addresses cimport set_address
from sklearn_crf.kernels.messages.field cimport MAX_SCORE, Field, open_field
from sklearn_crf.kernels.rows cimport exponentiate_all, row_below_best


# Preparation of scores for message passing: padded rows and exponentiated tables.

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
    """Copy the messages of a previous result as starting values; return False if one of them is NaN."""
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
        raise ValueError("place must have a row for each factor, or for each pair of factors.")
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


# Sweeps of messages between nodes of two states, where each message is one number, and conversions.

cdef extern from "messages/odds.hpp" namespace "crf" nogil:
    cdef cppclass OddsSweep[Real]:
        const int64_t* ptr
        const int32_t* neighbor
        const int32_t* reverse
        const Real* unary
        const Real* coupling
        const Real* power
        const Real* share
        Real* odds
        const int32_t* nodes
        const int32_t* rank
        double damping
        Real* fresh
        double send_nodes(int, Py_ssize_t, Py_ssize_t)
        double renew(Py_ssize_t, Py_ssize_t)

    cdef cppclass OddsTables[Real]:
        int64_t n_features
        const int32_t* edge_type
        const Real* tables
        const Real* edge_weight

    cdef cppclass OddsConversion[Real]:
        void from_scores(
            const int64_t*, Py_ssize_t, const int32_t*, Py_ssize_t, OddsTables[Real], const Real*, const Real*,
            Py_ssize_t, Real*, double*, double*, Real*, Real*, Py_ssize_t)
        void from_probabilities(const Real*, Py_ssize_t, Py_ssize_t, const double*, Real*, Py_ssize_t)
        void to_probabilities(const Real*, const double*, Py_ssize_t, Real*, Py_ssize_t)


cdef void open_odds(
    OddsSweep[floating]* sweep, object arrays, floating[::1] odds, const int32_t[::1] nodes, const int32_t[::1] rank,
    double damping, floating[::1] fresh
) except *:
    set_address(&sweep.ptr, arrays.ptr)
    set_address(&sweep.neighbor, arrays.neighbor)
    set_address(&sweep.reverse, arrays.reverse)
    set_address(&sweep.unary, arrays.unary)
    set_address(&sweep.coupling, arrays.coupling)
    set_address(&sweep.power, arrays.power)
    set_address(&sweep.share, arrays.share)
    sweep.odds, sweep.fresh, sweep.damping = &odds[0], &fresh[0], damping
    sweep.nodes = &nodes[0] if nodes.shape[0] else NULL
    sweep.rank = &rank[0] if rank.shape[0] else NULL


def send_odds(
    object arrays,  # IN ``sklearn_crf.inference._field.OddsField``
    floating[::1] odds,  # INOUT (2E + PADDING,) messages by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in the order of all nodes, used if direction is not 0
    int direction,  # 1: to nodes of higher rank, -1: to nodes of lower rank, in reverse order, 0: to all
    double damping,  # weight of the old message
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes nodes[start:stop] send
    floating[::1] fresh,  # workspace (largest degree + PADDING,)
):
    """Send the messages of nodes in turn; return the largest change of a message."""
    cdef:
        OddsSweep[floating] sweep
        double change
    open_odds(&sweep, arrays, odds, nodes, rank, damping, fresh)
    with nogil:
        change = sweep.send_nodes(direction, start, stop)
    return change


def renew_odds(
    object arrays,  # IN ``sklearn_crf.inference._field.OddsField``
    floating[::1] odds,  # INOUT (2E + PADDING,) messages by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in that order
    double damping,  # weight of the old message
    const int64_t[:, ::1] ranges,  # IN (m, 2) first and last + 1 position of ranges without messages in between
    double[::1] changes,  # OUT (m,) largest change of a message in each range
    floating[::1] fresh,  # workspace (largest degree + PADDING,)
):
    """Send the messages of the nodes of some ranges, forwards through each range and then backwards."""
    cdef:
        OddsSweep[floating] sweep
        Py_ssize_t k
    open_odds(&sweep, arrays, odds, nodes, rank, damping, fresh)
    with nogil:
        for k in range(ranges.shape[0]):
            changes[k] = sweep.renew(ranges[k, 0], ranges[k, 1])


def odds_of_scores(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows: the table of an edge is the first table of its type
    const floating[::1] power,  # IN (E,)
    const floating[:, ::1] probabilities,  # IN (N, width) exponentials of the scores of nodes in the first two columns
    floating[::1] unary,  # OUT (N,) log-odds of nodes from their scores and from tables
    double[::1] coupling,  # OUT (E,) exp(-|J|) with the sign of J
    double[::1] offset,  # OUT (2E,) term of the edge of a slot in the log-odds of its node
    floating[::1] couplings,  # OUT (2E + PADDING,) by slot, 1 in the padding
    floating[::1] powers,  # OUT (2E + PADDING,) by slot, 1 in the padding
):
    """Split the tables of edges into couplings of equal states and scores of nodes."""
    cdef:
        OddsConversion[floating] conversion
        OddsTables[floating] of_edges
        Py_ssize_t n_nodes = unary.shape[0], n_edges = coupling.shape[0]
        const floating* weights = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    if n_edges == 0 or n_nodes == 0:
        raise ValueError("odds_of_scores needs a model with edges.")
    of_edges.n_features, of_edges.edge_type = tables.shape[1], &edge_type[0]
    of_edges.tables, of_edges.edge_weight = &tables[0, 0, 0, 0], weights
    with nogil:
        conversion.from_scores(
            &ptr[0], n_nodes, &half_edge[0], n_edges, of_edges, &power[0], &probabilities[0, 0],
            probabilities.shape[1], &unary[0], &coupling[0], &offset[0], &couplings[0], &powers[0],
            couplings.shape[0]
        )


def odds_of_probabilities(
    const floating[:, ::1] messages,  # IN (2E, width) in the first two columns
    const double[::1] offset,  # IN (2E,)
    floating[::1] odds,  # OUT (2E + PADDING,), 1 in the padding
):
    """Convert probabilities to log-odds minus offsets."""
    cdef:
        OddsConversion[floating] conversion
        Py_ssize_t n = messages.shape[0]
    with nogil:
        conversion.from_probabilities(&messages[0, 0], messages.shape[1], n, &offset[0], &odds[0], odds.shape[0])


def probabilities_of_odds(
    const floating[::1] odds,  # IN (2E + PADDING,)
    const double[::1] offset,  # IN (2E,)
    floating[:, ::1] messages,  # OUT (2E, width) in the first two columns
):
    """Convert log-odds plus offsets to probabilities."""
    cdef:
        OddsConversion[floating] conversion
        Py_ssize_t n = messages.shape[0]
    with nogil:
        conversion.to_probabilities(&odds[0], &offset[0], n, &messages[0, 0], messages.shape[1])


# Marginals of nodes and edges from messages, and the contributions of both to the log-partition.

cdef extern from "messages/beliefs.hpp" namespace "crf" nogil:
    cdef cppclass Beliefs[Real]:
        Field[Real] field
        const Real* messages
        Real* beliefs
        const Real* row_totals
        double* pair
        void open(double*)
        Py_ssize_t of_nodes(double*, Py_ssize_t, Py_ssize_t)
        Py_ssize_t add_log_normalisers(double*, Py_ssize_t)
        Py_ssize_t add_statistics(double*, bint, double*, Py_ssize_t, Py_ssize_t)
        double of_edge(Py_ssize_t, Py_ssize_t)


cdef void open_beliefs(object field, Beliefs[floating]* found, const floating[:, ::1] messages,
                       const floating[:, ::1] beliefs, double[::1] work) except *:
    open_field(field, &found.field)
    found.messages = &messages[0, 0] if messages.shape[0] else NULL
    found.beliefs = <floating*> &beliefs[0, 0] if beliefs.shape[0] else NULL
    found.row_totals = NULL
    found.open(&work[0])


def node_beliefs(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    floating[:, ::1] beliefs,  # OUT (N, width) probabilities, or their logarithms if the field keeps scores
    double[::1] log_z_terms,  # OUT (N,) log-normaliser of each node
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes start to stop - 1
    double[::1] work,  # workspace
):
    """Compute node beliefs; return -1, or the first node without a possible state."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t failed
    if start >= stop:
        return -1
    open_beliefs(field, &found, messages, beliefs, work)
    with nogil:
        failed = found.of_nodes(&log_z_terms[0], start, stop)
    return failed


def pair_statistics(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    double[:, :, :, ::1] statistics,  # INOUT (T, R, K, width) summed edge weight * pairwise belief
    bint without_factor,  # omit the factor of edges from the sums, if all edges of a type share it
    const floating[:, ::1] row_totals,  # IN (n, width) row sums of factors; empty if messages may not have converged
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    Py_ssize_t start,
    Py_ssize_t stop,  # the edges that start from nodes start to stop - 1
    double[::1] work,  # workspace
):
    """Sum the pairwise beliefs of edges by type; return -1, or the first edge without a possible pair."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t failed
    if start >= stop or not statistics.shape[0]:
        return -1
    open_beliefs(field, &found, messages, beliefs, work)
    if row_totals.shape[0]:
        found.row_totals = &row_totals[0, 0]
    with nogil:
        failed = found.add_statistics(&statistics[0, 0, 0, 0], without_factor, &log_z_terms[0], start, stop)
    return failed


def edge_log_normalisers(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    const floating[:, ::1] row_totals,  # IN (n, width) row sums of factors; empty if messages may not have converged
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    double[::1] work,  # workspace
):
    """Add the contributions of edges to the log-partition; return -1, or the first edge without a possible pair."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t failed = -1
    open_beliefs(field, &found, messages, beliefs, work)
    if row_totals.shape[0]:
        found.row_totals = &row_totals[0, 0]
    if beliefs.shape[0]:
        with nogil:
            failed = found.add_log_normalisers(&log_z_terms[0], beliefs.shape[0])
    return failed


def edge_beliefs(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    const int32_t[:, ::1] slots,  # IN (n, 2) first end of each requested edge, and its slot at this node
    floating[:, :, ::1] marginals,  # OUT (n, K, K)
    double[::1] work,  # workspace
):
    """Compute the pairwise beliefs of given edges; return -1, or the first edge without a possible pair."""
    cdef:
        Beliefs[floating] found
        Py_ssize_t i, a, b, W = beliefs.shape[1], K = marginals.shape[1], failed = -1
    open_beliefs(field, &found, messages, beliefs, work)
    with nogil:
        for i in range(slots.shape[0]):
            if found.of_edge(slots[i, 0], slots[i, 1]) == -INFINITY:
                failed = i
                break
            for a in range(K):
                for b in range(K):
                    marginals[i, a, b] = <floating> found.pair[a * W + b]
    return failed
