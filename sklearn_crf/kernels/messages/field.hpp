// Arrays of a pairwise model for message passing, and the update of a single message for sums and maxima.
//
// The message from node s along an edge e = (s, t) is
//
//     m(b) = [ sum or max over a of  u_s(a) theta_e(a, b) prod_q m_q(a) / m_e(a)^(1 / rho_e) ]^rho_e
//
// with q over the edges of s, and then normalised. Belief propagation has rho_e = 1. For tree-reweighted belief
// propagation, the caller divides the scores of theta_e by rho_e (Wainwright, Jaakkola & Willsky 2005, Eq. 39, for
// messages raised to the power rho_e).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/types.hpp"
#include "core/rows.hpp"

namespace crf {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

// Up to this degree, a node multiplies all other messages for each edge. At larger degrees, it multiplies all messages
// once, and divides the product by one message for each edge.
constexpr i64 kFewEdges = 8;

// Representation of messages. Sums of exponentials are kept as probabilities if the range of the scores permits, else
// as scores. Maxima always use scores.
enum Semiring { SUM_PROBABILITY = 0, SUM_SCORE = 1, MAX_SCORE = 2 };

// Returns the change of a message: the change of a probability or, if larger, a hundredth of the change of its
// logarithm. Tiny changes of a probability near 0 matter if other messages favour the state.
inline double count_change(double of_probability, double of_logarithm) {
    return std::max(of_probability, 0.01 * of_logarithm);
}

template <class Real>
struct Workspace;

// Rows are padded to whole vectors. Arrays that a model does not need are null.
template <class Real>
struct Field {
    int semiring = {};
    i64 n_columns = {};  // K
    i64 width = {};  // K padded to a multiple of 16 bytes
    i64 n_features = {};  // R
    const i64* ptr = {};  // (N + 1,) first slot of each node
    const i32 *neighbor = {}, *half_edge = {}, *reverse = {};  // (2E,)
    const i32* n_states = {};  // (N,) or null
    const i32* factor = {};  // (E,) row of each edge in the arrays `factors`, `on`, `off` and `shift`
    const i32* edge_type = {};  // (E,)
    const double* shift = {};  // (n,) score subtracted from each factor
    const Real* unary = {};  // (N, width) exp(score - best) for SUM_PROBABILITY, else scores
    const Real* factors = {};  // (m, K, width) or null: exp(score - shift) for sums, score - shift for maxima
    const i32* place = {};  // (n, 2) row in factors for the first and for the second end; may be equal
    const Real *on = {}, *off = {};  // (n,) or null: factors on and off the diagonal of Potts tables, the larger is 1
    const Real* tables = {};  // (T, R, K, K) scores
    const Real* edge_weight = {};  // (E, R) or null
    const Real* appearance = {};  // (E,) edge appearance probabilities, or null: all are 1

    i64 states_of(i64 node) const { return n_states ? n_states[node] : n_columns; }

    double power_of(i64 edge) const { return appearance ? double(appearance[edge]) : 1.0; }

    // Weighted score of state a at the start of a half-edge and state b at its other end.
    double pair_score(i32 half_edge, i64 a, i64 b) const {
        const i64 edge = half_edge >> 1, K = n_columns, R = n_features;
        const i64 cell = half_edge & 1 ? b * K + a : a * K + b;
        const Real* table = tables + edge_type[edge] * R * K * K;
        if (!edge_weight) return table[cell];
        double score = 0;
        for (i64 r = 0; r < R; r++) score += double(edge_weight[edge * R + r]) * table[r * K * K + cell];
        return score;
    }

