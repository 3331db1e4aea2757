// Products of rows of features with weights. The bits of a product do not depend on the rows beside it: those of BLAS
// do, because BLAS chooses its order of summation by the shape of a matrix and the place of a row.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>

#include "core/row_vectors.hpp"

namespace crf {

template <class Number>
std::unique_ptr<Number[]> workspace(i64 n) {
    return std::unique_ptr<Number[]>(new Number[std::max<i64>(n, 1)]);
}

// out = rows weights', for rows (n, F) and weights (C, F), both in the order of C, and rows of `out` that begin `stride`
// apart.
template <class Real>
struct ScoredRows {
    const Real* weights;
    i64 n_features, n_columns, stride;

    // Most vectors of columns that are summed at once; there are eight sums or more, because each waits for itself.
    static constexpr int kVectors = 3;

    template <int bytes>
    VECTORS_INLINE static void run(ScoredRows of, const Real* rows, i64 n, Real* out) {
        if (of.n_columns == 1) of.template in_tiles<8>(n, [&](i64 i, auto size) VECTORS_INLINE_LAMBDA {
            of.template single<bytes, decltype(size)::value>(rows + i * of.n_features, out + i * of.stride);
        });
        else of.template panels<bytes>(rows, n, out);
    }

private:
    // Calls a function with the first row of each tile of `size` rows, then with each row that is left.
    template <int size, class Function>
    VECTORS_INLINE static void in_tiles(i64 n, const Function& function) {
        i64 i = 0;
        for (; i + size <= n; i += size) function(i, std::integral_constant<int, size>());
        for (; i < n; ++i) function(i, std::integral_constant<int, 1>());
    }

    // Sums along the features, because one column would leave lanes of a vector of columns empty.
    template <int bytes, int n_rows>
    VECTORS_INLINE void single(const Real* rows, Real* out) const {
        constexpr int L = kLanesOf<Real, bytes>;
        const i64 F = n_features, whole = F / L * L;
        Vector<Real, L> total[n_rows] = {};
        for (i64 f = 0; f < whole; f += L) {
            const Vector<Real, L> own = load<Real, L>(weights + f);
            for (int r = 0; r < n_rows; ++r) total[r] += load<Real, L>(rows + r * F + f) * own;
        }
        for (int r = 0; r < n_rows; ++r) {
            Real lane[L];
            store<Real, L>(lane, total[r]);
            for (int half = L / 2; half; half /= 2)
                for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
            for (i64 f = whole; f < F; ++f) lane[0] += rows[r * F + f] * weights[f];
            out[r * stride] = lane[0];
        }
    }

    // Copies the weights into panels of some vectors of columns, (F, width), the last one filled up with zeros.
    template <int bytes>
    VECTORS_INLINE void panels(const Real* rows, i64 n, Real* out) const {
        constexpr i64 L = kLanesOf<Real, bytes>, widest = kVectors * L;
        // Rows that stay in the cache while all panels pass.
        constexpr i64 kNumbers = 1 << 15;
        const i64 F = n_features, C = n_columns, at_once = std::max<i64>(8, kNumbers / std::max<i64>(F, 1) / 8 * 8);
        const auto packed = workspace<Real>((C + L - 1) / L * L * F);
        for (i64 first = 0; first < C; first += widest) pack(first, std::min(widest, C - first), L, packed.get());
        for (i64 start = 0; start < n; start += at_once) {
            const i64 n_rows = std::min(at_once, n - start);
            for (i64 first = 0; first < C; first += widest) {
                const i64 width = std::min(widest, C - first), n_vectors = (width + L - 1) / L;
                const Real *x = rows + start * F, *panel = packed.get() + first * F;
                Real* to = out + start * stride + first;
                if (n_vectors == 3) pass<bytes, 4, 3>(x, n_rows, panel, width, to);
                else if (n_vectors == 2) pass<bytes, 4, 2>(x, n_rows, panel, width, to);
                else pass<bytes, 8, 1>(x, n_rows, panel, width, to);
            }
        }
    }

    void pack(i64 first, i64 width, i64 n_lanes, Real* packed) const {
        const i64 F = n_features, padded = (width + n_lanes - 1) / n_lanes * n_lanes;
        Real* panel = packed + first * F;
        for (i64 c = 0; c < padded; ++c)
            for (i64 f = 0; f < F; ++f) panel[f * padded + c] = c < width ? weights[(first + c) * F + f] : Real(0);
    }

    template <int bytes, int n_rows, int n_vectors>
    VECTORS_INLINE void pass(const Real* rows, i64 n, const Real* panel, i64 width, Real* out) const {
        in_tiles<n_rows>(n, [&](i64 i, auto size) VECTORS_INLINE_LAMBDA {
            tile<bytes, decltype(size)::value, n_vectors>(rows + i * n_features, panel, width, out + i * stride);
        });
    }

    template <int bytes, int n_rows, int n_vectors>
    VECTORS_INLINE void tile(const Real* rows, const Real* panel, i64 width, Real* out) const {
        constexpr int L = kLanesOf<Real, bytes>;
        Vector<Real, L> total[n_rows][n_vectors] = {};
        for (i64 f = 0; f < n_features; ++f, panel += n_vectors * L) {
            Vector<Real, L> own[n_vectors];
            for (int v = 0; v < n_vectors; ++v) own[v] = load<Real, L>(panel + v * L);
            for (int r = 0; r < n_rows; ++r)
                for (int v = 0; v < n_vectors; ++v) total[r][v] += rows[r * n_features + f] * own[v];
        }
        for (int r = 0; r < n_rows; ++r) {
            Real row[n_vectors * L];
            for (int v = 0; v < n_vectors; ++v) store<Real, L>(row + v * L, total[r][v]);
            std::copy_n(row, width, out + r * stride);
        }
    }
};

template <class Real>
void score_rows(const Real* rows, i64 n, i64 n_features, const Real* weights, i64 n_columns, i64 stride, Real* out) {
    run_at_level<ScoredRows<Real>>(ScoredRows<Real>{weights, n_features, n_columns, stride}, rows, n, out);
}

}  // namespace crf
