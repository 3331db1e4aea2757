// Combinations of the latest sweeps of messages (D. G. Anderson, Iterative procedures for nonlinear integral equations,
// Journal of the ACM 12, 1965; H. F. Walker, P. Ni, Anderson acceleration for fixed-point iterations, SIAM J. Numerical
// Analysis 49, 2011).
//
// With messages g_i after sweep i and the changes f_i that the sweep made, the messages are replaced by
//
//     sum_i a_i g_i,    a = argmin over sum_i a_i = 1 of | sum_i a_i f_i |^2,
//
// the combination that a linear sweep would change least. At a fixed point of sweeps, combinations change nothing.
#pragma once

#include <vector>

#include "messages/field.hpp"

namespace crf {

// The messages as a vector of numbers on which sweeps are nearly linear.
enum Form { LOG_ODDS = 0, PROBABILITIES = 1, SCORES = 2 };

struct SweepPlan {
    i64 n_combined;  // number of sweeps that are combined, at most kMostCombined
    i64 first, between;  // sweeps before the first combination, and between combinations
    double ridge;  // ridge penalty, relative to the squared changes; needed if changes are nearly parallel
    double largest_growth;  // growth of the squared change at which earlier sweeps are discarded
};

constexpr i64 kMostCombined = 8;

// Computes coefficients with sum 1 of the shortest combination of m changes, given their inner products (m, m).
inline void shares_of_products(const double* products, i64 m, double ridge, double* shares) {
    const i64 n = m - 1;
    double a[kMostCombined][kMostCombined + 1], trace = 0;
    const auto at = [&](i64 i, i64 j) { return products[i * m + j]; };
    std::fill_n(shares, m, 0.0);
    shares[0] = 1;
    for (i64 i = 0; i < n; i++) {
        for (i64 j = 0; j < n; j++) a[i][j] = at(i, j) - at(i, j + 1) - at(i + 1, j) + at(i + 1, j + 1);
        a[i][n] = at(i, 0) - at(i + 1, 0);
        trace += a[i][i];
    }
    if (!(trace > 0)) return;
    for (i64 i = 0; i < n; i++) a[i][i] += ridge * trace / double(n);
    for (i64 k = 0; k < n; k++) {
        i64 pivot = k;
        for (i64 i = k + 1; i < n; i++)
            if (std::fabs(a[i][k]) > std::fabs(a[pivot][k])) pivot = i;
        std::swap_ranges(a[k], a[k] + n + 1, a[pivot]);
        for (i64 i = k + 1; i < n; i++) {
            const double factor = a[i][k] / a[k][k];
            for (i64 j = k; j <= n; j++) a[i][j] -= factor * a[k][j];
        }
    }
    for (i64 k = n - 1; k >= 0; k--) {
        for (i64 j = k + 1; j < n; j++) a[k][n] -= a[k][j] * a[j][n];
        a[k][n] /= a[k][k];
        shares[k] -= a[k][n];
        shares[k + 1] += a[k][n];
    }
}

template <class Real>
class Extrapolation {
public:
    // values: (n, width) messages; only the first columns are read
    Extrapolation(Real* values, i64 n, i64 n_columns, i64 width, int form, SweepPlan plan)
        : values(values), n(n), K(n_columns), W(width), form(form), plan(plan), size(n * n_columns), before(size),
          after(plan.n_combined * size), changes(plan.n_combined * size) {
        read(before.data());
    }

    // Records the messages after a sweep, and extrapolates them every few sweeps. Returns whether they have changed.
    bool advance() {
        if (!goes_on) return false;
        const i64 most = plan.n_combined, own = n_sweeps % most;
        Real *latest = after.data() + own * size, *change = changes.data() + own * size;
        read(latest);
        for (i64 i = 0; i < size; i++) change[i] = latest[i] - before[i];
        n_sweeps++;
        n_kept = std::min(n_kept + 1, most);
        for (i64 k = 0; k < n_kept; k++) {
            const i64 place = (own - k + most) % most;
            products[own][place] = products[place][own] = product(change, changes.data() + place * size);
        }
        const double squared = products[own][own];
        // Messages may forbid states.
        if (!(goes_on = std::isfinite(squared))) return false;
        if (squared > plan.largest_growth * least) n_kept = 1;
        least = std::min(least, squared);
        if (n_sweeps < plan.first || n_sweeps % plan.between || n_kept == 1) {
            std::copy_n(latest, size, before.data());
            return false;
        }
        combine(own, latest);
        write(before.data());
        return true;
    }

private:
    Real* const values;
    const i64 n, K, W;
    const int form;
    const SweepPlan plan;
    const i64 size;
    std::vector<Real> before, after, changes;
    double products[kMostCombined][kMostCombined] = {}, least = std::numeric_limits<double>::infinity();
    i64 n_sweeps = 0, n_kept = 0;
    bool goes_on = true;

    // Parallel sums, since each addition waits for the previous addition.
    double product(const Real* x, const Real* y) const {
        double total[8] = {};
        i64 i = 0;
        for (; i + 8 <= size; i += 8)
            for (i64 k = 0; k < 8; k++) total[k] += double(x[i + k]) * y[i + k];
        for (; i < size; i++) total[0] += double(x[i]) * y[i];
        return ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
    }

    void combine(i64 own, const Real* latest) {
        const i64 most = plan.n_combined;
        double chosen[kMostCombined * kMostCombined], shares[kMostCombined];
        const auto place = [&](i64 k) { return (own - k + most) % most; };
        for (i64 i = 0; i < n_kept; i++)
            for (i64 j = 0; j < n_kept; j++) chosen[i * n_kept + j] = products[place(i)][place(j)];
        shares_of_products(chosen, n_kept, plan.ridge, shares);
        // Probabilities outside the range of the sweeps could underflow and forbid states.
        const auto ends = std::minmax_element(latest, latest + size);
        const Real low = *ends.first, high = *ends.second;
        std::fill(before.begin(), before.end(), Real(0));
        for (i64 k = 0; k < n_kept; k++) {
            const Real share = Real(shares[k]), *from = after.data() + place(k) * size;
            for (i64 i = 0; i < size; i++) before[i] += share * from[i];
        }
        for (Real& x : before) x = std::min(std::max(x, low), high);
    }

    void read(Real* out) const {
        for (i64 i = 0; i < n; i++, out += K) {
            const Real* row = values + i * W;
            const Real best = form == SCORES ? *std::max_element(row, row + K) : Real(0);
            for (i64 a = 0; a < K; a++) out[a] = form == PROBABILITIES ? std::log(row[a]) : row[a] - best;
        }
    }

    // Sets the messages from a vector, and updates the vector to the stored values.
    void write(Real* from) {
        for (i64 i = 0; i < n; i++, from += K) {
            Real* row = values + i * W;
            const Real best = form == LOG_ODDS ? Real(0) : *std::max_element(from, from + K);
            Real total = 0;
            for (i64 a = 0; a < K; a++) {
                from[a] -= best;
                row[a] = form == PROBABILITIES ? std::exp(from[a]) : from[a];
                total += row[a];
            }
            if (form != PROBABILITIES) continue;
            for (i64 a = 0; a < K; a++) {
                row[a] /= total;
                from[a] -= std::log(total);
            }
        }
    }
};

}  // namespace crf
