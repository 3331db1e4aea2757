// Marginals after a fixed number of sweeps, their loss for given labels, and its gradient through the sweeps.
//
// The values of every sweep are kept. Backpropagation visits the updates in reverse order: it takes the adjoint of the
// output of an update and adds to the adjoints of its inputs (Stoyanov, Ropson & Eisner 2011; Domke 2013).
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "core/pool.hpp"
#include "local/local_model.hpp"
#include "messages/sweeps.hpp"

namespace crf {

enum SweepLoss { MARGINALS_ALONE = 0, CLIQUE = 1, UNIVARIATE = 2, QUADRATIC = 3, EXPECTED_COST = 4 };

// Common inputs and outputs of both kinds of sweeps. Adjoints and statistics of tables are summed by block.
struct SweptLoss {
    SweepLoss loss;
    i64 n_sweeps;
    const i32* nodes;  // (N,) nodes by component, in the order in which sweeps visit them
    const i64* ranges;  // (n_components, 2) first and last + 1 position of each component in nodes
    const i64* blocks;  // (n_blocks + 1,) first component of each block
    i64 n_blocks;
    const i32* labels;  // (N,) negative if unknown; null if only marginals are requested
    // (N,) weights of nodes in the loss, or null. CLIQUE: 1 for nodes that count in place of their edges, else 0.
    const double* weight;
    const double* cost;  // (N, K) for EXPECTED_COST: cost of each state of each node
    // For EXPECTED_COST: costs of the states of both ends of an edge, (n_kinds, n_cost, n_cost), and the row of each
    // edge, (E,), negative for edges without costs; null if no edge has costs.
    const double* pair_cost;
    const i32* pair_kind;
    i64 n_cost;
    double* beliefs;  // (N, K)
    double* terms;  // (N,)
    double* unary;  // (N, K) derivative of the loss
    double* tables;  // (n_blocks, T, R, K, K) derivative of the loss, or statistics of the marginals without labels

    bool is_learning() const { return loss != MARGINALS_ALONE; }

    // Whether edges have losses.
    bool has_pair_losses() const { return loss == CLIQUE || pair_kind; }

    // Loss of a node whose probabilities are the softmax of some scores, and its derivative with respect to these
    // scores, times the weight of the node. log_p is the logarithm of the probability of the label, because the
    // probability may underflow.
    double of_node(i64 s, const double* p, i64 K, i32 label, double log_p, double factor, double* slope) const {
        double mean = 0, total = 0;
        if (loss == UNIVARIATE || loss == CLIQUE) {
            for (i64 a = 0; a < K; a++) slope[a] = factor * (p[a] - (a == label));
            return -factor * log_p;
        }
        for (i64 a = 0; a < K; a++) {
            const double distance = p[a] - (a == label);
            slope[a] = loss == QUADRATIC ? 2 * distance : cost[s * K + a];
            mean += p[a] * slope[a];
            total += distance * distance;
        }
        for (i64 a = 0; a < K; a++) slope[a] = factor * p[a] * (slope[a] - mean);
        return factor * (loss == QUADRATIC ? total : mean);
    }

    double weight_of(i64 s) const { return weight ? weight[s] : 1.0; }

    // Whether the probability of a node itself is a clique, in place of the pairs with its neighbours.
    bool is_clique(i64 s) const { return weight && weight[s] > 0; }
};

// Turns scores into probabilities in place. Returns the log-sum-exp of the scores, -inf if all scores are -inf.
inline double to_probabilities(double* scores, i64 n) {
    const double top = *std::max_element(scores, scores + n);
    if (top == kNoScore) return top;
    double total = 0;
    for (i64 a = 0; a < n; a++) total += scores[a] = std::exp(scores[a] - top);
    for (i64 a = 0; a < n; a++) scores[a] /= total;
    return top + std::log(total);
}

// Sweeps of belief propagation, plain or tree-reweighted.
template <class Real>
struct SweptMessages : SweptLoss {
    Field<Real> field;
    const Real* scores;  // (N, K) scores of nodes
    const i32* rank;  // (N,) position of each node in ``nodes``
    i64 n_slots;  // 2E
    i64 n_types;
    i64 largest_degree;
    Real* messages;  // (n_kept, 2E, width) initially and after each sweep; only the last without loss

