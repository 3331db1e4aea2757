// Labels and marginals of chains that share one transition table, from features and weights in one call.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <vector>

#include "chains.hpp"
#include "core/dense_features.hpp"
#include "core/pair_weights.hpp"
#include "core/pool.hpp"

namespace crf {

// A batch of consecutive chains, by the addresses of their arrays.
struct ChainBatch {
    i64 first_node;  // number of the first node among the nodes of all batches
    i64 length;  // number of nodes of each chain, or 0 if they differ
    std::intptr_t lengths;  // (n_chains,) numbers of nodes if they differ
    std::intptr_t places;  // addresses of the features of each chain, or 0 if all are stored in one array
    std::intptr_t features[3];  // rows of all nodes; or values, indices and pointers of a sparse matrix

    static constexpr i64 kSparsePlaces = 4;  // addresses in `places` for a sparse chain; a dense chain has 1
};

// Chains first to last - 1 of a batch, and the number of their first node among all nodes.
struct PredictedBlock {
    i64 batch, first, last, first_node;
};

template <class Real>
struct ChainPrediction {
    Transitions transitions;
    const Real *table = nullptr, *factor = nullptr;  // as in BestLabels, if best labelings are requested; else null
    i64 n_columns;  // columns of scores; 1 if two states share a column
    const double* intercept;  // (C,)
    const double* ends = nullptr;  // (2, K) added to the scores of the first and the last node of each chain, or null
    const DenseFeatures<Real>* dense = nullptr;  // null if features are sparse
    const PairWeights<Real>* sparse = nullptr;
    const ChainBatch* batches;
    i64 n_batches;
    const PredictedBlock* blocks;
    i64 n_blocks;
    i32* labels;  // (N,)
    Real* posterior = nullptr;  // (N, K), or null if not requested
    unsigned char* failed;  // (n_batches,) whether the score range is too wide

    void run(const Threads& threads) {
        std::vector<std::atomic<bool>> gave_up(n_batches);
        for (auto& each : gave_up) each = false;
        if (forbids_pairs()) set_constraints();
        threads.share(n_blocks, [&](i64 b) {
            std::atomic<bool>& has_failed = gave_up[blocks[b].batch];
            if (!has_failed && !run_block(blocks[b])) has_failed = true;
        });
        for (i64 b = 0; b < n_batches; ++b) failed[b] = gave_up[b];
    }

private:
    // 0 for allowed pairs and -inf for forbidden pairs, in the layout of BestLabels
    std::vector<double> allowed, allowed_factor;

    template <class Number>
    static Number* at(std::intptr_t address) {
        return reinterpret_cast<Number*>(address);
    }

    bool forbids_pairs() const { return transitions.least > 0; }

    void set_constraints() {
        const i64 K = transitions.n_states, W = transitions.width;
        allowed.assign(K * K, 0.0);
        allowed_factor.assign(K * W, -kInfinity);
        for (i64 a = 0; a < K; ++a)
            for (i64 b = 0; b < K; ++b) {
                if (transitions.table[a * K + b] == -kInfinity) allowed[a * K + b] = -kInfinity;
                allowed_factor[b * W + a] = allowed[a * K + b];
            }
    }

    bool run_block(const PredictedBlock& block) const {
        const ChainBatch& batch = batches[block.batch];
        const i64 n_chains = block.last - block.first, K = transitions.n_states;
        std::vector<i64> ptr(batch.length == 1 && are_rows() ? 0 : n_chains + 1);
        for (i64 i = 0; i + 1 < i64(ptr.size()); ++i) ptr[i + 1] = ptr[i] + length_of(batch, block.first + i);
        const i64 n = ptr.empty() ? n_chains : ptr.back();
        const auto scores = workspace<Real>(n * K);
        set_scores(batch, block, n, scores.get());
        if (ptr.empty()) return label_rows(scores.get(), n, labels + block.first_node);
        i64 longest = 1;
        for (i64 i = 0; i < n_chains; ++i) longest = std::max(longest, ptr[i + 1] - ptr[i]);
        if (ends) add_ends(ptr, scores.get());
        const Chains<Real> chains = chains_of(ptr, scores.get(), block.first_node);
        return table ? find_best(chains, longest) : infer(chains, longest) && keep_allowed(chains, scores.get(), longest);
    }

    // Returns whether the label of a chain of one node is the state with the largest score.
    bool are_rows() const { return !posterior && !ends && !forbids_pairs(); }

    static i64 length_of(const ChainBatch& batch, i64 chain) {
        return batch.length ? batch.length : at<const i64>(batch.lengths)[chain];
    }

    Chains<Real> chains_of(const std::vector<i64>& ptr, const Real* scores, i64 first_node) const {
        Chains<Real> chains;
        chains.n_chains = i64(ptr.size()) - 1;
        chains.ptr = ptr.data();
        chains.stride = transitions.n_states;
        chains.unary = scores;
        chains.predicted = labels + first_node;
        if (posterior) chains.posterior = posterior + first_node * transitions.n_states;
        return chains;
    }

    bool find_best(const Chains<Real>& chains, i64 longest) const {
        const auto work = workspace<Real>((longest + 2) * transitions.width);
        return BestLabels<Real>(chains, transitions.width, table, factor, work.get()).run();
    }

    bool infer(const Chains<Real>& chains, i64 longest) const {
        const auto work = workspace<double>(pass_workspace(longest, transitions.width));
        return ChainPass<Real>(transitions, chains, longest, work.get()).run();
    }

