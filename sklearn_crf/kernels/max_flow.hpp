// Maximum flow by two forests of shortest residual paths that grow towards each other.
//
// After "Maximum flows by incremental breadth-first search" (Goldberg, Hed, Kaplan, Tarjan & Werneck, ESA 2011).
// Excess e > 0 is supply at a node (a source arc), e < 0 demand (a sink arc). Forest S holds nodes that supply can
// reach, forest T nodes that can reach demand; a node's label is its distance to a root of its forest, positive in S,
// negative in T, 0 if free. Forests grow by whole levels, in turn. Where they meet, flow is sent along the joined
// path; nodes cut off by it are hung up again at their new distances, or set free. When S or T can grow no more, no
// residual path is left. T is then completed: the nodes that can reach demand. This set is the same for every
// maximum flow, hence for any order of the work.
//
// Two things differ from the paper. Orphans are not relabelled one by one: those without a parent at their old
// distance are all taken off first, then settled by one breadth-first search from the rest of the forest, so that a
// long branch does not climb level by level. And a topology computes its neighbours: a lattice stores no arcs.
//
// Capacities are integers: every step is exact, so the loops end and the cut is minimal for the rounded capacities.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace crf {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;

// An array that checks its indices when the suite is run with SKLEARN_CRF_BOUNDSCHECK=1.
template <class T>
struct Array {
    T* data;
    i64 low, high;  // valid indices low <= i < high

    Array() : data(nullptr), low(0), high(0) {}
    Array(T* data_, i64 size, i64 guard = 0) : data(data_ + guard), low(-guard), high(size - guard) {}
    Array part(i64 start, i64 size) const { return Array(data + start, size); }

    T& operator[](i64 i) const {
#ifdef SKLEARN_CRF_BOUNDSCHECK
        if (i < low || i >= high) std::abort();
#endif
        return data[i];
    }
};

// A topology numbers the arcs that leave a node by k in first(i) <= k < last(i) and says for each: its head, the
// index of its residual capacity, that of the opposite arc, and the opposite arc's number at the head.

// Nodes of a lattice in C order; delta[k] leads to neighbour k, delta[D - 1 - k] = -delta[k]. Arcs that would leave
// the lattice have no capacity in either direction, so wherever their head wraps to, no path goes through them;
// residual, label and parent carry a guard of max |delta| nodes at both ends so that it may be looked at.
template <int D>
struct Lattice {
    using Parent = u8;
    i64 delta[D];
    void set(const i64* deltas, int) { std::copy(deltas, deltas + D, delta); }
    int first(i64) const { return 0; }
    int last(i64) const { return D; }
    i64 head(i64 i, int k) const { return i + delta[k]; }
    i64 out(i64 i, int k) const { return i * D + k; }
    i64 in(i64 i, int k) const { return (i + delta[k]) * D + (D - 1 - k); }
    Parent back(i64, int k) const { return static_cast<Parent>(D - 1 - k); }
};

// The same for any number of neighbours.
struct AnyLattice {
    using Parent = u8;
    const i64* delta;
    int degree;
    void set(const i64* deltas, int degree_) { delta = deltas, degree = degree_; }
    int first(i64) const { return 0; }
    int last(i64) const { return degree; }
    i64 head(i64 i, int k) const { return i + delta[k]; }
    i64 out(i64 i, int k) const { return i * degree + k; }
    i64 in(i64 i, int k) const { return (i + delta[k]) * degree + (degree - 1 - k); }
    Parent back(i64, int k) const { return static_cast<Parent>(degree - 1 - k); }
};

// Slots of Graph.incidence.
struct Slots {
    using Parent = i32;
    Array<const i64> ptr;
    Array<const i32> neighbor, reverse;
    i64 first(i64 i) const { return ptr[i]; }
    i64 last(i64 i) const { return ptr[i + 1]; }
    i64 head(i64, i64 k) const { return neighbor[k]; }
    i64 out(i64, i64 k) const { return k; }
    i64 in(i64, i64 k) const { return reverse[k]; }
    Parent back(i64, i64 k) const { return reverse[k]; }
};

