// Structured hinge losses with linear scores: the most violated labeling of a forest or small graph, and its plane.
//
// Weights are one vector of doubles: feature weights by (node type, feature, column), so that all columns of a feature
// are adjacent, then intercepts by (node type, column), then table weights by (edge type, edge feature, weight).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/dense_features.hpp"
#include "core/pool.hpp"
#include "core/rows.hpp"
#include "weight_rows.hpp"

namespace crf {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

// Memory for the labeling of one example at a time.
struct HingeWorkspace {
    std::unique_ptr<double[]> scores, local, partial, mixed, best, factors;
    std::unique_ptr<i32[]> tried, nonzero;

    HingeWorkspace(i64 n_nodes, i64 n_states, i64 width, i64 n_features)
        : scores(workspace<double>(n_nodes * n_states)), local(workspace<double>(n_nodes * n_states)),
          partial(workspace<double>(n_nodes)), mixed(workspace<double>(n_states * width)),
          best(workspace<double>(width)), factors(workspace<double>(n_features + 1)), tried(workspace<i32>(n_nodes)),
          nonzero(workspace<i32>(n_features + 1)) {}
};

// Labelled examples of one batch: the numbers and addresses of ForestExamples, in the same order.
template <class Real>
struct HingeExamples {
    const i32 *labels, *order, *parent, *half_edge, *has_cycles;
    const i64* earlier_ptr;
    const i32 *earlier, *edges, *edge_type;
    const i64* feature_ptr;
    const i32* feature_index;
    const Real* edge_weight;
    const i32* node_type;
    const std::uint8_t* barred;
    const i64 *node_ptr, *edge_ptr;
    const double *cost, *node_weight, *weight;
    const i32* index;
    const double* sign;
    const std::uint8_t* forbidden;
    const double* constant;
    const Real* features;  // (N / n_sharing, n_features); or (nnz,) if features are sparse
    i64 n_states, n_members, n_features, n_sharing, n_columns, n_node_types, n_edge_types, n_edge_features;
    i64 n_table_weights;

    i64 width() const { return n_states + n_states % 2; }  // rows of tables are whole vectors
    i64 n_tables() const { return n_edge_types * n_edge_features; }
    i64 intercept_at() const { return n_node_types * n_features * n_columns; }
    i64 tables_at() const { return intercept_at() + (*constant != 0 ? n_node_types * n_columns : 0); }
    i64 n_weights() const { return tables_at() + n_tables() * n_table_weights; }
    i64 size_of_tables() const { return 2 * n_tables() * n_states * width(); }
    i64 n_nodes(i64 i) const { return node_ptr[i + 1] - node_ptr[i]; }
    i64 kind(i64 node) const { return node_type ? node_type[node] : 0; }
    double cost_factor(i64 node) const { return node_weight ? node_weight[node] : 1.0; }

    // Writes the tables for weights x, each also transposed: (n_tables, 2, K, width).
    void expand_tables(const double* x, double* tables) const {
        const i64 K = n_states, W = width();
        for (i64 k = 0; k < n_tables(); ++k) {
            const double* weights = x + tables_at() + k * n_table_weights;
            double *table = tables + 2 * k * K * W, *transposed = table + K * W;
            std::fill_n(table, 2 * K * W, 0.0);
            for (i64 a = 0; a < K; ++a)
                for (i64 b = 0; b < K; ++b) {
                    const i64 cell = a * K + b;
                    const double score = sign[cell] * weights[index[cell]];
                    table[a * W + b] = transposed[b * W + a] = forbidden && forbidden[cell] ? kForbidden : score;
                }
        }
    }

