// Relaxed likelihood of labelled graphs by tree-reweighted messages, and its gradient with respect to all weights, in
// one call; or the marginals of graphs without labels.
//
// The messages of each connected component are updated until they converge. One thread processes an example from its
// scores to its statistics or marginals. The result of an example does not depend on the other examples.
#pragma once

#include <atomic>
#include <cfloat>
#include <vector>

#include "core/dense_features.hpp"
#include "core/pool.hpp"
#include "messages/beliefs.hpp"
#include "messages/extrapolation.hpp"
#include "messages/odds.hpp"
#include "messages/sweeps.hpp"

namespace crf {

// Largest total size of the stored edge tables of an example. Larger tables are computed anew for each message.
constexpr i64 kMostStored = 1 << 24;
// Score range of a message above which changes of probabilities may be much smaller than changes of logarithms.
constexpr double kWide = 4.605170185988092;  // log 100

// A batch of graphs, by the addresses of its arrays. Nodes, edges and slots are numbered through the whole batch.
struct GraphBatch {
    std::intptr_t features;  // (N, F)
    std::intptr_t ptr, neighbor, half_edge, reverse;  // as in Field
    std::intptr_t order, rank, ranges;  // (N,) nodes by component; (N,) their positions; (m, 2) ranges of components
    std::intptr_t edge_type;  // (E,)
    std::intptr_t edge_weight;  // (E, R) or null
    std::intptr_t divided_weight;  // (E, R) edge weights divided by edge appearance probabilities
    std::intptr_t appearance;  // (E,)
    std::intptr_t labels;  // (N,) or null if only marginals are requested
    std::intptr_t kinds, kind_type, kind_weight;  // (E,) kinds of edges, (n,) type and (n, R) weight of each kind; or null
    i64 n_kinds;
    std::intptr_t given, found;  // (2E, K) initial messages, or null; final messages, or null if labels are null
    std::intptr_t marginals;  // (N, K) found marginals of nodes, or null if there are labels
    i64 is_large;  // large graphs are connected, and their sweeps are extrapolated

    template <class Number>
    static Number* at(std::intptr_t address) {
        return reinterpret_cast<Number*>(address);
    }
};

// An example: the first and last + 1 of its nodes, edges and component ranges in a batch.
struct GraphExample {
    i64 batch, first_node, last_node, first_edge, last_edge, first_range, last_range;
};

template <class Real>
struct GraphRisk {
    DenseFeatures<Real> features;
    i64 n_classes, n_types, n_features;  // K, T, R
    const Real* intercept;  // (C,) or null
    const Real* tables;  // (T, R, K, K)
    bool is_potts;  // whether all tables are Potts tables: one value on and one off the diagonal
    const double* spread;  // (T, R) range of the scores of each table
    double largest_range;  // largest score range of all messages to a node together
    double tol;
    i64 max_iter;
    SweepPlan plan;  // plan of extrapolations, whose memory is limited by most_bytes
    i64 most_bytes;
    const GraphBatch* batches;
    i64 n_batches;
    const GraphExample* examples;
    const double* weight;  // (n_examples,)
    const i64* blocks;  // (n_blocks + 1,) first example of each block
    i64 n_blocks;
    double* sums;  // (n_blocks, n_sums)
    unsigned char* failed;  // (n_examples,) whether messages did not converge, or the score range is too wide

    i64 n_columns() const { return n_classes == 2 ? 1 : n_classes; }  // 1 for two states: the score difference

    // Loss, weight of wrong labels, gradients of intercepts (C,), features (C, F) and tables (T, R, K, K).
    i64 n_sums() const { return 2 + n_columns() * (1 + features.n_features) + table_size(); }

    void run(const Threads& threads) {
        std::vector<std::atomic<bool>> gave_up(n_batches);
        for (auto& each : gave_up) each = false;
        threads.share(n_blocks, [&](i64 block) {
            double* own = sums + block * n_sums();
            std::fill_n(own, n_sums(), 0.0);
            for (i64 i = blocks[block]; i < blocks[block + 1]; i++) {
                // The loss of a batch needs all of its examples.
                std::atomic<bool>& has_failed = gave_up[examples[i].batch];
                const bool is_needed = !has_failed || !batches[examples[i].batch].labels;
                failed[i] = !is_needed || !Example(*this, examples[i], weight[i], own).run();
                if (failed[i]) has_failed = true;
            }
        });
    }

private:
    i64 table_size() const { return n_types * n_features * n_classes * n_classes; }

