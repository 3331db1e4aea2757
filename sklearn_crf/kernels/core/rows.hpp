// Arithmetic on rows of numbers, for the inner loops of message passing.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "core/row_products.hpp"
#include "core/row_vectors.hpp"
#include "core/types.hpp"

namespace crf {

template <class Real>
VECTORS_INLINE Real row_sum(const Real* row, std::ptrdiff_t width) {
    RowVector<Real> total{};
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) total += load(row + j);
    return sum_lanes<Real>(total);
}

template <class Real>
VECTORS_INLINE Real row_max(const Real* row, std::ptrdiff_t width) {
    RowVector<Real> top = load(row);
    for (std::ptrdiff_t j = kRowLanes<Real>; j < width; j += kRowLanes<Real>) top = larger(load(row + j), top);
    return max_lanes<Real>(top);
}

template <class Real>
VECTORS_INLINE void row_scale(Real* row, Real factor, std::ptrdiff_t width) {
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) store<Real>(row + j, load(row + j) * factor);
}

template <class Real>
VECTORS_INLINE Real row_dot(const Real* x, const Real* y, std::ptrdiff_t width) {
    RowVector<Real> total{};
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) total += load(x + j) * load(y + j);
    return sum_lanes<Real>(total);
}

// out = x / y, 0 where y is 0
template <class Real>
VECTORS_INLINE void row_quotient(const Real* x, const Real* y, std::ptrdiff_t width, Real* out) {
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        const RowVector<Real> divisor = load(y + j), ratio = load(x + j) / divisor;
        store<Real>(out + j, divisor > 0 ? ratio : RowVector<Real>{});
    }
}

// row = row to a power, 0 if the row is 0 or subnormal. A power of 1/2 needs no logarithm: it occurs for edges that
// are in half of the trees, as all edges of a grid are with probabilities of chains.
template <class Real>
VECTORS_INLINE void row_power(Real* row, Real power, std::ptrdiff_t width) {
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        const RowVector<Real> x = load(row + j);
        RowVector<Real> raised = x;
        if (power == Real(0.5)) raised = square_root<Real>(x);
        else if (power == -1) raised = 1 / x;
        else {
            take_log<Real, kRowLanes<Real>>(raised);
            raised = power * raised;
            take_exp<Real, kRowLanes<Real>>(raised);
        }
        store<Real>(row + j, where_normal<Real>(raised, x));
    }
}

// out = base * product of rows first to last - 1 without row skip
template <class Real>
VECTORS_INLINE void product_of_rows(const Real* base, const Real* rows, std::ptrdiff_t first, std::ptrdiff_t last,
                                    std::ptrdiff_t skip, std::ptrdiff_t width, Real* out) {
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        RowVector<Real> x = load(base + j);
        for (std::ptrdiff_t q = first; q < skip; q++) x *= load(rows + q * width + j);
        for (std::ptrdiff_t q = skip + 1; q < last; q++) x *= load(rows + q * width + j);
        store<Real>(out + j, x);
    }
}

template <class Real>
VECTORS_INLINE void sum_of_rows(const Real* base, const Real* rows, std::ptrdiff_t first, std::ptrdiff_t last,
                                std::ptrdiff_t skip, std::ptrdiff_t width, Real* out) {
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        RowVector<Real> x = load(base + j);
        for (std::ptrdiff_t q = first; q < skip; q++) x += load(rows + q * width + j);
        for (std::ptrdiff_t q = skip + 1; q < last; q++) x += load(rows + q * width + j);
        store<Real>(out + j, x);
    }
}

// Normalises a new row of probabilities and stores it over the old row. Returns the largest change, or -1 if all
// entries are zero. With damping below 0, there is no old row.
template <class Real>
VECTORS_INLINE double replace_probabilities(const Real* fresh, Real* kept, std::ptrdiff_t width, double damping) {
    const Real total = row_sum(fresh, width);
    if (!(total > 0)) return -1.0;
    const Real scale = 1 / total;
    if (damping < 0) {
        for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) store<Real>(kept + j, load(fresh + j) * scale);
        return 0;
    }
    RowVector<Real> worst{};
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        const RowVector<Real> p = load(fresh + j) * scale, change = p - load(kept + j), opposite = -change;
        store<Real>(kept + j, p - change * Real(damping));
        worst = larger(larger(change, opposite), worst);
    }
    return max_lanes<Real>(worst);
}

