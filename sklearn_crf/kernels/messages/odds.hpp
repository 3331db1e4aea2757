// Sweeps of messages between nodes of two states, where each message is one number.
//
// Messages are log-odds of the second state, raised to the power rho. Every table is reduced to a score J for equal
// states; the rest of the table is moved to the nodes. The message from node s along an edge e = (s, t) is
//
//     m = rho_e log((e^h e^J + 1) / (e^h + e^J)),    h = c_s (u_s + sum_q m_q) - m_e / rho_e
//
// with q over the edges of s. Tree-reweighted belief propagation has c_s = 1; the sum of the entropies of all edges has
// rho_e = 1 and c_s one over the degree of s. A message takes one exponential and one logarithm, whereas powers
// of probabilities take four of each. All messages of a node are computed together.
#pragma once

#include <cfloat>

#include "messages/field.hpp"

namespace crf {

// Block size for exponentials; a multiple of the length of a vector.
constexpr i64 kAtOnce = 64;

// Arrays by slot are padded by the length of the longest vector.
template <class Real>
struct OddsSweep {
    const i64* ptr;  // (N + 1,) first slot of each node
    const i32 *neighbor, *reverse;  // (2E,)
    const Real* unary;  // (N,) log-odds of each node without messages
    const Real* coupling;  // (2E,) exp(-|J|) with the sign of J
    const Real* power;  // (2E,) rho
    const Real* share;  // (N,) c, or null for ones
    Real* odds;  // (2E,) messages by the slot of the receiving node
    const i32* nodes;  // nodes in the order of sending
    const i32* rank;  // (N,) position of each node in the order of all nodes, used if direction is not 0
    double damping;  // weight of the old message
    Real* fresh;  // workspace (largest degree,)

    // Sends the messages of nodes in turn, with the directions of Sweep. Returns the largest change.
    double send_nodes(int direction, i64 start, i64 stop) const {
        double worst = 0;
        for (i64 i = start; i < stop; i++) {
            const i64 s = nodes[direction >= 0 ? i : start + stop - 1 - i], first = ptr[s], last = ptr[s + 1];
            if (first == last) continue;
            Real total = unary[s];
            for (i64 q = first; q < last; q++) total += odds[q];
            if (share) total *= share[s];
            send_odds<Real>(odds + first, coupling + first, power + first, last - first, total, fresh);
            for (i64 q = first; q < last; q++) {
                if (direction != 0 && direction * (rank[neighbor[q]] - rank[s]) < 0) continue;
                const Real sent = fresh[q - first], old = odds[reverse[q]];
                odds[reverse[q]] = Real(sent + damping * (old - sent));
                // The derivative of a probability by its log-odds is at most 1/4. This bound shows for most messages
                // that their change is not the largest.
                if (!(std::fabs(double(sent) - old) / 4 > worst)) continue;
                const double change = std::fabs(std::tanh(double(sent) / 2) - std::tanh(double(old) / 2)) / 2;
                worst = std::max(worst, count_change(change, std::fabs(double(sent) - old)));
            }
        }
        return worst;
    }

    // Sends messages forwards through a range of nodes, then backwards.
    double renew(i64 start, i64 stop) const {
        const double change = send_nodes(1, start, stop);
        return std::max(change, send_nodes(-1, start, stop));
    }
};

// Computes log(second / first entry) of at most kAtOnce rows.
template <class Real>
void write_log_odds(const Real* rows, i64 width, i64 n, double* out) {
    double ratio[kAtOnce];
    for (i64 j = 0; j < kAtOnce; j++) ratio[j] = j < n ? double(rows[j * width + 1]) / double(rows[j * width]) : 1;
    logarithms<double>(ratio, kAtOnce, out);
    for (i64 j = 0; j < n; j++)
        if (!(DBL_MIN <= ratio[j] && ratio[j] <= DBL_MAX)) out[j] = std::log(ratio[j]);
}

// Splits the tables of edges into couplings of equal states and scores of nodes.
template <class Real>
struct OddsTables {
    i64 n_features;
    const i32* edge_type;  // (E,)
    const Real* tables;  // (T, R, 2, 2)
    const Real* edge_weight;  // (E, R), or null: the table of an edge is the first table of its type