    // Computes the messages, loss and gradient of an example. Its arrays are indexed by the numbers of the batch.
    struct Example {
        const GraphRisk& risk;
        const GraphBatch& batch;
        const GraphExample& own;
        const double weight;
        double* sums;
        const i64 K, C, first, n, first_slot, n_slots, n_own_edges;
        const i64* ptr;
        const i32 *half_edge, *labels;
        i64 largest_degree = 0;
        bool is_wide = false;  // whether a message may have a probability below 1/100

        Example(const GraphRisk& risk, const GraphExample& own, double weight, double* sums)
            : risk(risk), batch(risk.batches[own.batch]), own(own), weight(weight), sums(sums), K(risk.n_classes),
              C(risk.n_columns()), first(own.first_node), n(own.last_node - first),
              first_slot(at<const i64>(batch.ptr)[first]), n_slots(at<const i64>(batch.ptr)[own.last_node] - first_slot),
              n_own_edges(own.last_edge - own.first_edge), ptr(at<const i64>(batch.ptr)),
              half_edge(at<const i32>(batch.half_edge)), labels(at<const i32>(batch.labels)) {}

        template <class Number>
        static Number* at(std::intptr_t address) {
            return GraphBatch::at<Number>(address);
        }

        // Returns whether no message probability can underflow.
        bool measure() {
            const auto* type = at<const i32>(batch.edge_type);
            const auto* weights = at<const Real>(batch.divided_weight);
            const auto* appearance = at<const Real>(batch.appearance);
            double largest = 0, of_factors = 0, least = 1;
            for (i64 e = own.first_edge; e < own.last_edge; e++) {
                double range = 0;
                for (i64 r = 0; r < risk.n_features; r++)
                    range += std::fabs(double(weights[e * risk.n_features + r])) * risk.spread[type[e] * risk.n_features + r];
                of_factors = std::max(of_factors, range);
                // Messages are raised to the power by which scores were divided.
                largest = std::max(largest, range * appearance[e]);
                least = std::min(least, double(appearance[e]));
            }
            for (i64 s = first; s < first + n; s++) largest_degree = std::max(largest_degree, ptr[s + 1] - ptr[s]);
            is_wide = largest > kWide;
            const double log_states = std::log(double(K)), divided = least < 1 ? of_factors + log_states / least : 0;
            return largest_degree * (largest + log_states) + of_factors + divided <= risk.largest_range;
        }

        // Computes node scores, messages, and sums or marginals. Returns false if messages do not converge.
        bool run() {
            if (!measure()) return false;
            const auto scores = workspace<Real>(n * C);
            const auto derivative = workspace<double>(labels ? n * C : 0);
            const auto* rows = at<const Real>(batch.features) + first * risk.features.n_features;
            risk.features.scores(rows, n, C, C, scores.get());
            for (i64 s = 0; s < n; s++)
                for (i64 k = 0; k < C; k++) {
                    Real& score = scores[s * C + k];
                    if (risk.intercept) score += risk.intercept[k];
                    // Fails if rounding errors exceed one or scores are not finite.
                    if (!(std::fabs(score) <= 1 / std::numeric_limits<Real>::epsilon())) return false;
                }
            double *by_intercept = sums + 2, *by_features = by_intercept + C;
            double* by_tables = by_features + C * risk.features.n_features;
            const bool settled = C == 1 ? run_odds(scores.get(), derivative.get(), by_tables)
                                        : run_rows(scores.get(), derivative.get(), by_tables);
            if (!settled || !labels) return settled;
            for (i64 s = 0; s < n; s++)
                for (i64 k = 0; k < C; k++) by_intercept[k] += derivative[s * C + k];
            risk.features.pull(rows, n, C, C, derivative.get(), by_features, true);
            return true;
        }

        // Sweeps forwards and backwards through the nodes of each component until its messages converge.
        template <class Sweeps>
        bool settle(Sweeps& sweep, Real* messages, i64 n_numbers, i64 width, Form form) const {
            const auto* ranges = at<const i64>(batch.ranges);
            const bool is_quicker = (2 * risk.plan.n_combined + 2) * n_slots * n_numbers * i64(sizeof(Real)) <= risk.most_bytes;
            std::unique_ptr<Extrapolation<Real>> ahead;
            if (batch.is_large && is_quicker)
                ahead.reset(new Extrapolation<Real>(messages, n_slots, n_numbers, width, form, risk.plan));
            for (i64 r = own.first_range; r < own.last_range; r++) {
                double change = risk.tol + 1;
                for (i64 i = 0; i < risk.max_iter && change > risk.tol; i++) {
                    if ((change = sweep.renew(ranges[2 * r], ranges[2 * r + 1])) < 0) return false;
                    if (ahead && change > risk.tol) ahead->advance();
                }
                if (!(change <= risk.tol)) return false;
            }
            return true;
        }

