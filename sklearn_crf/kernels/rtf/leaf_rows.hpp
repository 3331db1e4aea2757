// Leaves of rows of factors, their linear models, and the adjoint: most of the arithmetic of a regression tree field.
//
// The channels of a pixel are read in blocks of eight. If their number is not a multiple of eight, the last block ends
// with the pixel and overlaps the block before it; overlapping channels have weight zero. Loops then have no remainder,
// and no memory beyond the pixel is read. Weights are packed accordingly in advance (packed_inputs). For four to seven
// channels, a pixel has two blocks of four; for fewer than four, channels are read one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/types.hpp"
#include "core/vectors.hpp"

namespace crf {

constexpr int kBlock = 8, kHalf = 4;

// Number of factors that a leaf sums in float32 before adding to float64, small enough not to lose accuracy.
constexpr i32 kGathered = 64;

// Number of pixels that descend a tree together.
constexpr i64 kWalkers = 64;

// Start of the last block of a pixel with F channels; other blocks start at multiples of kBlock.
inline i64 last_block(i64 F) { return F - kBlock; }

// sum += w * x, for vectors of L numbers
template <int L, class Real>
VECTORS_INLINE void add_product(const Real* w, const Real* x, Vector<Real, L>& sum) {
    Vector<Real, L> a, b;
    std::memcpy(&a, w, sizeof(a));
    std::memcpy(&b, x, sizeof(b));
    sum += a * b;
}

// total += factor * x
template <int L, class Real>
VECTORS_INLINE void add_multiple(Real factor, const Real* x, Real* total) {
    Vector<Real, L> a, sum;
    std::memcpy(&a, x, sizeof(a));
    std::memcpy(&sum, total, sizeof(sum));
    sum += factor * a;
    std::memcpy(total, &sum, sizeof(sum));
}

// Sums in pairs, since a sequential sum would wait for each addition.
template <class Real>
VECTORS_INLINE Real total_of(const Vector<Real, kHalf>& sum) {
    Real at[kHalf];
    std::memcpy(at, &sum, sizeof(sum));
    return (at[0] + at[1]) + (at[2] + at[3]);
}

template <class Real>
VECTORS_INLINE Real total_of_block(const Vector<Real, kBlock>& sum) {
    Vector<Real, kHalf> low, high;
    std::memcpy(&low, &sum, sizeof(low));
    std::memcpy(&high, reinterpret_cast<const char*>(&sum) + sizeof(low), sizeof(high));
    low += high;
    return total_of<Real>(low);
}

// Test for pixels away from borders: distances in memory from the first channel of a pixel to the compared values. A
// leaf is its own successor.
template <class Real>
struct LeafTest {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    double threshold;
    std::ptrdiff_t first, other;
    i32 next[2];
    // Masks of the subtracted value and of the difference: all bits, no bits, or all except the sign.
    Bits of_other, of_difference;

    Real response(const Real* x) const { return kept(x[first] - kept(x[other], of_other), of_difference); }