// Shifts a new row of scores to a maximum of 0 and stores it over the old row; returns -1 if all entries are -inf.
template <class Real>
VECTORS_INLINE double replace_scores(Real* fresh, Real* kept, std::ptrdiff_t width, double damping) {
    const Real top = row_max(fresh, width);
    if (!(top > -std::numeric_limits<Real>::infinity())) return -1.0;
    if (damping < 0) {
        for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) store<Real>(kept + j, load(fresh + j) - top);
        return 0;
    }
    RowVector<Real> worst{};
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        const RowVector<Real> x = load(fresh + j) - top, change = x - load(kept + j), opposite = -change;
        worst = larger(larger(change, opposite), worst);
        store<Real>(fresh + j, x);
        if (damping == 0) store<Real>(kept + j, x);
    }
    for (std::ptrdiff_t a = 0; a < width && damping != 0; a++)  // changes from or to -inf are not damped
        kept[a] = std::isfinite(kept[a]) && std::isfinite(fresh[a]) ? Real(fresh[a] + damping * (kept[a] - fresh[a]))
                                                                    : fresh[a];
    return max_lanes<Real>(worst);
}

// Message of a Potts table: out[b] = on x[b] + off * (sum of all x except x[b]). One of `on` and `off` is 1, and the
// other is `ratio`. No subtraction can cancel, because at most one state holds more than half of the sum.
template <class Real>
VECTORS_INLINE void potts_sum_product(const Real* x, Real on, Real off, std::ptrdiff_t n, std::ptrdiff_t width,
                                      Real* out) {
    const Real total = row_sum(x, width);
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        const RowVector<Real> own = load(x + j);
        store<Real>(out + j, off * (total - own) + on * own);
    }
    if (n < width) pad<Real>(out, n, width, 0);
    for (std::ptrdiff_t b = 0; b < n && on < off; b++)
        if (2 * x[b] > total) {
            Real others = 0;
            for (std::ptrdiff_t a = 0; a < n; a++) others += a == b ? 0 : x[a];
            out[b] = off * others + on * x[b];
        }
}

template <class Real>
VECTORS_INLINE void potts_max_sum(const Real* x, Real on, Real off, std::ptrdiff_t n, std::ptrdiff_t width, Real* out) {
    const Real best = row_max(x, width);
    const RowVector<Real> switched = splat<Real>(best + off);
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) {
        const RowVector<Real> stayed = load(x + j) + on;
        store<Real>(out + j, larger(stayed, switched));
    }
    if (n < width) pad<Real>(out, n, width, -std::numeric_limits<Real>::infinity());
    if (on < off) {  // the best state can only be reached from the second-best state
        Real second = -std::numeric_limits<Real>::infinity();
        std::ptrdiff_t winner = 0;
        while (winner < n - 1 && x[winner] != best) winner++;
        for (std::ptrdiff_t a = 0; a < n; a++) second = a != winner && x[a] > second ? x[a] : second;
        out[winner] = best + on > second + off ? best + on : second + off;
    }
}

// Computes a whole message in registers: cavity, sum over states, normalisation. Rows have one or two vectors (up to
// four states, or eight in single precision). n is the number of states of the sender, n_columns of all states; table
// is null for a Potts table. ``halved`` says that messages are raised to the power 1/2; the cavity then has the inverse
// of the message.
template <int n_vectors, bool halved, class Real>
VECTORS_INLINE double send_vectors(const Real* base, const Real* rows, std::ptrdiff_t first, std::ptrdiff_t last,
                                   std::ptrdiff_t skip, const Real* table, Real on, Real off, std::ptrdiff_t n,
                                   std::ptrdiff_t n_columns, Real* kept, double damping) {
    constexpr int L = kRowLanes<Real>;
    constexpr std::ptrdiff_t width = n_vectors * L;
    using V = RowVector<Real>;
    V x[2], out[2];
    for (int k = 0; k < n_vectors; k++) x[k] = load(base + k * L);
    for (std::ptrdiff_t q = first; q < skip; q++)
        for (int k = 0; k < n_vectors; k++) x[k] *= load(rows + q * width + k * L);
    for (std::ptrdiff_t q = skip + 1; q < last; q++)
        for (int k = 0; k < n_vectors; k++) x[k] *= load(rows + q * width + k * L);
    for (int k = 0; k < n_vectors && halved; k++) {
        const V own = load(rows + skip * width + k * L);
        x[k] = where_normal<Real>(x[k] / own, own);
    }
    if (table == nullptr) {
        for (int k = 0; k < n_vectors; k++) {
            V others = sums_of_others<Real>(x[k]);
            if (n_vectors == 2) others += sum_lanes<Real>(x[1 - k]);
            out[k] = on * x[k] + off * others;
        }
        if (n_columns < width)
            out[n_vectors - 1] = padded<Real>(out[n_vectors - 1], n_columns - (width - L), 0);
    } else {
        for (int k = 0; k < n_vectors; k++) out[k] = lane<Real>(x[0], 0) * load(table + k * L);
        ROWS_UNROLLED
        for (std::ptrdiff_t a = 1; a < width; a++) {  // constant loop bounds keep x in registers
            if (a == n) break;
            for (int k = 0; k < n_vectors; k++) out[k] += lane<Real>(x[a / L], a % L) * load(table + a * width + k * L);
        }
    }
    for (int k = 0; k < n_vectors && halved; k++) out[k] = where_normal<Real>(square_root<Real>(out[k]), out[k]);
    const V total = n_vectors == 2 ? V(out[0] + out[1]) : out[0];
    const Real sum = sum_lanes<Real>(total);
    if (!(sum > 0)) return -1.0;
    const Real scale = 1 / sum;
    V worst{};
    for (int k = 0; k < n_vectors; k++) {
        const V p = out[k] * scale;
        if (damping < 0) {
            store<Real>(kept + k * L, p);
        } else {
            const V change = p - load(kept + k * L), opposite = -change;
            // The next message waits for the stored row; without damping, it need not wait for the change.
            store<Real>(kept + k * L, damping > 0 ? V(p - change * Real(damping)) : p);
            worst = larger(larger(change, opposite), worst);
        }
    }
    return max_lanes<Real>(worst);
}