    // Finds labels of maximal cost plus score; returns their excess over the true score.
    double find_labels(i64 i, const double* x, const double* tables, HingeWorkspace& work, i32* found) const {
        const i64 K = n_states, first = node_ptr[i];
        double total = 0;
        for (i64 s = first; s < node_ptr[i + 1]; ++s) {
            double* scores = &work.scores[(s - first) * K];
            score_states(s, x, work, scores);
            total -= scores[labels[s]];
            for (i64 a = 0; a < K; ++a) scores[a] += cost_factor(s) * cost[labels[s] * K + a];
        }
        for (i64 e = edge_ptr[i]; e < edge_ptr[i + 1]; ++e)
            total -= towards(i32(2 * e), tables, work)[labels[edges[2 * e]] * width() + labels[edges[2 * e + 1]]];
        return total + (has_cycles[i] ? enumerate(i, tables, work, found) : pass_messages(i, tables, work, found));
    }

    // Returns the offset of the plane of the found labels: the cost of example i times its weight.
    double offset(i64 i, const i32* found) const {
        double total = 0;
        for (i64 s = node_ptr[i]; s < node_ptr[i + 1]; ++s)
            total += cost[labels[s] * n_states + found[s - node_ptr[i]]] * cost_factor(s);
        return weight[i] * total;
    }

    // Adds the slope of the plane of the found labels of example i.
    void add_slope(i64 i, const i32* found, HingeWorkspace& work, double* slope) const {
        for (i64 s = node_ptr[i]; s < node_ptr[i + 1]; ++s) {
            const i32 truth = labels[s], other = found[s - node_ptr[i]];
            if (truth == other) continue;
            if (n_columns == 1 && !feature_ptr) {
                const double factor = other > truth ? weight[i] : -weight[i];
                double* own = slope + kind(s) * n_features;
                const Real* values = row(s);
                for (i64 f = 0; f < n_features; ++f) own[f] += factor * values[f];
            } else {
                const i64 n_nonzero = find_nonzero(s, work);
                for (i64 q = 0; q < n_nonzero; ++q)
                    add_difference(slope + work.nonzero[q] * n_columns, truth, other, weight[i] * work.factors[q]);
            }
            if (*constant != 0)
                add_difference(slope + intercept_at() + kind(s) * n_columns, truth, other, weight[i] * *constant);
        }
        add_tables(i, found, slope + tables_at());
    }

    // Adds the table weights of this slope.
    void add_tables(i64 i, const i32* found, double* slope) const {
        for (i64 e = edge_ptr[i]; e < edge_ptr[i + 1]; ++e) {
            const i32 tail = edges[2 * e], head = edges[2 * e + 1];
            const i64 truth = labels[tail] * n_states + labels[head];
            const i64 cell = found[tail - node_ptr[i]] * n_states + found[head - node_ptr[i]];
            if (cell == truth) continue;
            for (i64 r = 0; r < n_edge_features; ++r) {
                const double value = edge_weight ? weight[i] * edge_weight[e * n_edge_features + r] : weight[i];
                double* own = slope + (edge_type[e] * n_edge_features + r) * n_table_weights;
                own[index[cell]] += value * sign[cell];
                own[index[truth]] -= value * sign[truth];
            }
        }
    }

    // Writes the weight rows and values of the nonzero features of a node; returns their number.
    i64 find_nonzero(i64 node, HingeWorkspace& work) const {
        i64 n_nonzero = 0;
        if (feature_ptr) {
            for (i64 f = feature_ptr[node]; f < feature_ptr[node + 1]; ++f, ++n_nonzero) {
                work.nonzero[n_nonzero] = feature_index[f];
                work.factors[n_nonzero] = features[f];
            }
            return n_nonzero;
        }
        const Real* own = row(node);
        const i32 first = i32(kind(node) * n_features);
        for (i64 f = 0; f < n_features; ++f) {
            // Avoid a branch, which would often be mispredicted.
            work.nonzero[n_nonzero] = first + i32(f);
            work.factors[n_nonzero] = own[f];
            n_nonzero += std::fabs(own[f]) > 0;
        }
        return n_nonzero;
    }

private:
    const Real* row(i64 node) const { return features + (n_sharing == 1 ? node : node / n_sharing) * n_features; }