    void run(const Threads& threads) {
        const i64 K = field.n_columns;
        if (is_learning()) adjoint.assign(n_slots * K, 0.0);
        cavities.assign(n_slots * K, 0.0);
        if (field.n_features > 1) pairs.assign(n_slots / 2 * K * K, 0.0);
        threads.share(n_blocks, [&](i64 block) {
            double* cells = tables + block * n_types * field.n_features * K * K;
            const auto run = [&](auto n_states) {
                Block<decltype(n_states)> own(*this, cells, n_states);
                for (i64 c = blocks[block]; c < blocks[block + 1]; c++) own.run(ranges[2 * c], ranges[2 * c + 1]);
            };
            // Loops of known length are unrolled.
            switch (K) {
                case 3: return run(Known<3>());
                case 4: return run(Known<4>());
                case 5: return run(Known<5>());
                case 6: return run(Known<6>());
                case 7: return run(Known<7>());
                case 8: return run(Known<8>());
                default: return run(K);
            }
        });
    }

private:
    // For each message, by the slot of the receiving node: the derivative of the loss with respect to its logarithm,
    // and the log-belief without this message, later replaced by a derivative. For each edge: the derivative with
    // respect to its table.
    std::vector<double> adjoint, cavities, pairs;

    Real* kept(i64 sweep) const { return messages + (is_learning() ? sweep : 0) * n_slots * field.width; }

    template <i64 n>
    using Known = std::integral_constant<i64, n>;

    // States: the number of states, as a number or as a constant
    template <class States>
    struct Block {
        SweptMessages& of;
        const Field<Real>& field;
        double* tables;
        const States K;
        const i64 W;
        std::vector<double> work, left, right, cavity, slope, share, given, total;
        std::vector<Real> factor;
        std::vector<const Real*> rows;

        Block(SweptMessages& of, double* tables, States n_states)
            : of(of), field(of.field), tables(tables), K(n_states), W(field.width), work((6 + 2 * K) * W),
              left((of.largest_degree + 1) * K), right((of.largest_degree + 1) * K), cavity(of.largest_degree * K),
              slope(of.largest_degree * K), share(K * K), given(K * K), total(K), factor(K * W), rows(of.largest_degree) {}

        void run(i64 start, i64 stop) {
            sweep(start, stop);
            for (i64 i = start; i < stop; i++) node_loss(of.nodes[i]);
            for (i64 i = start; i < stop; i++) edge_losses(of.nodes[i]);
            if (of.is_learning()) {
                for (i64 i = start; i < stop && of.has_pair_losses(); i++) {
                    const i64 s = of.nodes[i], first = field.ptr[s];
                    add_to_inputs(s, of.cavities.data() + first * K, [](i64) { return true; });
                }
                for (i64 k = of.n_sweeps; k > 0; k--) {
                    for (i64 i = start; i < stop; i++) undo(of.nodes[i], k, false);
                    for (i64 i = stop - 1; i >= start; i--) undo(of.nodes[i], k, true);
                }
            }
            for (i64 i = start; i < stop && field.n_features > 1; i++) add_features(of.nodes[i]);
        }

        // Runs the requested number of sweeps, forwards and backwards, through a component.
        void sweep(i64 start, i64 stop) {
            Sweep<Real> sweep;
            sweep.field = field;
            sweep.nodes = of.nodes;
            sweep.rank = of.rank;
            sweep.damping = 0;
            sweep.open(of.kept(0), of.n_slots, work.data(), false);
            for (i64 k = 1; k <= of.n_sweeps; k++) {
                const Real* before = of.kept(k - 1);
                sweep.values = of.kept(k);
                for (i64 i = start; i < stop && before != sweep.values; i++) {
                    const i64 s = of.nodes[i], first = field.ptr[s] * W;
                    std::copy(before + first, before + field.ptr[s + 1] * W, sweep.values + first);
                }
                if (sweep.renew(start, stop) < 0) throw std::domain_error("messages forbid all states of a node");
            }
        }

