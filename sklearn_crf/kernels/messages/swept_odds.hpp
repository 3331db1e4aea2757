// Sweeps of belief propagation between nodes of two states, the loss of their marginals and its gradient.
//
// Messages are the log-odds of odds.hpp, kept in double precision. A message is m = rho f(h, J), where
//
//     f(h, J) = sign(h J) (min(|h|, |J|) + log((1 + exp(-|h| - |J|)) / (1 + exp(-||h| - |J||))))
//
// does not overflow. Sweeps keep no messages: backpropagation only needs the derivatives of each f with respect to h
// and J. Messages of nodes at the same depth of a half-sweep do not depend on each other and are computed together.
#pragma once

#include <cmath>
#include <numeric>
#include <vector>

#include "core/dense_features.hpp"
#include "messages/fixed_sweeps.hpp"
#include "messages/odds.hpp"

namespace crf {

template <class Real>
struct SweptOdds : SweptLoss {
    const i64* ptr;  // (N + 1,) first slot of each node
    const i32 *neighbor, *half_edge, *reverse;  // (2E,)
    OddsTables<Real> of_edges;
    const double* appearance;  // (E,) edge appearance probabilities, or null: all are 1
    const Real* scores;  // (N, 2) scores of nodes
    const i32* rank;  // (N,) position of each node in ``nodes``
    i64 n_nodes, n_edges, n_types;

    void run(const Threads& threads) {
        numbers = workspace<double>(2 * n_nodes + 4 * n_edges + 2 * n_edges);
        base = numbers.get();
        by_base = base + n_nodes;
        odds = by_base + n_nodes;
        taken = odds + 2 * n_edges;
        joint = taken + 2 * n_edges;
        by_joint = joint + n_edges;
        depth = workspace<i32>(n_nodes);
        threads.share(n_blocks, [&](i64 block) {
            if (blocks[block] == blocks[block + 1]) return;
            const i64 R = of_edges.n_features;
            Block(*this, ranges[2 * blocks[block]], ranges[2 * blocks[block + 1] - 1], tables + block * n_types * R * 4).run();
        });
    }

private:
    std::unique_ptr<double[]> numbers;
    std::unique_ptr<i32[]> depth;  // (N,)
    double* base;  // (N,) log-odds of each node without messages, and with the terms of its edges' tables
    double* by_base;  // (N,) derivative of the loss by base
    double* odds;  // (2E,) messages by the slot of the receiving node
    // (2E,) `by_base` of the receiving node minus the derivative with respect to the message. In this form, a number
    // can be added to the derivatives with respect to all messages to a node with one addition.
    double* taken;
    double *joint, *by_joint;  // (E,) score of equal states divided by rho; derivative by the undivided score

    double power_of(i64 edge) const { return appearance ? appearance[edge] : 1.0; }

    struct Message {
        double joint, power;
        i32 slot, back, edge, receiver;  // slots of the sending and of the receiving node
    };

    // Messages that nodes send in half a sweep. Nodes between two bounds have the same depth.
    struct Half {
        std::vector<i32> nodes, bounds, first;  // by depth; first message of each node
        std::vector<Message> messages;
    };

    struct Block {
        SweptOdds& of;
        const i64 start, stop;
        double* tables;
        Half forwards, backwards;
        std::unique_ptr<double[]> kept;  // (n_sweeps, n_edges, 2) derivatives of messages by h, then by J

        static constexpr i64 kTogether = 2 * kAtOnce;

        Block(SweptOdds& of, i64 start, i64 stop, double* tables) : of(of), start(start), stop(stop), tables(tables) {}

        void run() {
            prepare();
            arrange(forwards, 1);
            arrange(backwards, -1);
            const i64 n_sent = i64(forwards.messages.size());
            if (of.is_learning()) kept = workspace<double>(4 * of.n_sweeps * n_sent);
            for (i64 k = 0; k < of.n_sweeps; k++) {
                double* slopes = of.is_learning() ? kept.get() + 4 * k * n_sent : nullptr;
                send(forwards, slopes);
                send(backwards, slopes ? slopes + 2 * n_sent : nullptr);
            }
            node_losses();
            if (!of.is_learning() || of.loss == CLIQUE) edge_losses();
            if (!of.is_learning()) return;
            for (i64 k = of.n_sweeps - 1; k >= 0; k--) {
                undo(backwards, kept.get() + (4 * k + 2) * n_sent);
                undo(forwards, kept.get() + 4 * k * n_sent);
            }
            add_gradient();
        }

