// Marginals of nodes and edges from messages, and the contributions of both to the log-partition.
//
// With beliefs b normalised and messages m, the pairwise belief of an edge e = (s, t) is
//
//     p(a, b) = theta(a, b) b_s(a) / m_ts(a)^(1 / rho) * b_t(b) / m_st(b)^(1 / rho) / Z_e
//
// and the (reweighted) Bethe log-partition is sum_s log Z_s + sum_e rho_e log Z_e. Because the beliefs are normalised,
// log Z_e is the contribution of the edge beyond its two nodes.
#pragma once

#include "messages/field.hpp"

namespace crf {

template <class Real>
struct Beliefs {
    Field<Real> field;
    Workspace<Real> workspace;
    const Real* messages;  // (2E, width)
    Real* beliefs;  // (N, width) probabilities, or their logarithms if the field keeps scores
    // (n, width) row sums of factors if probabilities are at a fixed point, else null. At a fixed point, a message is
    // the sum over states divided by Z_e, so that Z_e takes K steps, not K^2.
    const Real* row_totals;
    double* pair;  // workspace (K, width) for a pairwise belief

    // work: (5 + 2 K) * width numbers
    void open(double* work) {
        workspace.open(field, work);
        pair = work + (5 + field.n_columns) * field.width;
    }

    // Computes node beliefs and the log-normaliser of each node. Returns -1, or the first node without a possible
    // state.
    i64 of_nodes(double* log_z_terms, i64 start, i64 stop) {
        const i64 W = field.width;
        Real* x = workspace.shifted;
        for (i64 s = start; s < stop; s++) {
            Real* belief = beliefs + s * W;
            const Real* own = field.unary + s * W;
            const i64 first = field.ptr[s], last = field.ptr[s + 1];
            if (field.semiring == SUM_PROBABILITY) {
                product_of_rows<Real>(own, messages, first, last, last, W, belief);
                const Real total = row_sum<Real>(belief, W);
                if (!(total > 0)) return s;
                row_scale<Real>(belief, 1 / total, W);
                log_z_terms[s] = std::log(double(total));
                continue;
            }
            sum_of_rows<Real>(own, messages, first, last, last, W, belief);
            std::copy_n(belief, W, x);
            if (row_max<Real>(x, W) == Real(kNoScore)) return s;
            const Real top = exponentiate<Real>(x, field.states_of(s), W);
            // Use double precision, so that adding a large score does not round the logarithm away.
            log_z_terms[s] = top + std::log(double(row_sum<Real>(x, W)));
            for (i64 a = 0; a < W; a++) belief[a] = Real(belief[a] - log_z_terms[s]);
        }
        return -1;
    }

    // Adds the contributions of edges to the log-partition without computing their beliefs. Returns -1, or the first
    // edge without a possible pair.
    i64 add_log_normalisers(double* log_z_terms, i64 n_nodes) {
        double scale;
        for (i64 s = 0; s < n_nodes; s++)
            for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
                if (field.half_edge[q] & 1) continue;
                const double log_z = row_totals ? exact_ends(s, q, &scale) : of_edge(s, q);
                if (log_z == kNoScore) return field.half_edge[q] >> 1;
                log_z_terms[s] += log_z;
            }
        return -1;
    }

    // For edges that start from some nodes, adds edge weight times pairwise belief by type, (T, R, K, width), and the
    // contributions to the log-partition. Returns -1, or the first edge without a possible pair. With `without_factor`,
    // the summed beliefs do not contain the factor of the edge; the caller multiplies by it once if all edges of a type
    // share it.
    i64 add_statistics(double* statistics, bool without_factor, double* log_z_terms, i64 start, i64 stop) {
        const i64 K = field.n_columns, W = field.width, R = field.n_features;
        for (i64 s = start; s < stop; s++)
            for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
                if (field.half_edge[q] & 1) continue;
                const i64 edge = field.half_edge[q] >> 1;
                double scale = 0, *own = statistics + field.edge_type[edge] * R * K * W;
                const double log_z = row_totals       ? exact_ends(s, q, &scale)
                                     : without_factor ? ends(s, q, &scale)
                                                      : of_edge(s, q);
                if (log_z == kNoScore) return edge;
                const double power = field.power_of(edge);
                log_z_terms[s] += power * log_z;
                if (without_factor) {
                    add_outer<Real>(workspace.cavity, scale, workspace.total, K, W, own);
                    continue;
                }
                for (i64 r = 0; r < R; r++, own += K * W) {
                    const double weight = field.edge_weight ? power * field.edge_weight[edge * R + r] : power;
                    for (i64 i = 0; i < K * W; i++) own[i] += weight * pair[i];
                }
            }
        return -1;
    }

    // Writes a pairwise belief to the workspace and returns its log-normaliser.
    double of_edge(i64 s, i64 q) {
        const i64 K = field.n_columns, W = field.width;
        const i32 half_edge = field.half_edge[q], row = field.factor[half_edge >> 1];
        double scale = 0, taken = 0;
        const double log_z = ends(s, q, &scale);
        if (log_z == kNoScore) return field.semiring == SUM_PROBABILITY ? log_z : in_scores(s, q);
        const Real* cavity = workspace.cavity;
        if (field.on) {
            const double on = field.on[row], off = field.off[row];
            for (i64 a = 0; a < K; a++)
                for (i64 b = 0; b < W; b++)
                    pair[a * W + b] = scale * cavity[a] * (a == b ? on : off) * workspace.total[b];
            return log_z;
        }
        const Real* factor = field.half_edge_factor(half_edge, workspace.factor, &taken);
        for (i64 a = 0; a < K; a++)
            for (i64 b = 0; b < W; b++)
                pair[a * W + b] = scale * cavity[a] * factor[a * W + b] * workspace.total[b];
        return log_z;
    }