        double log_of(Real message) const {
            return field.semiring == SUM_PROBABILITY ? std::log(double(message)) : double(message);
        }

        // Computes the log-beliefs of a node without each of its messages, and its belief and loss.
        void node_loss(i64 s) {
            const i64 first = field.ptr[s], n = field.ptr[s + 1] - first;
            const Real* values = of.kept(of.n_sweeps) + first * W;
            for (i64 j = 0; j < n; j++)
                for (i64 a = 0; a < K; a++) slope[j * K + a] = log_of(values[j * W + a]);
            double* belief = of.beliefs + s * K;
            for (i64 a = 0; a < K; a++) {
                left[a] = of.scores[s * K + a];
                right[n * K + a] = 0;
            }
            for (i64 j = 0; j < n; j++)
                for (i64 a = 0; a < K; a++) left[(j + 1) * K + a] = left[j * K + a] + slope[j * K + a];
            for (i64 j = n - 1; j >= 0; j--)
                for (i64 a = 0; a < K; a++) {
                    right[j * K + a] = right[(j + 1) * K + a] + slope[j * K + a];
                    of.cavities[(first + j) * K + a] = without(j, a, 1 / field.power_of(field.half_edge[first + j] >> 1));
                }
            for (i64 a = 0; a < K; a++) belief[a] = left[n * K + a];
            const i32 label = of.labels ? of.labels[s] : -1;
            const double of_label = label >= 0 ? belief[label] : 0, log_z = to_probabilities(belief, K);
            if (!of.is_learning()) return;
            double* derivative = of.unary + s * K;
            std::fill_n(derivative, i64(K), 0.0);
            of.terms[s] = 0;
            if (label < 0 || (of.loss == CLIQUE && n && !of.is_clique(s))) return;
            of.terms[s] = of.of_node(s, belief, K, label, of_label - log_z, of.weight_of(s), derivative);
            for (i64 q = first; q < first + n; q++)
                for (i64 a = 0; a < K; a++) of.adjoint[q * K + a] += derivative[a];
        }

        // Score of a state after division by message j to the power `inverse_power`; slope holds the log-messages.
        double without(i64 j, i64 a, double inverse_power) const {
            const double others = left[j * K + a] + right[(j + 1) * K + a], own = slope[j * K + a];
            if (inverse_power == 1) return others;
            return std::isinf(own) ? kNoScore : others + (1 - inverse_power) * own;
        }

        // Computes the loss of the pairwise marginals of edges that start from a node, or only their statistics.
        void edge_losses(i64 s) {
            if (of.is_learning() && !of.has_pair_losses()) return;
            for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
                const i32 half_edge = field.half_edge[q];
                if (half_edge & 1) continue;
                double *here = of.cavities.data() + q * K, *there = of.cavities.data() + i64(field.reverse[q]) * K;
                if (of.is_learning() && !has_loss(half_edge >> 1, s, field.neighbor[q])) {
                    std::fill_n(here, i64(K), 0.0);
                    std::fill_n(there, i64(K), 0.0);
                    continue;
                }
                for (i64 a = 0; a < K; a++)
                    for (i64 b = 0; b < K; b++) share[a * K + b] = here[a] + field.pair_score(half_edge, a, b) + there[b];
                if (of.loss == CLIQUE) of.terms[s] += pair_loss(s, field.neighbor[q]);
                else if (of.is_learning()) of.terms[s] += pair_cost(of.pair_kind[half_edge >> 1]);
                else {
                    to_probabilities(share.data(), K * K);
                    const double power = field.power_of(half_edge >> 1);
                    for (double& each : share) each *= power;
                }
                add_pair(half_edge >> 1, [&](i64 a, i64 b) { return share[a * K + b]; });
                std::fill_n(here, i64(K), 0.0);
                std::fill_n(there, i64(K), 0.0);
                for (i64 a = 0; a < K; a++)
                    for (i64 b = 0; b < K; b++) {
                        here[a] += share[a * K + b];
                        there[b] += share[a * K + b];
                    }
            }
        }