        // Score of an edge under the labels of its ends. Subtracts its feature weights from the sums.
        double take_out_labels(i64 edge, i32 a, i32 b, double* by_tables) const {
            const i64 R = risk.n_features, row = at<const i32>(batch.edge_type)[edge] * R;
            const auto* weights = at<const Real>(batch.edge_weight);
            double score = 0;
            for (i64 r = 0; r < R; r++) {
                const double x = weights ? double(weights[edge * R + r]) : 1.0;
                const i64 cell = ((row + r) * K + a) * K + b;
                score += x * risk.tables[cell];
                by_tables[cell] -= weight * x;
            }
            return score;
        }

        // Messages as single numbers (two states).
        bool run_odds(const Real* scores, double* derivative, double* by_tables) const {
            constexpr i64 padding = 2 * kLongest;
            const i64 n_padded = n_slots + padding;
            const auto numbers = workspace<Real>(n + 3 * n_padded + largest_degree + padding);
            const auto wide = workspace<double>(2 * n + n_slots + 2 * n_own_edges);
            Real *unary = numbers.get(), *odds = unary + n, *coupling = odds + n_padded, *power = coupling + n_padded;
            double *belief = wide.get(), *soft = belief + n, *offset = soft + n, *joint = offset + n_slots;
            double* rest = joint + n_own_edges;
            const auto* appearance = at<const Real>(batch.appearance);
            const OddsTables<Real> of_edges{risk.n_features, at<const i32>(batch.edge_type), risk.tables,
                                            at<const Real>(batch.divided_weight)};
            for (i64 s = 0; s < n; s++) {
                double total = 0, of_first, of_second;
                for (i64 q = ptr[first + s]; q < ptr[first + s + 1]; q++) {
                    const i64 edge = half_edge[q] >> 1, e = edge - own.first_edge, slot = q - first_slot;
                    of_edges.split(edge, joint + e, &of_first, &of_second, rest + e);
                    power[slot] = appearance[edge];
                    offset[slot] = (half_edge[q] & 1 ? of_second : of_first) * appearance[edge];
                    total += offset[slot];
                }
                unary[s] = Real(double(scores[s]) + total);
            }
            const auto of_joint = workspace<double>(n_own_edges);
            std::copy_n(joint, n_own_edges, of_joint.get());
            exponentiate_couplings(of_joint.get(), n_own_edges);
            for (i64 slot = 0; slot < n_slots; slot++)
                coupling[slot] = Real(of_joint[(half_edge[first_slot + slot] >> 1) - own.first_edge]);
            for (i64 slot = n_slots; slot < n_padded; slot++) coupling[slot] = power[slot] = odds[slot] = 1;
            start_odds(offset, odds, n_padded);
            const OddsSweep<Real> sweep{ptr, at<const i32>(batch.neighbor), at<const i32>(batch.reverse), unary - first,
                                        coupling - first_slot, power - first_slot, nullptr, odds - first_slot,
                                        at<const i32>(batch.order), at<const i32>(batch.rank), 0.0, power + n_padded};
            if (!settle(sweep, odds, 1, 1, LOG_ODDS)) return false;
            if (!labels) return write_marginals(unary, odds, belief);
            OddsConversion<Real>::to_probabilities(odds, offset, n_slots, at<Real>(batch.found) + 2 * first_slot, 2);
            double loss = add_nodes(scores, unary, odds, belief, soft, derivative);
            loss += add_pairs(odds, joint, rest, belief, soft, by_tables);
            sums[0] += weight * loss;
            return std::isfinite(loss);
        }

        void start_odds(const double* offset, Real* odds, i64 n_padded) const {
            const Real* given = at<const Real>(batch.given);
            if (!given) {
                for (i64 slot = 0; slot < n_slots; slot++) odds[slot] = Real(-offset[slot]);
                return;
            }
            const auto start = workspace<Real>(2 * n_slots);
            copy_given(given + 2 * first_slot, 2, start.get());
            OddsConversion<Real>::from_probabilities(start.get(), 2, n_slots, offset, odds, n_padded);
        }

