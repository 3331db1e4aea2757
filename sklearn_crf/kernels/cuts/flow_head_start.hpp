// Initial flow without a search: along straight lines of a lattice, and by spreading excess.
#pragma once

#include <algorithm>

#include "flow_buffers.hpp"

namespace crf {

// Sends the maximum flow along the lines of a lattice that follow one offset, for all lines at once. The first pass
// over the nodes computes the supply (or demand, negative) that could arrive from previous nodes; the second pass
// computes the amount that is used.
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
    // used[i % delta] is the amount that node i passes to the next node.
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

// Moves excess along the offsets as far as capacity permits, in ascending or descending order of nodes. The excess
// meets excess of the opposite sign, or spreads over capacity that must be filled anyway. The trees of the search are
// then short.
template <class Cap>
void spread(const Buffers<Cap>& b, const i64* deltas, int degree, i64 guard, const i32* nodes, i64 n_nodes, bool down) {
    // nodes: nodes that may have excess, in order, or null for all
    const Array<Cap> residual(b.residual, b.n_arcs + 2 * guard * degree, guard * degree);
    on_lattice(degree, [&](auto topology) {
        topology.set(deltas, degree);
        const int n_offsets = topology.last(0) / 2, first = down ? 0 : n_offsets;
        for (i64 step = 0; step < n_nodes; ++step) {
            const i64 position = down ? step : n_nodes - 1 - step, i = nodes ? nodes[position] : position;
            Cap e = b.excess[i];
            for (int k = first; k < first + n_offsets; ++k) {
                const i64 j = topology.head(i, k);
                if (j < 0 || j >= b.n_nodes) continue;
                Cap& ahead = residual[topology.out(i, k)];
                Cap& behind = residual[topology.in(i, k)];
                // Equal shares of the remaining excess; the last direction takes all. Divisors known at compile time
                // avoid a division.
                const int n_left = first + n_offsets - k;
                const Cap share = n_left == 1 ? e : n_left == 2 ? e / 2 : e / n_left;
                const Cap moved = std::max<Cap>(-behind, std::min<Cap>(ahead, share));
                e -= moved;
                b.excess[j] += moved;
                ahead -= moved;
                behind += moved;
            }
            b.excess[i] = e;
        }
        return true;
    });
}

}  // namespace crf