    // Rows (K, width) of an edge from the states of the first end to the second end, and the score subtracted from
    // them.
    void compute_factor(i64 edge, Real* rows, double* taken) const {
        const i64 K = n_columns, W = width;
        Real top = Real(kNoScore);
        for (i64 a = 0; a < K; a++) {
            Real* row = rows + a * W;
            for (i64 b = 0; b < K; b++) row[b] = Real(pair_score(i32(2 * edge), a, b));
            std::fill(row + K, row + W, Real(kNoScore));
            top = std::max(top, row_max<Real>(static_cast<const Real*>(row), W));
        }
        *taken = top;
        if (top == Real(kNoScore)) {
            std::fill_n(rows, K * W, semiring == MAX_SCORE ? top : Real(0));
            return;
        }
        for (i64 a = 0; a < K * W; a++) rows[a] -= top;
        if (semiring != MAX_SCORE) exponentiate_all<Real>(rows, K * W);
    }

    // Rows (K, width) of an edge as stored, or computed in the workspace. They must be read transposed if the half-edge
    // starts from the end whose states are the columns.
    const Real* stored_factor(i32 half_edge, Real* work, double* taken, bool* across) const {
        const i64 K = n_columns, W = width, edge = half_edge >> 1;
        if (factors) {
            const i32* own = place + 2 * i64(factor[edge]);
            *taken = shift[factor[edge]];
            *across = half_edge & 1 && own[0] == own[1];
            return factors + own[half_edge & 1] * K * W;
        }
        *across = half_edge & 1;
        if (semiring == MAX_SCORE && !edge_weight && n_features == 1 && W == K) {
            *taken = 0;
            return tables + edge_type[edge] * K * K;
        }
        compute_factor(edge, work, taken);
        return work;
    }

    // Rows (K, width) from the states of the starting end to the other end; computed in the workspace if not stored.
    const Real* half_edge_factor(i32 half_edge, Real* work, double* taken) const {
        const i64 K = n_columns, W = width;
        bool across = false;
        const Real* rows = stored_factor(half_edge, work, taken, &across);
        if (!across) return rows;
        for (i64 a = 0; a < K; a++) {
            for (i64 b = 0; b <= a; b++) {
                const Real kept = rows[a * W + b];  // the source may be the workspace itself
                work[a * W + b] = rows[b * W + a];
                work[b * W + a] = kept;
            }
            std::fill(work + a * W + K, work + (a + 1) * W, semiring == MAX_SCORE ? Real(kNoScore) : Real(0));
        }
        return work;
    }

    // Computes the sum (max) over the first n states of x times (plus) the factor of a half-edge.
    void apply_factor(i32 half_edge, const Real* x, i64 n, Real* out, Real* work, double* taken) const {
        const i64 K = n_columns, W = width;
        if (on) {
            const i32 row = factor[half_edge >> 1];
            *taken = shift[row];
            if (semiring == MAX_SCORE) potts_max_sum<Real>(x, on[row], off[row], K, W, out);
            else potts_sum_product<Real>(x, on[row], off[row], K, W, out);
            return;
        }
        bool across = false;
        const Real* rows = stored_factor(half_edge, work, taken, &across);
        if (across && semiring == MAX_SCORE) max_sum_across<Real>(rows, x, K, W, out);
        else if (across) sum_product_across<Real>(rows, x, K, W, out);
        else if (semiring == MAX_SCORE) max_sum<Real>(rows, x, n, W, out);
        else sum_product<Real>(rows, x, n, W, out);
    }

    // Whether messages are computed in registers: rows have one or two vectors and tables are stored.
    bool is_short() const {
        return semiring == SUM_PROBABILITY && (on || factors) && width * i64(sizeof(Real)) <= 2 * kRowBytes;
    }

    // Computes the product (sum of scores) of all messages to a node of many edges, in double precision. Messages of
    // probability 0 (score -inf) are counted separately, so that single messages can be divided out.
    void total_messages(i64 s, const Real* messages, Workspace<Real>& w) const {
        const bool products = semiring == SUM_PROBABILITY;
        for (i64 a = 0; a < width; a++) {
            w.total[a] = unary[s * width + a];
            w.n_forbidding[a] = 0;
        }
        for (i64 q = ptr[s]; q < ptr[s + 1]; q++)
            for (i64 a = 0; a < width; a++) {
                const double value = messages[q * width + a];
                if (value == (products ? 0 : kNoScore)) w.n_forbidding[a] += 1;
                else if (products) w.total[a] *= value;
                else w.total[a] += value;
            }
    }

