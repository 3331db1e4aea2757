// Scores of a model for local search, and changes of single labels.
//
// All tables are addressed the same way: each state of each node adds an offset to the cell of the factor. A change of
// one label therefore shifts the cell of each factor of the node. The cell of a count table is the count.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/types.hpp"

namespace crf {

using u64 = std::uint64_t;

enum TableKind : std::int8_t { DENSE_TABLE = 0, SPARSE_TABLE = 1, COUNT_TABLE = 2 };

// SplitMix64 (Steele, Lea and Flood 2014), with one stream for each call.
struct Random {
    u64 key;

    u64 bits() {
        key += 0x9E3779B97F4A7C15ULL;
        u64 x = key;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
        return x ^ (x >> 31);
    }
    double uniform() { return static_cast<double>(bits() >> 11) * (1.0 / 9007199254740992.0); }
    i64 below(i64 n) { return static_cast<i64>(uniform() * static_cast<double>(n)); }
    double gumbel() { return -std::log(-std::log(uniform() + 1e-300) + 1e-300); }
};

template <class Score>
struct Problem {
    i64 n_nodes, n_columns, n_features;
    const i32* n_states;         // (N,)
    const Score* unary;          // (N, K)
    const i64* node_ptr;         // (N + 1,) first slot of each node in node_slot
    const i32* node_slot;        // (n_slots,)
    const i64* slot_ptr;         // (F + 1,) first slot of each factor
    const i32* slot_node;        // (n_slots,)
    const i32* slot_factor;      // (n_slots,)
    const i64* slot_step;        // (n_slots,) offset of the cell between consecutive states
    const i32* table;            // (F,)
    const i64* table_ptr;        // (T + 1,) first cell of each table in values
    const std::int8_t* kind;     // (T,)
    const i32* counted;          // (T,) counted state of count tables
    const double* fallback;      // (T,) score of unlisted cells
    const i64* listed;           // listed cells of sparse tables, ascending within a table
    const Score* values;
    const Score* weight;         // (F, R), or null if all are one
    double forbidden;            // finite replacement of -inf, so that differences are not NaN

    double finite(double score) const {
        return score == -std::numeric_limits<double>::infinity() ? forbidden : score;
    }
    double node_score(i64 node, i64 state) const { return finite(unary[node * n_columns + state]); }

    // Offset that a state adds to the cell of the factor of a slot.
    i64 step(i64 slot, i64 state) const {
        const i32 t = table[slot_factor[slot]];
        return kind[t] == COUNT_TABLE ? state == counted[t] : slot_step[slot] * state;
    }

    double dense_score(i64 factor, i64 at) const {
        if (weight == nullptr) return finite(values[at]);
        const i64 feature_step = (table_ptr[table[factor] + 1] - table_ptr[table[factor]]) / n_features;
        double total = 0;
        for (i64 r = 0; r < n_features; ++r) {
            total += static_cast<double>(weight[factor * n_features + r]) * values[at + r * feature_step];
        }
        return finite(total);
    }

    double factor_score(i64 factor, i64 cell) const {
        const i32 t = table[factor];
        const i64 start = table_ptr[t];
        if (kind[t] == DENSE_TABLE) return dense_score(factor, start + cell);
        const i64 stop = table_ptr[t + 1];
        if (kind[t] == COUNT_TABLE) return finite(cell < stop - start ? values[start + cell] : fallback[t]);
        const i64* place = std::lower_bound(listed + start, listed + stop, cell);
        return finite(place < listed + stop && *place == cell ? values[place - listed] : fallback[t]);
    }

    // Computes the score of each state given all other labels, up to a constant. Returns the number of entries read.
    i64 local_scores(i64 node, const i32* labels, const i64* cells, double* scores) const {
        const i64 n = n_states[node];
        for (i64 k = 0; k < n; ++k) scores[k] = node_score(node, k);
        for (i64 i = node_ptr[node]; i < node_ptr[node + 1]; ++i) {
            const i64 slot = node_slot[i], factor = slot_factor[slot];
            const i64 others = cells[factor] - step(slot, labels[node]);
            const i32 t = table[factor];
            if (kind[t] == DENSE_TABLE && weight == nullptr) {
                const Score* value = values + table_ptr[t] + others;
                const i64 by = slot_step[slot];
                for (i64 k = 0; k < n; ++k) scores[k] += finite(value[k * by]);
            } else {
                for (i64 k = 0; k < n; ++k) scores[k] += factor_score(factor, others + step(slot, k));
            }
        }
        return n * (1 + node_ptr[node + 1] - node_ptr[node]);
    }

