// Sums over all labelings of a chain that scores the durations of runs, in probabilities.
//
// A run is a maximal sequence of consecutive nodes with one label. A recursion over the nodes keeps the probability of
// each open run by its state and number of nodes, so that a node takes O(K (K + D)) operations. Forward probabilities are
// normalised at every node, and backward sums are divided by the same totals. If every run may follow every other run,
// the range of the scores limits the backward sums, so that probabilities that underflow do not matter. Otherwise, a
// chain with a very small probability is rejected.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/types.hpp"
#include "core/rows.hpp"

namespace crf {

// Scores of the durations of runs, in the form that the recursions need.
struct RunFactors {
    i64 n_durations, shortest;  // shorter runs are forbidden, except at the ends of a chain
    const double* score;  // (K, D) scores of runs of 1, 2, ... nodes; the last also holds for all longer runs
    const double* factor;  // (D, W) exp(score - best)
    const double* stay;  // (W,) exp(score - maximum) of a pair of equal labels
    double best;
};

// Takes the place of the scores of the single runs of a chain if there are none.
struct NoSingleRuns {
    static constexpr bool exist = false;
    template <bool is_forward>
    void read(i64, i64, double*) const {}
    void add(i64, i64, const double*) const {}
};

// Open runs of all states in one direction along a chain.
class OpenRunSums {
public:
    // least: forward() fails if a positive probability is smaller; 0 disables this check
    // counts: (D, W) expected numbers of runs divided by their factors, added to by backward steps
    // single: (D - 1, W) factors of the runs of 1, 2, ... nodes that end at a node (or begin, from right to left), set
    // before a step; backward steps replace them by the probabilities of the runs
    OpenRunSums(const RunFactors& runs, i64 width, double least, double* counts, double* single)
        : r(runs), L(r.n_durations - 1), W(width), n_rows(2 * L + 1), least(least), counts(counts), single(single),
          rows(n_rows * W), longer(W) {}

    void start() {
        n_open = 0;
        head = n_rows;
        std::fill(longer.begin(), longer.end(), 0.0);
    }

    // Extends all runs by a node with factors `grow` (W,), and opens runs `fresh` (W,). Writes the sums over the runs
    // that may end at this node, times the factors of their durations, to `out` (W,). is_end: whether this is the last
    // node. Returns the sum over all open runs, or -1 if a probability is too small.
    template <bool has_single>
    double forward(bool is_end, const double* grow, const double* fresh, double* out) {
        return least > 0 ? step<kChecked, has_single>(is_end, grow, fresh, nullptr, out)
                         : step<kForward, has_single>(is_end, grow, fresh, nullptr, out);
    }

    // Extends runs like forward(), without returning a sum, and adds the runs times `share` (W,) to the counts.
    template <bool has_single>
    void backward(bool is_end, const double* grow, const double* fresh, const double* share, double* out) {
        step<kBackward, has_single>(is_end, grow, fresh, share, out);
    }

private:
    enum Mode { kForward, kChecked, kBackward };

    const RunFactors& r;
    const i64 L, W, n_rows;  // L: largest duration with a row of its own
    const double least;
    double *const counts, *const single;
    std::vector<double> rows;  // (n_rows, W) from row `head` on: open runs of 1, 2, ..., n_open nodes
    std::vector<double> longer;  // (W,) runs of more than L nodes
    i64 n_open = 0, head = 0;

    template <Mode mode, bool has_single>
    double step(bool is_end, const double* grow, const double* fresh, const double* share, double* out) {
        return call_at_level([&] { return extend_all<mode, has_single>(is_end, grow, fresh, share, out); });
    }

    template <Mode mode, bool has_single>
    double extend_all(bool is_end, const double* grow, const double* fresh, const double* share, double* out) {
        // The run that began at the first node may be shorter than others, like runs that end at the last node.
        const i64 shortest = is_end ? 1 : std::min(r.shortest, n_open + 1), oldest = n_open == L ? L : 0;
        n_open = std::min(n_open + 1, L);
        if (head == 0) {
            head = n_rows - L;
            std::copy_n(rows.begin(), L * W, rows.begin() + head * W);
        }
        if (L) --head;
        double total = 0, smallest = 1;
        for (i64 a = 0; a < W; a += 4) {
            double* row = rows.data() + head * W + a;
            for (int k = 0; k < 4; ++k) {
                longer[a + k] = (longer[a + k] + (oldest ? row[L * W + k] : 0.0)) * grow[a + k];
                if (L) row[k] = fresh[a + k];
                else longer[a + k] += fresh[a + k];
            }
            extend<mode, has_single>(shortest, row, a, grow + a, share, out + a, &total, &smallest);
        }
        return smallest < least ? -1 : total;
    }