    void add_difference(double* own, i32 truth, i32 other, double value) const {
        if (n_columns == 1) {
            *own += other > truth ? value : -value;
        } else {
            own[other] += value;
            own[truth] -= value;
        }
    }

    // Returns the product of the dense features of a node with weights.
    double product_of_features(i64 node, const double* weights) const {
        const Real* own = row(node);
        // Four sums, since each addition waits for the previous addition.
        double sums[4] = {0};
        i64 f = 0;
        for (; f + 4 <= n_features; f += 4)
            for (int a = 0; a < 4; ++a) sums[a] += weights[f + a] * own[f + a];
        for (; f < n_features; ++f) sums[0] += weights[f] * own[f];
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }

    // Computes the scores of the states of a node. The scores of two states are -z / 2 and z / 2.
    void score_states(i64 node, const double* x, HingeWorkspace& work, double* scores) const {
        const i64 C = n_columns, n_nonzero = C == 1 && !feature_ptr ? 0 : find_nonzero(node, work);
        const double *intercept = x + intercept_at() + kind(node) * C, one = *constant;
        if (C == 1) {
            double value = one == 0 ? 0.0 : one * *intercept;
            if (!feature_ptr) value += product_of_features(node, x + kind(node) * n_features);
            for (i64 q = 0; q < n_nonzero; ++q) value += work.factors[q] * x[work.nonzero[q]];
            scores[0] = -0.5 * value;
            scores[1] = 0.5 * value;
        } else {
            sum_weighted_rows(x, work.nonzero.get(), work.factors.get(), n_nonzero, C, scores);
            for (i64 a = 0; a < C && one != 0; ++a) scores[a] += one * intercept[a];
        }
        for (i64 a = 0; a < n_states && barred; ++a)
            if (barred[node * n_states + a]) scores[a] = kForbidden;
    }

    // Returns the scores (K, width) of an edge, by the states of the start and of the other end of a half-edge.
    const double* towards(i32 half, const double* tables, HingeWorkspace& work) const {
        const i64 K = n_states, W = width(), R = n_edge_features, area = K * W, edge = half >> 1;
        const double* table = tables + 2 * edge_type[edge] * R * area + (half & 1) * area;
        if (!edge_weight) return table;
        double* mixed = work.mixed.get();
        std::fill_n(mixed, area, 0.0);
        for (i64 r = 0; r < R; ++r) {
            const double factor = edge_weight[edge * R + r];
            for (i64 k = 0; k < area; ++k) mixed[k] += factor * table[2 * r * area + k];
        }
        // Set explicitly, since -inf times a feature may be NaN.
        for (i64 a = 0; a < K && forbidden; ++a)
            for (i64 b = 0; b < K; ++b)
                if (forbidden[half & 1 ? b * K + a : a * K + b]) mixed[a * W + b] = kForbidden;
        return mixed;
    }

    // Finds the best labeling by enumeration, node by node, given the states of earlier nodes.
    double enumerate(i64 i, const double* tables, HingeWorkspace& work, i32* found) const {
        const i64 K = n_states, first = node_ptr[i];
        double best = kForbidden;
        bool is_fresh = true;
        work.partial[0] = 0;
        for (i64 depth = 0; depth >= 0;) {
            double* local = &work.local[depth * K];
            i32& state = work.tried[depth];
            if (is_fresh) {
                state = -1;
                std::copy_n(&work.scores[depth * K], K, local);
                for (i64 k = earlier_ptr[first + depth]; k < earlier_ptr[first + depth + 1]; ++k) {
                    const i64 other = edges[2 * (earlier[k] >> 1) + 1 - (earlier[k] & 1)] - first;
                    const double* column = towards(earlier[k], tables, work) + work.tried[other];
                    for (i64 a = 0; a < K; ++a) local[a] += column[a * width()];
                }
            }
            is_fresh = false;
            if (++state == K) {
                --depth;
                continue;
            }
            const double value = work.partial[depth] + local[state];
            if (depth < n_nodes(i) - 1) {
                work.partial[++depth] = value;
                is_fresh = true;
            } else if (value > best) {
                best = value;
                std::copy_n(work.tried.get(), n_nodes(i), found);
            }
        }
        return best;
    }