    // is_other: whether a value is subtracted
    void set_masks(bool is_other, bool is_magnitude) {
        of_other = is_other ? Bits(-1) : 0;
        of_difference = Bits(-1) >> is_magnitude;
    }

private:
    static Real kept(Real x, Bits mask) {
        Bits own;
        std::memcpy(&own, &x, sizeof(x));
        own &= mask;
        std::memcpy(&x, &own, sizeof(x));
        return x;
    }
};

// Without branches, which would be unpredictable; several pixels advance together, so that latencies overlap.
template <class Real>
inline void walk_to_leaves(const Real* x, i64 F, const LeafTest<Real>* tests, i64 depth, const i32* leaf, i64 n,
                           i32* out) {
    i32 node[kWalkers];
    for (i64 start = 0; start < n; start += kWalkers, x += kWalkers * F) {
        const i64 n_here = n - start < kWalkers ? n - start : kWalkers;
        std::memset(node, 0, sizeof(node));
        for (i64 level = 0; level < depth; level++)
            for (i64 j = 0; j < n_here; j++) {
                const LeafTest<Real>& test = tests[node[j]];
                node[j] = test.next[test.response(x + j * F) > test.threshold];
            }
        for (i64 j = 0; j < n_here; j++) out[start + j] = leaf[node[j]];
    }
}

// sum += w times the channels of one pixel; product i of each block is added to entry i.
template <class Real>
VECTORS_INLINE void add_products(const Real* w, const Real* x, i64 F, Vector<Real, kBlock>& sum) {
    i64 k = 0;
    for (; k < last_block(F); k += kBlock) add_product<kBlock>(w + k, x + k, sum);
    add_product<kBlock>(w + k, x + last_block(F), sum);
}

// total += d times the channels of one pixel.
template <class Real>
VECTORS_INLINE void add_channels(Real d, const Real* x, i64 F, Real* total) {
    if (F < kHalf) {
        for (i64 i = 0; i < F; i++) total[i] += d * x[i];
        return;
    }
    if (F < kBlock) {
        add_multiple<kHalf>(d, x, total);
        add_multiple<kHalf>(d, x + F - kHalf, total + kHalf);
        return;
    }
    i64 k = 0;
    for (; k < last_block(F); k += kBlock) add_multiple<kBlock>(d, x + k, total + k);
    add_multiple<kBlock>(d, x + last_block(F), total + k);
}

// One linear value of a factor with few channels.
template <class Real>
VECTORS_INLINE Real short_value(const Real* w, const Real* first, const Real* second, i64 F, i64 size) {
    if (F < kHalf) {
        Real total = w[0];
        for (i64 i = 0; i < F; i++) total += w[1 + i] * first[i];
        for (i64 i = 0; second && i < F; i++) total += w[1 + size + i] * second[i];
        return total;
    }
    Vector<Real, kHalf> sum{};
    add_product<kHalf>(w + 1, first, sum);
    add_product<kHalf>(w + 1 + kHalf, first + F - kHalf, sum);
    if (second) {
        add_product<kHalf>(w + 1 + size, second, sum);
        add_product<kHalf>(w + 1 + size + kHalf, second + F - kHalf, sum);
    }
    return w[0] + total_of<Real>(sum);
}

// second is null for factors of one pixel. A leaf has m rows of 1 + size weights, or 1 + 2 size for pairs.
struct LeafValues {
    template <int, class Real>
    VECTORS_INLINE static void run(const Real* first, const Real* second, i64 F, i64 size, const i32* leaf,
                                   const Real* weight, i64 m, i64 n, Real* out) {
        const i64 stride = 1 + (second ? 2 : 1) * size;
        if (F < kBlock) {
            for (i64 j = 0; j < n; j++)
                for (i64 a = 0; a < m; a++)
                    out[j * m + a] = short_value<Real>(weight + (leaf[j] * m + a) * stride, first + j * F,
                                                       second ? second + j * F : nullptr, F, size);
            return;
        }
        for (i64 j = 0; j < n; j++)
            for (i64 a = 0; a < m; a++) {
                const Real* w = weight + (leaf[j] * m + a) * stride;
                Vector<Real, kBlock> sum{};
                add_products<Real>(w + 1, first + j * F, F, sum);
                if (second) add_products<Real>(w + 1 + size, second + j * F, F, sum);
                out[j * m + a] = w[0] + total_of_block<Real>(sum);
            }
    }
};

// `d` and `e` hold the D derivatives with respect to the linear values of each first and second pixel. A leaf sums up
// to kGathered factors in `part`, in the precision of the channels, and counts them; it then adds them to its total in
// float64.
struct LeafGradient {
    template <int, class Real>
    VECTORS_INLINE static void run(const Real* first, const Real* second, i64 F, i64 size, const i32* leaf,
                                   const double* d, const double* e, i64 D, i64 n, Real* part, i32* count,
                                   double* out) {
        const i64 m = (second ? 2 : 1) * D, stride = 1 + (second ? 2 : 1) * size;
        for (i64 j = 0; j < n; j++) {
            Real* total = part + leaf[j] * m * stride;
            for (i64 a = 0; a < m; a++, total += stride) {
                const Real slope = Real(a < D ? d[j * D + a] : e[j * D + a - D]);
                total[0] += slope;
                add_channels<Real>(slope, first + j * F, F, total + 1);
                if (second) add_channels<Real>(slope, second + j * F, F, total + 1 + size);
            }
            if (++count[leaf[j]] == kGathered) {
                const i64 start = leaf[j] * m * stride;
                for (i64 i = start; i < start + m * stride; i++) {
                    out[i] += double(part[i]);
                    part[i] = 0;
                }
                count[leaf[j]] = 0;
            }
        }
    }
};

template <class Real>
inline void leaf_values(const Real* first, const Real* second, i64 F, i64 size, const i32* leaf, const Real* weight,
                        i64 m, i64 n, Real* out) {
    run_at_level<LeafValues>(first, second, F, size, leaf, weight, m, n, out);
}

template <class Real>
inline void leaf_gradient(const Real* first, const Real* second, i64 F, i64 size, const i32* leaf, const double* d,
                          const double* e, i64 D, i64 n, Real* part, i32* count, double* out) {
    run_at_level<LeafGradient>(first, second, F, size, leaf, d, e, D, n, part, count, out);
}

}  // namespace crf