    // If the most probable states of a chain include a forbidden pair, the chain gets the allowed labeling with the
    // largest sum of node marginals.
    bool keep_allowed(const Chains<Real>& chains, const Real* scores, i64 longest) const {
        if (!forbids_pairs() || posterior) return true;
        const i64 K = transitions.n_states, W = transitions.width;
        for (i64 i = 0; i < chains.n_chains; ++i) {
            const i64 first = chains.ptr[i], n = chains.ptr[i + 1] - first;
            const i32* own = chains.predicted + first;
            bool is_allowed = true;
            for (i64 s = 1; s < n; ++s) is_allowed &= allowed[own[s - 1] * K + own[s]] == 0;
            if (is_allowed) continue;
            const i64 ptr[2] = {0, n};
            const auto marginals = workspace<Real>(n * K);
            Chains<Real> one = chains;
            one.n_chains = 1;
            one.ptr = ptr;
            one.unary = scores + first * K;
            one.predicted = chains.predicted + first;
            one.posterior = marginals.get();
            if (!infer(one, n)) return false;
            const auto gains = workspace<double>(n * K), work = workspace<double>((longest + 2) * W);
            for (i64 j = 0; j < n * K; ++j)
                gains[j] = double(one.unary[j]) == -kInfinity ? -kInfinity : double(marginals[j]);
            Chains<double> gained;
            gained.n_chains = 1;
            gained.ptr = ptr;
            gained.stride = K;
            gained.unary = gains.get();
            gained.predicted = one.predicted;
            if (!BestLabels<double>(gained, W, allowed.data(), allowed_factor.data(), work.get()).run()) return false;
        }
        return true;
    }

    // Labels each node by its largest score, the first if tied. Returns false if a score range is too wide.
    bool label_rows(const Real* scores, i64 n, i32* found) const {
        const i64 K = transitions.n_states;
        const Real widest = table ? std::numeric_limits<Real>::max() : Real(transitions.widest);
        bool fits = true;
        for (i64 s = 0; s < n; ++s, scores += K) {
            Real top = scores[0], least = scores[0];
            i32 best = 0;
            for (i64 a = 1; a < K; ++a) {
                best = scores[a] > top ? i32(a) : best;
                top = scores[a] > top ? scores[a] : top;
                least = scores[a] < least ? scores[a] : least;
            }
            found[s] = best;
            fits &= top - least <= widest;  // false for NaN and infinity too
        }
        return fits;
    }

    void add_ends(const std::vector<i64>& ptr, Real* scores) const {
        const i64 K = transitions.n_states;
        for (std::size_t i = 0; i + 1 < ptr.size(); ++i)
            for (i64 k = 0; k < K; ++k) {
                scores[ptr[i] * K + k] += Real(ends[k]);
                scores[(ptr[i + 1] - 1) * K + k] += Real(ends[K + k]);
            }
    }

    // Computes the scores of the nodes of a block, (n, K).
    void set_scores(const ChainBatch& batch, const PredictedBlock& block, i64 n, Real* scores) const {
        const i64 C = n_columns, K = transitions.n_states;
        if (dense) {
            const auto shared = workspace<Real>(C < K ? n : 0);
            Real* columns = C < K ? shared.get() : scores;
            set_dense_columns(batch, block, n, columns);
            for (i64 s = 0; s < n; ++s)
                for (i64 k = 0; k < C; ++k) columns[s * C + k] += Real(intercept[k]);
            for (i64 s = 0; s < n && C < K; ++s) set_halves(columns[s], scores + 2 * s);
            return;
        }
        std::vector<double> row(C);
        const auto add_rows = [&](const std::intptr_t* place, i64 first, i64 last) {
            const auto* value = at<const Real>(place[0]);
            const auto* feature = at<const i32>(place[1]);
            const auto* start = at<const i32>(place[2]);
            for (i64 s = first; s < last; ++s, scores += K) {
                std::copy_n(intercept, C, row.data());
                sparse->add_scores(feature + start[s], value + start[s], start[s + 1] - start[s], row.data());
                if (C < K) set_halves(row[0], scores);
                else std::copy_n(row.data(), K, scores);
            }
        };
        const i64 first = block.first_node - batch.first_node;
        if (!batch.places) return add_rows(batch.features, first, first + n);
        for (i64 i = block.first; i < block.last; ++i)
            add_rows(at<const std::intptr_t>(batch.places) + i * ChainBatch::kSparsePlaces, 0, length_of(batch, i));
    }

    template <class Number>
    static void set_halves(Number difference, Real* scores) {
        const Number half = Number(0.5) * difference;
        scores[0] = Real(-half);
        scores[1] = Real(half);
    }

    void set_dense_columns(const ChainBatch& batch, const PredictedBlock& block, i64 n, Real* columns) const {
        const i64 F = dense->n_features, C = n_columns;
        if (!batch.places) {
            const Real* rows = at<const Real>(batch.features[0]) + (block.first_node - batch.first_node) * F;
            return dense->scores(rows, n, C, C, columns);
        }
        // Matrix products of many rows at a time are much faster than a product for each chain.
        const i64 most = std::min(n, std::max<i64>(1, kNumbersAtOnce / F));
        const auto copy = workspace<Real>(most * F);
        i64 n_held = 0;
        const auto flush = [&] {
            dense->scores(copy.get(), n_held, C, C, columns);
            columns += n_held * C;
            n_held = 0;
        };
        for (i64 i = block.first; i < block.last; ++i) {
            const Real* rows = at<const Real>(at<const std::intptr_t>(batch.places)[i]);
            for (i64 left = length_of(batch, i); left > 0;) {
                const i64 taken = std::min(left, most - n_held);
                std::copy_n(rows, taken * F, copy.get() + n_held * F);
                rows += taken * F;
                left -= taken;
                n_held += taken;
                if (n_held == most) flush();
            }
        }
        if (n_held) flush();
    }
};

}  // namespace crf
