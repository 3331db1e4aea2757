// Passes of labelled mixtures of factor analysers over samples, in tiles, so that only sums leave the cache.
//
// A sample with class c and weight w has scores r_s = log P(c, s, x) = (|z_s|^2 - q_s) / 2 + l_s. The criterion
// a log sum_{s in c} exp r_s - b log sum_s exp r_s has the derivative a_s = a P(s | c, x) - b P(s | x). Here z_s and
// l_s are linear in (x, 1), and q_s = x' D x with the inverse noise D of a group of components.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/blas.hpp"
#include "core/pool.hpp"
#include "mixture_tiles.hpp"

namespace crf {

// Maximum number of values in a tile, which stay in the second-level cache. Maximum number of samples in a tile, which
// are enough for fast matrix products.
constexpr i64 kMostNumbers = 1 << 16, kMostSamples = 4 * kTile;

// Number of parts of the samples with separate sums: eight for each of 16 threads, if all sums have at most
// kNumbersOfSums values.
constexpr i64 kMostParts = 128, kFewestParts = 16, kNumbersOfSums = 1 << 23;

// Linear forms that define the scores of components.
struct Forms {
    const double* linear;  // (S, p + 1, d + 1) forms of z and l
    const double* inverse_noise;  // (G, d)
    const i64* group;  // (S,) row of inverse_noise, ascending
    i64 n_components, n_factors, n_features;
    const Blas* blas;

    i64 size() const { return (n_factors + 1) * (n_features + 1); }  // number of values in the forms of a component

    // Returns the forms of components first to last, restricted to their groups.
    Forms of(i64 first, i64 last) const {
        Forms some = *this;
        some.linear += first * size(), some.group += first;
        some.n_components = last - first;
        return some;
    }

    i64 first_group() const { return group[0]; }
    i64 n_groups() const { return group[n_components - 1] - group[0] + 1; }

    // out = a b; a is (n_rows, n_inner).
    void multiply(const double* a, i64 n_rows, i64 n_inner, const double* b, i64 b_stride, i64 n_columns, double* out,
                  i64 stride) const {
        blas->multiply('N', 'N', n_columns, n_rows, n_inner, b, b_stride, a, std::max<i64>(n_inner, 1), 0, out, stride);
    }

    // out += a b'; a is (n_rows, n), b (n_columns, n), out (n_rows, n_columns).
    void add_products(const double* a, i64 n_rows, i64 a_stride, const double* b, i64 n_columns, i64 b_stride, i64 n,
                      double* out) const {
        blas->multiply('T', 'N', n_columns, n_rows, n, b, b_stride, a, a_stride, 1, out, n_columns);
    }
};

// Blocks of samples, each of a single class, in the order of classes. A block has shape (d + 1, n); its last row is 1.
struct Blocks {
    const double* samples;  // concatenated blocks
    const double* weight;  // (N,)
    const i64* ptr;  // (n_blocks + 1,) first sample of each block, and N
    const i64* label;  // (n_blocks,) ascending
    i64 n_blocks;
};

// A range of blocks of one class.
struct Part {
    i64 first, last, label;
};

// Divides the blocks into parts that only depend on shapes. The sums of parts are added in order, so results do not
// depend on the number of threads.
inline std::vector<Part> parts_of(const Blocks& blocks, i64 n_sums) {
    const i64 most = std::clamp(kNumbersOfSums / std::max<i64>(n_sums, 1), kFewestParts, kMostParts);
    std::vector<Part> parts;
    for (i64 first = 0; first < blocks.n_blocks;) {
        i64 last = first;
        while (last < blocks.n_blocks && blocks.label[last] == blocks.label[first]) last++;
        const i64 n = last - first, n_parts = std::max<i64>(1, std::min(n, n * most / blocks.n_blocks));
        for (i64 k = 0; k < n_parts; k++)
            parts.push_back({first + n * k / n_parts, first + n * (k + 1) / n_parts, blocks.label[first]});
        first = last;
    }
    return parts;
}

// Workspace of a thread for tiles of samples.
class Tiles {
public:
    const Forms& of;
    i64 n_samples;  // number of samples in a tile
    i64 stride;
    double *projected, *quadratic, *sums, *squares, *rows;  // (S (p + 1), .), (G, .), (G, .), (d, .), (d + 1, .)

    Tiles(const Forms& forms, i64 n) : of(forms) {
        const i64 S = forms.n_components, p = forms.n_factors, d = forms.n_features, G = forms.n_groups();
        const i64 n_rows = S * (p + 1) + 2 * (G + d) + 1;
        n_samples = std::min({n + kTile - 1, kMostSamples, kMostNumbers / n_rows}) / kTile;
        n_samples = std::max<i64>(n_samples, 1) * kTile;
        // Padding, since rows at multiples of a page would compete for the same cache lines.
        stride = n_samples + 8;
        numbers.resize(n_rows * stride);
        projected = numbers.data();
        quadratic = projected + S * (p + 1) * stride;
        sums = quadratic + G * stride;
        squares = sums + G * stride;
        rows = squares + d * stride;
        groups.resize(S);
        for (i64 s = 0; s < S; s++) groups[s] = forms.group[s] - forms.first_group();
    }

