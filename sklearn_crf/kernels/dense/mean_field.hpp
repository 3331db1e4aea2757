// Parallel mean-field updates of the points of a dense field.
//
// Points are worked on in blocks that stay in the cache: their messages are read from the lattices of all kernels, then
// turned into probabilities. Padding has a score of -inf, and so a probability of 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "channel_rows.hpp"

namespace crf {

template <class T>
struct Exponential;

template <>
struct Exponential<float> {
    using Bits = std::uint32_t;
    static constexpr int kMantissa = 23, kBias = 127, kDegree = 7;
    static constexpr float kRound = 12582912.0f, kLeast = -87.0f;  // 1.5 * 2^23
    static constexpr float kHigh = 0.693359375f, kLow = -2.12194440e-4f;
};

template <>
struct Exponential<double> {
    using Bits = std::uint64_t;
    static constexpr int kMantissa = 52, kBias = 1023, kDegree = 13;
    static constexpr double kRound = 6755399441055744.0, kLeast = -708.0;  // 1.5 * 2^52
    static constexpr double kHigh = 6.93147180369123816490e-01, kLow = 1.90821492927058770002e-10;
};

// exp(x) for x <= 0, of which everything below the least normal number is 0; without branches, to be vectorised.
template <class T>
CHANNELS_INLINE T exp_of_negative(T x) {
    using E = Exponential<T>;
    const T bounded = x > E::kLeast ? x : E::kLeast;
    const T shifted = bounded * static_cast<T>(1.4426950408889634) + E::kRound;
    const T whole = shifted - E::kRound;
    const T rest = (bounded - whole * E::kHigh) - whole * E::kLow;
    T sum = 1;
    for (int k = E::kDegree; k > 0; k--)
        sum = 1 + sum * rest * (static_cast<T>(1) / static_cast<T>(k));
    // The lowest bits of `shifted` hold the whole number.
    typename E::Bits bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + E::kBias) << E::kMantissa;
    T power;
    std::memcpy(&power, &bits, sizeof power);
    return x > E::kLeast ? sum * power : 0;
}

template <class T>
struct Softmax {
    T* scores;  // (n_rows, width), replaced by probabilities
    i64 n_rows, width;

    CHANNELS_INLINE void all() const {
        switch (width) {
            case 1: return rows<1>();
            case 2: return rows<2>();
            case 4: return rows<4>();
            default: return rows<kLanes<T>>();
        }
    }

    // Rows of whole vectors of L values.
    template <int L>
    CHANNELS_INLINE void rows() const {
        using Row = Vector<T, L>;
        const i64 n_vectors = width / L;
        for (i64 row = 0; row < n_rows; row++) {
            Row* x = reinterpret_cast<Row*>(scores + row * width);
            Row most = x[0];
            for (i64 v = 1; v < n_vectors; v++)
                keep_larger(most, x[v]);
            T* first = scores + row * width;
            T each[L];
            std::memcpy(each, &most, sizeof most);
            T top = each[0];
            for (int k = 1; k < L; k++)
                top = each[k] > top ? each[k] : top;
            for (i64 k = 0; k < n_vectors * L; k++)
                first[k] -= top;
        }
        for (i64 k = 0; k < n_rows * width; k++)
            scores[k] = exp_of_negative(scores[k]);
        for (i64 row = 0; row < n_rows; row++) {
            Row* x = reinterpret_cast<Row*>(scores + row * width);
            Row sums = x[0];
            for (i64 v = 1; v < n_vectors; v++)
                sums += x[v];
            T each[L];
            std::memcpy(each, &sums, sizeof sums);
            T total = 0;
            for (int k = 0; k < L; k++)
                total += each[k];
            const T scale = 1 / total;
            for (i64 v = 0; v < n_vectors; v++)
                x[v] = scale * x[v];
        }
    }
};

template <class T>
struct Replacement {
    T* kept;
    const T* fresh;
    i64 n_values;
    T* change;  // the largest so far

    CHANNELS_INLINE void all() const {
        // Numbers that are not negative are ordered as their bits are, and compilers vectorise the maximum of integers.
        using Bits = std::make_signed_t<typename Exponential<T>::Bits>;
        Bits most = 0;
        for (i64 k = 0; k < n_values; k++) {
            const T moved = std::abs(fresh[k] - kept[k]);
            kept[k] = fresh[k];
            Bits bits;
            std::memcpy(&bits, &moved, sizeof bits);
            most = bits > most ? bits : most;
        }
        T found;
        std::memcpy(&found, &most, sizeof found);
        *change = found > *change ? found : *change;
    }
};

// The values of one lattice, and where the points read them.
template <class T>
struct Reading {
    const i32* vertex_of;
    const T* weight_of;
    i64 n_corners;
    const T* vertices;
};

template <class T>
struct MeanFieldUpdate {
    const T* unary;  // (n_points, width)
    i64 width;
    T inertia;   // part of the former logits that is kept
    T* logits = nullptr;  // or null: of the former update, replaced by those of this one
    T* marginals;  // of the former update, replaced

    // Largest change of a probability among points start to stop.
    double run(const std::vector<Reading<T>>& readings, i64 start, i64 stop) const {
        const i64 rows_at_once = std::max<i64>(1, 4096 / width);
        std::vector<T> scores(rows_at_once * width);
        T change = 0;
        for (i64 first = start; first < stop; first += rows_at_once) {
            const i64 last = std::min(first + rows_at_once, stop);
            read(readings, first, last, scores.data());
            if (logits)
                mix(first, last, scores.data());
            apply(Softmax<T>{scores.data(), last - first, width});
            apply(Replacement<T>{marginals + first * width, scores.data(), (last - first) * width, &change});
        }
        return change;
    }

    void read(const std::vector<Reading<T>>& readings, i64 first, i64 last, T* scores) const {
        const T* base = unary + first * width;
        for (const Reading<T>& reading : readings) {
            Slice<T> slice;
            slice.vertex_of = reading.vertex_of, slice.weight_of = reading.weight_of;
            slice.n_corners = reading.n_corners, slice.vertices = reading.vertices;
            slice.base = base, slice.points = scores;
            slice.width = width, slice.start = first, slice.stop = last;
            apply(slice);
            base = scores;
        }
        if (readings.empty())
            std::copy(base, base + (last - first) * width, scores);
    }

    void mix(i64 first, i64 last, T* scores) const {
        T* kept = logits + first * width;
        for (i64 k = 0; k < (last - first) * width; k++)
            kept[k] = scores[k] = (1 - inertia) * scores[k] + inertia * kept[k];
    }
};

}  // namespace crf
