// Loops over rows of weights, such as the weights of one feature for all states. Every column has separate sums, and
// the order of additions does not depend on the vector length. Wide vectors use fused multiply-add.
#pragma once

#include <cstddef>

#include "core/rows.hpp"
#include "core/types.hpp"

namespace crf {

// out = sum of factors[q] * rows[index[q]]; factors may be null for ones
struct SumWeightedRows {
    template <int bytes>
    VECTORS_INLINE static void run(const double* rows, const i32* index, const double* factors, i64 n, i64 width,
                                   double* out) {
        constexpr int L = kLanesOf<double, bytes>;
        if (bytes == 16 || width < L) {  // the compiler vectorises over columns
            for (i64 k = 0; k < width; k++) out[k] = 0;
            for (i64 q = 0; q < n; q++) {
                const double* row = rows + index[q] * width;
                const double factor = factors ? factors[q] : 1;
                for (i64 k = 0; k < width; k++) out[k] += factor * row[k];
            }
            return;
        }
        for (i64 k = 0; k < width; k += 8 * L) {
            const i64 left = (width - k + L - 1) / L, n_vectors = left < 8 ? left : 8;
            const i64 whole = k + (n_vectors - 1) * L, last = whole + L <= width ? whole : width - L;
            const auto add = [&](auto constant) VECTORS_INLINE_LAMBDA {
                add_block<L, constant.value>(rows, index, factors, n, width, k, last, out);
            };
            switch (n_vectors) {
                case 1: add(std::integral_constant<int, 1>()); break;
                case 2: add(std::integral_constant<int, 2>()); break;
                case 3: add(std::integral_constant<int, 3>()); break;
                case 4: add(std::integral_constant<int, 4>()); break;
                case 5: add(std::integral_constant<int, 5>()); break;
                case 6: add(std::integral_constant<int, 6>()); break;
                case 7: add(std::integral_constant<int, 7>()); break;
                default: add(std::integral_constant<int, 8>());
            }
        }
    }

private:
    // Columns first to first + n_vectors * L. The last vector starts at ``last`` and may overlap the previous vector,
    // with equal results. The sums of at most 8 vectors stay in registers.
    template <int L, int n_vectors>
    VECTORS_INLINE static void add_block(const double* rows, const i32* index, const double* factors, i64 n, i64 width,
                                         i64 first, i64 last, double* out) {
        Vector<double, L> total[8] = {};
        for (i64 q = 0; q < n; q++) {
            const double* row = rows + index[q] * width;
            const double factor = factors ? factors[q] : 1;
            for (int v = 0; v < n_vectors - 1; v++) total[v] += factor * load<double, L>(row + first + v * L);
            total[n_vectors - 1] += factor * load<double, L>(row + last);
        }
        for (int v = 0; v < n_vectors - 1; v++) store<double, L>(out + first + v * L, total[v]);
        store<double, L>(out + last, total[n_vectors - 1]);
    }
};

inline void sum_weighted_rows(const double* rows, const i32* index, const double* factors, i64 n, i64 width,
                              double* out) {
    if (width < 4) run_plain<SumWeightedRows>(rows, index, factors, n, width, out);
    else run_at_level<SumWeightedRows>(rows, index, factors, n, width, out);
}

// out (4, 2) = products of four rows a with two rows b; their sums stay in registers
struct Products {
    template <int bytes>
    VECTORS_INLINE static void run(const double* const* a, const double* const* b, i64 n, double* out) {
        constexpr int L = bytes == 16 ? 1 : kLanesOf<double, bytes>;
        Vector<double, L> sums[8] = {};
        i64 k = 0;
        for (; k + L <= n; k += L) {
            const auto first = load<double, L>(b[0] + k), second = load<double, L>(b[1] + k);
            for (int i = 0; i < 4; i++) {
                const auto own = load<double, L>(a[i] + k);
                sums[2 * i] += own * first;
                sums[2 * i + 1] += own * second;
            }
        }
        for (int i = 0; i < 8; i++) {
            out[i] = 0;
            for (int l = 0; l < L; l++) out[i] += lane<double>(sums[i], l);
            for (i64 left = k; left < n; left++) out[i] += a[i / 2][left] * b[i % 2][left];
        }
    }
};

// Sum of a[k] * b[k], with several accumulators, so that additions need not wait for each other
struct Product {
    template <int>
    VECTORS_INLINE static double run(const double* restrict a, const double* restrict b, i64 n) {
        constexpr int n_sums = 16;
        double sums[n_sums] = {0}, total = 0;
        i64 k = 0;
        for (; k + n_sums <= n; k += n_sums)
            for (int i = 0; i < n_sums; i++) sums[i] += a[k + i] * b[k + i];
        for (int i = 0; i < n_sums; i++) total += sums[i];
        for (; k < n; k++) total += a[k] * b[k];
        return total;
    }
};

inline double product(const double* a, const double* b, i64 n) { return run_at_level<Product>(a, b, n); }

// x -= size * along; lag changes likewise, times a factor
struct MoveWeights {
    template <int>
    VECTORS_INLINE static void run(double* restrict x, double* restrict lag, const double* restrict along, i64 n,
                                   double size, double factor) {
        for (i64 k = 0; k < n; k++) {
            const double moved = size * along[k];
            x[k] -= moved;
            lag[k] -= factor * moved;
        }
    }
};

// rows[index[q]] += added
struct AddToRows {
    template <int>
    VECTORS_INLINE static void run(double* rows, const i32* restrict index, i64 n, i64 width,
                                   const double* restrict added) {
        for (i64 q = 0; q < n; q++) {
            double* restrict row = rows + index[q] * width;
            for (i64 k = 0; k < width; k++) row[k] += added[k];
        }
    }
};

inline void add_to_rows(double* rows, const i32* index, i64 n, i64 width, const double* added) {
    run_at_level<AddToRows>(rows, index, n, width, added);
}

// values[slot[q]] += factors[q] * row
struct AddToSlots {
    template <int>
    VECTORS_INLINE static void run(double* restrict values, const i32* restrict slot, const double* restrict factors,
                                   i64 n, const double* restrict row, i64 width) {
        for (i64 q = 0; q < n; q++) {
            double* restrict own = values + slot[q] * width;
            const double factor = factors[q];
            for (i64 k = 0; k < width; k++) own[k] += factor * row[k];
        }
    }
};

// by_column[k] = sum of x[rows[q]][k] * values[q][k]
struct WeighRows {
    template <int>
    VECTORS_INLINE static void run(const double* restrict x, const i32* restrict rows, const double* restrict values,
                                   i64 n, i64 width, double* restrict by_column) {
        for (i64 k = 0; k < width; k++) by_column[k] = 0;
        for (i64 q = 0; q < n; q++) {
            const double *restrict at = x + rows[q] * width, *restrict own = values + q * width;
            for (i64 k = 0; k < width; k++) by_column[k] += at[k] * own[k];
        }
    }
};

}  // namespace crf
