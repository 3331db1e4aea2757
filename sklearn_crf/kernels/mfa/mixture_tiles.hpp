// Operations of Gaussian mixtures on each sample between two matrix products. Samples lie along rows, so that loops
// over samples are vectorised. Work is done in tiles that stay in the first-level cache.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "core/rows.hpp"
#include "core/types.hpp"

namespace crf {

// Number of samples in a tile, a multiple of the longest vector.
constexpr i64 kTile = 128;

// x = exp(x) or log(x) of n numbers, in place; x has space for padding the last vector.
template <int bytes>
VECTORS_INLINE void exponentials(double* x, std::ptrdiff_t n) {
    constexpr int L = kLanesOf<double, bytes>;
    for (std::ptrdiff_t j = n; j % L; j++) x[j] = 0;
    for (std::ptrdiff_t j = 0; j < n; j += L) {
        Vector<double, L> v = load<double, L>(x + j);
        take_exp<double, L>(v);
        store<double, L>(x + j, v);
    }
}

template <int bytes>
VECTORS_INLINE void logarithms_in_place(double* x, std::ptrdiff_t n) {
    constexpr int L = kLanesOf<double, bytes>;
    for (std::ptrdiff_t j = n; j % L; j++) x[j] = 1;
    for (std::ptrdiff_t j = 0; j < n; j += L) {
        Vector<double, L> v = load<double, L>(x + j);
        take_log<double, L>(v);
        store<double, L>(x + j, v);
    }
}

// scores = exp(scores - top); total += scores.
template <int bytes>
VECTORS_INLINE void exponentiate_below(const double* restrict top, i64 n, double* restrict scores,
                                       double* restrict total) {
    double x[kTile];
    for (i64 j = 0; j < n; j++) x[j] = scores[j] - top[j];
    exponentials<bytes>(x, n);
    for (i64 j = 0; j < n; j++) {
        scores[j] = x[j];
        total[j] += x[j];
    }
}

// weights *= factor; z *= weights; sums += weights.
VECTORS_INLINE void weigh(const double* restrict factor, i64 n_factors, i64 stride, i64 n,
                          double* restrict weights, double* restrict z, double* restrict sums) {
    for (i64 j = 0; j < n; j++) {
        weights[j] *= factor[j];
        sums[j] += weights[j];
    }
    for (i64 k = 0; k < n_factors; k++)
        for (i64 j = 0; j < n; j++) z[k * stride + j] *= weights[j];
}

// Samples next to each other, with the linear forms and squares of their components.
struct Tile {
    double* projected;  // (S, p + 1, stride) z and l of each component
    const double* quadratic;  // (G, stride) q of each group
    const i64* group;  // (S,)
    i64 n_components, n_factors, stride, n;

    double* forms(i64 s) const { return projected + s * (n_factors + 1) * stride; }
    double* scores(i64 s) const { return forms(s) + n_factors * stride; }

    // Replaces l by the scores of a component, (|z|^2 - q) / 2 + l; top = max(top, scores).
    VECTORS_INLINE void score(i64 s, double* restrict top) const {
        const double *z = forms(s), *q = quadratic + group[s] * stride;
        double* restrict linear = scores(s);
        double square[kTile];
        for (i64 j = 0; j < n; j++) square[j] = -q[j];
        for (i64 k = 0; k < n_factors; k++)
            for (i64 j = 0; j < n; j++) square[j] += z[k * stride + j] * z[k * stride + j];
        for (i64 j = 0; j < n; j++) {
            linear[j] += 0.5 * square[j];
            top[j] = linear[j] > top[j] ? linear[j] : top[j];
        }
    }
};

// Returns the criterion of a tile; replaces z and l by w a_s z and w a_s, and adds w a_s to the sums of each group.
struct WeighTile {
    template <int bytes>
    VECTORS_INLINE static double run(Tile tile, const double* weight, i64 first, i64 last, double joint,
                                     double features, double* sums) {
        const i64 n = tile.n, stride = tile.stride;
        // Components of the class and others are exponentiated relative to their own maximum, so no sum can underflow.
        double top[2][kTile], total[2][kTile], factor[2][kTile];
        double log_own[kTile], log_all[kTile], value = 0;
        for (i64 j = 0; j < n; j++) {
            top[0][j] = top[1][j] = -std::numeric_limits<double>::infinity();
            total[0][j] = total[1][j] = factor[1][j] = 0;
        }
        for (i64 s = 0; s < tile.n_components; s++) tile.score(s, top[s < first || s >= last]);
        for (i64 s = 0; s < tile.n_components; s++) {
            const int other = s < first || s >= last;
            exponentiate_below<bytes>(top[other], n, tile.scores(s), total[other]);
        }
        for (i64 j = 0; j < n; j++) {
            log_own[j] = total[0][j];
            factor[0][j] = joint * weight[j] / total[0][j];
        }
        logarithms_in_place<bytes>(log_own, n);
        for (i64 j = 0; j < n; j++) value += joint * weight[j] * (top[0][j] + log_own[j]);
        if (features) {
            for (i64 j = 0; j < n; j++) {
                const double highest = top[0][j] > top[1][j] ? top[0][j] : top[1][j];
                top[0][j] -= highest;
                top[1][j] -= highest;
                log_own[j] = highest;
            }
            exponentials<bytes>(top[0], n);
            exponentials<bytes>(top[1], n);
            for (i64 j = 0; j < n; j++) {
                log_all[j] = top[0][j] * total[0][j] + top[1][j] * total[1][j];
                factor[1][j] = -features * weight[j] * top[1][j] / log_all[j];
                factor[0][j] -= features * weight[j] * top[0][j] / log_all[j];
            }
            logarithms_in_place<bytes>(log_all, n);
            for (i64 j = 0; j < n; j++) value -= features * weight[j] * (log_own[j] + log_all[j]);
        }
        for (i64 s = 0; s < tile.n_components; s++) {
            weigh(factor[s < first || s >= last], tile.n_factors, stride, n, tile.scores(s), tile.forms(s),
                  sums + tile.group[s] * stride);
        }
        return value;
    }
};

// Log-sum-exp of the scores of each class over its components, (n, n_classes), for one tile; NaN if any score is NaN or
// all are -inf.
struct ClassScores {
    template <int bytes>
    VECTORS_INLINE static void run(Tile tile, i64 n_classes, double* out) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const i64 n = tile.n, n_own = tile.n_components / n_classes;
        double top[kTile], total[kTile], nans[kTile];
        for (i64 c = 0; c < n_classes; c++) {
            for (i64 j = 0; j < n; j++) {
                top[j] = -infinity;
                total[j] = nans[j] = 0;
            }
            for (i64 s = c * n_own; s < (c + 1) * n_own; s++) {
                tile.score(s, top);
                const double* scores = tile.scores(s);
                for (i64 j = 0; j < n; j++) nans[j] = scores[j] == scores[j] ? nans[j] : scores[j];
            }
            for (i64 s = c * n_own; s < (c + 1) * n_own; s++) exponentiate_below<bytes>(top, n, tile.scores(s), total);
            logarithms_in_place<bytes>(total, n);
            for (i64 j = 0; j < n; j++)
                out[j * n_classes + c] =
                    top[j] > -infinity ? top[j] + total[j] + nans[j] : std::numeric_limits<double>::quiet_NaN();
        }
    }
};

}  // namespace crf