        // Copies messages of a previous result to padded rows. Zeros are raised, since their states may be allowed now.
        void copy_given(const Real* given, i64 width, Real* start) const {
            const Real least = std::numeric_limits<Real>::epsilon() * Real(1e-2);
            for (i64 slot = 0; slot < n_slots; slot++)
                for (i64 a = 0; a < width; a++)
                    start[slot * width + a] = a < K ? std::max(given[slot * K + a], least) : Real(0);
        }

        // Returns the log-odds of a node with all of its messages.
        double belief_of(i64 s, const Real* unary, const Real* odds) const {
            double belief = unary[s];
            for (i64 q = ptr[first + s] - first_slot; q < ptr[first + s + 1] - first_slot; q++) belief += odds[q];
            return belief;
        }

        bool write_marginals(const Real* unary, const Real* odds, double* belief) const {
            for (i64 s = 0; s < n; s++) belief[s] = belief_of(s, unary, odds);
            const std::vector<double> no_offset(n);
            OddsConversion<Real>::to_probabilities(belief, no_offset.data(), n, at<Real>(batch.marginals) + 2 * first, 2);
            return true;
        }

        // Returns the contributions of nodes to the loss. Writes their log-odds to belief, and
        // log(1 + exp(log-odds)) to soft.
        double add_nodes(const Real* scores, const Real* unary, const Real* odds, double* belief, double* soft,
                         double* derivative) const {
            double loss = 0, small[kAtOnce], logs[kAtOnce];
            for (i64 start = 0; start < n; start += kAtOnce) {
                const i64 count = std::min(kAtOnce, n - start);
                for (i64 j = 0; j < kAtOnce; j++) {
                    const i64 s = start + std::min(j, count - 1);
                    belief[s] = belief_of(s, unary, odds);
                    small[j] = -std::fabs(belief[s]);
                }
                exponentiate_all<double>(small, kAtOnce);
                for (i64 j = 0; j < kAtOnce; j++) logs[j] = 1 + small[j];
                logarithms<double>(logs, kAtOnce, logs);
                for (i64 j = 0; j < count; j++) {
                    const i64 s = start + j;
                    const bool is_second = labels[first + s] > 0, is_likely = belief[s] > 0;
                    soft[s] = logs[j] + std::max(belief[s], 0.0);
                    derivative[s] = weight * ((is_likely ? 1.0 : small[j]) / (1 + small[j]) - is_second);
                    loss += soft[s] - (is_second ? double(scores[s]) : 0.0);
                    if (is_likely != is_second) sums[1] += weight;
                }
            }
            return loss;
        }

        // Returns the contributions of edges to the loss. The score of a pair of states is the sum of the cavities of
        // its ends, plus J if both states are equal.
        double add_pairs(const Real* odds, const double* joint, const double* rest, const double* belief,
                         const double* soft, double* by_tables) const {
            const auto* neighbor = at<const i32>(batch.neighbor);
            const auto* reverse = at<const i32>(batch.reverse);
            const auto* appearance = at<const Real>(batch.appearance);
            const auto* type = at<const i32>(batch.edge_type);
            const auto* weights = at<const Real>(batch.edge_weight);
            const i64 R = risk.n_features;
            double loss = 0, pair[4 * kAtOnce], total[kAtOnce];
            i64 edges[kAtOnce], count = 0;
            const auto flush = [&] {
                std::fill(pair + 4 * count, pair + 4 * kAtOnce, 0.0);
                exponentiate_all<double>(pair, 4 * kAtOnce);
                for (i64 j = 0; j < kAtOnce; j++)
                    total[j] = (pair[4 * j] + pair[4 * j + 1]) + (pair[4 * j + 2] + pair[4 * j + 3]);
                double logs[kAtOnce];
                logarithms<double>(total, kAtOnce, logs);
                for (i64 j = 0; j < count; j++) {
                    const i64 edge = edges[j];
                    loss += appearance[edge] * logs[j];
                    for (i64 r = 0; r < R; r++) {
                        const double x = (weights ? double(weights[edge * R + r]) : 1.0) * weight / total[j];
                        double* cells = by_tables + (type[edge] * R + r) * 4;
                        for (i64 k = 0; k < 4; k++) cells[k] += x * pair[4 * j + k];
                    }
                }
                count = 0;
            };
            for (i64 s = 0; s < n; s++)
                for (i64 q = ptr[first + s]; q < ptr[first + s + 1]; q++) {
                    if (half_edge[q] & 1) continue;
                    const i64 edge = half_edge[q] >> 1, e = edge - own.first_edge, t = neighbor[q] - first;
                    const double power = appearance[edge], J = joint[e];
                    const double x = belief[s] - odds[q - first_slot] / power;
                    const double y = belief[t] - odds[reverse[q] - first_slot] / power;
                    const double cells[4] = {J, y, x, x + y + J};
                    const double top = std::max(std::max(J, y), std::max(x, x + y + J));
                    for (i64 k = 0; k < 4; k++) pair[4 * count + k] = cells[k] - top;
                    loss += power * (rest[e] + top - soft[s] - soft[t]);
                    loss -= take_out_labels(edge, labels[first + s], labels[first + t], by_tables);
                    edges[count++] = edge;
                    if (count == kAtOnce) flush();
                }
            flush();
            return loss;
        }

