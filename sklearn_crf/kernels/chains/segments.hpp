// Chains that score the runs of labels (semi-Markov chains): sums, best labelings and samples over all segmentations.
//
// A run is a maximal sequence of consecutive nodes with one label. A recursion over the nodes keeps, for each state, the
// scores of the labelings whose last run is still open, by the number of nodes of this run. They lie in a ring: a new
// run takes the slot of the run that has just reached the largest duration, which joins all longer runs. A node thus
// takes O(K (K + D)) operations. All sums are log-sum-exp in double precision, so that scores of any size can be handled.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "best_runs.hpp"
#include "chains.hpp"
#include "core/pool.hpp"
#include "core/types.hpp"
#include "core/rows.hpp"
#include "segment_chain.hpp"

namespace crf {

// Recursion over the nodes of a chain, in either direction: open runs by state and number of nodes.
class OpenRuns {
public:
    const i64 K, D, L, W, V;  // L: slots of the ring; W, V: slots and states padded to whole vectors
    std::vector<double> weight, total;  // (K, W) unnormalised probability of each open run; (K,) sum for each state
    std::vector<double> leaving, leaving_total;  // (K, V) probability of each state before a new run; (K,) sums
    std::vector<double> more;  // (K, W) scores of single open runs, without the scores of durations; or empty

    OpenRuns(i64 n_states, i64 n_durations, i64 least)
        : K(n_states), D(n_durations), L(D - 1), W(whole_vectors(D + 1)), V(whole_vectors(K)), weight(K * W), total(V),
          leaving(K * V), leaving_total(V), least(least), open(K * W), at_end(K * 2 * L),
          inside(K * 2 * L), mass(V), change(V), sums(V) {}

    void start(const double* scores) {
        durations = scores;
        std::fill(open.begin(), open.end(), -kInfinity);
        std::fill(mass.begin(), mass.end(), 1.0);
        for (i64 a = 0; a < K; ++a)
            for (i64 m = 0; m < 2 * L; ++m) {
                at_end[a * 2 * L + m] = durations[a * D + duration_at(m) - 1];
                inside[a * 2 * L + m] = duration_at(m) < least ? -kInfinity : at_end[a * 2 * L + m];
            }
    }

    // Returns the place of slot 0 in the window of durations at a step. Slot j holds runs of
    // 1 + (2 L - offset - j) % L nodes.
    i64 offset(i64 step) const { return L ? (L - step % L) % L : 0; }

    // Returns the number of nodes of the runs at a place of the window.
    i64 duration_at(i64 m) const { return 1 + (2 * L - m) % L; }

    // Returns the place in a row of the run of d nodes at step i, for d < D and d <= i + 1.
    i64 place(i64 i, i64 d) const { return d == i + 1 ? D : (i - d + 1) % L; }

    // Sets the scores of the open runs of a chain that end (or, in reverse, begin) at node s, which is step i.
    template <bool is_forward, class Chain>
    void read_spans(const Chain& chain, i64 i, i64 s) {
        if (!chain.has_spans()) return more.clear();
        if (!i) more.assign(K * W, 0.0);
        for (i64 d = 1; d <= std::min(i + 1, L); ++d) {
            chain.set_span(is_forward ? s - d + 1 : s, d, sums.data());
            for (i64 a = 0, j = place(i, d); a < K; ++a) more[a * W + j] = sums[a];
        }
        for (i64 a = 0; a < K && i >= L; ++a) more[a * W + D] = 0;
    }

