// Products of rows with tables, as sums of products or maxima of sums, with wide vectors if the processor has them.
#pragma once

#include <cstddef>
#include <limits>

#include "core/row_vectors.hpp"

namespace crf {

// Sums of products, and maxima of sums: how terms x and y are added to a total, and how totals are joined.
struct SumProduct {
    template <class Real>
    static constexpr Real start = 0;
    template <class X, class V>
    VECTORS_INLINE static void add(V& total, const X& x, const V& y) {
        total += x * y;
    }
    template <class V>
    VECTORS_INLINE static void join(V& total, const V& other) {
        total += other;
    }
    template <int n, class V>
    VECTORS_INLINE static void join_all(V* totals) {
        if (n == 4) totals[0] += totals[1] + (totals[2] + totals[3]);
        else if (n == 2) totals[0] += totals[1];
    }
};

struct MaxSum {
    template <class Real>
    static constexpr Real start = -std::numeric_limits<Real>::infinity();
    template <class X, class V>
    VECTORS_INLINE static void add(V& total, const X& x, const V& y) {
        const V sum = x + y;
        total = sum > total ? sum : total;
    }
    template <class V>
    VECTORS_INLINE static void join(V& total, const V& other) {
        total = total > other ? total : other;
    }
    template <int n, class V>
    VECTORS_INLINE static void join_all(V* totals) {
        for (int r = 1; r < n; r++) totals[0] = totals[r] > totals[0] ? totals[r] : totals[0];
    }
};

// Keeps columns in registers during the loop over rows, so that tables larger than the caches are read once and in
// order: n_vectors vectors of a number of bytes, at most 8, and one of 16 bytes if `half`. Along a chain, each message
// waits for the previous message, so the rows are distributed over n_sums accumulators, at most 4.
template <class Semiring, int bytes, int n_vectors, bool half, int n_sums, class Real>
VECTORS_INLINE void columns_block(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width, Real* out) {
    constexpr int L = kLanesOf<Real, bytes>;
    using V = Vector<Real, L>;
    V total[8][4];
    RowVector<Real> last[4];
    std::ptrdiff_t a = 0;
    for (int r = 0; r < n_sums; r++) {
        for (int k = 0; k < n_vectors; k++) total[k][r] = V{} + Semiring::template start<Real>;
        last[r] = splat<Real>(Semiring::template start<Real>);
    }
    const auto add = [&](std::ptrdiff_t b, int r) VECTORS_INLINE_LAMBDA {
        const Real* from = table + b * width;
        for (int k = 0; k < n_vectors; k++) Semiring::add(total[k][r], x[b], load<Real, L>(from + k * L));
        if (half) Semiring::add(last[r], x[b], load(from + n_vectors * L));
    };
    for (; a + n_sums <= n; a += n_sums)
        for (int r = 0; r < n_sums; r++) add(a + r, r);
    for (; n_sums > 1 && a < n; a++) add(a, 0);
    for (int k = 0; k < n_vectors; k++) {
        Semiring::template join_all<n_sums>(total[k]);
        store<Real, L>(out + k * L, total[k][0]);
    }
    if (half) {
        Semiring::template join_all<n_sums>(last);
        store<Real>(out + n_vectors * L, last[0]);
    }
}

#ifdef ROWS_DISPATCH
// Processes all columns in one pass over the rows, at most eight vectors at a time.
template <class Semiring, class Real>
VECTORS_WIDE VECTORS_CALL void wide_columns(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                            Real* out) {
    constexpr int half = kRowLanes<Real>, whole = 2 * half;
    std::ptrdiff_t j = 0;
    for (; j + 8 * whole <= width; j += 8 * whole)
        columns_block<Semiring, 32, 8, false, 1>(table + j, x, n, width, out + j);
    table += j, out += j;
    switch ((width - j) / half) {
        case 1: return columns_block<Semiring, 32, 0, true, 4>(table, x, n, width, out);
        case 2: return columns_block<Semiring, 32, 1, false, 4>(table, x, n, width, out);
        case 3: return columns_block<Semiring, 32, 1, true, 4>(table, x, n, width, out);
        case 4: return columns_block<Semiring, 32, 2, false, 4>(table, x, n, width, out);
        case 5: return columns_block<Semiring, 32, 2, true, 4>(table, x, n, width, out);
        case 6: return columns_block<Semiring, 32, 3, false, 2>(table, x, n, width, out);
        case 7: return columns_block<Semiring, 32, 3, true, 2>(table, x, n, width, out);
        case 8: return columns_block<Semiring, 32, 4, false, 2>(table, x, n, width, out);
        case 9: return columns_block<Semiring, 32, 4, true, 2>(table, x, n, width, out);
        case 10: return columns_block<Semiring, 32, 5, false, 1>(table, x, n, width, out);
        case 11: return columns_block<Semiring, 32, 5, true, 1>(table, x, n, width, out);
        case 12: return columns_block<Semiring, 32, 6, false, 1>(table, x, n, width, out);
        case 13: return columns_block<Semiring, 32, 6, true, 1>(table, x, n, width, out);
        case 14: return columns_block<Semiring, 32, 7, false, 1>(table, x, n, width, out);
        case 15: return columns_block<Semiring, 32, 7, true, 1>(table, x, n, width, out);
        default: return;
    }
}
#endif

template <class Semiring, class Real>
VECTORS_INLINE void multiply_columns(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                     Real* out) {
    constexpr int L = kRowLanes<Real>;
    std::ptrdiff_t j = 0;
#ifdef ROWS_DISPATCH
    if (n * width >= kWorthACall && has_wide_vectors()) return wide_columns<Semiring>(table, x, n, width, out);
#endif
    for (; j + 4 * L <= width; j += 4 * L) columns_block<Semiring, 16, 4, false, 1>(table + j, x, n, width, out + j);
    for (; j + 2 * L <= width; j += 2 * L) columns_block<Semiring, 16, 2, false, 1>(table + j, x, n, width, out + j);
    for (; j < width; j += L) columns_block<Semiring, 16, 1, false, 1>(table + j, x, n, width, out + j);
}

// out[b] = sum over a < n of x[a] table[a, b]
template <class Real>
VECTORS_INLINE void sum_product(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width, Real* out) {
    multiply_columns<SumProduct>(table, x, n, width, out);
}

// out[b] = max over a < n of x[a] + table[a, b]
template <class Real>
VECTORS_INLINE void max_sum(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width, Real* out) {
    multiply_columns<MaxSum>(table, x, n, width, out);
}

// The loops over pairs of states for transposed tables: each row gives one number. Tables larger than the caches are
// read from memory for each direction of their edge; storing a table once for both directions halves its memory. A
// backward sweep reads the tables in the opposite order, so rows are read from the last to the first: processors
// prefetch downwards as well as upwards. x is padded with 0 for sums and with -inf for maxima.
#ifdef ROWS_DISPATCH
template <class Real>
using WideVector = Vector<Real, 2 * kRowLanes<Real>>;

// Combines the partial results of two rows, of which x may be one, in one operation: of pairs of neighbours, of pairs
// of pairs, or of halves.
template <class Semiring, class Real>
ROWS_WIDE_INLINE void join_pairs(WideVector<Real>& x, const WideVector<Real>& y, const WideVector<Real>& z) {
    using V = WideVector<Real>;
    V high;
    if constexpr (sizeof(Real) == 4) {
        high = (V)_mm256_unpackhi_ps((__m256)y, (__m256)z);
        x = (V)_mm256_unpacklo_ps((__m256)y, (__m256)z);
    } else {
        high = (V)_mm256_unpackhi_pd((__m256d)y, (__m256d)z);
        x = (V)_mm256_unpacklo_pd((__m256d)y, (__m256d)z);
    }
    Semiring::join(x, high);
}

template <class Semiring, class V>
ROWS_WIDE_INLINE void join_long_pairs(V& x, const V& y, const V& z) {
    const V high = (V)_mm256_unpackhi_pd((__m256d)y, (__m256d)z);
    x = (V)_mm256_unpacklo_pd((__m256d)y, (__m256d)z);
    Semiring::join(x, high);
}

template <class Semiring, class V>
ROWS_WIDE_INLINE void join_halves(V& x, const V& y) {
    const V high = (V)_mm256_permute2f128_pd((__m256d)x, (__m256d)y, 0x31);
    x = (V)_mm256_permute2f128_pd((__m256d)x, (__m256d)y, 0x20);
    Semiring::join(x, high);
}

// Computes one vector of results, one for each row. n_rows is the length of a vector or half of it. Rows past the last
// row are read as the last row.
template <class Semiring, int n_rows, class Real>
ROWS_WIDE_INLINE void across_block(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                   Real* out) {
    constexpr int L = kRowLanes<Real>, whole = 2 * L;
    using V = WideVector<Real>;
    const __m128d padding = (__m128d)splat<Real>(Semiring::template start<Real>);
    V total[8];
    ROWS_UNROLLED
    for (int r = n_rows - 1; r >= 0; r--) {
        const Real* from = table + (r < n ? r : n - 1) * width;
        std::ptrdiff_t b = width & -std::ptrdiff_t(whole);
        total[r] = V{} + Semiring::template start<Real>;
        if (b < width) {
            const V own = (V)_mm256_set_m128d(padding, (__m128d)load(x + b));
            const V part = (V)_mm256_set_m128d(__m128d{}, (__m128d)load(from + b));
            Semiring::add(total[r], own, part);
        }
        for (b -= whole; b >= 0; b -= whole) {
            const V own = *reinterpret_cast<const V*>(x + b), part = *reinterpret_cast<const V*>(from + b);
            Semiring::add(total[r], own, part);
        }
    }
    for (int r = 0; r < n_rows; r += 2) join_pairs<Semiring, Real>(total[r / 2], total[r], total[r + 1]);
    if constexpr (L == 4)
        for (int r = 0; r < n_rows / 2; r += 2) join_long_pairs<Semiring>(total[r / 2], total[r], total[r + 1]);
    join_halves<Semiring>(total[0], n_rows == whole ? total[1] : total[0]);
    if constexpr (n_rows == whole) *reinterpret_cast<V*>(out) = total[0];
    else store<Real>(out, *reinterpret_cast<const RowVector<Real>*>(&total[0]));
}

template <class Semiring, class Real>
VECTORS_WIDE VECTORS_CALL void wide_across(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                           Real* out) {
    constexpr int half = kRowLanes<Real>, whole = 2 * half;
    std::ptrdiff_t a = n & -std::ptrdiff_t(whole);
    if (a + half < n) across_block<Semiring, whole>(table + a * width, x, n - a, width, out + a);
    else if (a < n) across_block<Semiring, half>(table + a * width, x, n - a, width, out + a);
    for (a -= whole; a >= 0; a -= whole) across_block<Semiring, whole>(table + a * width, x, n - a, width, out + a);
}
#endif

template <class Semiring, class Real>
VECTORS_INLINE void multiply_across(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                    Real* out) {
#ifdef ROWS_DISPATCH
    if (has_wide_vectors()) return wide_across<Semiring>(table, x, n, width, out);
#endif
    for (std::ptrdiff_t a = 0; a < n; a++) {
        RowVector<Real> total = splat<Real>(Semiring::template start<Real>);
        for (std::ptrdiff_t b = 0; b < width; b += kRowLanes<Real>)
            Semiring::add(total, load(table + a * width + b), load(x + b));
        out[a] = Semiring::template start<Real> == 0 ? sum_lanes<Real>(total) : max_lanes<Real>(total);
    }
}

// out[a] = sum over b of table[a, b] x[b] for a < n, 0 in the padding
template <class Real>
VECTORS_INLINE void sum_product_across(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                       Real* out) {
    multiply_across<SumProduct>(table, x, n, width, out);
    if (n < width) pad<Real>(out, n, width, 0);
}

// out[a] = max over b of table[a, b] + x[b] for a < n, -inf in the padding
template <class Real>
VECTORS_INLINE void max_sum_across(const Real* table, const Real* x, std::ptrdiff_t n, std::ptrdiff_t width,
                                   Real* out) {
    multiply_across<MaxSum>(table, x, n, width, out);
    if (n < width) pad<Real>(out, n, width, -std::numeric_limits<Real>::infinity());
}

}  // namespace crf
