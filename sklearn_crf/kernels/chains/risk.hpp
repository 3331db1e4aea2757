// Likelihood of labelled chains and its gradient with respect to all weights, in one call for all blocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>

#include "chains.hpp"
#include "core/dense_features.hpp"
#include "core/pool.hpp"

namespace crf {

// Sparse features of a panel, stored by column and only if they occur in the panel. Node 0 is the first of the panel.
template <class Real>
struct FeatureColumns {
    const i32* feature;  // (n,) ascending
    const i32* ptr;  // (n + 1,) first entry of each feature
    const i32* node;
    const Real* value;  // null if all values are one
};

// Weights of pairs of a feature and a column of scores, and their gradient. Sums run over the nodes in ascending order,
// independently of the panels.
template <class Real>
struct SparseWeights {
    i64 n_features;
    const i64* pair_ptr;  // (F + 1,) first pair of each feature
    const i32* pair_column;  // (P,) column of each pair, ascending for each feature
    const double* weights;  // (P,)
    double* gradient;  // (P,) added to
    // Row of each feature that has so many pairs that whole rows are faster, or -1.
    const i32* row_of;  // (F,)
    double *rows, *row_gradient;  // (n_rows, stride)

    void set_rows(i64 first, i64 last, i64 stride) const {
        for (i64 f = first; f < last; ++f) {
            if (row_of[f] < 0) continue;
            std::fill_n(rows + row_of[f] * stride, stride, 0.0);
            std::fill_n(row_gradient + row_of[f] * stride, stride, 0.0);
            for (i64 p = pair_ptr[f]; p < pair_ptr[f + 1]; ++p) rows[row_of[f] * stride + pair_column[p]] = weights[p];
        }
    }

    void read_rows(i64 first, i64 last, i64 stride) const {
        for (i64 f = first; f < last; ++f)
            for (i64 p = pair_ptr[f]; p < pair_ptr[f + 1] && row_of[f] >= 0; ++p)
                gradient[p] += row_gradient[row_of[f] * stride + pair_column[p]];
    }

    // Visits features start to stop - 1 of a panel: adds weights to the columns of nodes, or columns to the gradient.
    template <bool is_gradient>
    void add(const FeatureColumns<Real>& c, i64 start, i64 stop, i64 stride, double* columns) const {
        call_at_level([&] { add_at_stride<is_gradient>(c, start, stop, stride, columns); });
    }

private:
    template <bool is_gradient>
    void add_at_stride(const FeatureColumns<Real>& c, i64 start, i64 stop, i64 stride, double* columns) const {
        switch (stride) {
            case 4: return add_columns<is_gradient, 4>(c, start, stop, stride, columns);
            case 8: return add_columns<is_gradient, 8>(c, start, stop, stride, columns);
            case 12: return add_columns<is_gradient, 12>(c, start, stop, stride, columns);
            case 16: return add_columns<is_gradient, 16>(c, start, stop, stride, columns);
            default: return add_columns<is_gradient, 1>(c, start, stop, stride, columns);
        }
    }

    // n_kept: the stride if it is short enough to keep a row in registers, else 1
    template <bool is_gradient, int n_kept>
    void add_columns(const FeatureColumns<Real>& c, i64 start, i64 stop, i64 stride, double* columns) const {
        for (i64 i = start; i < stop; ++i) {
            const i32 number = row_of[c.feature[i]];
            double* own = (is_gradient ? row_gradient : rows) + std::max(number, 0) * stride;
            if (number < 0) add_pairs<is_gradient>(c, i, stride, columns);
            else if (n_kept > 1) add_row<is_gradient, n_kept>(c, i, own, columns);
            else add_long_row<is_gradient>(c, i, own, stride, columns);
        }
    }

    template <bool is_gradient>
    void add_pairs(const FeatureColumns<Real>& c, i64 i, i64 stride, double* columns) const {
        const i64 first = pair_ptr[c.feature[i]], last = pair_ptr[c.feature[i] + 1];
        for (i64 q = c.ptr[i]; q < c.ptr[i + 1]; ++q) {
            double* row = columns + c.node[q] * stride;
            const double x = c.value ? double(c.value[q]) : 1.0;
            for (i64 p = first; p < last; ++p)
                if (is_gradient) gradient[p] += x * row[pair_column[p]];
                else row[pair_column[p]] += x * weights[p];
        }
    }

