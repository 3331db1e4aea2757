# distutils: language = c++
"""Maximum flow on lattices without stored arcs, on general graphs, and on graphs joined to their mirror image."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.cuts.binary_edge cimport capacity
from sklearn_crf.kernels.cuts.flow cimport (
    Box,
    Buffers,
    flow_along_lines,
    open_box,
    open_lattice,
    run_heights,
    run_lattice,
    run_mirrored,
    run_slots,
    spread,
)


def lattice_flow(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D) by node and direction; 0 if an arc leaves the lattice
    capacity[::1] excess,  # IN/OUT (N,) supply > 0, demand < 0
    const int64_t[::1] delta,  # IN (D,) step of each direction in the numbering of nodes, delta[D - 1 - k] = -delta[k]
    const int64_t[::1] shape,  # IN lengths of the axes
    const int64_t[:, ::1] box,  # IN (2, n_axes) part to solve: low <= coordinate < high
    int32_t[::1] label,  # IN/OUT (guard + N + guard,) 0 in the guards; negative: can reach demand
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, nodes in the box), not shared with other calls
    int32_t[::1] bucket,  # workspace (nodes in the box + 4,), not shared with other calls
    int64_t[::1] progress,  # IN/OUT (8,) state between calls, initially zeros
    int64_t max_work,  # IN approximate number of node visits before returning
):
    """Send flow from supply to demand in a box without capacity at its border; return whether it is maximal."""
    cdef:
        Buffers[capacity] buffers
        Box part
        int axis
        int64_t size = 1, guard = (residual.shape[0] - excess.shape[0]) // 2
        bint done
    open_lattice(&buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    part = open_box(shape, box)
    for axis in range(part.n_axes):
        size *= part.high[axis] - part.low[axis]
    with nogil:
        done = run_lattice(
            buffers, &delta[0], <int> residual.shape[1], guard, part, size, &progress[0], max_work
        )
    return done


def flow_by_heights(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D)
    capacity[::1] excess,  # IN/OUT (N,)
    const int64_t[::1] delta,  # IN (D,)
    int32_t[::1] label,  # workspace (guard + N + guard,) 0 in the guards
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, N)
    int32_t[::1] bucket,  # workspace (N + 4,)
):
    """Move supply towards demand by push-relabel, for limited steps; return True if no more supply moves."""
    cdef:
        Buffers[capacity] buffers
        int64_t guard = (residual.shape[0] - excess.shape[0]) // 2
        bint done
    open_lattice(&buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    with nogil:
        done = run_heights(buffers, &delta[0], <int> residual.shape[1], guard)
    return done


def flow_along_offset(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D)
    capacity[::1] excess,  # IN/OUT (N,)
    int64_t delta,  # IN step of the direction, positive
    int direction,  # IN index of the direction
    capacity[::1] arriving,  # workspace (N,)
    capacity[::1] used,  # workspace (delta,)
):
    """Send the maximum flow along the lines of one offset, exactly and in linear time, as a start for lattice_flow."""
    cdef:
        Buffers[capacity] buffers
        int64_t guard = (residual.shape[0] - excess.shape[0]) // 2
    buffers.residual, buffers.excess = &residual[0, 0], &excess[0]
    buffers.n_nodes, buffers.n_arcs = excess.shape[0], excess.shape[0] * residual.shape[1]
    with nogil:
        flow_along_lines(buffers, delta, direction, <int> residual.shape[1], guard, &arriving[0], &used[0])


def spread_excess(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D)
    capacity[::1] excess,  # IN/OUT (N,)
    const int64_t[::1] delta,  # IN (D,)
    bint down,  # IN whether to follow the numbering of nodes, or go against it
):
    """Move all excess along the lattice as far as possible; speeds up lattice_flow if many nodes have excess."""
    cdef:
        Buffers[capacity] buffers
        int64_t guard = (residual.shape[0] - excess.shape[0]) // 2
    buffers.residual, buffers.excess = &residual[0, 0], &excess[0]
    buffers.n_nodes, buffers.n_arcs = excess.shape[0], excess.shape[0] * residual.shape[1]
    with nogil:
        spread(buffers, &delta[0], <int> residual.shape[1], guard, NULL, excess.shape[0], down)


def slot_flow(
    capacity[::1] residual,  # IN/OUT (2E,) capacity from each slot's node to its neighbour; (4E,) if mirrored
    capacity[::1] excess,  # IN/OUT (N,) supply > 0, demand < 0; (2N,) if mirrored
    const int64_t[::1] ptr,  # IN (N + 1,) slots of each node
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    const uint8_t[::1] cross,  # IN (2E,) 1 if an edge leads to the mirror image; empty without mirror image
    int32_t[::1] label,  # IN/OUT shape of excess; negative: can reach demand
    int32_t[::1] parent,  # workspace, shape of excess
    uint8_t[::1] flag,  # workspace, shape of excess
    int32_t[::1] next_,  # workspace, shape of excess
    int32_t[:, ::1] lists,  # workspace (4, length of excess)
    int32_t[::1] bucket,  # workspace (length of excess + 4,)
    int64_t[::1] progress,  # IN/OUT (8,) state between calls, initially zeros
    int64_t max_work,  # IN approximate number of node visits before returning
):
    """Send flow from supply to demand on a graph, or a graph joined to its mirror; return whether it is maximal."""
    cdef:
        Buffers[capacity] buffers
        bint done
    buffers.residual, buffers.excess, buffers.label = &residual[0], &excess[0], &label[0]
    buffers.parent, buffers.flag = <void*> &parent[0], &flag[0]
    buffers.next, buffers.lists, buffers.bucket = &next_[0], &lists[0, 0], &bucket[0]
    buffers.n_nodes, buffers.n_arcs, buffers.n_buckets = excess.shape[0], residual.shape[0], bucket.shape[0]
    buffers.n_listed = lists.shape[1]
    with nogil:
        if cross.shape[0]:
            done = run_mirrored(
                buffers, &ptr[0], &neighbor[0], &reverse[0], &cross[0], &progress[0], max_work
            )
        else:
            done = run_slots(buffers, &ptr[0], &neighbor[0], &reverse[0], &progress[0], max_work)
    return done