    // Extends all open runs to the next node and opens new runs. Writes the scores of runs that end at this node.
    // within: (K,) score of an extension; begin: (K,) score of a run that begins here; own: (K,) score of the node
    void step(i64 i, bool is_end, const double* within, const double* begin, const double* own, double* out) {
        for (i64 a = 0; a < K && i; ++a)
            for (i64 j = 0; j < W; ++j) open[a * W + j] += within[a];
        join_longest(i, begin, own);
        const i64 shift = offset(i);
        for (i64 a = 0; a < K; ++a) {
            const double *row = open.data() + a * W, *scores = (is_end ? at_end : inside).data() + a * 2 * L + shift;
            double* x = weight.data() + a * W;
            for (i64 j = 0; j < L; ++j) x[j] = row[j] + scores[j];
            x[L] = row[L] + durations[a * D + L];
            x[D] = row[D] + durations[a * D + std::min(i, L)];
            for (i64 j = D + 1; j < W; ++j) x[j] = -kInfinity;
            for (i64 j = 0; j <= D && !more.empty(); ++j) x[j] += more[a * W + j];
        }
        sum_rows(weight.data(), W, mass.data(), total.data(), out);
    }

    // Computes the score of a new run of each state, given the scores of runs of other states that end one node before.
    // table[a * from + b * to]: score of a run of state b after a run of state a
    void leave(const double* out, const double* table, i64 from, i64 to, double* begin) {
        for (i64 b = 0; b < K; ++b) {
            double* x = leaving.data() + b * V;
            for (i64 a = 0; a < K; ++a) x[a] = out[a] + table[a * from + b * to];
            x[b] = -kInfinity;
            for (i64 a = K; a < V; ++a) x[a] = -kInfinity;
        }
        sum_rows(leaving.data(), V, nullptr, leaving_total.data(), begin);
    }

private:
    const i64 least;
    const double* durations = nullptr;  // (K, D)
    std::vector<double> open;  // (K, W) by slot; after the ring: all runs of at least D nodes, run from the first node
    std::vector<double> at_end, inside;  // (K, 2 L) scores of durations in the order of the ring, twice
    std::vector<double> mass, change;  // (V,) the sum over the runs of at least D nodes is mass * exp(open[L])
    std::vector<double> sums;

    // Puts new runs into the ring; the runs that give up their slots join the runs of at least D nodes.
    void join_longest(i64 i, const double* begin, const double* own) {
        const i64 slot = L ? i % L : 0;
        for (i64 a = 0; a < K; ++a) {
            double *row = open.data() + a * W, fresh = i ? begin[a] + own[a] : -kInfinity;
            if (!i) row[D] = begin[a] + own[a];
            if (L) std::swap(row[slot], fresh);
            change[a] = fresh > row[L] ? row[L] - fresh : fresh == -kInfinity ? fresh : fresh - row[L];
            // Whether the new run has the larger score is needed again after the exponentials are computed.
            sums[a] = fresh > row[L] ? 1 : 0;
            row[L] = std::max(row[L], fresh);
        }
        std::fill(change.begin() + K, change.end(), -kInfinity);
        exponentiate_all<double>(change.data(), V);
        for (i64 a = 0; a < K; ++a) mass[a] = sums[a] > 0 ? mass[a] * change[a] + 1 : mass[a] + change[a];
    }

    // Computes the log-sum-exp of K rows, and replaces the rows by exponentials. factor: (K,) multiplies entry L of
    // each row; or null
    void sum_rows(double* rows, i64 width, const double* factor, double* totals, double* out) {
        for (i64 a = 0; a < K; ++a) {
            double* row = rows + a * width;
            out[a] = row_max<double>(row, width);
            const double top = out[a] > -kInfinity ? out[a] : 0;
            for (i64 j = 0; j < width; ++j) row[j] -= top;
        }
        exponentiate_all<double>(rows, K * width);
        for (i64 a = 0; a < K; ++a) {
            double* row = rows + a * width;
            if (factor) row[L] *= factor[a];
            totals[a] = row_sum<double>(row, width);
        }
        for (i64 a = K; a < V; ++a) totals[a] = 1;
        logarithms<double>(totals, V, sums.data());
        for (i64 a = 0; a < K; ++a) out[a] += sums[a];
    }
};

// Backward recursion of one chain. Every node has a constant subtracted from its scores, so that the scores of the rest
// of a chain stay close to zero.
template <class Real, bool is_max>
class RestOfChain {
public:
    // Score of the rest of the chain, from a run that begins at a node and after a run that ends there, (n_rows, K); and
    // the constant subtracted at each node, (n_rows,). Node s has row s % n_rows.
    std::vector<double> begin, after, constant;
    std::vector<i32> end, next;  // (n, K) for maxima: end of the best run that begins here; best state after a run
    std::vector<double> own, within, opening;  // (V,) scores of a node, of extending a run to it, of a new run
    using Runs = std::conditional_t<is_max, BestRuns, OpenRuns>;
    Runs& runs;

