// Correlations of planes with filters, their adjoints, and their derivatives with respect to the taps.
//
// A plane is a contiguous array of rows of length `stride`, and a tap is an offset into it. Borders of rows are not
// treated specially: values computed there belong to no pixel, and callers set them to zero before they are read.
#pragma once

#include "core/types.hpp"
#include "core/vectors.hpp"

namespace crf {

constexpr i64 kFilters = 4;  // number of filters in a group; planes are allocated for whole groups
constexpr i64 kTaps = 5;     // number of taps whose derivatives are summed at once

// Length of a run: the numbers of a plane that are processed at once.
template <class T>
constexpr i64 kRun = 8 * kLanes<T>;

inline i64 in_whole(i64 n, i64 part) { return (n + part - 1) / part * part; }

// responses[f][q] = sum over taps of taps[tap][f] plane[q + offset[tap]] for a group of filters, q < n.
template <class T>
struct Responses {
    using Value = T;
    const T* plane;
    const T* taps;  // (n_taps, kFilters)
    const i64* offset;
    i64 n_taps, n;  // n is a multiple of kRun
    T* responses;
    i64 step;  // distance between the planes of responses

    VECTORS_INLINE void all() const { run<kLanes<T>>(); }

    template <int L>
    VECTORS_INLINE void run() const {
        constexpr int V = 2;
        using Row = Vector<T, L>;
        for (i64 q = 0; q < n; q += V * L) {
            Row total[kFilters][V] = {};
            for (i64 tap = 0; tap < n_taps; tap++) {
                const Row* seen = reinterpret_cast<const Row*>(plane + q + offset[tap]);
                const T* own = taps + tap * kFilters;
                for (i64 f = 0; f < kFilters; f++)
                    for (int v = 0; v < V; v++)
                        total[f][v] += own[f] * seen[v];
            }
            for (i64 f = 0; f < kFilters; f++) {
                Row* to = reinterpret_cast<Row*>(responses + f * step + q);
                for (int v = 0; v < V; v++)
                    to[v] = total[f][v];
            }
        }
    }
};

// sums[p] += sum over taps of taps[tap] plane[p - offset[tap]] for p < n: the adjoint.
template <class T>
struct Spread {
    using Value = T;
    const T* plane;
    const T* taps;
    i64 tap_step;
    const i64* offset;
    i64 n_taps, n;  // n is a multiple of kRun
    T* sums;

    VECTORS_INLINE void all() const { run<kLanes<T>>(); }

    template <int L>
    VECTORS_INLINE void run() const {
        constexpr int V = 8;
        using Row = Vector<T, L>;
        for (i64 p = 0; p < n; p += V * L) {
            Row* to = reinterpret_cast<Row*>(sums + p);
            Row total[V];
            for (int v = 0; v < V; v++)
                total[v] = to[v];
            for (i64 tap = 0; tap < n_taps; tap++) {
                const Row* seen = reinterpret_cast<const Row*>(plane + p - offset[tap]);
                const T factor = taps[tap * tap_step];
                for (int v = 0; v < V; v++)
                    total[v] += factor * seen[v];
            }
            for (int v = 0; v < V; v++)
                to[v] = total[v];
        }
    }
};

// by_taps[tap] = sum over q < n of a[q] plane_a[q + offset[tap]] + b[q] plane_b[q + offset[tap]].
template <class T>
struct TapSums {
    using Value = T;
    const T *a, *plane_a, *b, *plane_b;
    const i64* offset;  // padded to whole groups of taps
    i64 n_taps, n;      // n is a multiple of kRun
    T* by_taps;

    VECTORS_INLINE void all() const { run<kLanes<T>>(); }

    template <int L>
    VECTORS_INLINE void run() const {
        using Row = Vector<T, L>;
        for (i64 first = 0; first < n_taps; first += kTaps) {
            Row of_a[kTaps] = {}, of_b[kTaps] = {};
            for (i64 q = 0; q < n; q += L) {
                const Row left = *reinterpret_cast<const Row*>(a + q), right = *reinterpret_cast<const Row*>(b + q);
                for (i64 k = 0; k < kTaps; k++) {
                    of_a[k] += left * *reinterpret_cast<const Row*>(plane_a + q + offset[first + k]);
                    of_b[k] += right * *reinterpret_cast<const Row*>(plane_b + q + offset[first + k]);
                }
            }
            for (i64 k = 0; k < kTaps && first + k < n_taps; k++) {
                T lanes[L], total = 0;
                *reinterpret_cast<Row*>(lanes) = of_a[k] + of_b[k];
                for (int lane = 0; lane < L; lane++) total += lanes[lane];
                by_taps[first + k] = total;
            }
        }
    }
};

// Accumulates in wide vectors, or in halves if registers are smaller.
template <class Sums>
void add_up(const Sums& sums) {
    if (has_wide_vectors()) apply(sums);
    else sums.template run<kLanes<typename Sums::Value> / 2>();
}

}  // namespace crf
