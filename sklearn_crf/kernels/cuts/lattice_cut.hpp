// Minimum cuts of small lattices: capacities, initial flow along lines and maximum flow, and losses of the labelings.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "binary_edge.hpp"
#include "core/dense_features.hpp"
#include "core/pool.hpp"
#include "flow_calls.hpp"
#include "flow_head_start.hpp"

namespace crf {

// Limits of the search; the fields are as in flows.pyx.
struct CutLimits {
    double least_for_lines, least_to_spread, most_to_spread;
    i64 max_work;
};

// Edge and node at which the conversion to capacities stopped, each -1 if it did not; and whether the flow is maximal.
struct CutOutcome {
    i64 edge = -1, node = -1;
    bool done = false;
};

// Minimum cut of one lattice, in arrays of the caller.
template <class Cap>
struct LatticeCut {
    Buffers<Cap> buffers;
    Cap *arriving, *used;  // (N,) and (largest step,)
    double* cost;  // (N,)
    i64* progress;  // (8,)

    // cost_of(i): cost of taking the alternative state at a node, without its edges
    template <class Real, class Cost>
    CutOutcome solve(const LatticeShape& lattice, const EdgeScores<Real>& scores, const Choice& choice,
                     const Rounding& rounding, const CutLimits& limits, Cost cost_of) const {
        const Buffers<Cap>& b = buffers;
        CutOutcome outcome;
        std::fill_n(progress, 8, i64(0));
        const i64 n_open = list_open(choice, lattice.n_nodes, b.flag, b.next);
        for (i64 k = 0; k < n_open; ++k) cost[b.next[k]] = cost_of(b.next[k]);
        outcome.edge = lattice_arcs(scores, lattice, choice, b.flag, n_open, rounding, cost, b.residual);
        if (outcome.edge >= 0) return outcome;
        std::fill_n(b.excess, lattice.n_nodes, Cap(0));
        for (i64 k = 0; k < n_open; ++k)
            if (!rounding.excess(cost[b.next[k]], b.excess[b.next[k]])) {
                outcome.node = b.next[k];
                return outcome;
            }
        std::fill_n(b.label, lattice.n_nodes + 2 * lattice.guard, 0);
        outcome.done = send_flow(lattice, n_open, limits);
        return outcome;
    }

    bool takes(const LatticeShape& lattice, i64 node) const { return buffers.label[lattice.guard + node] < 0; }

private:
    i64 n_with_excess(i64 n_open) const {
        i64 count = 0;
        for (i64 k = 0; k < n_open; ++k) count += buffers.excess[buffers.next[k]] != 0;
        return count;
    }

    bool send_flow(const LatticeShape& lattice, i64 n_open, const CutLimits& limits) const {
        const i64 n_nodes = lattice.n_nodes, guard = lattice.guard;
        const int degree = int(lattice.degree);
        i64 n_left = n_with_excess(n_open);
        if (n_left > limits.least_for_lines * n_nodes) {
            for (int k = 0; k < degree / 2; ++k)
                flow_along_lines(buffers, lattice.delta[k], k, degree, guard, arriving, used);
            n_left = n_with_excess(n_open);
        }
        if (n_left > limits.least_to_spread * n_open && n_left <= limits.most_to_spread * n_nodes)
            for (const bool down : {true, false})
                spread(buffers, lattice.delta, degree, guard, buffers.next, n_open, down);
        const i64 *low = lattice.box, *high = low + lattice.n_axes;
        const Box whole{int(lattice.n_axes), lattice.shape, low, high, buffers.next, n_open};
        return run_lattice(buffers, lattice.delta, degree, guard, whole, n_nodes, progress, limits.max_work);
    }
};

// unary: (N, K) of the type Real; Cython 3.2 cannot deduce the type from a pointer beside EdgeScores.
template <class Real, class Cap>
CutOutcome cut_model(const LatticeCut<Cap>& cut, const LatticeShape& lattice, const void* unary,
                     const EdgeScores<Real>& scores, const Choice& choice, const Rounding& rounding,
                     const CutLimits& limits) {
    return cut.solve(lattice, scores, choice, rounding, limits, [&](i64 i) {
        const Real* row = static_cast<const Real*>(unary) + i * scores.n_states;
        return double(row[choice.keep[i]]) - double(row[choice.take[i]]);
    });
}

// A LatticeCut with its own arrays.
struct OwnLatticeCut : LatticeCut<i64> {
    explicit OwnLatticeCut(const LatticeShape& lattice)
        : residual_(n_stored(lattice) * lattice.degree), numbers_(2 * lattice.n_nodes + lattice.guard + 8),
          costs_(lattice.n_nodes), indices_(n_stored(lattice) + 6 * lattice.n_nodes + 4),
          bytes_(n_stored(lattice) + lattice.n_nodes) {
        const i64 n = lattice.n_nodes;
        i32* index = indices_.data();
        const auto take = [&](i64 size) { return std::exchange(index, index + size); };
        buffers.residual = residual_.data(), buffers.excess = numbers_.data();
        arriving = buffers.excess + n, used = arriving + n, progress = used + lattice.guard;
        cost = costs_.data();
        buffers.label = take(n_stored(lattice)), buffers.next = take(n), buffers.lists = take(4 * n);
        buffers.bucket = take(n + 4);
        buffers.parent = bytes_.data(), buffers.flag = bytes_.data() + n_stored(lattice);
        buffers.n_nodes = buffers.n_listed = n;
        buffers.n_arcs = n * lattice.degree, buffers.n_buckets = n + 4;
    }

private:
    static i64 n_stored(const LatticeShape& lattice) { return lattice.n_nodes + 2 * lattice.guard; }