    double total_constant = 0;  // sum of the constants of all nodes

    // n_rows: the largest number of nodes of a chain; or 2, if only the score of the whole chain is needed
    RestOfChain(i64 n_rows, Runs& runs)
        : begin(n_rows * runs.K), after(n_rows * runs.K), constant(n_rows), end(is_max ? n_rows * runs.K : 0),
          next(end.size()), own(runs.V), within(runs.V), opening(runs.V), runs(runs), K(runs.K), n_rows(n_rows) {}

    // Returns the score of the whole chain without the constants, or -inf if every labeling is forbidden.
    double run(SegmentChain<Real>& chain, const double* durations) {
        const i64 n = chain.n_nodes;
        runs.start(durations);
        total_constant = 0;
        for (i64 i = 0; i < n; ++i) {
            const i64 s = n - 1 - i, row = s % n_rows, later = (s + 1) % n_rows;
            double *here = begin.data() + row * K, *left = after.data() + row * K;
            for (i64 a = 0; a < K; ++a) own[a] = chain.own(s, a);
            for (i64 a = 0; a < K; ++a) opening[a] = own[a] + chain.ends(s, a);
            if (i) {
                const double* table = chain.table(s + 1);
                const double* out = begin.data() + later * K;
                if constexpr (is_max) runs.leave(out, table, chain.has_mixed_tables(), left);
                else runs.leave(out, table, 1, K, left);
                for (i64 a = 0; a < K; ++a) within[a] = own[a] + table[a * K + a] - constant[later];
            } else {
                std::fill_n(left, K, 0.0);
            }
            runs.template read_spans<false>(chain, i, s);
            runs.step(i, !s, within.data(), left, opening.data(), here);
            for (i64 a = 0; a < K; ++a) here[a] += chain.begins(s, a);
            subtract_constant(row, here);
            if constexpr (is_max)
                for (i64 a = 0; a < K; ++a) {
                    end[s * K + a] = i32(n - 1 - runs.begun[a]);
                    next[s * K + a] = i32(i ? runs.source[a] : 0);
                }
        }
        double best = -kInfinity, sum = 0;
        for (i64 a = 0; a < K; ++a) best = std::max(best, begin[a]);
        if (is_max || best == -kInfinity) return best;
        for (i64 a = 0; a < K; ++a) sum += std::exp(begin[a] - best);
        return best + std::log(sum);
    }

private:
    const i64 K, n_rows;

    void subtract_constant(i64 row, double* here) {
        double best = *std::max_element(here, here + K);
        // With least durations, no run may begin here.
        if (best == -kInfinity) best = *std::max_element(own.begin(), own.begin() + K);
        constant[row] = best > -kInfinity ? best : 0;
        total_constant += constant[row];
        for (i64 a = 0; a < K; ++a) here[a] -= constant[row];
    }
};

// Marginals of the nodes and of runs, and expected counts of pairs of states and of durations.
template <class Real>
class SegmentMarginals {
public:
    // posterior: (N, K); ends: (2, N, K) or null; spans: (N, D - 1, K), initially zeros, or null; means: (N, K) or null
    // terms: (N,) terms of log Z; sums: (n_blocks, n_sums) tables (T, R, K, K), then durations (S, K, D)
    // t, runs: the table and the factors of durations if all chains share them, else null
    SegmentMarginals(const SegmentChains<Real>& chains, const Transitions* t, const RunFactors* runs, Real* posterior,
                     Real* ends, Real* spans, Real* means, double* terms, double* sums, i64 n_types)
        : c(chains), t(t), factors(runs), posterior(posterior), of_ends(ends), of_spans(spans), of_means(means),
          terms(terms), sums(sums), n_types(n_types) {}