        // Moves the tables' scores of single nodes to the nodes, and starts from uniform messages.
        void prepare() {
            for (i64 i = start; i < stop; i++) {
                const i64 s = of.nodes[i];
                of.base[s] = double(of.scores[2 * s + 1]) - double(of.scores[2 * s]);
                for (i64 q = of.ptr[s]; q < of.ptr[s + 1]; q++) {
                    const i64 edge = of.half_edge[q] >> 1;
                    double coupling, first, second, rest;
                    of.of_edges.split(edge, &coupling, &first, &second, &rest);
                    of.joint[edge] = coupling / of.power_of(edge);
                    of.by_joint[edge] = 0;
                    of.odds[q] = -(of.half_edge[q] & 1 ? second : first);
                    of.base[s] -= of.odds[q];
                }
            }
        }

        // Sorts the messages to nodes of higher (direction 1) or lower (-1) rank by the depth of their sender.
        void arrange(Half& half, int direction) const {
            const auto precedes = [&](i64 s, i64 t) { return direction * (of.rank[t] - of.rank[s]) > 0; };
            i32 deepest = 0;
            for (i64 i = start; i < stop; i++) {
                const i64 s = of.nodes[direction > 0 ? i : start + stop - 1 - i];
                i32 own = 0;
                for (i64 q = of.ptr[s]; q < of.ptr[s + 1]; q++)
                    if (precedes(of.neighbor[q], s)) own = std::max(own, of.depth[of.neighbor[q]] + 1);
                of.depth[s] = own;
                deepest = std::max(deepest, own);
            }
            half.bounds.assign(deepest + 2, 0);
            for (i64 i = start; i < stop; i++) half.bounds[of.depth[of.nodes[i]] + 1]++;
            std::partial_sum(half.bounds.begin(), half.bounds.end(), half.bounds.begin());
            std::vector<i32> next(half.bounds);
            half.nodes.resize(stop - start);
            for (i64 i = start; i < stop; i++) half.nodes[next[of.depth[of.nodes[i]]]++] = of.nodes[i];
            half.first.assign(1, 0);
            for (const i32 s : half.nodes) {
                for (i64 q = of.ptr[s]; q < of.ptr[s + 1]; q++) {
                    const i32 t = of.neighbor[q], edge = of.half_edge[q] >> 1;
                    if (precedes(s, t))
                        half.messages.push_back({of.joint[edge], of.power_of(edge), i32(q), of.reverse[q], edge, t});
                }
                half.first.push_back(i32(half.messages.size()));
            }
        }

        // Sends the messages of half a sweep. slopes: (2, n_sent) derivatives by h and by J, or null.
        void send(const Half& half, double* slopes) const {
            double cavity[kTogether];
            for (size_t level = 0; level + 1 < half.bounds.size(); level++) {
                i64 done = half.first[half.bounds[level]], count = 0;
                const auto flush = [&] {
                    send_together(half.messages.data() + done, cavity, count, slopes ? slopes + done : nullptr,
                                  i64(half.messages.size()));
                    done += count;
                    count = 0;
                };
                for (i64 j = half.bounds[level]; j < half.bounds[level + 1]; j++) {
                    const i64 s = half.nodes[j];
                    if (half.first[j] == half.first[j + 1]) continue;
                    const double total = log_odds_of(s);
                    for (i64 p = half.first[j]; p < half.first[j + 1]; p++) {
                        cavity[count++] = total - of.odds[half.messages[p].slot] / half.messages[p].power;
                        if (count == kTogether) flush();
                    }
                }
                if (count) flush();
            }
        }

        double log_odds_of(i64 s) const {
            double total = of.base[s];
            for (i64 q = of.ptr[s]; q < of.ptr[s + 1]; q++) total += of.odds[q];
            return total;
        }