    std::vector<i64> residual_, numbers_;
    std::vector<double> costs_;
    std::vector<i32> indices_;
    std::vector<u8> bytes_;
};

// A lattice with two states, whose fields are one row of an array in Python.
template <class Real>
struct CutExample {
    LatticeShape lattice;
    i64 n_edges;
    const Real* features;  // (N, F)
    const i32* edge_type;  // (E,)
    const Real* edge_weight;  // (E, R), or null for weights of 1
    const double* offset;  // (N,) added to the score of state 1 minus the score of state 0, or null
    const i32* labels;  // (N,) true labels, or null
    i32* found;  // OUT (N,) best labels, or null
};

// Best labelings of lattices, and how much better they are than the true labels.
template <class Real>
struct BestCuts {
    DenseFeatures<Real> features;
    double intercept;
    const Real* tables;  // (T, R, 2, 2)
    i64 n_types, n_edge_features;
    double most_score;  // largest permitted magnitude of scores of nodes
    Rounding rounding;
    CutLimits limits;
    const CutExample<Real>* examples;
    const i64* exponent;  // (n_examples,)
    i64 n_examples;
    double* sums;  // OUT (n_examples, S), NaN first if the cut of an example fails; S as in n_sums()

    // Excess of scores, errors, contribution of offsets; derivatives by features, intercept and tables.
    i64 n_sums() const { return 4 + features.n_features + n_types * n_edge_features * 4; }

    void run(const Threads& threads) const {
        threads.share(n_examples, [this](i64 k) { solve(examples[k], exponent[k], sums + k * n_sums()); });
    }

private:
    void solve(const CutExample<Real>& example, i64 exponent, double* sums) const {
        const i64 n_nodes = example.lattice.n_nodes;
        const std::vector<i32> states = zeros_and_ones(n_nodes);
        const Choice choice{states.data(), states.data() + n_nodes};
        const EdgeScores<Real> edges{tables, n_edge_features, 2, example.edge_type, example.edge_weight};
        Rounding own = rounding;
        own.set_exponent(exponent);
        bool failed = false;
        const std::vector<Real> scores = node_scores(example, failed);
        const OwnLatticeCut cut(example.lattice);
        const auto score = [&](i64 i) { return double(scores[i]) + (example.offset ? example.offset[i] : 0); };
        std::fill_n(sums, n_sums(), 0.0);
        if (failed || !cut.solve(example.lattice, edges, choice, own, limits, [&](i64 i) { return -score(i); }).done) {
            sums[0] = std::numeric_limits<double>::quiet_NaN();
            return;
        }
        if (example.found)
            for (i64 i = 0; i < n_nodes; ++i) example.found[i] = cut.takes(example.lattice, i);
        if (example.labels) add_differences(example, edges, cut, score, sums);
    }

    static std::vector<i32> zeros_and_ones(i64 n) {
        std::vector<i32> states(2 * n);
        std::fill_n(states.begin() + n, n, 1);
        return states;
    }

    // Scores of state 1 minus scores of state 0.
    std::vector<Real> node_scores(const CutExample<Real>& example, bool& failed) const {
        std::vector<Real> scores(example.lattice.n_nodes);
        features.scores(example.features, example.lattice.n_nodes, 1, 1, scores.data());
        for (Real& score : scores) {
            score += Real(intercept);
            failed |= !(std::fabs(double(score)) <= most_score);
        }
        return scores;
    }

    template <class Score>
    void add_differences(const CutExample<Real>& example, const EdgeScores<Real>& scores, const OwnLatticeCut& cut,
                         Score score, double* sums) const {
        const i64 F = features.n_features, R = n_edge_features;
        double *by_features = sums + 3, *by_tables = by_features + F + 1;
        const LatticeShape& lattice = example.lattice;
        for (i64 i = 0; i < lattice.n_nodes; ++i) {
            const int sign = cut.takes(lattice, i) - example.labels[i];
            if (sign == 0) continue;
            sums[0] += sign * score(i);
            sums[1] += 1;
            if (example.offset) sums[2] += sign * example.offset[i];
            for (i64 r = 0; r < F; ++r) by_features[r] += sign * double(example.features[i * F + r]);
            by_features[F] += sign;
        }
        for (i64 edge = 0; edge < example.n_edges; ++edge) {
            const i32 i = lattice.edges[2 * edge], j = lattice.edges[2 * edge + 1];
            const int now = 2 * cut.takes(lattice, i) + cut.takes(lattice, j);
            const int then = 2 * example.labels[i] + example.labels[j];
            if (now == then) continue;
            const i64 first = example.edge_type[edge] * R * 4;
            for (i64 r = 0; r < R; ++r) {
                const double weight = example.edge_weight ? example.edge_weight[edge * R + r] : 1;
                const Real* table = scores.tables + first + 4 * r;
                by_tables[first + 4 * r + now] += weight;
                by_tables[first + 4 * r + then] -= weight;
                sums[0] += weight * (double(table[now]) - double(table[then]));
            }
        }
    }
};

}  // namespace crf