    i64 n_tables() const { return c.n_tables * c.n_features * c.n_states * c.n_states; }
    i64 n_sums() const { return n_tables() + n_types * c.n_states * c.n_durations; }

    // Returns a chain whose labelings are all forbidden, or -1. The first block holds the sums of all blocks.
    i64 run(const Threads& threads) const {
        const i64 failed = c.first_failed(threads, [&](i64 block) { return run_block(block); });
        for (i64 block = 1; block < c.n_blocks; ++block)
            for (i64 k = 0; k < n_sums(); ++k) sums[k] += sums[block * n_sums() + k];
        return failed;
    }

private:
    const SegmentChains<Real>& c;
    const Transitions* t;
    const RunFactors* factors;
    Real *const posterior, *const of_ends, *const of_spans, *const of_means;
    double *const terms, *const sums;
    const i64 n_types;

    i64 run_block(i64 block) const {
        double* own_sums = sums + block * n_sums();
        std::fill_n(own_sums, n_sums(), 0.0);
        const auto in_probabilities = [&] {
            return c.spans || c.means ? run_in_probabilities<true>(block, own_sums)
                                      : run_in_probabilities<false>(block, own_sums);
        };
        if (factors && in_probabilities()) return -1;
        OpenRuns runs(c.n_states, c.n_durations, c.least);
        RestOfChain<Real, false> rest(c.longest(block), runs);
        for (i64 number = c.blocks[block]; number < c.blocks[block + 1]; ++number) {
            SegmentChain<Real> chain(c, number);
            const i64 type = c.duration_type[number] * c.n_states * c.n_durations;
            const double total = rest.run(chain, c.durations + type);
            if (total == -kInfinity) return number;
            forward(chain, c.ptr[number], total, c.durations + type, runs, rest, own_sums, own_sums + n_tables() + type);
        }
        return -1;
    }