// Two copies of a graph, node i and its mirror i + n_nodes. An edge with cross = 0 joins i to j and mirror to mirror,
// one with cross = 1 joins i to the mirror of j and the mirror of i to j.
struct Mirrored {
    using Parent = i32;
    Slots base;
    Array<const u8> cross;  // by slot
    i64 n_nodes, n_slots;
    i64 layer(i64 v) const { return v >= n_nodes; }
    i64 node(i64 v) const { return v >= n_nodes ? v - n_nodes : v; }
    i64 first(i64 v) const { return base.first(node(v)); }
    i64 last(i64 v) const { return base.last(node(v)); }
    i64 head(i64 v, i64 k) const { return base.head(0, k) + n_nodes * (layer(v) ^ cross[k]); }
    i64 out(i64 v, i64 k) const { return k + n_slots * layer(v); }
    i64 in(i64 v, i64 k) const { return base.in(0, k) + n_slots * (layer(v) ^ cross[k]); }
    Parent back(i64, i64 k) const { return base.back(0, k); }
};

template <class Cap, class Topology>
struct MaxFlow {
    using Parent = typename Topology::Parent;
    static constexpr Parent kRoot = static_cast<Parent>(-1);    // 255 or -1: never an arc's number
    static constexpr Parent kOrphan = static_cast<Parent>(-2);  // no parent (any more)
    static constexpr u8 kLoose = 4;                             // bits 1 and 2: waits in the queue of S, of T
    enum Side { S = 0, T = 1 };

    Topology graph;
    Array<Cap> residual, excess;
    Array<i32> label;
    Array<Parent> parent;
    Array<u8> flag;
    Array<i32> waiting[2];    // rings of the nodes of the outermost level, to be grown next
    Array<i32> next, bucket;  // linked lists of orphans by distance
    Array<i32> loose, front;
    i64 n_nodes = 0, head[2] = {0, 0}, n_waiting[2] = {0, 0};
    i32 level[2] = {1, 1}, limit[2] = {1, 1};  // level being grown, largest label allowed
    i32 n_buckets = 0, nearest = INT32_MAX, farthest = 0;
    i64 work = 0;

    template <int side>
    i32 distance(i64 i) const { return side == S ? label[i] : -label[i]; }

    template <int side>
    void set_distance(i64 i, i32 d) { label[i] = side == S ? d : -d; }

    // Residual capacity of arc k of i in the direction in which forest `side` grows (away from its roots).
    template <int side, class K>
    Cap& onward(i64 i, K k) const { return residual[side == S ? graph.out(i, k) : graph.in(i, k)]; }

    template <int side, class K>
    Cap& rootward(i64 i, K k) const { return residual[side == S ? graph.in(i, k) : graph.out(i, k)]; }

    template <int side>
    void enqueue(i64 i) {
        const u8 bit = u8(1 << side);
        if (flag[i] & bit) return;
        flag[i] |= bit;
        i64 position = head[side] + n_waiting[side]++;
        if (position >= n_nodes) position -= n_nodes;
        waiting[side][position] = static_cast<i32>(i);
    }

    void plant(i64 i) {
        flag[i] = 0;
        parent[i] = kOrphan;
        label[i] = 0;
        if (excess[i] == 0) return;
        parent[i] = kRoot;
        label[i] = excess[i] > 0 ? 1 : -1;
        if (excess[i] > 0) enqueue<S>(i);
        else enqueue<T>(i);
    }

    void extend_buckets(i32 distance) {
        while (n_buckets <= distance) bucket[n_buckets++] = -1;
    }

    template <int side>
    void orphan(i64 i) {
        const i32 d = distance<side>(i);
        parent[i] = kOrphan;
        next[i] = bucket[d];
        bucket[d] = static_cast<i32>(i);
        nearest = std::min(nearest, d);
        farthest = std::max(farthest, d);
    }

    // Arc to a node of the forest that can feed i at distance `wanted`, or -1. No branches: they would be guesses.
    template <int side>
    i64 parent_at(i64 i, i32 wanted) const {
        i64 arc = -1;
        const auto last = graph.last(i);
        for (auto k = graph.first(i); k < last; ++k) {
            const bool fits = (rootward<side>(i, k) > 0) & (distance<side>(graph.head(i, k)) == wanted);
            arc = fits ? i64(k) : arc;
        }
        return arc;
    }

    // Arc to the nearest node of the forest that can feed i and is nearer than best, or -1.
    template <int side>
    i64 nearest_parent(i64 i, i32& best) const {
        i64 arc = -1;
        const auto last = graph.last(i);
        for (auto k = graph.first(i); k < last; ++k) {
            const i32 d = distance<side>(graph.head(i, k));
            const bool fits = (rootward<side>(i, k) > 0) & (d > 0) & (d < best);
            arc = fits ? i64(k) : arc;
            best = fits ? d : best;
        }
        return arc;
    }