        // Copies rows without their padding.
        void copy_rows(const Real* rows, i64 n_rows, i64 width, Real* out) const {
            for (i64 i = 0; i < n_rows; i++) std::copy_n(rows + i * width, K, out + i * K);
        }

        // Messages as rows of probabilities.
        bool run_rows(const Real* scores, double* derivative, double* by_tables) const {
            const i64 lanes = 16 / i64(sizeof(Real)), W = (K + lanes - 1) / lanes * lanes, R = risk.n_features;
            const auto numbers = workspace<Real>(2 * n * W + n_slots * W);
            const auto wide = workspace<double>((6 + 2 * K) * W + n + risk.n_types * R * K * W);
            Real *unary = numbers.get(), *beliefs = unary + n * W, *messages = beliefs + n * W;
            double *work = wide.get(), *log_z = work + (6 + 2 * K) * W, *pairs = log_z + n;
            for (i64 s = 0; s < n; s++) log_z[s] = row_below_best<Real>(scores + s * K, K, W, unary + s * W);
            double loss = 0;
            for (i64 s = 0; s < n && labels; s++) loss += log_z[s] - scores[s * K + labels[first + s]];
            exponentiate_all<Real>(unary, n * W);
            if (batch.given) copy_given(at<const Real>(batch.given) + K * first_slot, W, messages);
            for (i64 slot = 0; slot < n_slots && !batch.given; slot++)
                for (i64 a = 0; a < W; a++) messages[slot * W + a] = a < K ? Real(1.0 / K) : Real(0);
            Factors factors;
            Sweep<Real> sweep;
            sweep.field = field_of(unary - first * W, W, factors);
            sweep.nodes = at<const i32>(batch.order);
            sweep.rank = at<const i32>(batch.rank);
            sweep.damping = 0;
            sweep.open(messages - first_slot * W, n_slots, work, is_wide);
            if (!settle(sweep, messages, K, W, PROBABILITIES)) return false;
            Beliefs<Real> of_messages;
            of_messages.field = sweep.field;
            of_messages.messages = messages - first_slot * W;
            of_messages.beliefs = beliefs - first * W;
            of_messages.row_totals = nullptr;
            of_messages.open(work);
            if (of_messages.of_nodes(log_z - first, first, first + n) >= 0) return false;
            if (!labels) {
                copy_rows(beliefs, n, W, at<Real>(batch.marginals) + first * K);
                return true;
            }
            copy_rows(messages, n_slots, W, at<Real>(batch.found) + first_slot * K);
            std::fill_n(pairs, risk.n_types * R * K * W, 0.0);
            if (of_messages.add_statistics(pairs, false, log_z - first, first, first + n) >= 0) return false;
            for (i64 row = 0; row < risk.n_types * R * K; row++)
                for (i64 b = 0; b < K; b++) by_tables[row * K + b] += weight * pairs[row * W + b];
            for (i64 s = 0; s < n; s++) {
                const Real* belief = beliefs + s * W;
                const i32 label = labels[first + s];
                loss += log_z[s];
                for (i64 a = 0; a < K; a++) derivative[s * K + a] = weight * (double(belief[a]) - (a == label));
                if (std::max_element(belief, belief + K) - belief != label) sums[1] += weight;
            }
            const auto* neighbor = at<const i32>(batch.neighbor);
            for (i64 s = first; s < first + n; s++)
                for (i64 q = ptr[s]; q < ptr[s + 1]; q++)
                    if (!(half_edge[q] & 1))
                        loss -= take_out_labels(half_edge[q] >> 1, labels[s], labels[neighbor[q]], by_tables);
            sums[0] += weight * loss;
            return std::isfinite(loss);
        }

