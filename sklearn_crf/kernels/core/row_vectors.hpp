// Vectors of the entries of a row, and their exponentials and logarithms.
//
// A row is padded to whole vectors of 16 bytes, so that no loop has a remainder. The code uses the vector extensions of
// GCC and clang, as auto-vectorisation would need -ffast-math, which is not possible because scores may be -inf. Other
// compilers compile the same code with vectors of one number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/types.hpp"
#include "core/vectors.hpp"

#if defined(__GNUC__) || defined(__clang__)
#define ROWS_PREFETCH(address) __builtin_prefetch(address, 1)
#if defined(__clang__)
#define ROWS_UNROLLED _Pragma("unroll")
#else
#define ROWS_UNROLLED _Pragma("GCC unroll 8")
#endif
#else
#define ROWS_PREFETCH(address) ((void)(address))
#define ROWS_UNROLLED
#endif

// Intrinsics for operations that compilers do not vectorise.
#if (defined(__GNUC__) || defined(__clang__)) && defined(__SSE2__)
#include <emmintrin.h>
#define ROWS_SSE2
#endif

#if defined(ROWS_SSE2) && VECTOR_LEVEL_DISPATCH
#include <immintrin.h>
#define ROWS_DISPATCH
#define ROWS_WIDE_INLINE inline __attribute__((always_inline, target("avx2,fma")))
#endif

namespace crf {

#if defined(__GNUC__) || defined(__clang__)
constexpr int kRowBytes = 16;
#else
constexpr int kRowBytes = 0;
#endif

// Number of entries of tables from which a call of a function for wide vectors pays.
constexpr std::ptrdiff_t kWorthACall = 96;

template <class Real, int bytes>
constexpr int kLanesOf = kRowBytes ? bytes / int(sizeof(Real)) : 1;

template <class Real>
constexpr int kRowLanes = kLanesOf<Real, 16>;

template <class Real>
using RowVector = Vector<Real, kRowLanes<Real>>;

// The binary formats of numbers.
template <class Real>
struct Format;
template <>
struct Format<float> {
    using Integer = std::int32_t;
    using Unsigned = std::uint32_t;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr Unsigned sqrt_half = 0x3F3504F3u;
    static constexpr float log2_high = 0.693359375f, log2_low = -2.12194440e-4f;
};
template <>
struct Format<double> {
    using Integer = std::int64_t;
    using Unsigned = std::uint64_t;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr Unsigned sqrt_half = 0x3FE6A09E667F3BCDu;
    static constexpr double log2_high = 6.93147180369123816490e-01, log2_low = 1.90821492927058770002e-10;
};

template <class To, class From>
VECTORS_INLINE To reinterpret(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "sizes must agree");
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}

template <class Real, int L = kRowLanes<Real>>
VECTORS_INLINE Vector<Real, L> load(const Real* from) {
    return *reinterpret_cast<const Vector<Real, L>*>(from);
}

template <class Real, int L = kRowLanes<Real>>
VECTORS_INLINE void store(Real* to, const Vector<Real, L>& v) {
    *reinterpret_cast<Vector<Real, L>*>(to) = v;
}

template <class Real, int L = kRowLanes<Real>>
VECTORS_INLINE Vector<Real, L> splat(Real x) {
    return Vector<Real, L>{} + x;
}

// Entry l of a vector, which may be a single number.
template <class Real, class V>
VECTORS_INLINE Real lane(const V& v, std::ptrdiff_t l) {
    if constexpr (sizeof(V) == sizeof(Real)) return (void)l, v;
    else return v[l];
}

template <class Real, class V>
VECTORS_INLINE void set_lane(V& v, std::ptrdiff_t l, Real x) {
    if constexpr (sizeof(V) == sizeof(Real)) (void)l, v = x;
    else v[l] = x;
}

// The larger of a and b, or b if a is NaN: a change from -inf to -inf counts as no change.
template <class V>
VECTORS_INLINE V larger(const V& a, const V& b) {
    return a > b ? a : b;
}

template <class Real>
VECTORS_INLINE Real sum_lanes(const RowVector<Real>& v) {
    Real total = lane<Real>(v, 0);
    for (int l = 1; l < kRowLanes<Real>; l++) total += lane<Real>(v, l);
    return total;
}

template <class Real>
VECTORS_INLINE Real max_lanes(const RowVector<Real>& v) {
    Real top = lane<Real>(v, 0);
    for (int l = 1; l < kRowLanes<Real>; l++) top = lane<Real>(v, l) > top ? lane<Real>(v, l) : top;
    return top;
}