    // Take off every orphan without another parent at its distance, nearest first, its children after it.
    template <int side>
    i64 take_off() {
        i64 n_loose = 0;
        while (nearest <= farthest) {
            const i64 i = bucket[nearest];
            if (i < 0) {
                ++nearest;
                continue;
            }
            const i32 d = nearest;
            bucket[d] = next[i];
            if (d > 1) {
                const i64 arc = parent_at<side>(i, d - 1);
                if (arc >= 0) {
                    parent[i] = static_cast<Parent>(arc);
                    continue;
                }
            }
            label[i] = 0;
            loose[n_loose++] = static_cast<i32>(i);
            const auto last = graph.last(i);
            for (auto k = graph.first(i); k < last; ++k) {
                const i64 child = graph.head(i, k);
                if ((distance<side>(child) == d + 1) & (parent[child] == graph.back(i, k))) orphan<side>(child);
            }
        }
        nearest = INT32_MAX;
        farthest = 0;
        return n_loose;
    }

    template <int side>
    void settle_at(i64 i, i32 d, i64& n_front) {
        flag[i] &= u8(~kLoose);
        set_distance<side>(i, d);
        front[n_front++] = static_cast<i32>(i);
        if (d == limit[side]) enqueue<side>(i);
    }

    // Hang loose nodes up again at their distances, by breadth-first search from the forest; the rest is free.
    template <int side>
    void settle(i64 n_loose) {
        const i32 most = limit[side];
        i32 low = INT32_MAX, high = 0;
        for (i64 position = 0; position < n_loose; ++position) {
            const i64 i = loose[position];
            i32 best = most;
            const i64 arc = nearest_parent<side>(i, best);
            flag[i] |= kLoose;
            parent[i] = kOrphan;
            if (arc < 0) continue;
            parent[i] = static_cast<Parent>(arc);
            next[i] = bucket[best + 1];
            bucket[best + 1] = static_cast<i32>(i);
            low = std::min(low, best + 1);
            high = std::max(high, best + 1);
        }
        i64 n_done = 0, n_front = 0;
        for (i32 d = low; d <= high || n_done < n_front; ++d) {
            if (d <= high) {
                for (i64 i = bucket[d]; i >= 0; i = next[i])
                    if (flag[i] & kLoose) settle_at<side>(i, d, n_front);
                bucket[d] = -1;
            }
            if (d == most) break;
            for (const i64 stop = n_front; n_done < stop; ++n_done) {
                const i64 i = front[n_done];
                const auto last = graph.last(i);
                for (auto k = graph.first(i); k < last; ++k) {
                    if (onward<side>(i, k) <= 0) continue;
                    const i64 j = graph.head(i, k);
                    if (!(flag[j] & kLoose)) continue;
                    parent[j] = graph.back(i, k);
                    settle_at<side>(j, d + 1, n_front);
                }
            }
        }
        for (i64 position = 0; position < n_loose; ++position) {
            const i64 i = loose[position];
            if (flag[i] & kLoose) parent[i] = kOrphan;
            flag[i] &= u8(~kLoose);
        }
    }

    template <int side>
    void adopt() {
        if (nearest > farthest) return;
        const i64 n_loose = take_off<side>();
        if (n_loose) settle<side>(n_loose);
        work += n_loose;
    }

    template <int side>
    i64 root(i64 i, Cap& flow) const {
        while (parent[i] != kRoot) {
            const auto k = parent[i];
            flow = std::min(flow, rootward<side>(i, k));
            i = graph.head(i, k);
        }
        return i;
    }

    template <int side>
    void send(i64 i, Cap flow) {
        while (parent[i] != kRoot) {
            const auto k = parent[i];
            const i64 up = graph.head(i, k);
            Cap& capacity = rootward<side>(i, k);
            onward<side>(i, k) += flow;
            capacity -= flow;
            if (capacity == 0) orphan<side>(i);
            i = up;
            ++work;
        }
        excess[i] += side == S ? -flow : flow;
        if (excess[i] == 0) orphan<side>(i);
        adopt<side>();
    }

    // Node i of the forest that grows meets node j of the other one across arc k of i.
    template <int side, class K>
    void augment(i64 i, K k, i64 j) {
        Cap& capacity = onward<side>(i, k);
        Cap flow = capacity;
        const i64 here = root<side>(i, flow), there = root<1 - side>(j, flow);
        flow = std::min(flow, side == S ? excess[here] : excess[there]);
        flow = std::min<Cap>(flow, side == S ? -excess[there] : -excess[here]);
        capacity -= flow;
        rootward<side>(i, k) += flow;
        send<side>(i, flow);
        send<1 - side>(j, flow);
    }