private:
    // Divides a belief by one message, scaled to a maximum of 1. Returns the logarithm of the scale.
    double cavity_of(const Real* belief, const Real* message, double power, i64 n, Real* out) const {
        const i64 W = field.width;
        if (field.semiring == SUM_PROBABILITY) {
            if (power == 1 || power == 2) {
                row_quotient<Real>(belief, message, W, out);
                // Edges in half of the trees are common, and need no logarithms.
                if (power == 2) row_quotient<Real>(out, message, W, out);
            } else {
                std::copy_n(message, W, out);
                row_power<Real>(out, Real(-power), W);
                for (i64 a = 0; a < W; a++) out[a] = belief[a] * out[a];
            }
            const Real top = row_max<Real>(out, W);
            row_scale<Real>(out, 1 / top, W);
            return std::log(double(top));
        }
        // A message of -inf forbids the state, whatever all other messages are.
        for (i64 a = 0; a < W; a++)
            out[a] = std::isinf(message[a]) ? Real(kNoScore) : Real(belief[a] - power * message[a]);
        return row_max<Real>(out, W) == Real(kNoScore) ? kNoScore : double(exponentiate<Real>(out, n, W));
    }

    // Computes a pairwise belief entry by entry, for any range of scores. Returns its log-normaliser.
    double in_scores(i64 s, i64 q) {
        const i64 K = field.n_columns, W = field.width, t = field.neighbor[q];
        const i32 half_edge = field.half_edge[q];
        const double power = 1 / field.power_of(half_edge >> 1);
        const Real *belief = beliefs + s * W, *message = messages + q * W;
        const Real *other_belief = beliefs + t * W, *other_message = messages + i64(field.reverse[q]) * W;
        double top = kNoScore, total = 0;
        for (i64 a = 0; a < K; a++)
            for (i64 b = 0; b < K; b++) {
                const bool is_possible = !std::isinf(message[a]) && !std::isinf(other_message[b]);
                pair[a * W + b] = is_possible ? field.pair_score(half_edge, a, b) + belief[a] - power * message[a]
                                                    + other_belief[b] - power * other_message[b]
                                              : kNoScore;
                top = std::max(top, pair[a * W + b]);
            }
        for (i64 a = 0; a < K; a++)
            for (i64 b = 0; b < W; b++) {
                pair[a * W + b] = b < K && top > kNoScore ? std::exp(pair[a * W + b] - top) : 0;
                total += pair[a * W + b];
            }
        for (i64 i = 0; i < K * W; i++) pair[i] = total > 0 ? pair[i] / total : 0;
        return total > 0 ? top + std::log(total) : kNoScore;
    }

    // Computes the terms of a pairwise belief p(a, b) = scale * cavity(a) * factor(a, b) * other(b). Returns its
    // log-normaliser, or -inf if the sum underflows. cavity and other are left in the workspace, other as `total` in
    // double precision.
    double ends(i64 s, i64 q, double* scale) {
        const i64 W = field.width, t = field.neighbor[q];
        const i32 half_edge = field.half_edge[q];
        // In a sum above this limit, terms lost by underflow are negligible. Single-precision probabilities are used
        // only if no term can be lost.
        constexpr bool is_single = std::is_same<Real, float>::value;
        const bool is_safe = field.semiring == SUM_PROBABILITY && (is_single || field.appearance);
        const double least = is_safe ? 0 : is_single ? 1e-25 : 1e-280, power = 1 / field.power_of(half_edge >> 1);
        Real *cavity = workspace.cavity, *other = workspace.shifted, *fresh = workspace.fresh;
        double log_scale = cavity_of(beliefs + s * W, messages + q * W, power, field.states_of(s), cavity);
        log_scale += cavity_of(beliefs + t * W, messages + i64(field.reverse[q]) * W, power, field.states_of(t), other);
        if (log_scale == kNoScore) return kNoScore;
        double taken = 0, total = 0;
        field.apply_factor(half_edge, cavity, field.states_of(s), fresh, workspace.factor, &taken);
        for (i64 b = 0; b < W; b++) {
            workspace.total[b] = other[b];
            total += double(fresh[b]) * other[b];
        }
        if (!(total > least)) return kNoScore;
        *scale = 1 / total;
        return std::log(total) + log_scale + taken;
    }

    double exact_ends(i64 s, i64 q, double* scale) {
        const i64 W = field.width, t = field.neighbor[q], row = field.factor[field.half_edge[q] >> 1];
        Real *cavity = workspace.cavity, *other = workspace.shifted;
        row_quotient<Real>(beliefs + s * W, messages + q * W, W, cavity);
        row_quotient<Real>(beliefs + t * W, messages + i64(field.reverse[q]) * W, W, other);
        const double total = row_dot<Real>(cavity, row_totals + row * W, W);
        if (!(total > 0)) return kNoScore;
        std::copy_n(other, W, workspace.total);
        *scale = 1 / total;
        return std::log(total) + field.shift[row];
    }
};

}  // namespace crf
