// Scores and statistics of a single node of a pairwise model, given its neighbours.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/types.hpp"

namespace crf {

// Finite score of a forbidden pair, instead of -inf. States of a node whose neighbours forbid all states can then still
// be compared by their numbers of violations, and no difference is NaN. The exponential of this score is zero.
constexpr double FORBIDDEN_PAIR = -1e100;
// Upper bound on the score of a forbidden pair of positive probability: its exponential is still zero.
constexpr double FORBIDDEN_TRACE = -1e40;

template <class Real>
struct LocalModel {
    i64 n_columns = 0, n_features = 0;  // K, R
    const Real* unary = nullptr;  // (N, K)
    const Real* tables = nullptr;  // (T, R, K, K)
    const double* agreement = nullptr;  // (T, R) diagonal minus off-diagonal score of Potts tables, or null
    const i32* edge_type = nullptr;  // (E,)
    const Real* edge_weight = nullptr;  // (E, R), or null if all are one
    const i64* ptr = nullptr;  // (N + 1,)
    const i32 *neighbor = nullptr, *half_edge = nullptr;  // (2E,)

    // Calls visit(other, weight, cell, own, step, is_second) for each neighbour and feature. States k of the node and j
    // of the neighbour have the table entry cell + own k + step j.
    template <class Visit>
    void each_pair(i64 node, Visit visit) const {
        for (i64 slot = ptr[node]; slot < ptr[node + 1]; ++slot) {
            const i64 edge = half_edge[slot] >> 1, K = n_columns;
            const bool is_second = half_edge[slot] & 1;
            for (i64 r = 0; r < n_features; ++r) {
                const double weight = edge_weight ? double(edge_weight[edge * n_features + r]) : 1.0;
                const i64 cell = (edge_type[edge] * n_features + r) * K * K;
                visit(neighbor[slot], weight, cell, is_second ? 1 : K, is_second ? K : 1, is_second);
            }
        }
    }

    // For Potts tables: calls visit(other, gain) for each neighbour, where gain is the score of agreement.
    template <class Visit>
    void each_gain(i64 node, Visit visit) const {
        for (i64 slot = ptr[node]; slot < ptr[node + 1]; ++slot) {
            const i64 edge = half_edge[slot] >> 1;
            const double* own = agreement + edge_type[edge] * n_features;
            double gain = edge_weight ? 0 : own[0];
            for (i64 r = 0; r < n_features && edge_weight; ++r) gain += edge_weight[edge * n_features + r] * own[r];
            visit(neighbor[slot], gain);
        }
    }

    // Score of each state given the labels of neighbours, up to a constant.
    void scores_given_labels(i64 node, const i32* labels, double* scores) const {
        std::copy_n(unary + node * n_columns, n_columns, scores);
        if (agreement) return each_gain(node, [&](i64 other, double gain) { scores[labels[other]] += gain; });
        each_pair(node, [&](i64 other, double weight, i64 cell, i64 own, i64 step, bool) {
            const Real* table = tables + cell + step * labels[other];
            for (i64 k = 0; k < n_columns; ++k) scores[k] += at_least(weight * table[own * k], FORBIDDEN_PAIR);
        });
    }

    // Expected score of each state under independent neighbours, up to a constant.
    void scores_given_marginals(i64 node, const double* marginals, double* scores) const {
        std::copy_n(unary + node * n_columns, n_columns, scores);
        if (agreement)
            return each_gain(node, [&](i64 other, double gain) {
                for (i64 k = 0; k < n_columns; ++k) scores[k] += gain * marginals[other * n_columns + k];
            });
        each_pair(node, [&](i64 other, double weight, i64 cell, i64 own, i64 step, bool) {
            for (i64 j = 0; j < n_columns; ++j) {
                // Forbidden pairs cost nothing at probability zero, and very much otherwise.
                const double probability = marginals[other * n_columns + j];
                if (probability == 0) continue;
                const double least = std::min(FORBIDDEN_PAIR * probability, FORBIDDEN_TRACE);
                const Real* table = tables + cell + step * j;
                for (i64 k = 0; k < n_columns; ++k) scores[k] += at_least(weight * probability * table[own * k], least);
            }
        });
    }

    // Adds factor * edge weight * probability of (state of the node, label of a neighbour) to pairs (T, R, K, K).
    void add_pairs(i64 node, const i32* labels, const double* probability, double factor, double* pairs) const {
        each_pair(node, [&](i64 other, double weight, i64 cell, i64 own, i64 step, bool) {
            double* found = pairs + cell + step * labels[other];
            for (i64 k = 0; k < n_columns; ++k) found[own * k] += factor * weight * probability[k];
        });
    }

    // Expected score of a node and of edges that start from it, plus its entropy. Adds products of marginals to pairs.
    double bound(i64 node, const double* marginals, double* pairs) const {
        const double* here = marginals + node * n_columns;
        double total = 0;
        for (i64 k = 0; k < n_columns; ++k)
            if (here[k] > 0) total += here[k] * (unary[node * n_columns + k] - std::log(here[k]));
        each_pair(node, [&](i64 other, double weight, i64 cell, i64 own, i64 step, bool is_second) {
            for (i64 k = 0; k < n_columns && !is_second; ++k)
                for (i64 j = 0; j < n_columns; ++j) {
                    const double joint = here[k] * marginals[other * n_columns + j];
                    if (!(joint > 0)) continue;
                    total += joint * weight * tables[cell + own * k + step * j];
                    pairs[cell + own * k + step * j] += weight * joint;
                }
        });
        return total;
    }

    // Turns the scores of a node into probabilities in place. Returns their log-partition.
    double normalize(double* scores) const {
        double largest = scores[0], total = 0;
        if (n_columns == 2) {
            // Needs a single exponential, whose argument is never positive.
            const bool is_second = scores[1] > scores[0];
            largest = scores[is_second];
            const double odds = std::exp(scores[!is_second] - largest);
            scores[is_second] = 1 / (1 + odds);
            scores[!is_second] = odds * scores[is_second];
            return largest + std::log1p(odds);
        }
        for (i64 k = 1; k < n_columns; ++k) largest = std::max(largest, scores[k]);
        for (i64 k = 0; k < n_columns; ++k) total += scores[k] = std::exp(scores[k] - largest);
        for (i64 k = 0; k < n_columns; ++k) scores[k] /= total;
        return largest + std::log(total);
    }

private:
    static double at_least(double value, double least) { return value > least ? value : least; }
};

}  // namespace crf