// v in the lanes before n, padding in the rest
template <class Real>
VECTORS_INLINE RowVector<Real> padded(const RowVector<Real>& v, std::ptrdiff_t n, Real padding) {
    using Integer = typename Format<Real>::Integer;
    Vector<Integer, kRowLanes<Real>> number{};
    for (int l = 0; l < kRowLanes<Real>; l++) set_lane<Integer>(number, l, l);
    return number < Integer(n) ? v : splat<Real>(padding);
}

// x where possible, else 0
template <class Real>
VECTORS_INLINE RowVector<Real> where_normal(const RowVector<Real>& x, const RowVector<Real>& possible) {
    return possible >= std::numeric_limits<Real>::min() ? x : RowVector<Real>{};
}

// Square roots are correctly rounded; general powers have errors of a few units in the last place.
template <class Real>
VECTORS_INLINE RowVector<Real> square_root(RowVector<Real> x) {
#ifdef ROWS_SSE2
    if constexpr (sizeof(Real) == 4) return (RowVector<Real>)_mm_sqrt_ps((__m128)x);
    else return (RowVector<Real>)_mm_sqrt_pd((__m128d)x);
#else
    for (int l = 0; l < kRowLanes<Real>; l++) set_lane<Real>(x, l, std::sqrt(lane<Real>(x, l)));
    return x;
#endif
}

// Replace each entry by the sum of all other entries.
template <class Real>
VECTORS_INLINE RowVector<Real> sums_of_others(const RowVector<Real>& x) {
    constexpr int L = kRowLanes<Real>;
    RowVector<Real> total{};
    for (int k = 1; k < L; k++) {
        RowVector<Real> turned{};
        for (int l = 0; l < L; l++) set_lane<Real>(turned, l, lane<Real>(x, (l + k) % L));
        total += turned;
    }
    return total;
}

// Exponentials and logarithms of whole vectors, with errors of at most two units in the last place. (The C library has
// functions of single numbers only.) Vectors are passed by reference: their length need not be one of the processor.

// The exponent from which exp() has a normal result
template <class Real>
constexpr Real kLeastExponent = Real(-0.6931 * (Format<Real>::bias - 2));

// x = exp(x); about the smallest normal number if the result would be smaller
template <class Real, int L>
VECTORS_INLINE void take_exp(Vector<Real, L>& x) {
    using V = Vector<Real, L>;
    using F = Format<Real>;
    using Bits = Vector<typename F::Unsigned, L>;
    // Adding and subtracting this constant rounds to an integer; after the addition, the last bits hold this integer.
    constexpr Real rounding = Real(1.5) * Real(typename F::Unsigned(1) << F::mantissa);
    const V least = splat<Real, L>(kLeastExponent<Real>);
    x = x < least ? least : x;
    const V rounded = x * Real(1.44269504088896340736) + rounding;
    V r = rounded - rounding;
    // log 2 in two parts; the first has few bits, so that its product with the integer is exact
    r = (x - r * F::log2_high) - r * F::log2_low;
    const V r2 = r * r, r4 = r2 * r2;
    // Taylor series to r^12, summed in pairs: in Horner's scheme, each step would wait for the previous step.
    const V p = (1 + r + r2 * (Real(1.0 / 2) + r * Real(1.0 / 6)))
        + r4 * ((Real(1.0 / 24) + r * Real(1.0 / 120)) + r2 * (Real(1.0 / 720) + r * Real(1.0 / 5040))
                + r4 * ((Real(1.0 / 40320) + r * Real(1.0 / 362880))
                        + r2 * (Real(1.0 / 3628800) + r * Real(1.0 / 39916800)) + r4 * Real(1.0 / 479001600)));
    x = reinterpret<V>(Bits(reinterpret<Bits>(p) + (reinterpret<Bits>(rounded) << F::mantissa)));
}

// x = log(x) for normal positive x
template <class Real, int L>
VECTORS_INLINE void take_log(Vector<Real, L>& x) {
    using V = Vector<Real, L>;
    using F = Format<Real>;
    using Unsigned = typename F::Unsigned;
    using Bits = Vector<Unsigned, L>;
    constexpr Unsigned one = Unsigned(F::bias) << F::mantissa, largest = Unsigned(F::bias + F::mantissa) << F::mantissa;
    // x = m 2^e with m from sqrt(1/2) to sqrt(2); exponent is e + bias
    const Bits bits = reinterpret<Bits>(x), exponent = (bits - F::sqrt_half + one) >> F::mantissa;
    const V m = reinterpret<V>(Bits(bits - (exponent << F::mantissa) + one));
    // Convert the integer by writing it to the last bits of 2^mantissa.
    const V e = reinterpret<V>(Bits(exponent | largest)) - Real((Unsigned(1) << F::mantissa) + F::bias);
    // log m = 2 artanh f
    const V f = (m - 1) / (m + 1), s = f * f, s2 = s * s, s4 = s2 * s2;
    const V series = (Real(2.0 / 3) + s * Real(2.0 / 5)) + s2 * (Real(2.0 / 7) + s * Real(2.0 / 9))
        + s4 * ((Real(2.0 / 11) + s * Real(2.0 / 13)) + s2 * (Real(2.0 / 15) + s * Real(2.0 / 17))
                + s4 * (Real(2.0 / 19) + s * Real(2.0 / 21)));
    x = e * F::log2_high + (2 * f + (f * s * series + e * F::log2_low));
}