template <class Real>
VECTORS_INLINE double send_short(const Real* base, const Real* rows, std::ptrdiff_t first, std::ptrdiff_t last,
                                 std::ptrdiff_t skip, const Real* table, Real on, Real off, std::ptrdiff_t n,
                                 std::ptrdiff_t n_columns, Real* kept, double damping, std::ptrdiff_t width,
                                 bool halved) {
    const auto send = [&](auto n_vectors, auto power) VECTORS_INLINE_LAMBDA {
        return send_vectors<n_vectors.value, power.value>(base, rows, first, last, skip, table, on, off, n, n_columns,
                                                          kept, damping);
    };
    using One = std::integral_constant<int, 1>;
    using Two = std::integral_constant<int, 2>;
    if (width == kRowLanes<Real>) return halved ? send(One(), std::true_type()) : send(One(), std::false_type());
    return halved ? send(Two(), std::true_type()) : send(Two(), std::false_type());
}

// out = row - max row over n entries, -inf in the padding. Returns the maximum.
template <class Real>
VECTORS_INLINE Real row_below_best(const Real* row, std::ptrdiff_t n, std::ptrdiff_t width, Real* out) {
    for (std::ptrdiff_t a = 0; a < n; a++) out[a] = row[a];
    for (std::ptrdiff_t a = n; a < width; a++) out[a] = -std::numeric_limits<Real>::infinity();
    const Real best = row_max(out, width);
    for (std::ptrdiff_t j = 0; j < width; j += kRowLanes<Real>) store<Real>(out + j, load(out + j) - best);
    return best;
}

// x = exp(x - max x) over n entries, 0 in the padding. Returns the maximum.
template <class Real>
VECTORS_INLINE Real exponentiate(Real* x, std::ptrdiff_t n, std::ptrdiff_t width) {
    const Real top = row_max(x, width);
    for (std::ptrdiff_t a = 0; a < n; a++) x[a] = std::exp(x[a] - top);
    for (std::ptrdiff_t a = n; a < width; a++) x[a] = 0;
    return top;
}

// accumulated[a, b] += x[a] y[b] in double precision, whatever the precision of x and y
struct AddOuter {
    template <int, class Real>
    VECTORS_INLINE static void run(const Real* x, double scale, const double* restrict y, std::ptrdiff_t n,
                                   std::ptrdiff_t width, double* accumulated) {
        for (std::ptrdiff_t a = 0; a < n; a++) {
            const double factor = scale * x[a];
            double* restrict row = accumulated + a * width;
            for (std::ptrdiff_t b = 0; b < width; b++) row[b] += factor * y[b];
        }
    }
};

template <class Real>
VECTORS_INLINE void add_outer(const Real* x, double scale, const double* y, std::ptrdiff_t n, std::ptrdiff_t width,
                              double* accumulated) {
    if (n * width >= kWorthACall) return run_at_level<AddOuter>(x, scale, y, n, width, accumulated);
    AddOuter::run<16>(x, scale, y, n, width, accumulated);
}

}  // namespace crf
