// Parallel mean-field updates of dense fields, and derivatives through them.
//
// Points are processed in blocks that stay in the cache: their messages are read from the lattices of all kernels, then
// converted to probabilities. Padding has score -inf, and so probability 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "filters.hpp"

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

// exp(x) for x <= 0, with 0 for results below the smallest normal number; without branches, for vectorisation.
template <class T>
VECTORS_INLINE T exp_of_negative(T x) {
    using E = Exponential<T>;
    const T bounded = x > E::kLeast ? x : E::kLeast;
    const T shifted = bounded * static_cast<T>(1.4426950408889634) + E::kRound;
    const T whole = shifted - E::kRound;
    const T rest = (bounded - whole * E::kHigh) - whole * E::kLow;
    T sum = 1;
    for (int k = E::kDegree; k > 0; k--)
        sum = 1 + sum * rest * (static_cast<T>(1) / static_cast<T>(k));
    // The lowest bits of `shifted` hold the integer part.
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

    VECTORS_INLINE void all() const {
        switch (width) {
            case 1: return rows<1>();
            case 2: return rows<2>();
            case 4: return rows<4>();
            default: return rows<kLanes<T>>();
        }
    }

    // Softmax of rows that consist of whole vectors of L values.
    template <int L>
    VECTORS_INLINE void rows() const {
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
    T* change;  // largest change so far

    VECTORS_INLINE void all() const {
        // Non-negative numbers have the order of their bits, and compilers vectorise the maximum of integers.
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

// product[row] = rows[row] times a table (width, width).
template <class T>
struct RowProducts {
    using Value = T;
    const T* rows;
    i64 n_rows, width;
    const T* table;
    T* product;

    VECTORS_INLINE void all() const { each_group(*this); }

    template <int L, int V>
    VECTORS_INLINE void run(i64 column) const {
        using Row = Vector<T, L>;
        for (i64 row = 0; row < n_rows; row++) {
            Row total[V] = {};
            for (i64 k = 0; k < width; k++) {
                const Row* x = reinterpret_cast<const Row*>(table + k * width + column);
                const T factor = rows[row * width + k];
                for (int v = 0; v < V; v++)
                    total[v] += factor * x[v];
            }
            Row* y = reinterpret_cast<Row*>(product + row * width + column);
            for (int v = 0; v < V; v++)
                y[v] = total[v];
        }
    }
};

// total[k, l] += sum over rows of a[k] * b[l].
template <class T>
struct ProductSums {
    const T *a, *b;  // (n_rows, width)
    i64 n_rows, width;
    bool of_equal_states;  // whether to compute only the diagonal
    double* total;  // (width, width)

    VECTORS_INLINE void all() const {
        for (i64 row = 0; row < n_rows; row++)
            for (i64 k = 0; k < width; k++) {
                const double factor = a[row * width + k];
                const i64 first = of_equal_states ? k : 0, last = of_equal_states ? k + 1 : width;
                for (i64 l = first; l < last; l++)
                    total[k * width + l] += factor * b[row * width + l];
            }
    }
};

// Symmetric compatibility of states for one filter: a factor for each state, (width,), or a table, (width, width).
template <class T>
struct Compatibility {
    const T* factor;
    const T* table;

    // Multiplies rows by the compatibility, in place.
    void multiply(T* rows, i64 n_rows, i64 width) const {
        if (table) {
            std::vector<T> product(n_rows * width);
            apply(RowProducts<T>{rows, n_rows, width, table, product.data()});
            std::copy(product.begin(), product.end(), rows);
            return;
        }
        for (i64 row = 0; row < n_rows; row++)
            for (i64 k = 0; k < width; k++)
                rows[row * width + k] *= factor[k];
    }
};

// Options of updates that several fields share.
template <class T>
struct Updates {
    i64 width;
    std::vector<Compatibility<T>> compatibilities;  // one for each filter
    i64 most;  // maximum number of updates
    double tol;
    T inertia;  // weight of the previous logits
};

// One field, with its points, filters and marginals.
template <class T>
class Field {
public:
    i64 n_points;
    const T* unary;  // (n_points, width) padded with -inf
    T* logits;  // (n_points, width), logits of the last update, or null
    T* marginals;  // (n_points, width) initial marginals, replaced or followed by the marginals of each update
    i64 stride;  // distance between the marginals of successive updates; 0 if they are replaced

    Field(const Updates<T>& updates, const std::vector<Lattice<T>>& lattices) : of(updates) {
        for (const Lattice<T>& lattice : lattices)
            filters.emplace_back(lattice, of.width);
    }

    // Initialises marginals from unary scores only.
    void start(const Threads& threads) const { update({}, T(0), marginals, threads); }

    void start_logits() const {
        for (i64 k = 0; k < n_points * of.width; k++)
            logits[k] = std::log(marginals[k]);
    }

    // Makes updates until no marginal changes by more than the tolerance; returns their number and the last change.
    i64 ascend(double* change, const Threads& threads) {
        T* at = marginals;
        std::vector<const T*> values(filters.size());
        for (i64 t = 1; t <= of.most; t++) {
            for (std::size_t m = 0; m < filters.size(); m++) {
                T* vertices = filters[m].blurred(at, false, threads);
                share_rows(threads, filters[m].n_vertices(), of.width, [&](i64, i64 start, i64 stop) {
                    of.compatibilities[m].multiply(vertices + start * of.width, stop - start, of.width);
                });
                values[m] = vertices;
            }
            if (stride) {
                std::copy(at, at + n_points * of.width, at + stride);
                at += stride;
            }
            *change = update(values, of.inertia, at, threads);
            if (*change <= of.tol)
                return t;
        }
        return of.most;
    }

    // Adds derivatives with respect to unary scores, (n_points, width), and to the tables of all filters, (n_filters,
    // width, width). `slope` is the derivative with respect to the last logits, and is overwritten. If `slopes` is not
    // null, it receives the derivatives with respect to the logits of each update, with the stride of the marginals.
    void pull_back(i64 n_updates, T* slope, T* by_unary, double* by_tables, T* slopes, const Threads& threads) {
        const i64 size = n_points * of.width;
        std::vector<T> adjoint(size), by_marginals(size);
        std::vector<double> sums(n_row_blocks(n_points, of.width) * of.width * of.width);
        for (i64 t = n_updates - 1; t >= 0; t--) {
            const T* q = marginals + t * stride;
            if (slopes)
                std::copy(slope, slope + size, slopes + t * stride);
            for (std::size_t m = 0; m < filters.size(); m++) {
                filters[m].filter(slope, true, adjoint.data(), threads);
                share_rows(threads, n_points, of.width, [&](i64 block, i64 start, i64 stop) {
                    T* rows = adjoint.data() + start * of.width;
                    double* own = sums.data() + block * of.width * of.width;
                    const Compatibility<T>& pairs = of.compatibilities[m];
                    apply(ProductSums<T>{q + start * of.width, rows, stop - start, of.width, !pairs.table, own});
                    pairs.multiply(rows, stop - start, of.width);
                    T* to = by_marginals.data() + start * of.width;
                    for (i64 k = 0; k < (stop - start) * of.width; k++)
                        to[k] = m ? to[k] + rows[k] : rows[k];
                });
                move_sums(sums, by_tables + m * of.width * of.width);
            }
            share_rows(threads, n_points, of.width, [&](i64, i64 start, i64 stop) {
                through_softmax(q, by_marginals.data(), start, stop, slope);
                for (i64 k = start * of.width; k < stop * of.width; k++)
                    by_unary[k] += slope[k];
            });
        }
    }

private:
    const Updates<T>& of;
    std::vector<Filter<T>> filters;

    // Replaces marginals by the softmax of unary scores plus messages; returns the largest change of a probability.
    T update(const std::vector<const T*>& values, T inertia, T* replaced, const Threads& threads) const {
        std::vector<T> changes(n_row_blocks(n_points, of.width));
        share_rows(threads, n_points, of.width, [&](i64 block, i64 start, i64 stop) {
            changes[block] = update_rows(values, inertia, replaced, start, stop);
        });
        return changes.empty() ? 0 : *std::max_element(changes.begin(), changes.end());
    }

    T update_rows(const std::vector<const T*>& values, T inertia, T* replaced, i64 start, i64 stop) const {
        const i64 rows_at_once = std::max<i64>(1, 4096 / of.width);
        std::vector<T> scores(rows_at_once * of.width);
        T change = 0;
        for (i64 first = start; first < stop; first += rows_at_once) {
            const i64 last = std::min(first + rows_at_once, stop), size = (last - first) * of.width;
            const T* base = unary + first * of.width;
            if (values.empty())
                std::copy(base, base + size, scores.data());
            for (std::size_t m = 0; m < values.size(); m++)
                filters[m].read(values[m], m ? scores.data() : base, first, last, scores.data());
            if (inertia > 0)
                mix(logits + first * of.width, size, inertia, scores.data());
            apply(Softmax<T>{scores.data(), last - first, of.width});
            apply(Replacement<T>{replaced + first * of.width, scores.data(), size, &change});
        }
        return change;
    }

    static void mix(T* kept, i64 size, T inertia, T* scores) {
        for (i64 k = 0; k < size; k++)
            kept[k] = scores[k] = (1 - inertia) * scores[k] + inertia * kept[k];
    }

    // Adds the sums of all blocks in order to a total, and resets them to 0.
    void move_sums(std::vector<double>& sums, double* total) const {
        const i64 size = of.width * of.width;
        for (std::size_t at = 0; at < sums.size(); at++) {
            total[at % size] += sums[at];
            sums[at] = 0;
        }
    }

    // Converts the derivative with respect to the softmax q to the derivative with respect to its logits.
    void through_softmax(const T* q, const T* by_q, i64 start, i64 stop, T* by_logits) const {
        for (i64 point = start; point < stop; point++) {
            const i64 first = point * of.width;
            T mean = 0;
            for (i64 k = first; k < first + of.width; k++)
                mean += q[k] * by_q[k];
            for (i64 k = first; k < first + of.width; k++)
                by_logits[k] = q[k] * (by_q[k] - mean);
        }
    }
};

// Several fields with concatenated points.
template <class T>
struct Fields {
    Updates<T> updates;
    std::vector<std::vector<Lattice<T>>> lattices;  // lattices of each field
    const i64* ptr;  // (n_fields + 1,) first point of each field
    const T* unary;  // (N, width)
    T* logits;  // or null
    T* marginals;  // (most + 1, N, width), or (1, N, width) if marginals are replaced
    bool keeps_all;

    void ascend(bool starts_at_unary, i64* n_updates, double* changes, const Threads& threads) const {
        share(threads, [&](i64 i, const Threads& own) {
            Field<T> field = at(i);
            if (starts_at_unary)
                field.start(own);
            if (logits)
                field.start_logits();
            n_updates[i] = field.ascend(changes + i, own);
        });
    }

    // by_tables: (n_fields, n_filters, width, width)
    void pull_back(const i64* n_updates, T* slope, T* by_unary, double* by_tables, T* slopes,
                   const Threads& threads) const {
        const i64 n_sums = static_cast<i64>(updates.compatibilities.size()) * updates.width * updates.width;
        share(threads, [&](i64 i, const Threads& own) {
            const i64 first = ptr[i] * updates.width;
            at(i).pull_back(n_updates[i], slope + first, by_unary + first, by_tables + i * n_sums,
                            slopes ? slopes + first : nullptr, own);
        });
    }

private:
    i64 n_fields() const { return static_cast<i64>(lattices.size()); }

    Field<T> at(i64 i) const {
        const i64 first = ptr[i] * updates.width;
        Field<T> field(updates, lattices[i]);
        field.n_points = ptr[i + 1] - ptr[i], field.unary = unary + first;
        field.logits = logits ? logits + first : nullptr;
        field.marginals = marginals + first, field.stride = keeps_all ? ptr[n_fields()] * updates.width : 0;
        return field;
    }

    // Returns whether threads process at most as many successive blocks if each thread processes whole fields as if all
    // threads share each field.
    bool is_shorter_by_fields(i64 n_threads) const {
        i64 most = 0, total = 0, shared = 0;
        for (i64 i = 0; i < n_fields(); i++) {
            const i64 n_blocks = n_row_blocks(ptr[i + 1] - ptr[i], updates.width);
            most = std::max(most, n_blocks), total += n_blocks;
            shared += (n_blocks + n_threads - 1) / n_threads;
        }
        return std::max(most, total / n_threads) <= shared;
    }

    template <class Function>
    void share(const Threads& threads, const Function& function) const {
        if (!is_shorter_by_fields(threads.n_threads)) {
            for (i64 i = 0; i < n_fields(); i++)
                function(i, threads);
            return;
        }
        // Nested calls of the pool run in the calling thread.
        threads.share(n_fields(), [&](i64 i) { function(i, threads); });
    }
};

}  // namespace crf