    // Updates the message that node s sends along its slot q. Returns its largest change, or -1 if no state is
    // possible. A node of more than kFewEdges edges needs total_messages first. Damping below 0 means that there is no
    // old message.
    double send_message(i64 s, i64 q, Real* messages, double damping, Workspace<Real>& w) const {
        const i64 W = width, first = ptr[s], last = ptr[s + 1], n = states_of(s);
        const double power = power_of(half_edge[q] >> 1);
        Real* kept = messages + i64(reverse[q]) * W;
        // Damping of a message that is raised to a power needs logarithms.
        if (is_short() && last - first <= kFewEdges && (!appearance || (power == 0.5 && damping <= 0)))
            return send_short_message(s, q, messages, damping, power != 1);
        if (last - first > kFewEdges) take_out(messages + q * W, w);
        else if (semiring == SUM_PROBABILITY) product_of_rows<Real>(unary + s * W, messages, first, last, q, W, w.cavity);
        else sum_of_rows<Real>(unary + s * W, messages, first, last, q, W, w.cavity);
        if (power != 1) reweight_cavity(messages + q * W, 1 - 1 / power, w);
        if (semiring == SUM_SCORE) return replace_sums_in_scores(half_edge[q], w, kept, n, states_of(neighbor[q]), damping, power);
        double taken = 0;
        apply_factor(half_edge[q], w.cavity, n, w.fresh, w.factor, &taken);
        if (semiring == SUM_PROBABILITY) {
            if (power != 1) row_power<Real>(w.fresh, Real(power), W);
            if (appearance && damping > 0) return replace_powers(kept, damping, w);
            return replace_probabilities<Real>(w.fresh, kept, W, damping);
        }
        for (i64 a = 0; a < n_columns && power != 1; a++) w.fresh[a] = Real(power * w.fresh[a]);
        return replace_scores<Real>(w.fresh, kept, W, damping);
    }

    // send_message for a node of at most kFewEdges edges with short messages.
    double send_short_message(i64 s, i64 q, Real* messages, double damping, bool halved) const {
        const i32 row = factor[half_edge[q] >> 1];
        const Real* table = on ? nullptr : factors + place[2 * i64(row) + (half_edge[q] & 1)] * n_columns * width;
        return send_short<Real>(unary + s * width, messages, ptr[s], ptr[s + 1], q, table, on ? on[row] : Real(0),
                                on ? off[row] : Real(0), states_of(s), n_columns, messages + i64(reverse[q]) * width,
                                damping, width, halved);
    }

    // Updates a sum message kept as scores, from the cavity in the workspace, whose maximum is 0. Returns its largest
    // change, or -1 if all scores are -inf.
    double replace_sums_in_scores(i32 half_edge, Workspace<Real>& w, Real* kept, i64 n, i64 n_other, double damping,
                                  double power) const {
        constexpr bool is_single = std::is_same<Real, float>::value;
        // In a sum above this limit, terms lost by underflow are negligible. Smaller sums are recomputed from scores.
        const double least = is_single ? 1e-30 : 1e-290, rounding = is_single ? 1e-6 : 2e-15;
        const i64 W = width;
        Real *fresh = w.fresh, *x = w.shifted;
        std::copy_n(w.cavity, W, x);
        if (row_max<Real>(x, W) == Real(kNoScore)) return -1;
        double taken = 0, worst = 0;
        const Real top = exponentiate<Real>(x, n, W);
        apply_factor(half_edge, x, n, fresh, w.factor, &taken);
        for (i64 b = 0; b < n_other; b++) {
            if (fresh[b] > least) fresh[b] = std::log(fresh[b]);
            else fresh[b] = Real(sum_in_scores(half_edge, w.cavity, b, taken) - top);
            if (power != 1) fresh[b] = Real(power * fresh[b]);
        }
        std::fill(fresh + n_other, fresh + W, Real(kNoScore));
        std::copy_n(kept, W, x);
        if (replace_scores<Real>(fresh, kept, W, damping) < 0) return -1;
        for (i64 b = 0; b < n_other && damping >= 0; b++) {
            const double change = std::fabs(double(fresh[b]) - x[b]);
            // |exp x - exp y| <= |x - y| for x, y <= 0; NaN (both -inf) means no change
            if (change > worst && change > -rounding * fresh[b])
                worst = std::max(worst, count_change(std::fabs(double(std::exp(fresh[b])) - std::exp(x[b])), change));
        }
        return worst;
    }

private:
    // Divides one message out of the total.
    void take_out(const Real* message, Workspace<Real>& w) const {
        const bool products = semiring == SUM_PROBABILITY;
        const Real none = products ? Real(0) : Real(kNoScore);
        for (i64 a = 0; a < width; a++) {
            if (w.n_forbidding[a] > (message[a] == none ? 1 : 0)) w.cavity[a] = none;
            else if (message[a] == none) w.cavity[a] = Real(w.total[a]);
            else w.cavity[a] = Real(products ? w.total[a] / message[a] : w.total[a] - message[a]);
        }
    }