    // Finds the best labeling of a forest, by max-product messages from the leaves to the roots.
    double pass_messages(i64 i, const double* tables, HingeWorkspace& work, i32* found) const {
        const i64 K = n_states, W = width(), first = node_ptr[i], last = node_ptr[i + 1];
        double *best = work.best.get(), total = 0;
        for (i64 place = last - 1; place >= first; --place) {
            const i32 s = order[place], above = parent[s];
            if (above < 0) continue;
            max_sum<double>(towards(half_edge[s], tables, work), &work.scores[(s - first) * K], K, W, best);
            for (i64 b = 0; b < K; ++b) work.scores[(above - first) * K + b] += best[b];
        }
        // If K is odd, the padding must not be the maximum.
        best[W - 1] = kForbidden;
        for (i64 place = first; place < last; ++place) {
            const i32 s = order[place], above = parent[s];
            const double* scores = &work.scores[(s - first) * K];
            std::copy_n(scores, K, best);
            if (above >= 0) {
                // Read the table from the other end, so that the states of this end are contiguous.
                const double* table = towards(half_edge[s] ^ 1, tables, work) + found[above - first] * W;
                for (i64 a = 0; a < K; ++a) best[a] += table[a];
            }
            const double top = row_max<double>(best, W);
            i32 state = 0;
            while (state < K - 1 && best[state] != top) ++state;
            found[s - first] = state;
            if (above < 0) total += top;
        }
        return total;
    }
};

// All batches of a risk. Examples are numbered through all batches.
template <class Real>
struct HingeBatches {
    const HingeExamples<Real>* batches;
    i64 n_batches;

    const HingeExamples<Real>& operator[](i64 b) const { return batches[b]; }

    i64 most_nodes() const {
        i64 most = 0;
        for (i64 b = 0; b < n_batches; ++b)
            for (i64 i = 0; i < batches[b].n_members; ++i) most = std::max(most, batches[b].n_nodes(i));
        return most;
    }

    HingeWorkspace make_workspace(i64 n_nodes) const {
        return {n_nodes, batches->n_states, batches->width(), batches->n_features};
    }

    std::unique_ptr<double[]> tables_at(const double* x) const {
        auto tables = workspace<double>(batches->size_of_tables());
        batches->expand_tables(x, tables.get());
        return tables;
    }
};

// Examples start to stop - 1 of a batch.
struct HingePart {
    i64 batch, start, stop;
};

// For each part, adds the slopes at x of its planes, unless slopes is null, and writes the sums of values and offsets.
template <class Real>
void add_planes(const HingeBatches<Real>& batches, const HingePart* parts, i64 n_parts, const double* x, double* slopes,
                double* sums, const Threads& threads) {
    const i64 most_nodes = batches.most_nodes(), n = batches[0].n_weights();
    const auto tables = batches.tables_at(x);
    threads.share(n_parts, [&](i64 k) {
        const auto& examples = batches[parts[k].batch];
        auto work = batches.make_workspace(most_nodes);
        const auto found = workspace<i32>(most_nodes);
        sums[2 * k] = sums[2 * k + 1] = 0;
        for (i64 i = parts[k].start; i < parts[k].stop; ++i) {
            sums[2 * k] += examples.weight[i] * examples.find_labels(i, x, tables.get(), work, found.get());
            sums[2 * k + 1] += examples.offset(i, found.get());
            if (slopes) examples.add_slope(i, found.get(), work, slopes + k * n);
        }
    });
}

}  // namespace crf
