// Flow by heights instead of paths, for lattices on which the forests of max_flow.hpp are rebuilt again and again. If
// much supply is far from demand, each long path cuts off large branches.
//
// Push-relabel: a node with supply passes it to neighbours that are one step nearer to demand, or rises above the
// lowest neighbour with capacity, highest nodes first (Goldberg & Tarjan, JACM 1988; Cherkassky & Goldberg,
// Algorithmica 1997). If no node has some height, all higher nodes are cut off from demand. After as many steps as
// there are nodes, heights are recomputed. The result is a valid flow at any time, so the search of max_flow.hpp can
// continue from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "max_flow.hpp"

namespace crf {

template <class Cap, class Topology>
struct HeightFlow {
    // Limit of excess, since a sum of infinite capacities could overflow. Sums of finite capacities stay far below it.
    static constexpr Cap kMost = std::numeric_limits<Cap>::max() / 2;
    MaxFlow<Cap, Topology>& flow;  // its label is the height: 1 + distance to demand, 0 if demand cannot be reached
    Array<i32> order, count;       // (N,) nodes that reach demand, nearest first; (N + 3,) number of nodes by height
    i64 n_ordered = 0;
    i32 height = 0, top = 0;  // largest height with movable supply; lowest height of nodes cut off from demand
    bool has_moved = false;

    HeightFlow(MaxFlow<Cap, Topology>& f, Array<i32> order_, Array<i32> count_) : flow(f), order(order_), count(count_) {}

    // Computes heights up to the farthest supply; returns whether any supply can reach demand.
    bool measure() {
        i64 n_supply = 0, n_left;
        n_ordered = 0;
        for (i64 i = 0; i < flow.n_nodes; ++i) {
            const Cap e = flow.excess[i];
            flow.flag[i] = e > 0;
            flow.label[i] = e < 0;
            n_supply += e > 0;
            if (e < 0) order[n_ordered++] = static_cast<i32>(i);
        }
        n_left = n_supply;
        for (i64 position = 0; position < n_ordered && n_left > 0; ++position) {
            const i64 i = order[position];
            const i32 d = flow.label[i];
            const auto last = flow.graph.last(i);
            for (auto k = flow.graph.first(i); k < last; ++k) {
                if (flow.residual[flow.graph.in(i, k)] <= 0) continue;
                const i64 j = flow.graph.head(i, k);
                if (flow.label[j] != 0) continue;
                flow.label[j] = d + 1;
                order[n_ordered++] = static_cast<i32>(j);
                n_left -= flow.flag[j];
            }
        }
        return n_left < n_supply;
    }

    // Adds a node with movable supply to the list of its height.
    void enlist(i64 i, i32 d) {
        flow.flag[i] = 1;
        flow.next[i] = flow.bucket[d];
        flow.bucket[d] = static_cast<i32>(i);
        height = std::max(height, d);
    }

    void enlist_all() {
        const i32 farthest = flow.label[order[n_ordered - 1]];
        top = farthest + 2;
        height = 0;
        for (i32 d = 0; d <= top; ++d) count[d] = 0, flow.bucket[d] = -1;
        // Heights beyond the farthest supply were not computed, so do not treat them as empty.
        for (i32 d = farthest; d <= top; ++d) count[d] = 1;
        for (i64 position = 0; position < n_ordered; ++position) {
            const i64 i = order[position];
            const i32 d = flow.label[i];
            ++count[d];
            if (flow.flag[i]) enlist(i, d);
        }
    }

    // Passes supply to neighbours one step nearer; returns the lowest other neighbour with capacity, or INT32_MAX.
    i32 push(i64 i, i32 d) {
        i32 lowest = INT32_MAX;
        const auto last = flow.graph.last(i);
        for (auto k = flow.graph.first(i); k < last && flow.excess[i] > 0; ++k) {
            Cap& capacity = flow.residual[flow.graph.out(i, k)];
            if (capacity <= 0) continue;
            const i64 j = flow.graph.head(i, k);
            const i32 other = flow.label[j];
            if (other == 0 || flow.excess[j] >= kMost) continue;
            if (other != d - 1) {
                lowest = std::min(lowest, other);
                continue;
            }
            const Cap moved = std::min({capacity, flow.excess[i], Cap(kMost - flow.excess[j])});
            has_moved |= moved > 0;
            capacity -= moved;
            flow.residual[flow.graph.in(i, k)] += moved;
            flow.excess[i] -= moved;
            flow.excess[j] += moved;
            if (flow.excess[j] > 0 && !flow.flag[j]) enlist(j, other);
        }
        return lowest;
    }

    // Moves supply of the highest nodes, for at most max_steps steps; returns whether any supply has moved.
    bool carry(i64 max_steps) {
        enlist_all();
        has_moved = false;
        while (height > 0 && max_steps > 0) {
            const i64 i = flow.bucket[height];
            if (i < 0) {
                --height;
                continue;
            }
            i32 d = height;
            flow.bucket[d] = flow.next[i];
            flow.flag[i] = 0;
            while (d < top) {
                const i32 lowest = push(i, d);
                if (flow.excess[i] == 0) break;
                --max_steps;
                if (--count[d] == 0) top = std::min(top, d);
                d = lowest < top ? lowest + 1 : top;
                if (d < top) ++count[d];
                flow.label[i] = d;
            }
        }
        return has_moved;
    }
};

}  // namespace crf