    // Multiplies the cavity by message^power, to divide by message^(1 / rho) instead of the message.
    void reweight_cavity(const Real* message, double power, Workspace<Real>& w) const {
        if (semiring == SUM_PROBABILITY) {
            // A power of a zero message is zero.
            std::copy_n(message, width, w.fresh);
            row_power<Real>(w.fresh, Real(power), width);
            for (i64 a = 0; a < width; a++) w.cavity[a] = w.cavity[a] * w.fresh[a];
            return;
        }
        for (i64 a = 0; a < width; a++)
            w.cavity[a] = std::isinf(message[a]) ? Real(kNoScore) : w.cavity[a] + Real(power * message[a]);
    }

    // log sum_a exp(cavity(a) + score(a, b) - taken), for any range of scores
    double sum_in_scores(i32 half_edge, const Real* cavity, i64 b, double taken) const {
        double top = kNoScore, total = 0;
        for (i64 a = 0; a < n_columns; a++) top = std::max(top, cavity[a] + pair_score(half_edge, a, b));
        if (top == kNoScore) return top;
        for (i64 a = 0; a < n_columns; a++) total += std::exp(cavity[a] + pair_score(half_edge, a, b) - top);
        return top + std::log(total) - taken;
    }

    // Damps probabilities by their logarithms, since powers of tiny probabilities also affect other messages.
    double replace_powers(Real* kept, double damping, Workspace<Real>& w) const {
        Real *old = w.cavity, *mixed = w.shifted;
        std::copy_n(kept, width, old);
        const double change = replace_probabilities<Real>(w.fresh, kept, width, 0.0);
        if (change < 0) return change;
        std::copy_n(kept, width, mixed);
        row_power<Real>(old, Real(damping), width);
        row_power<Real>(mixed, Real(1 - damping), width);
        for (i64 a = 0; a < width; a++) mixed[a] = old[a] * mixed[a];
        return replace_probabilities<Real>(mixed, kept, width, -1.0) < 0 ? -1 : change;
    }
};

// Views into a workspace of (5 + K) * width numbers; each has space for a row in double precision.
template <class Real>
struct Workspace {
    double *total = {}, *n_forbidding = {};  // (width,)
    Real *cavity = {}, *fresh = {}, *shifted = {};  // (width,)
    Real* factor = {};  // (K, width)

    void open(const Field<Real>& f, double* work) {
        const i64 W = f.width;
        total = work;
        n_forbidding = work + W;
        cavity = reinterpret_cast<Real*>(work + 2 * W);
        fresh = reinterpret_cast<Real*>(work + 3 * W);
        shifted = reinterpret_cast<Real*>(work + 4 * W);
        factor = reinterpret_cast<Real*>(work + 5 * W);
    }
};

}  // namespace crf