    void change(i64 node, i32 state, i32* labels, i64* cells) const {
        for (i64 i = node_ptr[node]; i < node_ptr[node + 1]; ++i) {
            const i64 slot = node_slot[i];
            cells[slot_factor[slot]] += step(slot, state) - step(slot, labels[node]);
        }
        labels[node] = state;
    }
};

template <class Score>
void find_cells(const Problem<Score>& problem, i64 n_factors, const i32* labels, i64* cells) {
    for (i64 f = 0; f < n_factors; ++f) {
        cells[f] = 0;
        for (i64 slot = problem.slot_ptr[f]; slot < problem.slot_ptr[f + 1]; ++slot) {
            cells[f] += problem.step(slot, labels[problem.slot_node[slot]]);
        }
    }
}

// Draws a state with probability proportional to exp(score / temperature). Temperature 0 gives the best state, or the
// present state in case of ties.
inline i64 drawn(const double* scores, i64 n, i64 present, double temperature, Random& random) {
    i64 best = present;
    for (i64 k = 0; k < n; ++k) best = scores[k] > scores[best] ? k : best;
    if (temperature <= 0) return best;
    if (n == 2) {
        const double gap = (scores[best] - scores[1 - best]) / temperature;
        return gap < 40 && random.uniform() * (1 + std::exp(-gap)) > 1 ? 1 - best : best;
    }
    double total = 0;
    for (i64 k = 0; k < n; ++k) total += std::exp((scores[k] - scores[best]) / temperature);
    double threshold = random.uniform() * total;
    for (i64 k = 0; k < n; ++k) {
        threshold -= std::exp((scores[k] - scores[best]) / temperature);
        if (threshold < 0) return k;
    }
    return best;
}

// Computes the cost of the best label change of each node: negative for gains, 0 if the node has no other state.
template <class Score>
void find_change_costs(const Problem<Score>& problem, const i32* labels, const i64* cells, double* scores,
                       double* cost) {
    for (i64 node = 0; node < problem.n_nodes; ++node) {
        double best = -std::numeric_limits<double>::infinity();
        problem.local_scores(node, labels, cells, scores);
        for (i64 k = 0; k < problem.n_states[node]; ++k) {
            if (k != labels[node] && scores[k] > best) best = scores[k];
        }
        cost[node] = problem.n_states[node] > 1 ? scores[labels[node]] - best : 0;
    }
}

struct Outcome {
    double gain;
    i64 work, changes;
};

// Runs one sweep of Gibbs sampling at a temperature.
template <class Score>
Outcome heat_bath(const Problem<Score>& problem, double temperature, u64 key, i32* labels, i64* cells,
                  double* scores) {
    Random random{key};
    Outcome outcome{0, 0, 0};
    for (i64 node = 0; node < problem.n_nodes; ++node) {
        if (problem.n_states[node] < 2) continue;
        outcome.work += problem.local_scores(node, labels, cells, scores);
        const i64 before = labels[node];
        const i64 state = drawn(scores, problem.n_states[node], before, temperature, random);
        if (state == before) continue;
        outcome.gain += scores[state] - scores[before];
        ++outcome.changes;
        problem.change(node, static_cast<i32>(state), labels, cells);
    }
    return outcome;
}

// Splits the nodes where two labelings differ into connected parts. A part keeps the new labels if their score is not
// lower; all other parts get the old labels. Parts share no factor, so their gains are independent.
template <class Score>
Outcome keep_better_parts(const Problem<Score>& problem, const i32* old, i32* labels, i64* cells,
                          std::vector<i32>& part, std::vector<i64>& seen_factor, std::vector<char>& seen, i64 mark) {
    Outcome outcome{0, 0, 0};
    std::fill(seen.begin(), seen.end(), 0);
    for (i64 root = 0; root < problem.n_nodes; ++root) {
        if (labels[root] == old[root] || seen[root]) continue;
        part.assign(1, static_cast<i32>(root));
        seen[root] = 1;
        double gain = 0;
        for (std::size_t next = 0; next < part.size(); ++next) {
            const i64 node = part[next];
            gain += problem.node_score(node, labels[node]) - problem.node_score(node, old[node]);
            for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
                const i64 factor = problem.slot_factor[problem.node_slot[i]];
                if (seen_factor[factor] == mark) continue;
                seen_factor[factor] = mark;
                i64 before = cells[factor];
                for (i64 slot = problem.slot_ptr[factor]; slot < problem.slot_ptr[factor + 1]; ++slot) {
                    const i32 other = problem.slot_node[slot];
                    if (labels[other] == old[other]) continue;
                    before += problem.step(slot, old[other]) - problem.step(slot, labels[other]);
                    if (!seen[other]) {
                        seen[other] = 1;
                        part.push_back(other);
                    }
                }
                gain += problem.factor_score(factor, cells[factor]) - problem.factor_score(factor, before);
                outcome.work += 2 + problem.slot_ptr[factor + 1] - problem.slot_ptr[factor];
            }
        }
        if (gain < 0) {
            for (const i32 node : part) problem.change(node, old[node], labels, cells);
        } else {
            outcome.gain += gain;
            outcome.changes += gain > 0;
        }
    }
    return outcome;
}

}  // namespace crf
