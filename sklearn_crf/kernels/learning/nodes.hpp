// Logistic regression losses of single nodes with dense features, and their gradient, in one call.
//
// The conditional of a node given the labels of its neighbours is also a logistic regression: sums of edge features
// over the neighbours are additional features of the node.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/types.hpp"
#include "core/dense_features.hpp"
#include "core/pool.hpp"
#include "core/rows.hpp"

namespace crf {

constexpr i64 kRows = 64;  // rows exponentiated at once; a multiple of the vector length
// Rows of at most this length are multiplied one by one; for longer rows, matrix products are faster.
constexpr i64 kLongestRow = 16;

// Rows of features, and their weights for each column of scores.
template <class Real>
struct RowFeatures {
    i64 width;
    const double* weights;  // (C, F)
    DenseFeatures<Real> matrix;  // has the weights in the precision of the features

    // scores += rows weights', (n, C)
    void add_scores(const Real* rows, i64 n_rows, i64 n_columns, Real* products, double* scores) const {
        if (width == 0) return;
        matrix.scores(rows, n_rows, n_columns, n_columns, products);
        for (i64 k = 0; k < n_rows * n_columns; k++) scores[k] += double(products[k]);
    }

    // gradient += scores' rows, (C, F)
    void add_gradient(const Real* rows, i64 n_rows, i64 n_columns, const double* scores, double* gradient) const {
        if (width) matrix.pull(rows, n_rows, n_columns, n_columns, scores, gradient, true);
    }

    // For a single column of scores and short rows, without matrix products.
    void add_short_scores(const Real* rows, i64 n_rows, double* scores) const {
        for (i64 row = 0; row < n_rows; row++, rows += width) {
            // Two sums, since each addition waits for the previous addition.
            double even = 0, odd = 0;
            for (i64 k = 0; k + 1 < width; k += 2) even += weights[k] * rows[k], odd += weights[k + 1] * rows[k + 1];
            if (width % 2) even += weights[width - 1] * rows[width - 1];
            scores[row] += even + odd;
        }
    }

    void add_short_gradient(const Real* rows, i64 n_rows, const double* scores, double* gradient) const {
        i64 row = 0;
        for (; row + 3 < n_rows; row += 4, rows += 4 * width) {
            const double a = scores[row], b = scores[row + 1], c = scores[row + 2], d = scores[row + 3];
            for (i64 k = 0; k < width; k++)
                gradient[k] += (a * rows[k] + b * rows[width + k]) + (c * rows[2 * width + k] + d * rows[3 * width + k]);
        }
        for (; row < n_rows; row++, rows += width)
            for (i64 k = 0; k < width; k++) gradient[k] += scores[row] * rows[k];
    }
};

// A block of nodes, by the addresses of its arrays.
struct NodeBlock {
    std::intptr_t features;  // (n, F)
    std::intptr_t neighbours;  // (n, M)
    std::intptr_t labels;  // (n,) int32
    std::intptr_t weight;  // (n,) float64, or 0 for ones
    i64 n;
};

template <class Real>
struct NodeRisk {
    RowFeatures<Real> features, neighbours;
    i64 n_classes;
    const double* intercept;  // (C,) or null
    const NodeBlock* blocks;
    const i64* parts;  // (n_parts + 1,) first block of each part; parts have separate sums
    i64 n_parts;

    i64 n_columns() const { return n_classes == 2 ? 1 : n_classes; }  // 1 for two states: the score difference

    // Loss, weight of wrong labels, gradients of feature weights (C, F), neighbour weights (C, M) and intercepts (C,).
    i64 n_sums() const { return 2 + n_columns() * (features.width + neighbours.width + 1); }

    void run(double* sums, const Threads& threads) const {
        std::vector<double> apart(n_parts * n_sums());
        threads.share(n_parts, [&](i64 part) {
            for (i64 b = parts[part]; b < parts[part + 1]; b++) add_block(blocks[b], apart.data() + part * n_sums());
        });
        for (i64 part = 0; part < n_parts; part++)
            for (i64 k = 0; k < n_sums(); k++) sums[k] += apart[part * n_sums() + k];
    }

private:
    void add_block(const NodeBlock& block, double* sums) const {
        if (n_classes == 2 && features.width + neighbours.width <= kLongestRow) return add_short_rows(block, sums);
        const i64 C = n_columns();
        const auto* rows = reinterpret_cast<const Real*>(block.features);
        const auto* others = reinterpret_cast<const Real*>(block.neighbours);
        std::vector<double> scores(block.n * C), odds(C > 1 ? kRows * C : 0);
        std::vector<Real> products(block.n * C);
        for (i64 j = 0; j < block.n && intercept; j++) std::copy_n(intercept, C, scores.data() + j * C);
        features.add_scores(rows, block.n, C, products.data(), scores.data());
        neighbours.add_scores(others, block.n, C, products.data(), scores.data());
        for (i64 first = 0; first < block.n; first += kRows) {
            const i64 count = std::min(kRows, block.n - first);
            if (C == 1) lose_two(scores.data() + first, block, first, count, sums);
            else lose_many(scores.data() + first * C, block, first, count, odds.data(), sums);
        }
        double *by_features = sums + 2, *by_neighbours = by_features + C * features.width;
        features.add_gradient(rows, block.n, C, scores.data(), by_features);
        neighbours.add_gradient(others, block.n, C, scores.data(), by_neighbours);
        double* by_intercept = by_neighbours + C * neighbours.width;
        for (i64 j = 0; j < block.n; j++)
            for (i64 k = 0; k < C; k++) by_intercept[k] += scores[j * C + k];
    }