    // Returns false, and adds no sums, if probabilities are too small.
    template <bool has_single>
    bool run_in_probabilities(i64 block, double* own_sums) const {
        const i64 K = c.n_states, D = c.n_durations, W = t->width, size = c.longest(block) * W;
        std::vector<double> work((of_ends ? 5 : 3) * size), pairs(K * W), of_runs((1 + D) * W);
        double *own = work.data(), *firsts = of_ends ? own + 3 * size : nullptr, *lasts = of_ends ? firsts + size : nullptr;
        RunSums run(*factors, t->factor, t->transposed, K, W, t->least, c.longest(block), of_runs.data());
        for (i64 number = c.blocks[block]; number < c.blocks[block + 1]; ++number) {
            const SegmentChain<Real> chain(c, number);
            const i64 first = c.ptr[number], n = chain.n_nodes;
            SingleRunStatistics<Real, has_single> single(chain, K, W, D - 1, first, of_spans, of_means);
            const double largest_span = has_single ? chain.largest_span() : 0.0;
            std::fill(work.begin(), work.end(), -kInfinity);
            for (i64 s = 0; s < n; ++s) {
                double top = -kInfinity, least = kInfinity, largest = 0;
                for (i64 a = 0; a < K; ++a) {
                    const double score = chain.own(s, a), ends[] = {chain.begins(s, a), chain.ends(s, a)};
                    top = std::max(top, score);
                    if (score > -kInfinity) least = std::min(least, score);
                    for (double end : ends) largest = end > -kInfinity ? std::max(largest, std::fabs(end)) : largest;
                    own[s * W + a] = score;
                    if (of_ends) firsts[s * W + a] = ends[0];
                    if (of_ends) lasts[s * W + a] = ends[1];
                }
                if (!(top - least + 2 * (largest + largest_span) <= t->widest)) return false;
                for (i64 a = 0; a < K; ++a) own[s * W + a] -= top;
                terms[first + s] = top + (s ? t->best : 0.0);
            }
            exponentiate_all<double>(own, n * W);
            if (of_ends) exponentiate_all<double>(firsts, n * W);
            if (of_ends) exponentiate_all<double>(lasts, n * W);
            if (!run.run(n, 1, own, own + size, own + 2 * size, terms + first, pairs.data(), firsts, lasts, single))
                return false;
            for (i64 s = 0; s < n; ++s)
                for (i64 a = 0; a < K; ++a) {
                    posterior[(first + s) * K + a] = Real(own[s * W + a]);
                    if (!of_ends) continue;
                    of_ends[(first + s) * K + a] = Real(firsts[s * W + a]);
                    of_ends[(c.ptr[c.n_chains] + first + s) * K + a] = Real(lasts[s * W + a]);
                }
            single.finish(posterior);
        }
        run.add_counts();
        for (i64 a = 0; a < K; ++a) {
            for (i64 b = 0; b < K; ++b)
                own_sums[a * K + b] = a == b ? of_runs[a] : pairs[a * W + b] * t->factor[a * W + b];
            for (i64 d = 0; d < D; ++d) own_sums[n_tables() + a * D + d] = of_runs[(1 + d) * W + a];
        }
        return true;
    }

    void forward(SegmentChain<Real>& chain, i64 first, double log_z, const double* scores, OpenRuns& runs,
                 RestOfChain<Real, false>& rest, double* pairs, double* durations) const {
        const i64 K = runs.K, L = runs.L, V = runs.V, W = runs.W;
        std::vector<double> begin(V), ended(V), begins(V), ends(V), present(V), counts(K * 2 * L), of_run(V);
        SingleRunStatistics<Real, true> single(chain, K, V, L, first, of_spans, of_means);
        runs.start(scores);
        for (i64 s = 0; s < chain.n_nodes; ++s) {
            for (i64 a = 0; a < K; ++a) rest.own[a] = chain.own(s, a) - rest.constant[s];
            if (s) {
                const double* table = chain.table(s);
                runs.leave(ended.data(), table, K, 1, begin.data());
                for (i64 a = 0; a < K; ++a) rest.within[a] = rest.own[a] + table[a * K + a];
            }
            for (i64 a = 0; a < K; ++a) rest.opening[a] = rest.own[a] + chain.begins(s, a);
            runs.template read_spans<true>(chain, s, s);
            runs.step(s, s == chain.n_nodes - 1, rest.within.data(), begin.data(), rest.opening.data(), ended.data());
            for (i64 a = 0; a < K; ++a) ended[a] += chain.ends(s, a);
            for (i64 a = 0; a < V; ++a) {
                begins[a] = a < K ? begin[a] + rest.begin[s * K + a] - log_z : -kInfinity;
                ends[a] = a < K ? ended[a] + rest.after[s * K + a] - log_z : -kInfinity;
            }
            exponentiate_all<double>(begins.data(), V);
            exponentiate_all<double>(ends.data(), V);
            if (s) add_pairs(chain.edge(s), runs, begins.data(), present.data(), pairs);
            const i64 shift = runs.offset(s);
            for (i64 a = 0; a < K; ++a) {
                present[a] += begins[a];
                posterior[(first + s) * K + a] = Real(present[a]);
                present[a] = std::max(present[a] - ends[a], 0.0);
                if (of_ends) {
                    of_ends[(first + s) * K + a] = Real(begins[a]);
                    of_ends[(c.ptr[c.n_chains] + first + s) * K + a] = Real(ends[a]);
                }
                if (!(ends[a] > 0)) continue;
                const double* weight = runs.weight.data() + a * W;
                const double share = ends[a] / runs.total[a];
                double* row = counts.data() + a * 2 * L + shift;
                for (i64 j = 0; j < L; ++j) row[j] += share * weight[j];
                durations[a * runs.D + L] += share * weight[L];
                durations[a * runs.D + std::min(s, L)] += share * weight[runs.D];
            }
            for (i64 d = 1; d <= std::min(s + 1, L) && (of_spans || of_means); ++d) {
                for (i64 a = 0; a < K; ++a)
                    of_run[a] = ends[a] > 0 ? ends[a] / runs.total[a] * runs.weight[a * W + runs.place(s, d)] : 0.0;
                single.add_run(s - d + 1, d, of_run.data());
            }
            terms[first + s] = rest.constant[s];
        }
        terms[first] += log_z;
        single.finish(posterior);
        for (i64 a = 0; a < K; ++a)
            for (i64 m = 0; m < 2 * L; ++m) durations[a * runs.D + runs.duration_at(m) - 1] += counts[a * 2 * L + m];
    }