    // Grow the forest by one level.
    template <int side>
    void grow() {
        const i32 d = level[side];
        limit[side] = d + 1;
        extend_buckets(d + 2);
        for (i64 left = n_waiting[side]; left > 0; --left) {
            const i64 i = waiting[side][head[side]];
            if (++head[side] == n_nodes) head[side] = 0;
            --n_waiting[side];
            flag[i] &= u8(~(1 << side));
            // Whoever moved on since it was queued is either at the new level or will be queued again.
            if (distance<side>(i) == d + 1) enqueue<side>(i);
            if (distance<side>(i) == d) grow_from<side>(i, d);
        }
        level[side] = d + 1;
    }

    template <int side>
    void grow_from(i64 i, i32 d) {
        ++work;
        const auto last = graph.last(i);
        for (auto k = graph.first(i); k < last; ++k) {
            while (onward<side>(i, k) > 0) {
                const i64 j = graph.head(i, k);
                const i32 other = distance<side>(j);
                if (other > 0) break;
                if (other == 0) {
                    set_distance<side>(j, d + 1);
                    parent[j] = graph.back(i, k);
                    enqueue<side>(j);
                    break;
                }
                augment<side>(i, k, j);
                if (distance<side>(i) != d) return;
            }
        }
    }

    // Grow until done (true) or until some work has been done (false: call again).
    bool run(i64 max_work) {
        const i64 stop = work + max_work;
        while (n_waiting[T]) {
            if (work >= stop) return false;
            if (n_waiting[S] && level[S] <= level[T]) grow<S>();
            else grow<T>();
        }
        return true;
    }
};

template <class Cap, class Topology>
bool advance(MaxFlow<Cap, Topology>& flow, i64* progress, i64 max_work) {
    for (int side = 0; side < 2; ++side) {
        flow.head[side] = progress[side];
        flow.n_waiting[side] = progress[2 + side];
        flow.level[side] = flow.limit[side] = static_cast<i32>(progress[4 + side]);
    }
    flow.n_buckets = static_cast<i32>(progress[6]);
    const bool done = flow.run(max_work);
    for (int side = 0; side < 2; ++side) {
        progress[side] = flow.head[side];
        progress[2 + side] = flow.n_waiting[side];
        progress[4 + side] = flow.level[side];
    }
    progress[6] = flow.n_buckets;
    return done;
}

// The arrays of a network, as a caller owns them. Lattices: residual, label and parent carry their guards.
template <class Cap>
struct Buffers {
    Cap *residual, *excess;
    i32 *label, *lists, *bucket;
    void* parent;
    u8* flag;
    i64 n_nodes, n_arcs, n_buckets;
};

// A part of the nodes gets its own part of the lists, so that parts without common edges can run at once.
template <class Cap, class Topology>
void attach(MaxFlow<Cap, Topology>& flow, const Buffers<Cap>& b, i64 guard, i64 arc_guard, i64 start, i64 size) {
    using Parent = typename Topology::Parent;
    flow.residual = Array<Cap>(b.residual, b.n_arcs + 2 * arc_guard, arc_guard);
    flow.excess = Array<Cap>(b.excess, b.n_nodes);
    flow.label = Array<i32>(b.label, b.n_nodes + 2 * guard, guard);
    flow.parent = Array<Parent>(static_cast<Parent*>(b.parent), b.n_nodes + 2 * guard, guard);
    flow.flag = Array<u8>(b.flag, b.n_nodes);
    flow.next = Array<i32>(b.lists, b.n_nodes);
    Array<i32>* const lists[4] = {&flow.waiting[0], &flow.waiting[1], &flow.loose, &flow.front};
    for (int k = 0; k < 4; ++k) *lists[k] = Array<i32>(b.lists + (k + 1) * b.n_nodes + start, size);
    flow.bucket = Array<i32>(b.bucket, b.n_buckets);
    flow.n_nodes = size;
}

// A box of a lattice: low[axis] <= coordinate < high[axis].
struct Box {
    int n_axes;
    const i64 *shape, *low, *high;