        bool has_loss(i64 edge, i64 s, i64 t) const {
            return of.loss == CLIQUE ? !of.is_clique(s) && !of.is_clique(t) : of.pair_kind[edge] >= 0;
        }

        // Returns the expected cost of an edge, and replaces the pair scores by its derivatives.
        double pair_cost(i32 kind) {
            const i64 n = of.n_cost;
            const double* costs = of.pair_cost + kind * n * n;
            to_probabilities(share.data(), K * K);
            std::fill(given.begin(), given.end(), 0.0);
            for (i64 a = 0; a < std::min<i64>(n, K); a++) std::copy_n(costs + a * n, std::min<i64>(n, K), &given[a * K]);
            double mean = 0;
            for (i64 cell = 0; cell < K * K; cell++) mean += share[cell] * given[cell];
            for (i64 cell = 0; cell < K * K; cell++) share[cell] *= given[cell] - mean;
            return mean;
        }

        // Returns the negative log-probability of the labels of an edge, and replaces the pair scores by its
        // derivatives.
        double pair_loss(i64 s, i64 t) {
            const i32 a_known = of.labels[s], b_known = of.labels[t];
            const auto fits = [&](i64 cell) {
                return (a_known < 0 || cell / K == a_known) && (b_known < 0 || cell % K == b_known);
            };
            double top = kNoScore, fitting = 0;
            for (i64 cell = 0; cell < K * K; cell++)
                if (fits(cell)) top = std::max(top, share[cell]);
            if (top == kNoScore) return -kNoScore;
            for (i64 cell = 0; cell < K * K; cell++)
                if (fits(cell)) fitting += std::exp(share[cell] - top);
            const double log_fitting = top + std::log(fitting);
            std::fill(given.begin(), given.end(), 0.0);
            for (i64 cell = 0; cell < K * K; cell++)
                if (fits(cell)) given[cell] = std::exp(share[cell] - log_fitting);
            const double log_z = to_probabilities(share.data(), K * K);
            for (i64 cell = 0; cell < K * K; cell++) share[cell] -= given[cell];
            return log_z - log_fitting;
        }

        // Derivatives with respect to the scores of an edge, in the scaling of the field.
        template <class Values>
        void add_pair(i64 edge, Values value) {
            const bool is_apart = field.n_features > 1;
            const double x = is_apart || !field.edge_weight ? 1.0 : double(field.edge_weight[edge]);
            double* cells = is_apart ? of.pairs.data() + edge * K * K : tables + field.edge_type[edge] * K * K;
            for (i64 a = 0; a < K; a++)
                for (i64 b = 0; b < K; b++) cells[a * K + b] += x * value(a, b);
        }

        void add_features(i64 s) {
            const i64 R = field.n_features;
            for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
                if (field.half_edge[q] & 1) continue;
                const i64 edge = field.half_edge[q] >> 1;
                const double* own = of.pairs.data() + edge * K * K;
                double* cells = tables + field.edge_type[edge] * R * K * K;
                for (i64 r = 0; r < R; r++) {
                    const double x = field.edge_weight[edge * R + r];
                    for (i64 cell = 0; cell < K * K; cell++) cells[r * K * K + cell] += x * own[cell];
                }
            }
        }

        // Adds derivatives with respect to the log-cavities of a node, (n, K), to derivatives with respect to its
        // scores and messages.
        template <class Chosen>
        void add_to_inputs(i64 s, const double* by_cavity, Chosen is_chosen) {
            const i64 first = field.ptr[s], n = field.ptr[s + 1] - first;
            std::fill(total.begin(), total.end(), 0.0);
            for (i64 j = 0; j < n; j++)
                if (is_chosen(j))
                    for (i64 a = 0; a < K; a++) total[a] += by_cavity[j * K + a];
            for (i64 a = 0; a < K; a++) of.unary[s * K + a] += total[a];
            for (i64 j = 0; j < n; j++) {
                double* own = of.adjoint.data() + (first + j) * K;
                const double inverse_power = is_chosen(j) ? 1 / field.power_of(field.half_edge[first + j] >> 1) : 0;
                for (i64 a = 0; a < K; a++)
                    own[a] += total[a] - (is_chosen(j) ? inverse_power * by_cavity[j * K + a] : 0.0);
            }
        }

