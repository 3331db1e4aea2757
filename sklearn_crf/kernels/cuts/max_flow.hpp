// Maximum flow by two forests of shortest residual paths that grow towards each other.
//
// After "Maximum flows by incremental breadth-first search" (Goldberg, Hed, Kaplan, Tarjan & Werneck, ESA 2011).
// Excess e > 0 is supply at a node (a source arc), e < 0 demand (a sink arc). Forest S holds nodes that supply can
// reach, forest T nodes that can reach demand. A node's label is its distance to a root of its forest, positive in S,
// negative in T, 0 if free. Forests grow by whole levels, alternately. Where they meet, flow is sent along the joined
// path. Nodes cut off by it are reattached at their new distances, or become free. When S or T cannot grow, no residual
// path is left. T is then completed to all nodes that can reach demand. This set is the same for every maximum flow,
// and so for any order of the work.
//
// There are two differences from the paper. Orphans are not relabelled one by one: all orphans without a parent at
// their old distance are detached first, then reattached by one breadth-first search from the rest of the forest, so
// that a long branch does not rise level by level. And a topology computes neighbours, so a lattice stores no arcs.
//
// Capacities are integers, so every step is exact, loops terminate, and the cut is minimal for the rounded capacities.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flow_topologies.hpp"

namespace crf {

template <class Cap, class Topology>
struct MaxFlow {
    using Parent = typename Topology::Parent;
    static constexpr Parent kRoot = static_cast<Parent>(-1);    // 255 or -1, which is never the number of an arc
    static constexpr Parent kOrphan = static_cast<Parent>(-2);  // no parent
    static constexpr u8 kLoose = 4;                             // detached; bits 1 and 2: queued in S, in T
    enum Side { S = 0, T = 1 };

    Topology graph;
    Array<Cap> residual, excess;
    SharedArray<i32> label;
    SharedArray<Parent> parent;
    Array<u8> flag;
    Array<i32> waiting[2];    // ring buffers of the nodes of the outermost level, to grow next
    Array<i32> next, bucket;  // linked lists of orphans by distance
    Array<i32> loose, front;
    i64 n_nodes = 0, head[2] = {0, 0}, n_waiting[2] = {0, 0};
    i32 level[2] = {1, 1}, limit[2] = {1, 1};  // current level, largest permitted label
    i32 n_buckets = 0, nearest = INT32_MAX, farthest = 0;
    i64 work = 0;

    template <int side>
    i32 distance(i64 i) const {
        const i32 d = label[i];
        return side == S ? d : -d;
    }

    template <int side>
    void set_distance(i64 i, i32 d) { label[i] = side == S ? d : -d; }

    // Returns the residual capacity of arc k of node i in the direction in which forest `side` grows.
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

    // Returns the arc to a possible parent of i at distance `wanted`, or -1. Avoids branches, which would often be
    // mispredicted.
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

    // Returns the arc to the nearest possible parent of i that is nearer than `best`, or -1.
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

    // Detaches every orphan without another parent at its distance, nearest first, followed by its children.
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

    // Reattaches detached nodes at their distances by breadth-first search from the forest; the others become free.
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
            const Parent k = parent[i];
            flow = std::min(flow, rootward<side>(i, k));
            i = graph.head(i, k);
        }
        return i;
    }

    template <int side>
    void send(i64 i, Cap flow) {
        while (parent[i] != kRoot) {
            const Parent k = parent[i];
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

    // Sends flow along the path through arc k from node i of the growing forest to node j of the other forest.
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

    // Moves a ring to the start of its array. Memory is then only touched for as many nodes as two levels have, instead
    // of the whole array over time.
    template <int side>
    void rewind() {
        if (head[side] == 0 || head[side] + n_waiting[side] > n_nodes) return;
        for (i64 k = 0; k < n_waiting[side]; ++k) waiting[side][k] = waiting[side][head[side] + k];
        head[side] = 0;
    }

    // Grows the forest by one level.
    template <int side>
    void grow() {
        const i32 d = level[side];
        rewind<side>();
        limit[side] = d + 1;
        extend_buckets(d + 2);
        for (i64 left = n_waiting[side]; left > 0; --left) {
            const i64 i = waiting[side][head[side]];
            if (++head[side] == n_nodes) head[side] = 0;
            --n_waiting[side];
            flag[i] &= u8(~(1 << side));
            // A node whose distance has changed since it was queued is at the new level or will be queued again.
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

    // Grows forests until the flow is maximal, and returns true; or returns false after about the given amount of work,
    // to be called again. Forest T is only completed if the caller needs the cut.
    bool run(i64 max_work, bool complete) {
        const i64 stop = work + max_work;
        while (n_waiting[T] && (complete || n_waiting[S])) {
            if (work >= stop) return false;
            if (n_waiting[S] && level[S] <= level[T]) grow<S>();
            else grow<T>();
        }
        return true;
    }
};

}  // namespace crf