// Messages from a node of two states along its edges, each as the log-odds of the second state. Up to terms that depend
// on one node alone, a table of two states is a score J for equal states. If h is the log-odds of the node without the
// message of the receiver, the message is rho log((e^h e^J + 1) / (e^h + e^J)). To avoid overflow, only -|h| and -|J|
// are exponentiated.
//
// coupling is exp(-|J|) with the sign of J; total is the log-odds of the node with all n messages. Whole vectors are
// read and written.
struct OddsMessages {
    template <int bytes, class Real>
    VECTORS_INLINE static void run(const Real* odds, const Real* coupling, const Real* power, std::ptrdiff_t n,
                                   Real total, Real* fresh) {
        constexpr int L = kLanesOf<Real, bytes>;
        using V = Vector<Real, L>;
        using Unsigned = typename Format<Real>::Unsigned;
        using Bits = Vector<Unsigned, L>;
        const Bits sign = Bits{} + (Unsigned(1) << (8 * sizeof(Real) - 1));
        for (std::ptrdiff_t j = 0; j < n; j += L) {
            const V c = load<Real, L>(coupling + j), rho = load<Real, L>(power + j);
            const V h = total - load<Real, L>(odds + j) / rho;
            V z = reinterpret<V>(Bits(reinterpret<Bits>(h) | sign));
            take_exp<Real, L>(z);
            const V k = reinterpret<V>(Bits(reinterpret<Bits>(c) & ~sign));
            V out = (1 + z * k) / (z + k);
            take_log<Real, L>(out);
            out = rho * out;
            out = reinterpret<V>(Bits(reinterpret<Bits>(out) ^ ((reinterpret<Bits>(h) ^ reinterpret<Bits>(c)) & sign)));
            store<Real, L>(fresh + j, out);
        }
    }
};

struct ExpOfAll {
    template <int bytes, class Real>
    VECTORS_INLINE static void run(Real* x, std::ptrdiff_t n) {
        constexpr int L = kLanesOf<Real, bytes>;
        for (std::ptrdiff_t j = 0; j < n; j += L) {
            const Vector<Real, L> own = load<Real, L>(x + j);
            Vector<Real, L> out = own;
            take_exp<Real, L>(out);
            store<Real, L>(x + j, own > kLeastExponent<Real> ? out : Vector<Real, L>{});
        }
    }
};

struct LogOfAll {
    template <int bytes, class Real>
    VECTORS_INLINE static void run(const Real* x, std::ptrdiff_t n, Real* out) {
        constexpr int L = kLanesOf<Real, bytes>;
        for (std::ptrdiff_t j = 0; j < n; j += L) {
            const Vector<Real, L> own = load<Real, L>(x + j);
            Vector<Real, L> found = own;
            take_log<Real, L>(found);
            store<Real, L>(out + j, own <= 0 ? splat<Real, L>(-std::numeric_limits<Real>::infinity()) : found);
        }
    }
};

template <class Real>
inline void send_odds(const Real* odds, const Real* coupling, const Real* power, std::ptrdiff_t n, Real total,
                      Real* fresh) {
    run_at_level<OddsMessages>(odds, coupling, power, n, total, fresh);
}

// x = exp(x), 0 if the result would be subnormal; n is a multiple of 16 bytes
template <class Real>
inline void exponentiate_all(Real* x, std::ptrdiff_t n) {
    const std::ptrdiff_t whole = n & -std::ptrdiff_t(2 * kRowLanes<Real>);
    if (has_wide_vectors()) run_at_level<ExpOfAll>(x, whole), x += whole, n -= whole;
    run_plain<ExpOfAll>(x, n);
}

// out = log(x) for normal x or 0; n is a multiple of the longest vector
template <class Real>
inline void logarithms(const Real* x, std::ptrdiff_t n, Real* out) {
    run_at_level<LogOfAll>(x, n, out);
}

// Only the last vector of a row may hold padding.
template <class Real>
VECTORS_INLINE void pad(Real* row, std::ptrdiff_t n, std::ptrdiff_t width, Real padding) {
    Real* last = row + width - kRowLanes<Real>;
    store<Real>(last, padded<Real>(load(last), n - (width - kRowLanes<Real>), padding));
}

}  // namespace crf