    template <bool is_gradient>
    void add_long_row(const FeatureColumns<Real>& c, i64 i, double* restrict own, i64 stride, double* columns) const {
        for (i64 q = c.ptr[i]; q < c.ptr[i + 1]; ++q) {
            double* restrict row = columns + c.node[q] * stride;
            const double x = c.value ? double(c.value[q]) : 1.0;
            for (i64 k = 0; k < stride; ++k)
                if (is_gradient) own[k] += x * row[k];
                else row[k] += x * own[k];
        }
    }

    template <bool is_gradient, int stride>
    void add_row(const FeatureColumns<Real>& c, i64 i, double* own, double* columns) const {
        double kept[stride];
        for (int k = 0; k < stride; ++k) kept[k] = own[k];
        for (i64 q = c.ptr[i]; q < c.ptr[i + 1]; ++q) {
            double* row = columns + c.node[q] * i64(stride);
            const double x = c.value ? double(c.value[q]) : 1.0;
            for (int k = 0; k < stride; ++k)
                if (is_gradient) kept[k] += x * row[k];
                else row[k] += x * kept[k];
        }
        for (int k = 0; k < stride && is_gradient; ++k) own[k] = kept[k];
    }
};

// Block of chains first to last - 1; each block has its own sums.
struct ChainBlock {
    i64 first, last;
};

// Blocks first to last - 1, and the addresses of the features of their nodes: the first row of dense features, or the
// columns of sparse features as in FeatureColumns.
struct ChainPanel {
    i64 first, last, n_columns, features[4];
};

template <class Real>
struct ChainRisk {
    Transitions transitions;
    i64 n_columns;  // columns of scores; 1 if two states share a column
    const double* intercept;  // (C,)
    const double* ends = nullptr;  // (2, K) added to the scores of the first and the last node of each chain, or null
    const i64* ptr;  // first node of each chain
    const i32* labels;  // (N,) negative if missing
    const double* weight = nullptr;  // (n_chains,) or null
    const DenseFeatures<Real>* dense = nullptr;  // null if features are sparse
    const SparseWeights<Real>* sparse = nullptr;
    const RunFactors* runs = nullptr;  // scores of the durations of runs, or null
    const ChainBlock* blocks;
    const ChainPanel* panels;
    i64 n_panels;
    double* columns = nullptr;  // loss derivatives by columns of scores for several panels; sparse features only
    i64 most_kept = 0;  // number of nodes that `columns` has space for
    const i32* range_ends = nullptr;  // ends of the feature ranges that threads process; sparse features only
    i64 n_ranges = 0;
    double* partial;  // (blocks, n_sums) sums of each block

    // Number of sums: loss, weight of wrong labels, gradient of intercepts (C,), pairs (K, W), counts (K, K), the sums
    // of RunSums (1 + D, W), gradient (C, F).
    i64 n_sums() const {
        const i64 K = transitions.n_states, of_runs = (1 + (runs ? runs->n_durations : 0)) * transitions.width;
        return 2 + n_columns + K * (transitions.width + K) + of_runs + (dense ? n_columns * dense->n_features : 0);
    }

    i64 first_node(i64 p) const { return ptr[blocks[panels[p].first].first]; }
    i64 n_nodes(i64 p) const { return ptr[blocks[panels[p].last - 1].last] - first_node(p); }

    // Distance between the columns of two consecutive nodes.
    i64 stride() const { return n_columns == 1 ? 1 : transitions.width; }