    // Extends the runs of four states.
    template <Mode mode, bool has_single>
    void extend(i64 shortest, double* restrict row, i64 a, const double* grow, const double* share, double* out,
                double* total, double* smallest) {
        const double* restrict factor = r.factor + a;
        double* restrict counted = counts + a;
        double g[4], h[4], one[4], sum[4], all[4], low[4];
        for (int k = 0; k < 4; ++k) {
            g[k] = grow[k];
            h[k] = mode == kBackward ? share[a + k] : 0;
            one[k] = low[k] = 1;
            sum[k] = all[k] = 0;
        }
        const auto visit = [&](const double* x, i64 j, bool may_end, double* ends) {
            for (int k = 0; k < 4; ++k) {
                if (mode != kBackward) all[k] += x[k];
                if (mode == kChecked) low[k] = x[k] > 0 && x[k] < low[k] ? x[k] : low[k];
                const double y = has_single && ends ? x[k] * ends[k] : x[k];
                if (may_end) sum[k] += y * factor[j * W + k];
                if (may_end && mode == kBackward) counted[j * W + k] += y * h[k];
                if (has_single && ends && mode == kBackward) ends[k] = may_end ? y * h[k] * factor[j * W + k] : 0;
            }
        };
        for (i64 j = 0; j < n_open; ++j) {
            double x[4];
            for (int k = 0; k < 4; ++k) x[k] = row[j * W + k] * (j ? g[k] : one[k]);
            for (int k = 0; k < 4; ++k) row[j * W + k] = x[k];
            visit(x, j, j >= shortest - 1, has_single ? single + j * W + a : nullptr);
        }
        visit(longer.data() + a, L, true, nullptr);
        for (int k = 0; k < 4; ++k) {
            out[k] = sum[k];
            *total += all[k];
            *smallest = std::min(*smallest, low[k]);
        }
    }
};

// Forward-backward algorithm of one chain.
class RunSums {
public:
    // leave, back: (K, W) exp(score - maximum) of pairs of states, with zeros for equal states, and its transpose
    // sums: (1 + D, W) expected pairs of equal states, and expected runs minus the runs of labels; added to
    RunSums(const RunFactors& runs, const double* leave, const double* back, i64 K, i64 W, double least, i64 longest,
            double* sums)
        : r(runs), leave(leave), back(back), K(K), W(W), sums(sums), counts(r.n_durations * W),
          single((r.n_durations - 1) * W), open(r, W, least, counts.data(), single.data()), inverse(longest), grow(W),
          share(W), after(W), fresh(W), present(W) {}

    // Subtracts the scores and counts of the runs of labels. Returns false if a run is forbidden.
    bool subtract_labels(i64 n, double weight, const i32* labels, double* terms) {
        for (i64 s = 0, end; s < n; s = end) {
            for (end = s + 1; end < n && labels[end] == labels[s];) ++end;
            if (s && end < n && end - s < r.shortest) return false;
            const i64 d = std::min(end - s, r.n_durations);
            terms[s] -= r.score[labels[s] * r.n_durations + d - 1];
            sums[d * W + labels[s]] -= weight;
        }
        return true;
    }

    // Replaces exp(scores) of nodes `own` (n, W) by marginals. Returns false if probabilities are too small or large.
    // begun, ended: workspace (n, W); terms: (n,) terms of log Z, added to
    // pairs: (K, W) expected pairs of different states over their factors, times weight, added to
    // firsts, lasts: (n, W) exp(scores) of the first and last nodes of runs, replaced by their probabilities; or null
    // of_runs: scores of single runs; receives their probabilities times weight
    template <class SingleRuns = NoSingleRuns>
    bool run(i64 n, double weight, double* own, double* begun, double* ended, double* terms, double* pairs,
             double* firsts = nullptr, double* lasts = nullptr, SingleRuns&& of_runs = {}) {
        return forward(n, own, begun, ended, terms, firsts, lasts, of_runs)
            && backward(n, weight, own, begun, ended, pairs, firsts, lasts, of_runs);
    }