        // Backpropagates through the messages that a node sent in a half-sweep, to later (forward) or earlier nodes.
        void undo(i64 s, i64 k, bool forwards) {
            const i64 first = field.ptr[s], n = field.ptr[s + 1] - first;
            const i32 place = of.rank[s];
            const auto is_sent = [&](i64 j) { return (of.rank[field.neighbor[first + j]] > place) == forwards; };
            bool sends = false;
            for (i64 j = 0; j < n; j++) sends = sends || is_sent(j);
            if (!sends) return;
            // In the forward half, messages from later nodes have not been updated yet.
            const Real *late = of.kept(forwards ? k - 1 : k) + first * W, *early = of.kept(k) + first * W;
            for (i64 j = 0; j < n; j++) rows[j] = (of.rank[field.neighbor[first + j]] > place ? late : early) + j * W;
            if (field.semiring == SUM_PROBABILITY) cavities_of_products(s, n, is_sent);
            else cavities_of_scores(s, n);
            for (i64 j = 0; j < n; j++)
                if (is_sent(j)) undo_message(first + j, cavity.data() + j * K, slope.data() + j * K);
            add_to_inputs(s, slope.data(), is_sent);
        }

        // Only the cavities of sent messages are needed.
        template <class Sent>
        void cavities_of_products(i64 s, i64 n, Sent is_sent) {
            const Real* unary = field.unary + s * W;
            for (i64 a = 0; a < K; a++) {
                left[a] = unary[a];
                total[a] = 1;
            }
            for (i64 j = 0; j < n; j++)
                for (i64 a = 0; a < K; a++) left[(j + 1) * K + a] = left[j * K + a] * rows[j][a];
            for (i64 j = n - 1; j >= 0; j--) {
                if (is_sent(j)) {
                    const double inverse_power = 1 / field.power_of(field.half_edge[field.ptr[s] + j] >> 1);
                    double* own = cavity.data() + j * K;
                    for (i64 a = 0; a < K; a++) own[a] = left[j * K + a] * total[a];
                    if (inverse_power == 2)
                        for (i64 a = 0; a < K; a++) own[a] = rows[j][a] == 0 ? 0.0 : own[a] / rows[j][a];
                    else if (inverse_power != 1)
                        for (i64 a = 0; a < K; a++)
                            own[a] = rows[j][a] == 0 ? 0.0 : own[a] * std::pow(double(rows[j][a]), 1 - inverse_power);
                }
                for (i64 a = 0; a < K; a++) total[a] *= rows[j][a];
            }
        }

        // Scores, shifted so that the maximum of each cavity is 0.
        void cavities_of_scores(i64 s, i64 n) {
            const Real* unary = field.unary + s * W;
            for (i64 a = 0; a < K; a++) {
                left[a] = unary[a];
                right[n * K + a] = 0;
            }
            for (i64 j = 0; j < n; j++)
                for (i64 a = 0; a < K; a++) {
                    slope[j * K + a] = rows[j][a];
                    left[(j + 1) * K + a] = left[j * K + a] + rows[j][a];
                }
            for (i64 j = n - 1; j >= 0; j--) {
                double top = kNoScore, *own = cavity.data() + j * K;
                for (i64 a = 0; a < K; a++) {
                    right[j * K + a] = right[(j + 1) * K + a] + slope[j * K + a];
                    own[a] = without(j, a, 1 / field.power_of(field.half_edge[field.ptr[s] + j] >> 1));
                    top = std::max(top, own[a]);
                }
                for (i64 a = 0; a < K && top > kNoScore; a++) own[a] -= top;
            }
        }

        // Replaces the adjoint of a message by the adjoints of its cavity c and of its table.
        void undo_message(i64 q, double* c, double* by_cavity) {
            double* own = of.adjoint.data() + i64(field.reverse[q]) * K;
            const i32 half_edge = field.half_edge[q];
            const double power = field.power_of(half_edge >> 1);
            centre(own);
            if (field.semiring != SUM_PROBABILITY) undo_scores(half_edge, c, own, power, by_cavity);
            else if (field.on) undo_potts(half_edge, c, own, power, by_cavity);
            else undo_table(half_edge, c, own, power, by_cavity);
            std::fill_n(own, i64(K), 0.0);
        }

