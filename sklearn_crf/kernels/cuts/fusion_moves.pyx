"""Binary choices between two labelings as a flow network: each node keeps its state or takes an alternative state.

The terms of an edge are defined in binary_edge.hpp.
"""

from cython cimport floating
from libc.math cimport INFINITY, fabs, isinf
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.cuts.binary_edge cimport (
    STOP,
    TRUNCATE,
    Choice,
    EdgeScores,
    EdgeTerms,
    LatticeShape,
    Rounding,
    capacity,
    edge_scores,
    lattice_arcs,
    list_open,
)


def unary_spread(
    const floating[:, ::1] unary,  # IN (N, K)
):
    """Return the sum over nodes of best minus worst finite score, and the number of nodes where they differ."""
    cdef:
        Py_ssize_t node, state
        int64_t n_unlike = 0
        double total = 0.0
        floating high, low, value
    with nogil:
        for node in range(unary.shape[0]):
            high = low = unary[node, 0]
            for state in range(1, unary.shape[1]):
                value = unary[node, state]
                high = value if value > high else high
                low = value if (value < low and value > -INFINITY) or low == -INFINITY else low
            if high > low and low > -INFINITY:
                total += <double> high - <double> low
                n_unlike += 1
    return total, n_unlike


def node_terms(
    const floating[:, ::1] unary,  # IN (N, K)
    const int32_t[::1] keep,  # IN (N,) current state
    const int32_t[::1] take,  # IN (N,) alternative state
    double[::1] cost,  # OUT (N,) cost of taking the alternative
):
    """Compute the unary part of the cost of taking the alternative state."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(cost.shape[0]):
            cost[i] = 0.0 if keep[i] == take[i] else <double> unary[i, keep[i]] - <double> unary[i, take[i]]


def edge_influence(
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2)
    double[:, ::1] width,  # workspace (T, R)
    double[::1] influence,  # OUT (N,)
):
    """Compute the largest score difference between two states of a node that its edges can cause."""
    cdef:
        Py_ssize_t kind, r, entry, edge, n_entries = tables.shape[2] * tables.shape[3]
        double total
        floating low, high
        const floating* table
    with nogil:
        for kind in range(tables.shape[0]):
            for r in range(tables.shape[1]):
                table = &tables[kind, r, 0, 0]
                low = high = table[0]
                for entry in range(1, n_entries):
                    low = table[entry] if table[entry] < low else low
                    high = table[entry] if table[entry] > high else high
                width[kind, r] = <double> high - <double> low
        influence[:] = 0.0
        for edge in range(edges.shape[0]):
            kind = edge_type[edge]
            total = 0.0
            for r in range(tables.shape[1]):
                total += width[kind, r] * (fabs(edge_weight[edge, r]) if edge_weight.shape[0] else 1.0)
            influence[edges[edge, 0]] += total
            influence[edges[edge, 1]] += total


def settle_by_scores(
    const floating[:, ::1] unary,  # IN (N, K)
    const double[::1] influence,  # IN (N,) from edge_influence
    int32_t[::1] keep,  # IN/OUT (N,) current state
    int32_t[::1] take,  # IN/OUT (N,) alternative state
):
    """Decide nodes whose own scores determine the choice; return the number of nodes that still have a choice."""
    cdef:
        Py_ssize_t i, n_free = 0
        int32_t kept, taken
        double cost
    with nogil:
        for i in range(keep.shape[0]):
            kept, taken = keep[i], take[i]
            cost = <double> unary[i, kept] - <double> unary[i, taken]
            # Selections replace branches, which would often be mispredicted. Nodes with equal states are unchanged.
            keep[i] = taken if cost < -influence[i] else kept
            take[i] = kept if cost >= influence[i] else taken
            n_free += keep[i] != take[i]
    return n_free


def settle_by_changes(
    const int64_t[::1] steps,  # IN (D,) steps to the neighbours of a lattice node, or empty
    const int64_t[::1] ptr,  # IN (N + 1,), or empty on a lattice
    const int32_t[::1] neighbor,  # IN (2E,), or empty
    const int32_t[::1] changed,  # IN (N,) index of the last move that changed each node
    int32_t since,  # IN number of moves made when this move was last tried
    const int32_t[::1] keep,  # IN (N,) current state
    int32_t[::1] take,  # IN/OUT (N,) alternative state
    uint8_t[::1] reached,  # workspace (N,)
    int32_t[::1] stack,  # workspace (N,)
):
    """Remove the choice of nodes that are not connected, by nodes with a choice, to a changed node."""
    cdef:
        Py_ssize_t i, j, k, n_nodes = keep.shape[0], n_waiting = 0
        bint on_lattice = steps.shape[0] > 0
        Py_ssize_t first = 0, last = steps.shape[0]
    with nogil:
        for i in range(n_nodes):
            reached[i] = changed[i] > since
            stack[n_waiting] = <int32_t> i
            n_waiting += reached[i]
        while n_waiting > 0:
            n_waiting -= 1
            i = stack[n_waiting]
            if not on_lattice:
                first, last = ptr[i], ptr[i + 1]
            for k in range(first, last):
                # A step past the end of a row reaches the next row; reaching too many nodes does no harm.
                j = i + steps[k] if on_lattice else neighbor[k]
                if j < 0 or j >= n_nodes or reached[j]:
                    continue
                reached[j] = True
                if keep[j] != take[j]:
                    stack[n_waiting] = <int32_t> j
                    n_waiting += 1
        for i in range(n_nodes):
            take[i] = take[i] if reached[i] else keep[i]


def lattice_terms(
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2) offset by offset
    const int32_t[::1] keep,  # IN (N,)
    const int32_t[::1] take,  # IN (N,)
    const int64_t[::1] counts,  # IN (D / 2,) number of edges of each offset
    int64_t exponent,  # IN a unit of score is 2**exponent units of capacity
    int64_t endless,  # IN capacity that represents infinity
    double precision,  # IN relative rounding of the scores
    int mode,  # IN 0 to stop at a non-submodular edge, 1 to truncate it
    double[::1] cost,  # IN/OUT (N,) cost of taking the alternative
    uint8_t[::1] is_open,  # workspace (N,)
    int32_t[::1] nodes,  # workspace (N,)
    capacity[:, ::1] residual,  # OUT (guard + N + guard, D)
):
    """Convert all edges to arcs of a lattice; return the edge at which it stopped, or -1."""
    cdef:
        int64_t stopped, n_open
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
        LatticeShape lattice
        Choice choice
        Rounding rounding
    lattice.n_nodes, lattice.guard = cost.shape[0], (residual.shape[0] - cost.shape[0]) // 2
    lattice.degree, lattice.counts, lattice.edges = residual.shape[1], &counts[0], &edges[0, 0]
    choice.keep, choice.take = &keep[0], &take[0]
    rounding.set_exponent(exponent)
    rounding.most, rounding.precision, rounding.mode = endless, precision, mode
    with nogil:
        n_open = list_open(choice, lattice.n_nodes, &is_open[0], &nodes[0])
        stopped = lattice_arcs(scores, lattice, choice, &is_open[0], n_open, rounding, &cost[0], &residual[0, 0])
    return stopped


def slot_terms(
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] keep,  # IN (N,)
    const int32_t[::1] take,  # IN (N,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    int64_t exponent,  # IN a unit of score is 2**exponent units of capacity
    int64_t endless,  # IN capacity that represents infinity
    double precision,  # IN relative rounding of the scores
    int mode,  # IN 0 to stop at a non-submodular edge, 1 to truncate it, 2 to lead it to the mirror image
    double[::1] cost,  # IN/OUT (N,) cost of taking the alternative
    capacity[::1] residual,  # OUT (2E,), or (4E,) with the mirror image
    uint8_t[::1] cross,  # OUT (2E,), or empty without the mirror image
):
    """Convert all edges to arcs by slot; return the edge at which it stopped, or -1."""
    cdef:
        Py_ssize_t slot, other, edge, n_slots = half_edge.shape[0]
        int32_t i, j
        int64_t there, back
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
        EdgeTerms terms, none
        Choice choice
        Rounding rounding
    rounding.set_exponent(exponent)
    rounding.most = endless
    choice.keep, choice.take = &keep[0] if keep.shape[0] else NULL, &take[0] if take.shape[0] else NULL
    with nogil:
        for slot in range(n_slots):
            if half_edge[slot] & 1:
                continue
            edge, other = half_edge[slot] >> 1, reverse[slot]
            i, j = edges[edge, 0], edges[edge, 1]
            terms = none
            if keep[i] == take[i] or keep[j] == take[j]:
                if keep[i] != take[i] or keep[j] != take[j]:
                    scores.settle(edge, choice, i, j, cost[j if keep[i] == take[i] else i])
            else:
                terms = scores.terms(edge, keep[i], take[i], keep[j], take[j], precision, mode)
                if terms.lacking > 0.0:
                    if mode == STOP or (mode == TRUNCATE and isinf(terms.lacking)):
                        with gil:
                            return edge
                cost[i] += terms.first
                cost[j] += terms.second
            there, back = rounding.capacity(terms.there), rounding.capacity(terms.back)
            residual[slot] = <capacity> there
            if cross.shape[0] == 0:
                residual[other] = <capacity> back
                continue
            # In the mirror image, every arc has the opposite direction.
            cross[slot] = cross[other] = terms.crossed
            residual[slot + n_slots] = <capacity> back
            residual[other + n_slots * terms.crossed] = <capacity> back
            residual[other + n_slots * (1 - terms.crossed)] = <capacity> there
    return -1


def find_not_submodular(
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    double precision,  # IN relative rounding of the scores
):
    """Return the first non-submodular edge of a binary model or -1, its violation, and the number of such edges."""
    cdef:
        Py_ssize_t edge, first = -1
        int64_t count = 0
        double lacking = 0.0
        EdgeTerms terms
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
    with nogil:
        for edge in range(edge_type.shape[0]):
            terms = scores.terms(edge, 0, 1, 0, 1, precision, STOP)
            if terms.lacking > 0.0:
                if first < 0:
                    first, lacking = edge, terms.lacking
                count += 1
    return first, lacking, count


def truncation_slack(
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] labels,  # IN (N,)
    double precision,  # IN relative rounding of the scores
):
    """Return half the sum of b + c - a - d over truncated edges whose ends have equal labels."""
    cdef:
        Py_ssize_t edge
        double total = 0.0
        EdgeTerms terms
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
    with nogil:
        for edge in range(edges.shape[0]):
            if labels[edges[edge, 0]] == labels[edges[edge, 1]]:
                terms = scores.terms(edge, 0, 1, 0, 1, precision, TRUNCATE)
                total += terms.lacking
    return total / 2


def half_integral_score(
    const floating[:, ::1] unary,  # IN (N, 2)
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] labels,  # IN (N,) 0, 1, or -1 for half of each state
):
    """Return the score of half-integral labels in the local polytope relaxation, with the best pair marginals."""
    cdef:
        Py_ssize_t node, edge
        int32_t i, j
        double total = 0.0, even, odd
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
    with nogil:
        for node in range(labels.shape[0]):
            if labels[node] >= 0:
                total += unary[node, labels[node]]
            else:
                total += (<double> unary[node, 0] + <double> unary[node, 1]) / 2
        for edge in range(edges.shape[0]):
            i, j = labels[edges[edge, 0]], labels[edges[edge, 1]]
            even = odd = 0.0
            if i >= 0 and j >= 0:
                even = odd = 2 * scores.score(edge, i, j)
            elif i >= 0:
                even = scores.score(edge, i, 0)
                even = odd = even + scores.score(edge, i, 1)
            elif j >= 0:
                even = scores.score(edge, 0, j)
                even = odd = even + scores.score(edge, 1, j)
            else:
                even = scores.score(edge, 0, 0)
                even += scores.score(edge, 1, 1)
                odd = scores.score(edge, 0, 1)
                odd += scores.score(edge, 1, 0)
            total += (even if even > odd else odd) / 2
    return total


def complete_sweep(
    const floating[:, ::1] unary,  # IN (N, 2)
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] nodes,  # IN nodes that may change
    int32_t[::1] labels,  # IN/OUT (N,)
):
    """Give each node in turn the better state given its neighbours; return the number of changes."""
    cdef:
        Py_ssize_t position, slot, edge
        int64_t changes = 0
        int32_t node, other, state
        double score[2]
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
    with nogil:
        for position in range(nodes.shape[0]):
            node = nodes[position]
            for state in range(2):
                score[state] = unary[node, state]
            for slot in range(ptr[node], ptr[node + 1]):
                edge, other = half_edge[slot] >> 1, labels[neighbor[slot]]
                for state in range(2):
                    if half_edge[slot] & 1:
                        score[state] += scores.score(edge, other, state)
                    else:
                        score[state] += scores.score(edge, state, other)
            state = 1 - labels[node]
            if score[state] > score[1 - state]:
                labels[node] = state
                changes += 1
    return changes


def score_gain(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] old,  # IN (N,)
    const int32_t[::1] new,  # IN (N,)
):
    """Return the score of the new labeling minus the score of the old labeling, from changed nodes and edges only."""
    cdef:
        Py_ssize_t node, edge
        int32_t i, j
        double total = 0.0
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
    with nogil:
        for node in range(old.shape[0]):
            if old[node] != new[node]:
                total += <double> unary[node, new[node]] - <double> unary[node, old[node]]
        for edge in range(edges.shape[0]):
            i, j = edges[edge, 0], edges[edge, 1]
            if old[i] != new[i] or old[j] != new[j]:
                total += scores.score(edge, new[i], new[j])
                total -= scores.score(edge, old[i], old[j])
    return total


def integer_excess(
    const double[::1] cost,  # IN (N,) cost of taking the alternative; infinite if a choice is forbidden
    int64_t exponent,  # IN a unit of score is 2**exponent units of capacity
    int64_t most,  # IN limit of excess, at least the capacity that leaves or enters a node
    capacity[::1] excess,  # OUT (N,), or (2N,) with the mirror image in the second half
):
    """Convert costs to units of capacity; return the first node whose choices are both forbidden, or -1."""
    cdef:
        Py_ssize_t i, n_nodes = cost.shape[0]
        Rounding rounding
    rounding.set_exponent(exponent)
    rounding.most = most
    with nogil:
        for i in range(n_nodes):
            if not rounding.excess(cost[i], excess[i]):
                with gil:
                    return i
            if excess.shape[0] > n_nodes:
                excess[n_nodes + i] = -excess[i]
    return -1


def capacity_bound(
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    double[::1] largest,  # workspace (R,)
):
    """Return a bound on the finite capacity of an arc for all pairs of labelings, and whether any is infinite."""
    cdef:
        Py_ssize_t kind, r, edge, entry, n_entries = tables.shape[2] * tables.shape[3]
        double low, high, value, total, bound = 0.0
        bint endless = False
        const floating* table
    with nogil:
        for r in range(largest.shape[0]):
            largest[r] = 0.0 if edge_weight.shape[0] else 1.0
        for edge in range(edge_weight.shape[0]):
            for r in range(largest.shape[0]):
                value = fabs(edge_weight[edge, r])
                largest[r] = value if value > largest[r] else largest[r]
        for kind in range(tables.shape[0]):
            total = 0.0
            for r in range(largest.shape[0]):
                table = &tables[kind, r, 0, 0]
                low, high = INFINITY, -INFINITY
                for entry in range(n_entries):
                    if isinf(table[entry]):
                        endless = True
                        continue
                    low = table[entry] if table[entry] < low else low
                    high = table[entry] if table[entry] > high else high
                # A capacity is half of a difference of two score differences, so it is at most the range.
                total += (high - low) * largest[r] if high > low else 0.0
            bound = total if total > bound else bound
    return bound, endless