    // Computes z and l of n samples (d + 1, n), their squares and q.
    void project(const double* samples, i64 step, i64 n) {
        const i64 d = of.n_features;
        of.multiply(of.linear, of.n_components * (of.n_factors + 1), d + 1, samples, step, n, projected, stride);
        for (i64 j = 0; j < d; j++)
            for (i64 i = 0; i < n; i++) squares[j * stride + i] = samples[j * step + i] * samples[j * step + i];
        of.multiply(of.inverse_noise + of.first_group() * d, of.n_groups(), d, squares, stride, n, quadratic, stride);
    }

    // Returns the criterion of a tile; replaces z and l by w a_s z and w a_s, and writes sums of w a_s for each group.
    double weigh(const double* samples, i64 step, i64 n, const double* weight, i64 first, i64 last, double joint,
                 double features) {
        double value = 0;
        project(samples, step, n);
        std::fill_n(sums, of.n_groups() * stride, 0.0);
        for (i64 start = 0; start < n; start += kTile)
            value += run_at_level<WeighTile>(tile(start, n), weight + start, first, last, joint, features, sums + start);
        return value;
    }

    void class_scores(i64 n, i64 n_classes, double* out) {
        for (i64 start = 0; start < n; start += kTile)
            run_at_level<ClassScores>(tile(start, n), n_classes, out + start * n_classes);
    }

    // Calls function(samples, step, n, weight) for all tiles of a part.
    template <class Function>
    void each(const Blocks& blocks, const Part& part, const Function& function) {
        for (i64 b = part.first; b < part.last; b++) {
            const i64 step = blocks.ptr[b + 1] - blocks.ptr[b];
            const double* samples = blocks.samples + blocks.ptr[b] * (of.n_features + 1);
            for (i64 start = 0; start < step; start += n_samples)
                function(samples + start, step, std::min(n_samples, step - start), blocks.weight + blocks.ptr[b] + start);
        }
    }

private:
    Tile tile(i64 start, i64 n) const {
        return {projected + start,      quadratic + start, groups.data(),           of.n_components,
                of.n_factors,           stride,            std::min(kTile, n - start)};
    }

    std::vector<double> numbers;
    std::vector<i64> groups;  // (S,) groups, counted from the first group of these components
};

// Sums of all parts, (n_parts, n), for different places in a total.
class PartSums {
public:
    PartSums(i64 n_parts, i64 n) : n(n), sums(n_parts * n), values(n_parts) {}

    double* of(i64 part) { return sums.data() + part * n; }
    double* value_of(i64 part) { return &values[part]; }