    // Computes J, the log-odds terms of both ends, and the remaining constant: the score of states (0, 0) minus J.
    void split(i64 edge, double* coupling, double* first, double* second, double* rest) const {
        *coupling = *first = *second = *rest = 0;
        for (i64 r = 0; r < (edge_weight ? n_features : 1); r++) {
            const Real* t = tables + (edge_type[edge] * n_features + r) * 4;
            const double a = t[0], b = t[1], c = t[2], d = t[3];
            const double weight = edge_weight ? double(edge_weight[edge * n_features + r]) : 1.0;
            *coupling += weight * ((a + d - b - c) / 2);
            *first += weight * ((c + d - a - b) / 2);
            *second += weight * ((b + d - a - c) / 2);
            *rest += weight * ((a + b + c - d) / 2);
        }
    }
};

// Replaces couplings J by exp(-|J|) with the sign of J.
inline void exponentiate_couplings(double* coupling, i64 n) {
    double x[kAtOnce];
    for (i64 first = 0; first < n; first += kAtOnce) {
        const i64 count = std::min(kAtOnce, n - first);
        for (i64 j = 0; j < kAtOnce; j++) x[j] = j < count ? -std::fabs(coupling[first + j]) : 0;
        exponentiate_all<double>(x, kAtOnce);
        for (i64 j = 0; j < count; j++) coupling[first + j] = std::copysign(x[j], coupling[first + j]);
    }
}

// Conversions between the arrays of a field and log-odds. The log-odds of a message do not include the offset of its
// edge, which the node score contains.
template <class Real>
struct OddsConversion {
    // probabilities: (N, width) exponentials of the scores of nodes; power: (E,)
    // Writes the arrays of OddsSweep: unary (N,), coupling (E,) in double precision, offset (2E,), couplings and powers
    // (n_padded,), 1 in the padding.
    static void from_scores(const i64* ptr, i64 n_nodes, const i32* half_edge, i64 n_edges, OddsTables<Real> tables,
                            const Real* power, const Real* probabilities, i64 width, Real* unary, double* coupling,
                            double* offset, Real* couplings, Real* powers, i64 n_padded) {
        double x[kAtOnce];
        for (i64 start = 0; start < n_nodes; start += kAtOnce) {
            const i64 count = std::min(kAtOnce, n_nodes - start);
            write_log_odds(probabilities + start * width, width, count, x);
            for (i64 j = 0; j < count; j++) {
                double total = 0, first, second, rest;
                for (i64 slot = ptr[start + j]; slot < ptr[start + j + 1]; slot++) {
                    const i32 edge = half_edge[slot] >> 1;
                    tables.split(edge, coupling + edge, &first, &second, &rest);
                    offset[slot] = (half_edge[slot] & 1 ? second : first) * power[edge];
                    total += offset[slot];
                }
                unary[start + j] = Real(x[j] + total);
            }
        }
        exponentiate_couplings(coupling, n_edges);
        for (i64 slot = 0; slot < n_padded; slot++) {
            couplings[slot] = slot < 2 * n_edges ? Real(coupling[half_edge[slot] >> 1]) : Real(1);
            powers[slot] = slot < 2 * n_edges ? power[half_edge[slot] >> 1] : Real(1);
        }
    }

    // messages: (n, width), first two columns; odds: (n_padded,), 1 in the padding
    static void from_probabilities(const Real* messages, i64 width, i64 n, const double* offset, Real* odds,
                                   i64 n_padded) {
        double x[kAtOnce];
        for (i64 start = 0; start < n; start += kAtOnce) {
            const i64 count = std::min(kAtOnce, n - start);
            write_log_odds(messages + start * width, width, count, x);
            for (i64 j = 0; j < count; j++) odds[start + j] = Real(x[j] - offset[start + j]);
        }
        std::fill(odds + n, odds + n_padded, Real(1));
    }

    // odds: (n,), of any precision; messages: (n, width), written in the first two columns
    template <class Number>
    static void to_probabilities(const Number* odds, const double* offset, i64 n, Real* messages, i64 width) {
        double x[kAtOnce], small[kAtOnce];
        for (i64 start = 0; start < n; start += kAtOnce) {
            const i64 count = std::min(kAtOnce, n - start);
            for (i64 j = 0; j < kAtOnce; j++) {
                x[j] = j < count ? odds[start + j] + offset[start + j] : 0;
                small[j] = -std::fabs(x[j]);
            }
            exponentiate_all<double>(small, kAtOnce);
            for (i64 j = 0; j < count; j++) {
                const double scale = x[j] == x[j] ? 1 / (1 + small[j]) : x[j];
                messages[(start + j) * width] = Real(x[j] > 0 ? small[j] * scale : scale);
                messages[(start + j) * width + 1] = Real(x[j] > 0 ? scale : small[j] * scale);
            }
        }
    }
};

}  // namespace crf