    template <class Visit>
    void each(Visit visit) const {
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

template <class Cap, class Topology>
bool run_lattice_as(const Buffers<Cap>& b, const i64* deltas, int degree, i64 guard, const Box& box, i64 start,
                    i64 size, i64* progress, i64 max_work) {
    MaxFlow<Cap, Topology> flow;
    flow.graph.set(deltas, degree);
    attach(flow, b, guard, guard * degree, start, size);
    if (progress[7] == 0) {
        progress[7] = progress[4] = progress[5] = 1;
        flow.extend_buckets(3);
        box.each([&](i64 i) { flow.plant(i); });
        progress[2] = flow.n_waiting[0], progress[3] = flow.n_waiting[1], progress[6] = flow.n_buckets;
    }
    return advance(flow, progress, max_work);
}

template <class Cap>
bool run_lattice(const Buffers<Cap>& b, const i64* deltas, int degree, i64 guard, const Box& box, i64 start, i64 size,
                 i64* progress, i64 max_work) {
    switch (degree) {
        case 4: return run_lattice_as<Cap, Lattice<4>>(b, deltas, degree, guard, box, start, size, progress, max_work);
        case 6: return run_lattice_as<Cap, Lattice<6>>(b, deltas, degree, guard, box, start, size, progress, max_work);
        case 8: return run_lattice_as<Cap, Lattice<8>>(b, deltas, degree, guard, box, start, size, progress, max_work);
        default: return run_lattice_as<Cap, AnyLattice>(b, deltas, degree, guard, box, start, size, progress, max_work);
    }
}

template <class Cap, class Topology>
bool run_slots_as(MaxFlow<Cap, Topology>& flow, const Buffers<Cap>& b, i64* progress, i64 max_work) {
    attach(flow, b, 0, 0, 0, b.n_nodes);
    if (progress[7] == 0) {
        progress[7] = progress[4] = progress[5] = 1;
        flow.extend_buckets(3);
        for (i64 i = 0; i < b.n_nodes; ++i) flow.plant(i);
        progress[2] = flow.n_waiting[0], progress[3] = flow.n_waiting[1], progress[6] = flow.n_buckets;
    }
    return advance(flow, progress, max_work);
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

// The most flow along the lines of a lattice that follow one offset, all lines at once, in two passes over the nodes:
// first what supply (or demand, negative) could arrive from the nodes before, then what of it is used.
template <class Cap>
void flow_along_lines(const Buffers<Cap>& b, i64 delta, int k, int degree, i64 guard, Cap* arriving, Cap* used) {
    const i64 n = b.n_nodes;
    const Array<Cap> residual(b.residual, b.n_arcs + 2 * guard * degree, guard * degree);
    const int back = degree - 1 - k;
    for (i64 i = 0; i < std::min(delta, n); ++i) arriving[i] = 0;
    for (i64 i = 0; i < n - delta; ++i) {
        const Cap ahead = residual[i * degree + k], behind = residual[(i + delta) * degree + back];
        arriving[i + delta] = std::max<Cap>(-behind, std::min<Cap>(ahead, b.excess[i] + arriving[i]));
    }
    // used[i % delta] is what node i passes on.
    for (i64 i = 0; i < delta; ++i) used[i] = 0;
    for (i64 i = n - 1, place = (n - 1) % delta; i >= 0; --i) {
        const Cap out = used[place], most = arriving[i];
        const Cap in = std::max<Cap>(std::min<Cap>(0, most), std::min<Cap>(std::max<Cap>(0, most), out - b.excess[i]));
        b.excess[i] += in - out;
        used[place] = in;
        if (i >= delta) {
            residual[(i - delta) * degree + k] -= in;
            residual[i * degree + back] += in;
        }
        place = place == 0 ? delta - 1 : place - 1;
    }
}

// Carry all excess as far along its offsets as capacity lets it, down the numbering of nodes or up: it meets its
// opposite, or spreads over what it has to fill anyhow. Trees grown afterwards are short.
template <class Cap>
void spread(const Buffers<Cap>& b, const i64* deltas, int degree, i64 guard, bool down) {
    const Array<Cap> residual(b.residual, b.n_arcs + 2 * guard * degree, guard * degree);
    const int n_offsets = degree / 2, first = down ? 0 : n_offsets;
    for (i64 step = 0; step < b.n_nodes; ++step) {
        const i64 i = down ? step : b.n_nodes - 1 - step;
        for (int k = first; k < first + n_offsets; ++k) {
            const i64 j = i + deltas[k];
            if (j < 0 || j >= b.n_nodes) continue;
            Cap& ahead = residual[i * degree + k];
            Cap& behind = residual[j * degree + degree - 1 - k];
            // Equal shares of what is left; the last direction takes all.
            const Cap share = b.excess[i] / (first + n_offsets - k);
            const Cap moved = std::max<Cap>(-behind, std::min<Cap>(ahead, share));
            b.excess[i] -= moved;
            b.excess[j] += moved;
            ahead -= moved;
            behind += moved;
        }
    }
}

}  // namespace crf