    // Computes the loss for two classes; scores stay in the nearest cache.
    void add_short_rows(const NodeBlock& block, double* sums) const {
        double scores[kRows], *by_features = sums + 2, *by_neighbours = by_features + features.width;
        for (i64 first = 0; first < block.n; first += kRows) {
            const i64 count = std::min(kRows, block.n - first);
            const auto* rows = reinterpret_cast<const Real*>(block.features) + first * features.width;
            const auto* others = reinterpret_cast<const Real*>(block.neighbours) + first * neighbours.width;
            std::fill_n(scores, count, intercept ? *intercept : 0.0);
            features.add_short_scores(rows, count, scores);
            neighbours.add_short_scores(others, count, scores);
            lose_two(scores, block, first, count, sums);
            features.add_short_gradient(rows, count, scores, by_features);
            neighbours.add_short_gradient(others, count, scores, by_neighbours);
            for (i64 j = 0; j < count; j++) by_neighbours[neighbours.width] += scores[j];
        }
    }

    static double weight_of(const NodeBlock& block, i64 node) {
        return block.weight ? reinterpret_cast<const double*>(block.weight)[node] : 1.0;
    }

    static i32 label_of(const NodeBlock& block, i64 node) { return reinterpret_cast<const i32*>(block.labels)[node]; }

    // Computes the losses of at most kRows nodes, and replaces their scores by derivatives.
    void lose_two(double* scores, const NodeBlock& block, i64 first, i64 count, double* sums) const {
        double odds[kRows], logs[kRows];
        for (i64 j = 0; j < kRows; j++) odds[j] = j < count ? -std::fabs(scores[j]) : 0;
        exponentiate_all<double>(odds, kRows);
        for (i64 j = 0; j < kRows; j++) logs[j] = 1 + odds[j];
        logarithms<double>(logs, kRows, logs);
        for (i64 j = 0; j < count; j++) {
            const double weight = weight_of(block, first + j), score = scores[j];
            const bool is_second = label_of(block, first + j) > 0;
            const double margin = is_second ? score : -score;
            const double wrong = weight * (margin > 0 ? odds[j] : 1.0) / (1 + odds[j]);
            sums[0] += weight * (logs[j] + (margin > 0 ? 0 : -margin));
            if ((score > 0) != is_second) sums[1] += weight;
            scores[j] = is_second ? -wrong : wrong;
        }
    }

    void lose_many(double* scores, const NodeBlock& block, i64 first, i64 count, double* odds, double* sums) const {
        const i64 K = n_classes;
        double logs[kRows], lead[kRows];
        for (i64 j = 0; j < count; j++) {
            const double* row = scores + j * K;
            i64 best = 0;
            for (i64 k = 1; k < K; k++)
                if (row[k] > row[best]) best = k;
            for (i64 k = 0; k < K; k++) odds[j * K + k] = row[k] - row[best];
            lead[j] = row[best] - row[label_of(block, first + j)];
            if (best != label_of(block, first + j)) sums[1] += weight_of(block, first + j);
        }
        std::fill(odds + count * K, odds + kRows * K, 0.0);
        exponentiate_all<double>(odds, kRows * K);
        for (i64 j = 0; j < kRows; j++) {
            logs[j] = 0;
            for (i64 k = 0; k < K; k++) logs[j] += odds[j * K + k];
        }
        for (i64 j = 0; j < count; j++) {
            const double weight = weight_of(block, first + j);
            for (i64 k = 0; k < K; k++) scores[j * K + k] = weight / logs[j] * odds[j * K + k];
            scores[j * K + label_of(block, first + j)] -= weight;
        }
        logarithms<double>(logs, kRows, logs);
        for (i64 j = 0; j < count; j++) sums[0] += weight_of(block, first + j) * (logs[j] + lead[j]);
    }
};

}  // namespace crf
