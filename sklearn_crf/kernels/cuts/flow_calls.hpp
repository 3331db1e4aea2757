// Runs max_flow.hpp on arrays of the caller, with a limit on the work of each call. The state between
// calls is an array of 8 numbers.
#pragma once

#include "flow_buffers.hpp"
#include "flow_by_heights.hpp"
#include "max_flow.hpp"

namespace crf {

// Each part of the nodes has its own lists, so that parts without common edges can run in parallel.
template <class Cap, class Topology>
void attach(MaxFlow<Cap, Topology>& flow, const Buffers<Cap>& b, i64 guard, i64 arc_guard, i64 size) {
    using Parent = typename Topology::Parent;
    flow.residual = Array<Cap>(b.residual, b.n_arcs + 2 * arc_guard, arc_guard);
    flow.excess = Array<Cap>(b.excess, b.n_nodes);
    flow.label = SharedArray<i32>(b.label, b.n_nodes + 2 * guard, guard);
    flow.parent = SharedArray<Parent>(static_cast<Parent*>(b.parent), b.n_nodes + 2 * guard, guard);
    flow.flag = Array<u8>(b.flag, b.n_nodes);
    flow.next = Array<i32>(b.next, b.n_nodes);
    Array<i32>* const lists[4] = {&flow.waiting[0], &flow.waiting[1], &flow.loose, &flow.front};
    for (int k = 0; k < 4; ++k) *lists[k] = Array<i32>(b.lists + k * b.n_listed, size);
    flow.bucket = Array<i32>(b.bucket, b.n_buckets);
    flow.n_nodes = size;
}

template <class Cap, class Topology>
bool advance(MaxFlow<Cap, Topology>& flow, i64* progress, i64 max_work, bool complete) {
    for (int side = 0; side < 2; ++side) {
        flow.head[side] = progress[side];
        flow.n_waiting[side] = progress[2 + side];
        flow.level[side] = flow.limit[side] = static_cast<i32>(progress[4 + side]);
    }
    flow.n_buckets = static_cast<i32>(progress[6]);
    const bool done = flow.run(max_work, complete);
    for (int side = 0; side < 2; ++side) {
        progress[side] = flow.head[side];
        progress[2 + side] = flow.n_waiting[side];
        progress[4 + side] = flow.level[side];
    }
    progress[6] = flow.n_buckets;
    return done;
}

// Box of a lattice, low[axis] <= coordinate < high[axis]; or a list of nodes without arcs to other nodes.
struct Box {
    int n_axes;
    const i64 *shape, *low, *high;
    const i32* listed;
    i64 n_listed;

    template <class Visit>
    void each(Visit visit) const {
        if (listed) {
            for (i64 k = 0; k < n_listed; ++k) visit(i64(listed[k]));
            return;
        }
        i64 size = 1;
        for (int axis = 0; axis < n_axes; ++axis) size *= high[axis] - low[axis];
        if (size <= 0) return;
        const i64 run = n_axes ? high[n_axes - 1] - low[n_axes - 1] : 1;
        for (i64 row = 0; row < size / run; ++row) {
            i64 rest = row, node = 0, stride = n_axes ? shape[n_axes - 1] : 1;
            node = n_axes ? low[n_axes - 1] : 0;
            for (int axis = n_axes - 2; axis >= 0; --axis) {
                const i64 length = high[axis] - low[axis];
                node += stride * (low[axis] + rest % length);
                rest /= length;
                stride *= shape[axis];
            }
            for (i64 k = 0; k < run; ++k) visit(node + k);
        }
    }
};

template <class Cap>
bool run_lattice(const Buffers<Cap>& b, const i64* deltas, int degree, i64 guard, const Box& box, i64 size, i64* progress,
                 i64 max_work) {
    return on_lattice(degree, [&](auto topology) {
        MaxFlow<Cap, decltype(topology)> flow;
        flow.graph.set(deltas, degree);
        attach(flow, b, guard, guard * degree, size);
        if (progress[7] == 0) {
            progress[7] = progress[4] = progress[5] = 1;
            flow.extend_buckets(3);
            box.each([&](i64 i) { flow.plant(i); });
            progress[2] = flow.n_waiting[0], progress[3] = flow.n_waiting[1], progress[6] = flow.n_buckets;
        }
        // For a part of the lattice, only the flow is needed, not the cut.
        return advance(flow, progress, max_work, size == b.n_nodes);
    });
}

// Makes as many push-relabel steps as a lattice has nodes; returns true if no more supply moves towards demand.
template <class Cap>
bool run_heights(const Buffers<Cap>& b, const i64* deltas, int degree, i64 guard) {
    return on_lattice(degree, [&](auto topology) {
        MaxFlow<Cap, decltype(topology)> flow;
        flow.graph.set(deltas, degree);
        attach(flow, b, guard, guard * degree, b.n_nodes);
        const Array<i32> order(b.lists, b.n_listed), count(b.lists + b.n_listed, 3 * b.n_listed);
        HeightFlow<Cap, decltype(topology)> heights(flow, order, count);
        return !heights.measure() || !heights.carry(b.n_nodes);
    });
}

template <class Cap, class Topology>
bool run_slots_as(MaxFlow<Cap, Topology>& flow, const Buffers<Cap>& b, i64* progress, i64 max_work) {
    attach(flow, b, 0, 0, b.n_nodes);
    if (progress[7] == 0) {
        progress[7] = progress[4] = progress[5] = 1;
        flow.extend_buckets(3);
        for (i64 i = 0; i < b.n_nodes; ++i) flow.plant(i);
        progress[2] = flow.n_waiting[0], progress[3] = flow.n_waiting[1], progress[6] = flow.n_buckets;
    }
    return advance(flow, progress, max_work, true);
}

inline Slots slots_of(const i64* ptr, const i32* neighbor, const i32* reverse, i64 n_nodes, i64 n_slots) {
    return Slots{Array<const i64>(ptr, n_nodes + 1), Array<const i32>(neighbor, n_slots),
                 Array<const i32>(reverse, n_slots)};
}

template <class Cap>
bool run_slots(const Buffers<Cap>& b, const i64* ptr, const i32* neighbor, const i32* reverse, i64* progress,
               i64 max_work) {
    MaxFlow<Cap, Slots> flow;
    flow.graph = slots_of(ptr, neighbor, reverse, b.n_nodes, b.n_arcs);
    return run_slots_as(flow, b, progress, max_work);
}

template <class Cap>
bool run_mirrored(const Buffers<Cap>& b, const i64* ptr, const i32* neighbor, const i32* reverse, const u8* cross,
                  i64* progress, i64 max_work) {
    MaxFlow<Cap, Mirrored> flow;
    const i64 n_nodes = b.n_nodes / 2, n_slots = b.n_arcs / 2;
    flow.graph = Mirrored{slots_of(ptr, neighbor, reverse, n_nodes, n_slots), Array<const u8>(cross, n_slots), n_nodes,
                          n_slots};
    return run_slots_as(flow, b, progress, max_work);
}

}  // namespace crf