        // Subtracts the mean from a derivative with respect to a message. The loss does not depend on the scale of
        // messages, so the sum of the derivative is zero up to rounding errors, which would grow with each sweep.
        // Padded states keep exact zeros.
        void centre(double* by_message) const {
            double sum = 0, n = 0;
            for (i64 b = 0; b < K; b++) {
                sum += by_message[b];
                n += by_message[b] != 0;
            }
            for (i64 b = 0; b < K && n > 0; b++)
                if (by_message[b] != 0) by_message[b] -= sum / n;
        }

        void undo_potts(i32 half_edge, const double* c, const double* by_message, double power, double* by_cavity) {
            const i64 row = field.factor[half_edge >> 1];
            const double on = field.on[row], off = field.off[row];
            double sum = 0, sum_of_rates = 0;
            for (i64 a = 0; a < K; a++) sum += c[a];
            for (i64 b = 0; b < K; b++) {
                const double reached = off * sum + (on - off) * c[b];
                total[b] = reached > 0 ? power * by_message[b] / reached : 0.0;
                sum_of_rates += total[b];
            }
            for (i64 a = 0; a < K; a++) by_cavity[a] = c[a] * (off * sum_of_rates + (on - off) * total[a]);
            const bool across = half_edge & 1;
            add_pair(half_edge >> 1, [&](i64 a, i64 b) {
                return (across ? c[b] * total[a] : c[a] * total[b]) * (a == b ? on : off);
            });
        }

        void undo_table(i32 half_edge, const double* c, const double* by_message, double power, double* by_cavity) {
            double taken = 0;
            const Real* table = field.half_edge_factor(half_edge, factor.data(), &taken);
            std::fill(total.begin(), total.end(), 0.0);
            for (i64 a = 0; a < K; a++)
                for (i64 b = 0; b < K; b++) total[b] += c[a] * table[a * W + b];
            for (i64 b = 0; b < K; b++) total[b] = total[b] > 0 ? power * by_message[b] / total[b] : 0.0;
            for (i64 a = 0; a < K; a++) {
                by_cavity[a] = 0;
                for (i64 b = 0; b < K; b++) by_cavity[a] += share[a * K + b] = c[a] * table[a * W + b] * total[b];
            }
            add_share(half_edge);
        }

        // Does the same as undo_table, but by log-sum-exp of the scores, for any range of scores.
        void undo_scores(i32 half_edge, const double* c, const double* by_message, double power, double* by_cavity) {
            for (i64 b = 0; b < K; b++) {
                for (i64 a = 0; a < K; a++) total[a] = c[a] + field.pair_score(half_edge, a, b);
                const bool is_reached = to_probabilities(total.data(), K) > kNoScore;
                for (i64 a = 0; a < K; a++) share[a * K + b] = is_reached ? power * by_message[b] * total[a] : 0.0;
            }
            for (i64 a = 0; a < K; a++) {
                by_cavity[a] = 0;
                for (i64 b = 0; b < K; b++) by_cavity[a] += share[a * K + b];
            }
            add_share(half_edge);
        }

        // Derivatives with respect to the scores of an edge, seen from the start of a half-edge, in the workspace.
        void add_share(i32 half_edge) {
            const bool across = half_edge & 1;
            add_pair(half_edge >> 1, [&](i64 a, i64 b) { return across ? share[b * K + a] : share[a * K + b]; });
        }
    };
};

// Sweeps of naive mean field, which update each node in turn given its neighbours.
template <class Real>
struct SweptMeanField : SweptLoss {
    LocalModel<Real> model;
    i64 n_nodes, n_types;
    double* marginals;  // (n_kept, N, K) initially and after each sweep; only the last without loss
    const i32* rank;  // (N,)