    // Writes the sums over all blocks to total (n_sums,). Returns 0; 1, with undefined results, if the score range is
    // too wide; -1 after an error.
    int run(const Threads& threads, double* total) const {
        std::atomic<bool> fits{true};
        const bool is_shared = sparse && threads.n_threads > 1;
        const auto set = [&](i64 r) { sparse->set_rows(range_start(r), range_start(r + 1), stride()); };
        const auto read = [&](i64 r) { sparse->read_rows(range_start(r), range_start(r + 1), stride()); };
        if (sparse && !threads.each(n_ranges, set)) return -1;
        for (i64 start = 0, stop; start < n_panels && fits; start = stop) {
            i64 n_kept = 0;
            // Only derivatives that other threads read later must be kept.
            for (stop = start; stop < n_panels; ++stop) {
                if (is_shared && stop > start && n_kept + n_nodes(stop) > most_kept) break;
                n_kept += n_nodes(stop);
            }
            const auto offsets = workspace<i64>(stop - start);
            for (i64 p = start, offset = 0; p < stop; ++p) {
                offsets[p - start] = offset * stride();
                offset += is_shared ? n_nodes(p) : 0;
            }
            const bool is_complete = threads.each(stop - start, [&](i64 i) {
                double* own = columns + offsets[i];
                if (fits && !run_panel(panels[start + i], n_nodes(start + i), own)) fits = false;
                // A single thread reads the derivatives while they are in the cache.
                if (fits && sparse && !is_shared) pull(panels[start + i], own, 0, n_ranges);
            });
            if (!is_complete) return -1;
            if (!is_shared || !fits) continue;
            if (!threads.each(n_ranges, [&](i64 r) {
                    for (i64 p = start; p < stop; ++p) pull(panels[p], columns + offsets[p - start], r, r + 1);
                }))
                return -1;
        }
        if (!fits) return 1;
        if (sparse && !threads.each(n_ranges, read)) return -1;
        return add_up(threads, total) ? 0 : -1;
    }

private:
    // Returns the first feature of a range.
    i32 range_start(i64 r) const {
        return r == 0 ? 0 : r < n_ranges ? range_ends[r - 1] : i32(sparse->n_features);
    }

    FeatureColumns<Real> columns_of(const ChainPanel& panel) const {
        const auto index = [&](int k) { return reinterpret_cast<const i32*>(panel.features[k]); };
        return {index(0), index(1), index(2), reinterpret_cast<const Real*>(panel.features[3])};
    }

    // Adds the contributions of a panel to the gradient of the features of some ranges.
    void pull(const ChainPanel& panel, double* own, i64 first, i64 last) const {
        const auto c = columns_of(panel);
        const i32* end = c.feature + panel.n_columns;
        const i32* from = std::lower_bound(c.feature, end, range_start(first));
        const i32* to = std::lower_bound(from, end, range_start(last));
        sparse->template add<true>(c, from - c.feature, to - c.feature, stride(), own);
    }

    bool add_up(const Threads& threads, double* total) const {
        constexpr i64 n_together = 1 << 12;
        const i64 n = n_sums();
        return threads.each((n + n_together - 1) / n_together, [&](i64 r) {
            const i64 first = r * n_together, last = std::min(n, first + n_together);
            std::fill(total + first, total + last, 0.0);
            for (i64 p = 0; p < n_panels; ++p)
                for (i64 b = panels[p].first; b < panels[p].last; ++b)
                    for (i64 k = first; k < last; ++k) total[k] += partial[b * n + k];
        });
    }

    // Computes the derivatives for a panel and the sums of its blocks. Returns false if the score range is too wide.
    bool run_panel(const ChainPanel& panel, i64 n, double* own) const {
        const auto dense_columns = workspace<double>(dense ? n * stride() : 0);
        if (dense) own = dense_columns.get();
        set_columns(panel, n, own);
        const i64 first = ptr[blocks[panel.first].first];
        for (i64 b = panel.first; b < panel.last; ++b) {
            double* of_block = own + (ptr[blocks[b].first] - first) * stride();
            if (!run_block(b, of_block)) return false;
            if (dense) pull_rows(panel, b, of_block);
        }
        return true;
    }