        void send_together(const Message* sent, const double* cavity, i64 count, double* slopes, i64 n_sent) const {
            const i64 padded = (count + 3) / 4 * 4;
            double h[kTogether], J[kTogether], low[kTogether], gap[kTogether], up[kTogether], inverse[kTogether];
            for (i64 i = 0; i < padded; i++) J[i] = i < count ? std::fabs(sent[i].joint) : 0.0;
            for (i64 i = 0; i < padded; i++) h[i] = i < count ? std::fabs(cavity[i]) : 0.0;
            for (i64 i = 0; i < padded; i++) {
                low[i] = -(h[i] + J[i]);
                gap[i] = -std::fabs(h[i] - J[i]);
            }
            exponentiate_all<double>(low, padded);
            exponentiate_all<double>(gap, padded);
            for (i64 i = 0; i < padded; i++) {
                up[i] = 1 + low[i];
                inverse[i] = 1 / (up[i] * (1 + gap[i]));
                low[i] = up[i] * up[i] * inverse[i];
            }
            double logs[kTogether];
            logarithms<double>(low, padded, logs);
            for (i64 i = 0; i < count; i++) {
                const double size = std::min(h[i], J[i]) + logs[i], own = sent[i].joint;
                of.odds[sent[i].back] = sent[i].power * std::copysign(size, own) * (cavity[i] < 0 ? -1.0 : 1.0);
            }
            if (!slopes) return;
            for (i64 i = 0; i < padded; i++) {
                const double of_sum = (1 + gap[i]) * inverse[i];
                const double of_difference = up[i] * inverse[i] * (h[i] >= J[i] ? 1.0 : gap[i]);
                up[i] = of_sum - of_difference;
                gap[i] = of_sum + of_difference - 1;
            }
            for (i64 i = 0; i < count; i++) {
                slopes[i] = std::copysign(1.0, sent[i].joint) * up[i];
                slopes[n_sent + i] = std::copysign(1.0, cavity[i]) * gap[i];
            }
        }

        // Computes the marginals of nodes and their losses.
        void node_losses() const {
            for (i64 i = start; i < stop; i++) {
                const i64 s = of.nodes[i];
                const double x = log_odds_of(s), small = std::exp(-std::fabs(x)), likely = 1 / (1 + small);
                double *belief = of.beliefs + 2 * s, slope[2];
                belief[x > 0] = likely;
                belief[x <= 0] = small * likely;
                if (!of.is_learning()) continue;
                of.terms[s] = of.by_base[s] = 0;
                std::fill(of.taken + of.ptr[s], of.taken + of.ptr[s + 1], 0.0);
                const i32 label = of.labels[s];
                if (label < 0 || (of.loss == CLIQUE && of.ptr[s] < of.ptr[s + 1])) continue;
                const double log_p = -std::log1p(small) - ((x > 0) == (label > 0) ? 0.0 : std::fabs(x));
                of.terms[s] = of.of_node(s, belief, 2, label, log_p, of.weight_of(s), slope);
                of.by_base[s] = slope[1];
            }
        }

        // Computes the losses of the pairwise marginals of edges, or only their statistics.
        void edge_losses() {
            double pairs[4 * kAtOnce];
            i64 slots[kAtOnce], senders[kAtOnce], count = 0;
            const auto flush = [&] {
                std::fill(pairs + 4 * count, pairs + 4 * kAtOnce, 0.0);
                double exponentials[4 * kAtOnce], totals[kAtOnce], logs[kAtOnce];
                std::copy_n(pairs, 4 * kAtOnce, exponentials);
                exponentiate_all<double>(exponentials, 4 * kAtOnce);
                for (i64 j = 0; j < kAtOnce; j++)
                    totals[j] = (exponentials[4 * j] + exponentials[4 * j + 1]) +
                                (exponentials[4 * j + 2] + exponentials[4 * j + 3]);
                logarithms<double>(totals, kAtOnce, logs);
                for (i64 j = 0; j < count; j++) {
                    for (i64 cell = 4 * j; cell < 4 * j + 4; cell++) exponentials[cell] /= totals[j];
                    if (of.is_learning()) edge_loss(senders[j], slots[j], pairs + 4 * j, exponentials + 4 * j, logs[j]);
                    else add_to_tables(of.half_edge[slots[j]] >> 1, exponentials + 4 * j);
                }
                count = 0;
            };
            for (i64 i = start; i < stop; i++) {
                const i64 s = of.nodes[i];
                const double own = log_odds_of(s);
                for (i64 q = of.ptr[s]; q < of.ptr[s + 1]; q++) {
                    if (of.half_edge[q] & 1) continue;
                    const i64 edge = of.half_edge[q] >> 1;
                    const double J = of.joint[edge], x = own - of.odds[q] / of.power_of(edge);
                    const double y = log_odds_of(of.neighbor[q]) - of.odds[of.reverse[q]] / of.power_of(edge);
                    const double scores[4] = {J, y, x, x + y + J};
                    const double top = std::max(std::max(J, y), std::max(x, x + y + J));
                    for (i64 cell = 0; cell < 4; cell++) pairs[4 * count + cell] = scores[cell] - top;
                    slots[count] = q;
                    senders[count++] = s;
                    if (count == kAtOnce) flush();
                }
            }
            flush();
        }

