// Best scores of the open runs of a chain, in one direction along the chain.
#pragma once

#include <algorithm>
#include <vector>

#include "chains.hpp"
#include "core/types.hpp"
#include "core/rows.hpp"

namespace crf {

// A row has one number for each state, so that a vector holds several states of one duration. Steps and states are
// stored as doubles, so that one vector instruction selects them by the same mask as the scores.
class BestRuns {
public:
    const i64 K, V;  // V: states padded to whole vectors
    std::vector<double> begun;  // (V,) step at which the best run of each state began
    std::vector<double> source;  // (V,) best previous state of a new run

    BestRuns(i64 n_states, i64 n_durations, i64 shortest)
        : K(n_states), V((n_states + 3) / 4 * 4), begun(V), source(V), L(n_durations - 1), n_rows(2 * L + 1),
          shortest(shortest), scores((L + 1) * V, -kInfinity), rows(n_rows * V, -kInfinity), longer(V), longer_begun(V),
          best(V), zeros(V), leaving(K * V, -kInfinity) {}

    // durations: (K, D)
    void start(const double* durations) {
        for (i64 a = 0; a < K; ++a)
            for (i64 j = 0; j <= L; ++j) scores[j * V + a] = durations[a * (L + 1) + j];
        of_runs = scores;
        n_open = 0;
        head = n_rows;
        std::fill(longer.begin(), longer.end(), -kInfinity);
        table = nullptr;
    }

    // Adds the scores of the single runs of a chain that begin at node s, which is step i.
    template <bool is_forward, class Chain>
    void read_spans(const Chain& chain, i64 i, i64 s) {
        static_assert(!is_forward, "best runs are found from the last node on");
        for (i64 d = 1; d <= std::min(i + 1, L) && chain.has_spans(); ++d) {
            double* row = of_runs.data() + (d - 1) * V;
            chain.set_span(s, d, row);
            for (i64 a = 0; a < V; ++a) row[a] += scores[(d - 1) * V + a];
        }
    }

    // Extends all open runs to the next node and opens new runs. Sets the scores of the best runs that end here.
    // within: (V,) score of an extension; begin: (K,) score of a run that begins here; own: (V,) score of the node
    void step(i64 i, bool is_end, const double* within, const double* begin, const double* own, double* out) {
        call_at_level([&] { extend(i, is_end, within, begin, own); });
        std::copy_n(best.begin(), K, out);
    }

    // Scores of a new run of each state, given the scores of the runs of other states that begin at the next node.
    // table[b * K + a]: score of a run of state a after a run of state b; changes: whether the table may have changed
    void leave(const double* out, const double* next, bool changes, double* begin) {
        if (next != table || changes) {
            for (i64 a = 0; a < K; ++a)
                for (i64 b = 0; b < K; ++b) leaving[a * V + b] = a == b ? -kInfinity : next[b * K + a];
            table = next;
        }
        call_at_level([&] { find_leaving(out); });
        std::copy_n(best.begin(), K, begin);
    }

private:
    const i64 L, n_rows, shortest;  // L: largest duration with a row of its own
    std::vector<double> scores;  // (D, V) scores of durations
    std::vector<double> of_runs;  // (D, V) scores of durations plus scores of single runs
    std::vector<double> rows;  // (n_rows, V) from row `head` on: open runs of 1, 2, ..., n_open nodes
    std::vector<double> longer, longer_begun;  // (V,) runs of more than L nodes, and the step at which the best began
    std::vector<double> best, zeros;  // (V,)
    std::vector<double> leaving;  // (K, V) scores of pairs; a row belongs to the later state
    i64 n_open = 0, head = 0;
    const double* table = nullptr;

    void extend(i64 i, bool is_end, const double* within, const double* begin, const double* own) {
        // The run that began at the first node may be shorter than others, like runs that end at the last node.
        const i64 least = is_end ? 1 : std::min(shortest, i + 1);
        if (head == 0) {
            head = n_rows - L;
            std::copy_n(rows.begin(), L * V, rows.begin() + head * V);
        }
        if (L) --head;
        double* row = rows.data() + head * V;
        for (i64 a = 0; a < K; ++a) {
            const double fresh = begin[a] + own[a];
            const double oldest = L == 0 ? fresh : n_open == L ? row[L * V + a] + within[a] : -kInfinity;
            longer[a] += within[a];
            if (oldest > longer[a]) {
                longer[a] = oldest;
                longer_begun[a] = double(i - L);
            }
            if (L) row[a] = fresh;
        }
        n_open = std::min(n_open + 1, L);
        for (i64 a = 0; a < V; ++a) {
            best[a] = longer[a] + of_runs[L * V + a];
            begun[a] = longer_begun[a];
        }
        for (i64 j = 1; j < std::min(least - 1, n_open); ++j)
            for (i64 a = 0; a < V; ++a) row[j * V + a] += within[a];
        for (i64 j = least - 1; j < n_open; ++j)
            keep_better(row + j * V, j ? within : zeros.data(), of_runs.data() + j * V, double(i - j), begun.data());
    }

    void find_leaving(const double* out) {
        double *restrict top = best.data(), *restrict at = source.data();
        std::fill_n(top, V, -kInfinity);
        for (i64 b = 0; b < K; ++b) {
            const double* restrict row = leaving.data() + b * V;
            for (i64 a = 0; a < V; ++a) {
                const double here = row[a] + out[b];
                at[a] = here > top[a] ? double(b) : at[a];
                top[a] = here > top[a] ? here : top[a];
            }
        }
    }

    // Adds `more` (V,) to the scores x (V,) of open runs. Where x + further (V,) exceeds `best`, stores it there, and
    // stores `number` in `chosen`.
    void keep_better(double* restrict x, const double* restrict more, const double* restrict further, double number,
                     double* restrict chosen) {
        double* restrict top = best.data();
        for (i64 a = 0; a < V; ++a) {
            x[a] += more[a];
            const double here = x[a] + further[a];
            chosen[a] = here > top[a] ? number : chosen[a];
            top[a] = here > top[a] ? here : top[a];
        }
    }
};

}  // namespace crf
