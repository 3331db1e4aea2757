// Scores of chains that score the runs of labels, and statistics of the runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "chains.hpp"
#include "core/pool.hpp"
#include "core/types.hpp"
#include "core/rows.hpp"

namespace crf {

// Consecutive chains with scores of nodes, of edges and of the durations of runs.
template <class Real>
struct SegmentChains {
    i64 n_chains;
    const i64* ptr;  // (n_chains + 1,) first node of each chain; an edge joins each other node to the node before
    i64 n_states, n_durations, n_tables, n_features;
    const Real* unary;  // (N, K)
    const double* tables;  // (T, R, K, K)
    const i32* edge_type;  // (E,)
    const Real* edge_weight;  // (E, R), or null for ones
    const double* durations;  // (S, K, D) scores of runs of 1, 2, ... nodes; the last also holds for all longer runs
    const i32* duration_type;  // (n_chains,)
    const Real* ends;  // (2, N, K) scores of the first and of the last node of runs, or null
    const Real* spans;  // (N, D - 1, K) scores of the runs of 1, 2, ... nodes that begin at each node, or null
    const Real* means;  // (N, K) finite scores whose mean over a run is a score of the run, or null
    i64 least;  // runs of fewer nodes are forbidden, except at the ends of a chain, where runs may be cut off
    const i64* blocks;  // (n_blocks + 1,) first chain of each block of work
    i64 n_blocks;

    i64 n_nodes(i64 c) const { return ptr[c + 1] - ptr[c]; }

    i64 longest(i64 block) const {
        i64 most = 1;
        for (i64 c = blocks[block]; c < blocks[block + 1]; ++c) most = std::max(most, n_nodes(c));
        return most;
    }

    // Runs all blocks, and returns the first chain that a block returns because all its labelings are forbidden, or -1.
    template <class Function>
    i64 first_failed(const Threads& threads, Function run_block) const {
        std::vector<i64> failed(n_blocks, -1);
        threads.share(n_blocks, [&](i64 block) { failed[block] = run_block(block); });
        const auto found = std::find_if(failed.begin(), failed.end(), [](i64 chain) { return chain >= 0; });
        return found == failed.end() ? -1 : *found;
    }
};

inline i64 whole_vectors(i64 n) { return (n + 3) / 4 * 4; }

// Scores of one chain in double precision.
template <class Real>
class SegmentChain {
public:
    SegmentChain(const SegmentChains<Real>& chains, i64 number)
        : n_nodes(chains.n_nodes(number)), c(chains), K(c.n_states), first(c.ptr[number]), first_edge(first - number),
          mixed(c.edge_weight ? K * K : 0), W(whole_vectors(K)), shares(c.n_durations),
          sums(c.means ? (n_nodes + 1) * W : 0) {
        shares[0] = 1.0 / c.n_durations;
        for (i64 d = 1; d < c.n_durations; ++d) shares[d] = 1.0 / d - shares[0];
        for (i64 s = 0; s < n_nodes && c.means; ++s)
            for (i64 a = 0; a < K; ++a) sums[(s + 1) * W + a] = sums[s * W + a] + mean(s, a);
    }

    const i64 n_nodes;

    // A node adds its part of the mean over a run of at least D nodes; spans add the rest for shorter runs.
    double own(i64 s, i64 a) const {
        return double(c.unary[(first + s) * K + a]) + (c.means ? mean(s, a) * shares[0] : 0.0);
    }
    double mean(i64 s, i64 a) const { return double(c.means[(first + s) * K + a]); }

    double begins(i64 s, i64 a) const { return c.ends ? double(c.ends[(first + s) * K + a]) : 0.0; }
    double ends(i64 s, i64 a) const { return c.ends ? double(c.ends[(c.ptr[c.n_chains] + first + s) * K + a]) : 0.0; }

    // Writes the scores of the labels for a run of d < D nodes that begins at node s to `scores` (W,), padded with zeros.
    void set_span(i64 s, i64 d, double* restrict scores) const {
        const double *from = sums.data() + s * W, *to = from + d * W, share = mean_share(d);
        for (i64 a = 0; a < W; a += 4)
            for (int k = 0; k < 4; ++k) scores[a + k] = c.means ? (to[a + k] - from[a + k]) * share : 0.0;
        if (c.spans)
            for (i64 a = 0; a < K; ++a) scores[a] += double(span(s, d)[a]);
    }
    const Real* span(i64 s, i64 d) const { return c.spans + ((first + s) * (c.n_durations - 1) + d - 1) * K; }
    bool has_mixed_tables() const { return c.edge_weight != nullptr; }
    bool has_spans() const { return c.spans || c.means; }

    // Returns the weight of the nodes of a run of d < D nodes in its mean, minus the weight that own() adds.
    double mean_share(i64 d) const { return shares[d]; }