    void run(const Threads& threads) {
        const i64 K = model.n_columns;
        if (is_learning()) adjoint.assign(n_nodes * K, 0.0);
        threads.share(n_blocks, [&](i64 block) {
            for (i64 c = blocks[block]; c < blocks[block + 1]; c++)
                run_component(ranges[2 * c], ranges[2 * c + 1], tables + block * n_types * model.n_features * K * K);
        });
    }

private:
    std::vector<double> adjoint;  // (N, K) derivatives by the marginals

    double* kept(i64 sweep) const { return marginals + (is_learning() ? sweep : 0) * n_nodes * model.n_columns; }

    void run_component(i64 start, i64 stop, double* own_tables) {
        const i64 K = model.n_columns;
        std::vector<double> log_p(stop - start);
        for (i64 i = start; i < stop; i++) {
            double* q = kept(0) + nodes[i] * K;
            std::copy_n(model.unary + nodes[i] * K, K, q);
            model.normalize(q);
        }
        std::vector<double> fresh(K);
        for (i64 k = 1; k <= n_sweeps; k++) {
            double* q = kept(k);
            for (i64 i = start; i < stop && q != kept(k - 1); i++)
                std::copy_n(kept(k - 1) + nodes[i] * K, K, q + nodes[i] * K);
            for (i64 i = start; i < stop; i++) {
                const i64 s = nodes[i];
                model.scores_given_marginals(s, q, fresh.data());
                const double of_label = is_learning() && labels[s] >= 0 ? fresh[labels[s]] : 0;
                log_p[i - start] = of_label - model.normalize(fresh.data());
                std::copy_n(fresh.data(), K, q + s * K);
            }
        }
        const double* q = kept(n_sweeps);
        for (i64 i = start; i < stop; i++) {
            const i64 s = nodes[i];
            std::copy_n(q + s * K, K, beliefs + s * K);
            if (is_learning()) node_loss(s, log_p[i - start]);
            else model.bound(s, q, own_tables);
        }
        if (!is_learning()) return;
        for (i64 k = n_sweeps; k >= 0; k--)
            for (i64 i = stop - 1; i >= start; i--) undo(nodes[i], k, own_tables, fresh.data());
    }

    // Nodes are independent, so the loss of a pair is a sum over its ends.
    void node_loss(i64 s, double log_p) {
        const i64 K = model.n_columns, degree = model.ptr[s + 1] - model.ptr[s];
        const double factor = loss == CLIQUE ? double(std::max<i64>(degree, 1)) : weight_of(s);
        terms[s] = 0;
        std::fill_n(unary + s * K, K, 0.0);
        if (labels[s] >= 0) terms[s] = of_node(s, beliefs + s * K, K, labels[s], log_p, factor, unary + s * K);
    }

    // Backpropagates through the update of a node in a sweep; sweep 0 is the start from scores alone.
    void undo(i64 s, i64 k, double* own_tables, double* slope) {
        const i64 K = model.n_columns;
        const double* q = kept(k) + s * K;
        double *own = adjoint.data() + s * K, *by_scores = unary + s * K, mean = 0;
        for (i64 a = 0; a < K; a++) mean += q[a] * own[a];
        for (i64 a = 0; a < K; a++) {
            // For the last sweep, this already holds the derivative of the loss by the scores of the node.
            slope[a] = q[a] * (own[a] - mean) + (k == n_sweeps ? by_scores[a] : 0.0);
            by_scores[a] = k == n_sweeps ? slope[a] : by_scores[a] + slope[a];
            own[a] = 0;
        }
        if (k == 0) return;
        const i32 place = rank[s];
        model.each_pair(s, [&](i64 other, double weight, i64 cell, i64 own_step, i64 step, bool) {
            const double* there = kept(rank[other] < place ? k : k - 1) + other * K;
            double* by_other = adjoint.data() + other * K;
            for (i64 a = 0; a < K; a++)
                for (i64 b = 0; b < K; b++) {
                    const i64 at = cell + own_step * a + step * b;
                    by_other[b] += weight * slope[a] * model.tables[at];
                    own_tables[at] += weight * slope[a] * there[b];
                }
        });
    }
};

}  // namespace crf