        // Arrays of the field by kind of edge.
        struct Factors {
            std::vector<i32> factor, place;
            std::vector<double> shift;
            std::unique_ptr<Real[]> tables;
        };

        Field<Real> field_of(const Real* unary, i64 W, Factors& factors) const {
            Field<Real> field;
            field.semiring = SUM_PROBABILITY;
            field.n_columns = K;
            field.width = W;
            field.n_features = risk.n_features;
            field.ptr = ptr;
            field.neighbor = at<const i32>(batch.neighbor);
            field.half_edge = half_edge;
            field.reverse = at<const i32>(batch.reverse);
            field.unary = unary;
            field.tables = risk.tables;
            field.appearance = at<const Real>(batch.appearance);
            field.edge_type = at<const i32>(batch.edge_type);
            field.edge_weight = at<const Real>(batch.divided_weight);
            const bool own_kinds = risk.is_potts || !batch.kinds;
            if (own_kinds) {
                factors.factor.resize(std::max<i64>(n_own_edges, 1));
                for (i64 e = 0; e < n_own_edges; e++) factors.factor[e] = i32(e);
                field.factor = factors.factor.data() - own.first_edge;
            } else {
                field.factor = at<const i32>(batch.kinds);
            }
            const i64 n_kinds = own_kinds ? n_own_edges : batch.n_kinds;
            factors.shift.resize(std::max<i64>(n_kinds, 1));
            field.shift = factors.shift.data();
            if (risk.is_potts) set_potts(field, n_kinds, factors);
            else set_tables(field, n_kinds, own_kinds, factors);
            return field;
        }

        void set_potts(Field<Real>& field, i64 n_kinds, Factors& factors) const {
            const i64 size = (n_kinds + kAtOnce) / kAtOnce * kAtOnce, R = risk.n_features;
            factors.tables = workspace<Real>(2 * size);
            Real *on = factors.tables.get(), *off = on + size;
            std::fill_n(on, 2 * size, Real(0));
            for (i64 e = 0; e < n_kinds; e++) {
                const i64 edge = own.first_edge + e;
                const Real* table = risk.tables + field.edge_type[edge] * R * K * K;
                Real same = 0, different = 0;
                for (i64 r = 0; r < R; r++, table += K * K) {
                    same += field.edge_weight[edge * R + r] * table[0];
                    different += field.edge_weight[edge * R + r] * table[1];
                }
                const Real top = std::max(same, different);
                factors.shift[e] = top;
                on[e] = same - top;
                off[e] = different - top;
            }
            exponentiate_all<Real>(on, 2 * size);
            field.on = on;
            field.off = off;
        }

        // Tables are stored for both directions of an edge, or once if long rows can be read transposed.
        void set_tables(Field<Real>& field, i64 n_kinds, bool own_kinds, Factors& factors) const {
            const i64 W = field.width, size = K * W;
            const bool once = own_kinds && W * i64(sizeof(Real)) > 2 * kRowBytes && largest_degree <= K;
            const i64 n_stored = once ? n_kinds : 2 * n_kinds;
            if (n_stored * size > kMostStored) return;
            Field<Real> kinds = field;
            if (!own_kinds) {
                kinds.edge_type = at<const i32>(batch.kind_type);
                kinds.edge_weight = at<const Real>(batch.kind_weight);
            }
            factors.tables = workspace<Real>(n_stored * size);
            factors.place.resize(2 * std::max<i64>(n_kinds, 1));
            for (i64 k = 0; k < n_kinds; k++) {
                i32* place = factors.place.data() + 2 * k;
                place[0] = i32(once ? k : 2 * k);
                place[1] = i32(once ? k : 2 * k + 1);
                Real *rows = factors.tables.get() + place[0] * size, *columns = factors.tables.get() + place[1] * size;
                kinds.compute_factor(own_kinds ? own.first_edge + k : k, rows, &factors.shift[k]);
                for (i64 a = 0; a < K && !once; a++) {
                    for (i64 b = 0; b < K; b++) columns[a * W + b] = rows[b * W + a];
                    std::fill(columns + a * W + K, columns + (a + 1) * W, Real(0));
                }
            }
            field.factors = factors.tables.get();
            field.place = factors.place.data();
        }
    };

    static constexpr i64 kLongest = 8;  // numbers in the longest vector
};

}  // namespace crf