    // Replaces the columns of scores of a block by their derivatives, and computes its sums.
    bool run_block(i64 b, double* own) const {
        const ChainBlock& block = blocks[b];
        const i64 *starts = ptr + block.first, n = ptr[block.last] - ptr[block.first];
        const i64 C = n_columns, K = transitions.n_states, S = stride();
        const auto states = workspace<double>(C < K ? n * K : 0);
        double *scores = C < K ? states.get() : own, *sums = partial + b * n_sums();
        for (i64 s = 0; s < n && C < K; ++s) {
            scores[2 * s + 1] = 0.5 * own[s];
            scores[2 * s] = -scores[2 * s + 1];
        }
        std::fill_n(sums, n_sums(), 0.0);
        const i64 stride_of_states = C < K ? K : S, n_chains = block.last - block.first;
        const i64 longest = add_ends(starts, n_chains, stride_of_states, scores);
        double *by_intercept = sums + 2, *pairs = by_intercept + C, *counts = pairs + K * transitions.width;
        const auto work = workspace<double>(pass_workspace(longest, transitions.width) + n);
        const auto predicted = workspace<i32>(n);
        double* terms = work.get() + pass_workspace(longest, transitions.width);
        const i32* own_labels = labels + starts[0];
        const double* own_weight = weight ? weight + block.first : nullptr;
        Chains<double> chains;
        chains.n_chains = n_chains;
        chains.ptr = starts;
        chains.stride = stride_of_states;
        chains.unary = chains.posterior = scores;
        chains.labels = own_labels;
        chains.weight = own_weight;
        chains.pairs = pairs;
        chains.counts = counts;
        chains.terms = terms;
        chains.predicted = predicted.get();
        chains.runs = runs;
        chains.run_sums = counts + K * K;
        if (!ChainPass<double>(transitions, chains, longest, work.get()).run()) return false;
        for (i64 i = 0; i < n_chains; ++i) {
            const double factor = own_weight ? own_weight[i] : 1.0;
            for (i64 s = starts[i] - starts[0]; s < starts[i + 1] - starts[0]; ++s) {
                sums[0] += factor * terms[s];
                sums[1] += factor * (own_labels[s] >= 0 && predicted[s] != own_labels[s]);
                if (C < K) own[s] = 0.5 * (scores[2 * s + 1] - scores[2 * s]);
                for (i64 k = 0; k < C; ++k) {
                    own[s * S + k] *= factor;
                    by_intercept[k] += own[s * S + k];
                }
            }
        }
        return true;
    }

    // Adds the scores of the ends of chains. Returns the number of nodes of the longest chain.
    i64 add_ends(const i64* starts, i64 n_chains, i64 stride, double* scores) const {
        i64 longest = 1;
        for (i64 i = 0; i < n_chains; ++i) {
            double *first = scores + (starts[i] - starts[0]) * stride, *last = scores + (starts[i + 1] - starts[0] - 1) * stride;
            longest = std::max(longest, starts[i + 1] - starts[i]);
            for (i64 k = 0; k < transitions.n_states && ends; ++k) {
                first[k] += ends[k];
                last[k] += ends[transitions.n_states + k];
            }
        }
        return longest;
    }

    const Real* rows_of(const ChainPanel& panel) const { return reinterpret_cast<const Real*>(panel.features[0]); }

    void pull_rows(const ChainPanel& panel, i64 b, const double* own) const {
        const i64 start = ptr[blocks[b].first] - ptr[blocks[panel.first].first];
        const i64 n = ptr[blocks[b].last] - ptr[blocks[b].first];
        double* gradient = partial + (b + 1) * n_sums() - n_columns * dense->n_features;
        dense->pull(rows_of(panel) + start * dense->n_features, n, n_columns, stride(), own, gradient);
    }

    void set_columns(const ChainPanel& panel, i64 n, double* own) const {
        const i64 C = n_columns, S = stride();
        constexpr bool is_double = std::is_same<Real, double>::value;
        const auto narrow = workspace<Real>(dense && !is_double ? n * S : 0);
        Real* found = is_double ? static_cast<Real*>(static_cast<void*>(own)) : narrow.get();
        if (dense) dense->scores(rows_of(panel), n, C, S, found);
        for (i64 s = 0; s < n; ++s) {
            for (i64 k = 0; k < C; ++k) own[s * S + k] = (dense ? double(found[s * S + k]) : 0.0) + intercept[k];
            for (i64 k = C; k < S; ++k) own[s * S + k] = 0;
        }
        if (sparse) sparse->template add<false>(columns_of(panel), 0, panel.n_columns, S, own);
    }
};

}  // namespace crf
