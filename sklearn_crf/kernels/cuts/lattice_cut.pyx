# distutils: language = c++
"""Minimum cut of a small lattice in one call: capacities, initial flow along lines, and maximum flow."""

from cython cimport floating
from libc.math cimport NAN, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.cuts.binary_edge cimport capacity, integer_cost, lattice_arcs, list_open
from sklearn_crf.kernels.cuts.flow cimport (
    Box,
    Buffers,
    flow_along_lines,
    open_box,
    open_lattice,
    run_lattice,
    spread,
)


cdef inline int64_t n_with_excess(const Buffers[capacity]* buffers, const Box* nodes) noexcept nogil:
    """Return the number of nodes with a choice that have excess."""
    cdef int64_t position, count = 0
    for position in range(nodes.n_listed):
        count += buffers.excess[nodes.listed[position]] != 0
    return count


cdef inline bint maximal_flow(
    const Buffers[capacity]* buffers,
    const int64_t* delta,
    int degree,
    int64_t guard,
    const Box* whole,
    double least_for_lines,
    double least_to_spread,
    double most_to_spread,
    capacity* arriving,
    capacity* used,
    int64_t* progress,
    int64_t max_work,
) noexcept nogil:
    """Compute the flow from capacities and excess; return whether it is maximal."""
    cdef:
        int direction
        int64_t n_left = n_with_excess(buffers, whole), n_nodes = buffers.n_nodes
    if n_left > least_for_lines * n_nodes:
        for direction in range(degree // 2):
            flow_along_lines(buffers[0], delta[direction], direction, degree, guard, arriving, used)
        n_left = n_with_excess(buffers, whole)
    if n_left > least_to_spread * whole.n_listed and n_left <= most_to_spread * n_nodes:
        spread(buffers[0], delta, degree, guard, whole.listed, whole.n_listed, True)
        spread(buffers[0], delta, degree, guard, whole.listed, whole.n_listed, False)
    return run_lattice(buffers[0], delta, degree, guard, whole[0], n_nodes, progress, max_work)


def lattice_cut(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2) offset by offset
    const int32_t[::1] keep,  # IN (N,) current state
    const int32_t[::1] take,  # IN (N,) alternative state
    const int64_t[::1] counts,  # IN (D / 2,) number of edges of each offset
    const int64_t[::1] delta,  # IN (D,) step of each direction in the numbering of nodes, delta[D - 1 - k] = -delta[k]
    const int64_t[::1] shape,  # IN lengths of the axes
    const int64_t[:, ::1] box,  # IN (2, n_axes) zeros, and the shape
    double scale,  # IN units of capacity per unit of score
    int64_t most,  # IN capacity that represents infinity
    double precision,  # IN relative rounding of the scores
    int mode,  # IN 0 to stop at a non-submodular edge, 1 to truncate it
    double least_for_lines,  # IN fraction of nodes with excess above which flow is first sent along lines
    double least_to_spread,  # IN fraction of nodes with a choice that have excess, above which excess is spread
    double most_to_spread,  # IN fraction of all nodes, up to which excess is spread
    double[::1] cost,  # workspace (N,)
    capacity[:, ::1] residual,  # OUT (guard + N + guard, D); 0 if an arc leaves the lattice
    capacity[::1] excess,  # OUT (N,) supply > 0, demand < 0
    int32_t[::1] label,  # IN/OUT (guard + N + guard,) 0 in the guards; negative: can reach demand
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, N)
    int32_t[::1] bucket,  # workspace (N + 4,)
    capacity[::1] arriving,  # workspace (N,)
    capacity[::1] used,  # workspace (largest step,)
    int64_t[::1] progress,  # OUT (8,)
    int64_t max_work,  # IN approximate number of node visits before returning
):
    """Return (non-submodular edge or -1, node whose choices are both forbidden or -1, whether the flow is maximal)."""
    cdef:
        Buffers[capacity] buffers
        Box whole
        Py_ssize_t i, position, stopped
        int64_t guard = (residual.shape[0] - unary.shape[0]) // 2
        int degree = <int> residual.shape[1]
        bint done = False
    open_lattice(&buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    whole = open_box(shape, box)
    whole.listed = &next_[0]
    with nogil:
        progress[:] = 0
        whole.n_listed = list_open(keep, take, flag, next_)
        for position in range(whole.n_listed):
            i = next_[position]
            cost[i] = <double> unary[i, keep[i]] - <double> unary[i, take[i]]
        stopped = lattice_arcs(
            tables, edge_type, edge_weight, edges, keep, take, flag, whole.n_listed, counts, scale, most, precision,
            mode, cost, residual
        )
        if stopped >= 0:
            with gil:
                return stopped, -1, False
        excess[:] = 0
        for position in range(whole.n_listed):
            i = next_[position]
            if not integer_cost(cost[i], scale, most, &excess[i]):
                with gil:
                    return -1, i, False
        label[:] = 0
        done = maximal_flow(
            &buffers, &delta[0], degree, guard, &whole, least_for_lines, least_to_spread, most_to_spread, &arriving[0],
            &used[0], &progress[0], max_work
        )
    return -1, -1, done


def lattice_cut_loss(
    const floating[:, ::1] features,  # IN (N, F)
    const floating[::1] scores,  # IN (N,) score of state 1 minus score of state 0
    const double[::1] offset,  # IN (N,) added to the scores, or empty
    const int32_t[::1] labels,  # IN (N,)
    double most_score,  # IN largest permitted magnitude of scores
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2) offset by offset
    const int32_t[::1] keep,  # IN (N,) zeros
    const int32_t[::1] take,  # IN (N,) ones
    const int64_t[::1] counts,  # IN (D / 2,) this and all arguments up to max_work are as in lattice_cut
    const int64_t[::1] delta,  # IN (D,)
    const int64_t[::1] shape,  # IN
    const int64_t[:, ::1] box,  # IN (2, n_axes)
    double scale,  # IN
    int64_t most,  # IN
    double precision,  # IN
    int mode,  # IN
    double least_for_lines,  # IN
    double least_to_spread,  # IN
    double most_to_spread,  # IN
    double[::1] cost,  # workspace (N,)
    int64_t[:, ::1] residual,  # workspace (guard + N + guard, D); 0 if an arc leaves the lattice
    int64_t[::1] excess,  # workspace (N,)
    int32_t[::1] label,  # workspace (guard + N + guard,) 0 in the guards
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, N)
    int32_t[::1] bucket,  # workspace (N + 4,)
    int64_t[::1] arriving,  # workspace (N,)
    int64_t[::1] used,  # workspace (largest step,)
    int64_t[::1] progress,  # workspace (8,)
    int64_t max_work,  # IN
    double[::1] gradient,  # OUT (F + 1,) sums of (features, 1) over nodes labelled 1, minus sums for true labels
    double[:, :, :, ::1] pair_counts,  # OUT (T, R, 2, 2) edge weights by best labels, minus those by true labels
):
    """Return (best score minus score of labels, number of changed labels, contribution of offsets); NaN on failure."""
    cdef:
        Buffers[int64_t] buffers
        Box whole
        Py_ssize_t i, edge, r, n_nodes = labels.shape[0], n_features = features.shape[1]
        int64_t n_wrong = 0, guard = (residual.shape[0] - n_nodes) // 2
        int32_t a, b, c, d, kind
        int degree = <int> residual.shape[1], sign
        double value, loss = 0.0, added = 0.0
        bint failed = False
    open_lattice(&buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    whole = open_box(shape, box)
    whole.listed = &next_[0]
    with nogil:
        gradient[:] = 0.0
        pair_counts[:, :, :, :] = 0.0
        progress[:] = 0
        for i in range(n_nodes):
            value = scores[i]
            failed |= not fabs(value) <= most_score
            cost[i] = -value - (offset[i] if offset.shape[0] else 0.0)
        whole.n_listed = list_open(keep, take, flag, next_)
        if failed or lattice_arcs(
            tables, edge_type, edge_weight, edges, keep, take, flag, whole.n_listed, counts, scale, most, precision,
            mode, cost, residual
        ) >= 0:
            with gil:
                return NAN, 0, NAN
        for i in range(n_nodes):
            failed |= not integer_cost(cost[i], scale, most, &excess[i])
        if failed or not maximal_flow(
            &buffers, &delta[0], degree, guard, &whole, least_for_lines, least_to_spread, most_to_spread, &arriving[0],
            &used[0], &progress[0], max_work
        ):
            with gil:
                return NAN, 0, NAN
        for i in range(n_nodes):
            sign = (label[guard + i] < 0) - labels[i]
            if sign == 0:
                continue
            n_wrong += 1
            loss += sign * (scores[i] + (offset[i] if offset.shape[0] else 0.0))
            added += sign * offset[i] if offset.shape[0] else 0.0
            gradient[n_features] += sign
            for r in range(n_features):
                gradient[r] += sign * <double> features[i, r]
        for edge in range(edges.shape[0]):
            c, d = labels[edges[edge, 0]], labels[edges[edge, 1]]
            a, b = label[guard + edges[edge, 0]] < 0, label[guard + edges[edge, 1]] < 0
            if a == c and b == d:
                continue
            kind = edge_type[edge]
            for r in range(tables.shape[1]):
                value = edge_weight[edge, r] if edge_weight.shape[0] else 1.0
                pair_counts[kind, r, a, b] += value
                pair_counts[kind, r, c, d] -= value
                loss += value * (<double> tables[kind, r, a, b] - <double> tables[kind, r, c, d])
    return loss, n_wrong, added