    // Adds the expected runs of all chains so far to the sums.
    void add_counts() {
        for (i64 k = 0; k < r.n_durations * W; ++k) sums[W + k] += counts[k] * r.factor[k];
        std::fill(counts.begin(), counts.end(), 0.0);
    }

private:
    const RunFactors& r;
    const double *const leave, *const back;
    const i64 K, W;
    double* const sums;
    std::vector<double> counts;  // (D, W) expected numbers of runs divided by their factors
    std::vector<double> single;  // (D - 1, W) factors or probabilities of the single runs that end or begin at a node
    OpenRunSums open;
    std::vector<double> inverse;  // (n,) inverse of the total at each node
    std::vector<double> grow, share, after, fresh, present;  // (W,)

    // Sets the factors of the single runs that end at node s, or begin there.
    template <bool is_forward, class SingleRuns>
    void set_single(const SingleRuns& of_runs, i64 s, i64 n_runs) {
        if constexpr (std::decay_t<SingleRuns>::exist) {
            of_runs.template read<is_forward>(s, n_runs, single.data());
            exponentiate_all<double>(single.data(), n_runs * W);
        }
    }

    template <class SingleRuns>
    bool forward(i64 n, const double* own, double* begun, double* ended, double* terms, const double* firsts,
                 const double* lasts, const SingleRuns& of_runs) {
        double product = 1;
        open.start();
        for (i64 s = 0; s < n; ++s) {
            double *begin = begun + s * W, *end = ended + s * W;
            if (s) sum_product<double>(leave, end - W, K, W, begin);
            for (i64 a = 0; a < W; ++a) {
                begin[a] = s ? begin[a] * own[s * W + a] : own[a];
                grow[a] = s ? own[s * W + a] * (r.stay[a] * inverse[s - 1]) : 0;
            }
            for (i64 a = 0; a < W && firsts; ++a) begin[a] *= firsts[s * W + a];
            set_single<true>(of_runs, s, std::min(s + 1, r.n_durations - 1));
            const double total = open.forward<SingleRuns::exist>(s == n - 1, grow.data(), begin, end);
            for (i64 a = 0; a < W && lasts; ++a) end[a] *= lasts[s * W + a];
            if (!(total > 1 / kMost && total < kMost)) return false;
            inverse[s] = 1 / total;
            row_scale<double>(end, inverse[s], W);
            product *= total;
            if (s == n - 1) product *= row_sum<double>(end, W);
            else if (1 / kMost < product && product < kMost) continue;
            terms[s] += std::log(product);
            product = 1;
        }
        terms[0] += r.best;
        return true;
    }

    template <class SingleRuns>
    bool backward(i64 n, double weight, double* own, const double* begun, const double* ended, double* pairs,
                  double* firsts, double* lasts, SingleRuns& of_runs) {
        const double last = row_sum<double>(ended + (n - 1) * W, W);
        double total = 0;
        open.start();
        for (i64 a = 0; a < W; ++a) {
            after[a] = a < K ? 1 / last : 0;
            present[a] = grow[a] = 0;
        }
        for (i64 s = n - 1; s >= 0; --s) {
            const double *begin = begun + s * W, *end = ended + s * W;
            double *here = own + s * W, *sum = fresh.data();
            for (i64 a = 0; a < W; ++a) {
                if (s < n - 1) grow[a] *= r.stay[a] * inverse[s];
                fresh[a] = after[a] * inverse[s];
                share[a] = weight * begin[a];
            }
            for (i64 a = 0; a < W && lasts; ++a) {
                fresh[a] *= lasts[s * W + a];
                lasts[s * W + a] = end[a] * after[a];
            }
            const i64 n_single = std::min(n - s, r.n_durations - 1);
            set_single<false>(of_runs, s, n_single);
            open.backward<SingleRuns::exist>(s == 0, grow.data(), fresh.data(), share.data(), sum);
            of_runs.add(s, n_single, single.data());
            total = 0;
            for (i64 a = 0; a < W; ++a) {
                grow[a] = here[a];
                sums[a] += weight * present[a];
                here[a] = present[a] + end[a] * after[a];
                present[a] = std::max(here[a] - begin[a] * sum[a], 0.0);
                total += here[a];
            }
            for (i64 a = 0; a < W && firsts; ++a) {
                const double factor = firsts[s * W + a];
                firsts[s * W + a] = begin[a] * sum[a];
                sum[a] *= factor;
            }
            for (i64 a = 0; a < W; ++a) {
                here[a] /= total;
                sum[a] *= grow[a];
            }
            if (!s) break;
            add_outer<double>(end - W, weight, sum, K, W, pairs);
            sum_product<double>(back, sum, K, W, after.data());
        }
        // After an overflow, the total is NaN or infinite.
        return std::fabs(total - 1) < 1e-3;
    }

    static constexpr double kMost = 1e150;
};

}  // namespace crf