    double value() const {
        double total = 0;
        for (double each : values) total += each;
        return total;
    }

private:
    i64 n;
    std::vector<double> sums, values;
};

inline void add_to(double* total, const double* part, i64 n) {
    for (i64 i = 0; i < n; i++) total[i] += part[i];
}

struct Criterion {
    i64 n_own;  // number of components of a class
    double joint, features;  // a, b
};

// Adds the sums that gradients need: moments w a_s (z, 1)(x, 1)', (S, p + 1, d + 1), and squares w a_s x^2, (G, d).
// Returns the sum of w times the criterion.
inline double weighted_moments(const Forms& forms, const Blocks& blocks, const Criterion& criterion, double* moments,
                               double* squares, const Threads& threads) {
    const i64 d = forms.n_features, S = criterion.features ? forms.n_components : criterion.n_own;
    const i64 most_groups = criterion.features ? forms.n_groups() : std::min(forms.n_groups(), criterion.n_own);
    const i64 n_moments = S * forms.size();
    const auto parts = parts_of(blocks, n_moments + most_groups * d);
    const auto used = [&](const Part& part) {
        const i64 first = criterion.features ? 0 : part.label * criterion.n_own;
        return forms.of(first, first + S);
    };
    PartSums sums(parts.size(), n_moments + most_groups * d);
    threads.share(parts.size(), [&](i64 k) {
        const Forms own = used(parts[k]);
        const i64 first = criterion.features ? parts[k].label * criterion.n_own : 0, last = first + criterion.n_own;
        Tiles tiles(own, kMostSamples);
        tiles.each(blocks, parts[k], [&](const double* samples, i64 step, i64 n, const double* weight) {
            *sums.value_of(k) += tiles.weigh(samples, step, n, weight, first, last, criterion.joint, criterion.features);
            own.add_products(tiles.projected, S * (own.n_factors + 1), tiles.stride, samples, d + 1, step, n, sums.of(k));
            if (d)
                own.add_products(tiles.sums, own.n_groups(), tiles.stride, tiles.squares, d, tiles.stride, n,
                                 sums.of(k) + n_moments);
        });
    });
    for (std::size_t k = 0; k < parts.size(); k++) {
        const Forms own = used(parts[k]);
        add_to(moments + (own.linear - forms.linear), sums.of(k), n_moments);
        add_to(squares + (own.first_group() - forms.first_group()) * d, sums.of(k) + n_moments, own.n_groups() * d);
    }
    return sums.value();
}

// Adds moments w P(s | c, x) (x, 1)(x, 1)', (S, d + 1, d + 1); returns the sum of w log P(c, x).
inline double second_moments(const Forms& forms, const Blocks& blocks, i64 n_own, double* moments,
                             const Threads& threads) {
    const i64 d = forms.n_features, size = (d + 1) * (d + 1);
    const auto parts = parts_of(blocks, n_own * size);
    PartSums sums(parts.size(), n_own * size);
    threads.share(parts.size(), [&](i64 k) {
        const i64 first = parts[k].label * n_own;
        const Forms own = forms.of(first, first + n_own);
        Tiles tiles(own, kMostSamples);
        tiles.each(blocks, parts[k], [&](const double* samples, i64 step, i64 n, const double* weight) {
            *sums.value_of(k) += tiles.weigh(samples, step, n, weight, 0, n_own, 1, 0);
            for (i64 s = 0; s < n_own; s++) {
                const double* posteriors = tiles.projected + (s * (own.n_factors + 1) + own.n_factors) * tiles.stride;
                for (i64 j = 0; j <= d; j++)
                    for (i64 i = 0; i < n; i++)
                        tiles.rows[j * tiles.stride + i] = posteriors[i] * samples[j * step + i];
                own.add_products(tiles.rows, d + 1, tiles.stride, samples, d + 1, step, n, sums.of(k) + s * size);
            }
        });
    });
    for (std::size_t k = 0; k < parts.size(); k++)
        add_to(moments + parts[k].label * n_own * size, sums.of(k), n_own * size);
    return sums.value();
}

// Adds w (x, 1)(x, 1)', summed over the samples of every class, (C, d + 1, d + 1).
inline void class_moments(const Forms& forms, const Blocks& blocks, double* moments, const Threads& threads) {
    const i64 d = forms.n_features, size = (d + 1) * (d + 1);
    const auto parts = parts_of(blocks, size);
    PartSums sums(parts.size(), size);
    threads.share(parts.size(), [&](i64 k) {
        std::vector<double> weighted;
        for (i64 b = parts[k].first; b < parts[k].last; b++) {
            const i64 start = blocks.ptr[b], n = blocks.ptr[b + 1] - start;
            const double* samples = blocks.samples + start * (d + 1);
            weighted.resize((d + 1) * n);
            for (i64 j = 0; j <= d; j++)
                for (i64 i = 0; i < n; i++) weighted[j * n + i] = blocks.weight[start + i] * samples[j * n + i];
            forms.add_products(weighted.data(), d + 1, n, samples, d + 1, n, n, sums.of(k));
        }
    });
    for (std::size_t k = 0; k < parts.size(); k++) add_to(moments + parts[k].label * size, sums.of(k), size);
}

// Rows of samples, with the features that the forms use.
struct Rows {
    const double* X;
    i64 row_step, column_step;
    const i64* row;  // (n,), or null for all rows in order
    const i64* column;  // (d,), or null for all features
    const double* shift;  // (d,) subtracted from X
    i64 n;

    i64 place(i64 i) const { return row ? row[i] : i; }
};

// Writes the log-densities of rows for each class, (., C), at the index of each row. Classes have equally many
// components.
inline void class_scores(const Forms& forms, const Rows& rows, i64 n_classes, double* out, const Threads& threads) {
    const i64 d = forms.n_features, size = 8 * kMostSamples;
    threads.share((rows.n + size - 1) / size, [&](i64 k) {
        Tiles tiles(forms, rows.n);
        std::vector<double> found(tiles.n_samples * n_classes);
        const i64 last = std::min(rows.n, (k + 1) * size);
        for (i64 start = k * size; start < last; start += tiles.n_samples) {
            const i64 n = std::min(tiles.n_samples, last - start);
            for (i64 i = 0; i < n; i++) {
                const double* x = rows.X + rows.place(start + i) * rows.row_step;
                for (i64 j = 0; j < d; j++)
                    tiles.rows[j * tiles.stride + i] =
                        x[(rows.column ? rows.column[j] : j) * rows.column_step] - rows.shift[j];
                tiles.rows[d * tiles.stride + i] = 1;
            }
            tiles.project(tiles.rows, tiles.stride, n);
            tiles.class_scores(n, n_classes, found.data());
            for (i64 i = 0; i < n; i++)
                std::copy_n(found.data() + i * n_classes, n_classes, out + rows.place(start + i) * n_classes);
        }
    });
}

}  // namespace crf