    // begins: (K,) probability that a run begins; present: (K,) probability that a run continues from the last node
    void add_pairs(i64 edge, const OpenRuns& runs, const double* begins, const double* present,
                   double* pairs) const {
        const i64 K = runs.K, R = c.n_features;
        double* own = pairs + c.edge_type[edge] * R * K * K;
        for (i64 r = 0; r < R; ++r) {
            const double feature = c.edge_weight ? double(c.edge_weight[edge * R + r]) : 1.0;
            for (i64 b = 0; b < K; ++b) {
                own[(r * K + b) * K + b] += feature * present[b];
                if (!(begins[b] > 0)) continue;
                const double share = feature * begins[b] / runs.leaving_total[b];
                for (i64 a = 0; a < K; ++a) own[(r * K + a) * K + b] += share * runs.leaving[b * runs.V + a];
            }
        }
    }
};

// Writes the log-partition of every chain to `log_z` (n_chains,), in memory for D durations of K states. Returns a chain
// whose labelings are all forbidden, or -1.
template <class Real>
i64 sum_segments(const SegmentChains<Real>& c, const Threads& threads, double* log_z) {
    return c.first_failed(threads, [&](i64 block) -> i64 {
        OpenRuns runs(c.n_states, c.n_durations, c.least);
        RestOfChain<Real, false> rest(2, runs);
        for (i64 number = c.blocks[block]; number < c.blocks[block + 1]; ++number) {
            SegmentChain<Real> chain(c, number);
            const double total = rest.run(chain, c.durations + c.duration_type[number] * c.n_states * c.n_durations);
            if (total == -kInfinity) return number;
            log_z[number] = total + rest.total_constant;
        }
        return -1;
    });
}

// Writes the best labeling of every chain. Returns a chain whose labelings are all forbidden, or -1.
template <class Real>
i64 best_segments(const SegmentChains<Real>& c, const Threads& threads, i32* labels) {
    return c.first_failed(threads, [&](i64 block) -> i64 {
        BestRuns runs(c.n_states, c.n_durations, c.least);
        RestOfChain<Real, true> rest(c.longest(block), runs);
        for (i64 number = c.blocks[block]; number < c.blocks[block + 1]; ++number) {
            SegmentChain<Real> chain(c, number);
            const double* durations = c.durations + c.duration_type[number] * c.n_states * c.n_durations;
            const i64 K = c.n_states;
            if (rest.run(chain, durations) == -kInfinity) return number;
            i64 label = std::max_element(rest.begin.begin(), rest.begin.begin() + K) - rest.begin.begin();
            for (i64 s = 0, end; s < chain.n_nodes; s = end + 1) {
                end = rest.end[s * K + label];
                std::fill(labels + c.ptr[number] + s, labels + c.ptr[number] + end + 1, i32(label));
                label = rest.next[end * K + label];
            }
        }
        return -1;
    });
}

// Draws an index by unnormalised log-probabilities. Replaces the uniform number by its relative position within the
// interval of the index, so that the caller can draw again.
inline i64 draw(const std::vector<double>& scores, double* uniform) {
    const double top = *std::max_element(scores.begin(), scores.end());
    double total = 0, before = 0;
    for (double score : scores) total += std::exp(score - top);
    i64 last = 0;
    for (i64 b = 0; b < i64(scores.size()); ++b) {
        const double share = std::exp(scores[b] - top) / total;
        if (!(share > 0)) continue;
        last = b;
        if (before + share > *uniform) {
            *uniform = std::min(std::max((*uniform - before) / share, 0.0), 1.0);
            return b;
        }
        before += share;
    }
    *uniform = 1;
    return last;  // reached only if rounding makes the sum of the shares less than the uniform number
}

// Draws the last node of a run that begins at node s.
template <class Real>
i64 draw_end(SegmentChain<Real>& chain, const double* durations, i64 least, const RestOfChain<Real, false>& rest, i64 s,
             i64 label, double uniform) {
    const i64 K = rest.runs.K, D = rest.runs.D;
    double score = chain.begins(s, label) - rest.begin[s * K + label], before = 0;
    std::vector<double> single(whole_vectors(K));
    i64 last = s;
    for (i64 end = s; end < chain.n_nodes; ++end) {
        score += chain.own(end, label) - rest.constant[end];
        if (end > s) score += chain.table(end)[label * K + label];
        if (score == -kInfinity) break;
        if (s && end < chain.n_nodes - 1 && end - s + 1 < least) continue;
        const i64 d = end - s + 1;
        if (d < D) chain.set_span(s, d, single.data());
        const double of_run = durations[std::min(d, D) - 1] + chain.ends(end, label) + (d < D ? single[label] : 0.0);
        const double share = std::exp(score + of_run + rest.after[end * K + label]);
        if (!(share > 0)) continue;
        last = end;
        before += share;
        if (before > uniform) break;
    }
    return last;
}

// Draws labelings of every chain, with one uniform number in [0, 1) for each run. Returns a chain whose labelings are
// all forbidden, or -1.
// uniform, labels: (n_samples, N)
template <class Real>
i64 sample_segments(const SegmentChains<Real>& c, const Threads& threads, i64 n_samples, const double* uniform,
                    i32* labels) {
    const i64 K = c.n_states, D = c.n_durations, n_nodes = c.ptr[c.n_chains];
    return c.first_failed(threads, [&](i64 block) -> i64 {
        OpenRuns runs(K, D, c.least);
        RestOfChain<Real, false> rest(c.longest(block), runs);
        std::vector<double> share(K);
        for (i64 number = c.blocks[block]; number < c.blocks[block + 1]; ++number) {
            SegmentChain<Real> chain(c, number);
            const double* durations = c.durations + c.duration_type[number] * K * D;
            const i64 first = c.ptr[number], n = chain.n_nodes;
            if (rest.run(chain, durations) == -kInfinity) return number;
            for (i64 k = 0; k < n_samples; ++k) {
                i64 label = -1;
                for (i64 s = 0, end; s < n; s = end + 1) {
                    double left = uniform[k * n_nodes + first + s];
                    const double* table = s ? chain.table(s) : nullptr;
                    for (i64 b = 0; b < K; ++b)
                        share[b] = b == label ? -kInfinity : rest.begin[s * K + b] + (s ? table[label * K + b] : 0.0);
                    label = draw(share, &left);
                    end = draw_end(chain, durations + label * D, c.least, rest, s, label, left);
                    std::fill(labels + k * n_nodes + first + s, labels + k * n_nodes + first + end + 1, i32(label));
                }
            }
        }
        return -1;
    });
}

}  // namespace crf