        // scores: of the pairs of states; p: their probabilities
        void edge_loss(i64 s, i64 q, const double* scores, const double* p, double log_z) const {
            const i64 t = of.neighbor[q], edge = of.half_edge[q] >> 1;
            const i32 a = of.labels[s], b = of.labels[t];
            if (a < 0 && b < 0) return;
            double of_first = a, of_second = b, of_equal = a == b, given;
            if (a >= 0 && b >= 0) given = scores[2 * a + b];
            else {
                // One label is known. The other state is the second with this probability.
                const double none = a >= 0 ? scores[2 * a] : scores[b], one = a >= 0 ? scores[2 * a + 1] : scores[2 + b];
                const double small = std::exp(-std::fabs(one - none)), share = (one > none ? 1.0 : small) / (1 + small);
                given = std::max(none, one) + std::log1p(small);
                (a >= 0 ? of_second : of_first) = share;
                of_equal = std::max(a, b) > 0 ? share : 1 - share;
            }
            of.terms[s] += log_z - given;
            const double by_x = p[2] + p[3] - of_first, by_y = p[1] + p[3] - of_second, power = of.power_of(edge);
            of.by_base[s] += by_x;
            of.by_base[t] += by_y;
            of.taken[q] += by_x / power;
            of.taken[of.reverse[q]] += by_y / power;
            of.by_joint[edge] += (p[0] + p[3] - of_equal) / power;
        }

        // Backpropagates through the messages of half a sweep. Nodes receive at larger depths than they send.
        void undo(const Half& half, const double* slopes) const {
            const i64 n_sent = i64(half.messages.size());
            for (i64 j = i64(half.nodes.size()) - 1; j >= 0; j--) {
                double total = 0;
                for (i64 p = half.first[j]; p < half.first[j + 1]; p++) {
                    const Message& sent = half.messages[p];
                    const double by_message = of.by_base[sent.receiver] - of.taken[sent.back];
                    const double by_odds = slopes[p] * by_message;
                    of.taken[sent.back] = of.by_base[sent.receiver];
                    of.taken[sent.slot] += by_odds;
                    of.by_joint[sent.edge] += slopes[n_sent + p] * by_message;
                    total += sent.power * by_odds;
                }
                of.by_base[half.nodes[j]] += total;
            }
        }

        void add_gradient() {
            for (i64 i = start; i < stop; i++) {
                const i64 s = of.nodes[i];
                of.unary[2 * s] = -of.by_base[s];
                of.unary[2 * s + 1] = of.by_base[s];
                for (i64 q = of.ptr[s]; q < of.ptr[s + 1]; q++) {
                    if (of.half_edge[q] & 1) continue;
                    const i64 edge = of.half_edge[q] >> 1;
                    const double equal = of.by_joint[edge], x = of.taken[q], y = of.taken[of.reverse[q]];
                    const double by_scores[4] = {(equal - x - y) / 2, (y - x - equal) / 2, (x - y - equal) / 2,
                                                 (equal + x + y) / 2};
                    add_to_tables(edge, by_scores);
                }
            }
        }

        void add_to_tables(i64 edge, const double* by_scores) {
            const i64 R = of.of_edges.n_features;
            const Real* weight = of.of_edges.edge_weight;
            double* cells = tables + of.of_edges.edge_type[edge] * R * 4;
            for (i64 r = 0; r < R; r++) {
                const double x = weight ? double(weight[edge * R + r]) : 1.0;
                for (i64 cell = 0; cell < 4; cell++) cells[4 * r + cell] += x * by_scores[cell];
            }
        }
    };
};

}  // namespace crf