    // Returns a bound on the absolute values of all finite scores of single runs.
    double largest_span() const {
        double of_spans = 0, of_means = 0;
        const i64 n_spans = c.spans ? n_nodes * (c.n_durations - 1) * K : 0;
        for (i64 i = 0; i < n_spans; ++i) {
            const double score = std::fabs(double(span(0, 1)[i]));
            if (score < kInfinity) of_spans = std::max(of_spans, score);
        }
        for (i64 i = 0; i < n_nodes * K && c.means; ++i) of_means = std::max(of_means, std::fabs(mean(0, i)));
        return of_spans + of_means;
    }

    i64 edge(i64 s) const { return first_edge + s - 1; }

    // Returns the table of the edge that leads to node s.
    const double* table(i64 s) {
        const double* tables = c.tables + c.edge_type[edge(s)] * c.n_features * K * K;
        if (!c.edge_weight) return tables;
        std::fill(mixed.begin(), mixed.end(), 0.0);
        for (i64 r = 0; r < c.n_features; ++r) {
            const double weight = c.edge_weight[edge(s) * c.n_features + r];
            // A table with -inf has a positive weight.
            for (i64 p = 0; p < K * K && weight != 0; ++p) mixed[p] += weight * tables[r * K * K + p];
        }
        return mixed.data();
    }

private:
    const SegmentChains<Real>& c;
    const i64 K, first, first_edge;
    std::vector<double> mixed;
    const i64 W;
    std::vector<double> shares;  // (D,) share of a mean in own(), then shares that set_span() adds for d = 1, 2, ...
    std::vector<double> sums;  // (n + 1, W) sums of means over the nodes before each node, or empty
};

// Scores of the single runs of a chain in the form that RunSums needs, and the statistics of runs.
template <class Real, bool has_single>
class SingleRunStatistics {
public:
    static constexpr bool exist = has_single;

    // spans, means: statistics of the whole batch, or null
    SingleRunStatistics(const SegmentChain<Real>& chain, i64 K, i64 W, i64 L, i64 first, Real* spans, Real* means)
        : chain(chain), K(K), W(W), L(L), first(first), spans(spans), means(means),
          change(means ? (chain.n_nodes + 1) * W : 0) {}

    // Writes the scores of the runs of 1, 2, ..., n_runs nodes that end at node s, or begin there, to `scores` (L, W).
    template <bool is_forward>
    void read(i64 s, i64 n_runs, double* scores) const {
#if VECTOR_LEVEL_DISPATCH
        if (use_avx2()) return wide_read<is_forward>(s, n_runs, scores);
#endif
        plain_read<is_forward>(s, n_runs, scores);
    }

    // Adds the probabilities (L, W) of the runs of 1, 2, ..., n_runs nodes that begin at node s.
    void add(i64 s, i64 n_runs, const double* probability) {
#if VECTOR_LEVEL_DISPATCH
        if (use_avx2()) return wide_add(s, n_runs, probability);
#endif
        plain_add(s, n_runs, probability);
    }

    // Adds the probabilities (W,) of the labels of a run of d < D nodes that begins at node s.
    void add_run(i64 s, i64 d, const double* probability) {
        for (i64 a = 0; a < K && spans; ++a) spans[((first + s) * L + d - 1) * K + a] = Real(probability[a]);
        if (!means) return;
        // A run adds its weight to all its nodes: here, the addition begins at its first node and ends after its last
        // node.
        const double share = chain.mean_share(d);
        double *restrict from = change.data() + s * W, *restrict to = from + d * W;
        for (i64 a = 0; a < W; a += 4)
            for (int k = 0; k < 4; ++k) {
                from[a + k] += probability[a + k] * share;
                to[a + k] -= probability[a + k] * share;
            }
    }

    // Writes the statistics of means, given the marginals of the nodes (N, K).
    void finish(const Real* posterior) {
        for (i64 s = 0; s < chain.n_nodes && means; ++s)
            for (i64 a = 0, k = first * K + s * K; a < K; ++a, ++k) {
                if (s) change[s * W + a] += change[(s - 1) * W + a];
                means[k] = Real(change[s * W + a] + double(posterior[k]) / (L + 1));
            }
    }

private:
    const SegmentChain<Real>& chain;
    const i64 K, W, L, first;
    Real *const spans, *const means;
    std::vector<double> change;  // (n + 1, W) difference of the weights of runs from node to node

    template <bool is_forward>
    void plain_read(i64 s, i64 n_runs, double* scores) const {
        for (i64 d = 1; d <= n_runs; ++d) chain.set_span(is_forward ? s - d + 1 : s, d, scores + (d - 1) * W);
    }

    void plain_add(i64 s, i64 n_runs, const double* probability) {
        for (i64 d = 1; d <= n_runs; ++d) add_run(s, d, probability + (d - 1) * W);
    }

#if VECTOR_LEVEL_DISPATCH
    template <bool is_forward>
    __attribute__((target("avx2,fma"), flatten)) void wide_read(i64 s, i64 n_runs, double* scores) const {
        plain_read<is_forward>(s, n_runs, scores);
    }

    __attribute__((target("avx2,fma"), flatten)) void wide_add(i64 s, i64 n_runs, const double* probability) {
        plain_add(s, n_runs, probability);
    }
#endif
};

}  // namespace crf
