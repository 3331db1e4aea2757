// Forward-backward algorithm for chains that share one transition table.
//
// All data of a chain stay in the cache from its scores to its statistics. Probabilities are normalised at every node
// and kept in double precision, whatever the precision of the scores. If pairs are forbidden and the probabilities of a
// chain would underflow, the chain is computed again by log-sum-exp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "core/types.hpp"
#include "core/rows.hpp"
#include "run_sums.hpp"

namespace crf {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A transition table in the forms that the passes need.
struct Transitions {
    i64 n_states, width;  // width: states padded to whole vectors
    const double* table;  // (K, K)
    const double* factor;  // (K, W) exp(table - maximum), padded with zeros
    const double* transposed;  // (K, W) `factor` of the transposed table
    double best;
    double widest;  // largest score range of a node at which no probability underflows
    double least;  // if pairs are forbidden, smallest nonzero sum that is safe from underflow; else 0
};

// Consecutive chains, and pointers to the requested results; null for results that are not requested.
template <class Real>
struct Chains {
    i64 n_chains;
    const i64* ptr;  // (n_chains + 1,) first node of each chain
    i64 stride;  // distance between the rows of two nodes in unary and posterior
    const Real* unary;  // (N, K), starting at node ptr[0], like all other arrays
    const i32* labels = nullptr;  // (N,) negative if missing
    const double* weight = nullptr;  // (n_chains,) weights of the pairs of each chain; null for ones
    Real* posterior = nullptr;  // (N, K) marginals, minus the marginals given the labels; may be unary itself
    double* pairs = nullptr;  // (K, W) pair marginals over factor, minus pair marginals given partial labels; added to
    double* counts = nullptr;  // (K, K) label pairs of fully labelled chains, added to
    double* terms = nullptr;  // (N,) terms that sum to the negative log-likelihood, or to log Z without labels
    i32* predicted;  // (N,) most probable state
    const RunFactors* runs = nullptr;  // scores of the durations of runs, or null
    double* run_sums = nullptr;  // (1 + D, W) the sums of RunSums, added to
};

// Returns the size of the workspace for chains of at most this number of nodes.
inline i64 pass_workspace(i64 longest, i64 width) { return (3 * longest + 2) * width + longest; }

template <class Real>
class ChainPass {
public:
    ChainPass(const Transitions& transitions, const Chains<Real>& chains, i64 longest, double* work)
        : t(transitions), c(chains), K(t.n_states), W(t.width), longest(longest), forward(work), own(work + longest * W),
          backwards(own + longest * W), product(backwards + longest * W), terms(product + 2 * W) {
        if (c.runs) sums.reset(new RunSums(*c.runs, t.factor, t.transposed, K, W, t.least, longest, c.run_sums));
    }

    // Returns false, with undefined results, if the score range is too wide. If pairs are forbidden, every score range
    // is accepted, and false means that the labels or all labelings are forbidden.
    bool run() {
        for (i64 i = 0; i < c.n_chains; ++i) {
            const i64 first = c.ptr[i] - c.ptr[0], n = c.ptr[i + 1] - c.ptr[i];
            const double weight = c.weight ? c.weight[i] : 1.0;
            scores = c.unary + first * c.stride;
            labels = c.labels ? c.labels + first : nullptr;
            const bool is_complete = !labels || std::all_of(labels, labels + n, [](i32 label) { return label >= 0; });
            if (is_complete ? !run_chain(first, n, weight) : !run_known(first, n, weight)) return false;
        }
        if (sums) sums->add_counts();
        return true;
    }

private:
    const Transitions& t;
    const Chains<Real>& c;
    const i64 K, W, longest;
    double *const forward, *const own, *const backwards, *const product, *const terms;
    const Real* scores = nullptr;  // scores from the first node of a chain on, like the labels
    const i32* labels = nullptr;  // all of them, or null
    const i32* known = nullptr;  // labels to which sums are restricted if not negative; or null
    std::unique_ptr<Real[]> kept;
    std::unique_ptr<RunSums> sums;  // null without scores of durations

    bool run_chain(i64 first, i64 n, double weight) const {
        bool fits = true;
        for (i64 s = 0; s < n; ++s) {
            double best;
            fits &= below_best(s, own + s * W, &best);
            if (c.terms && !add_label(s, best, weight)) return false;
        }
        if (fits && n == 1 && !c.terms && !c.posterior && !c.pairs) {
            c.predicted[first] = first_of_best(own);
            return true;
        }
        if (sums) {
            exponentiate_all<double>(own, n * W);
            if (labels) fits = fits && sums->subtract_labels(n, weight, labels, terms);
            if (!fits || !sums->run(n, weight, own, forward, backwards, terms, c.pairs)) return false;
            for (i64 s = 0; s < n; ++s) set_node(first, s, own + s * W);
        } else {
            fits = fits && forwards(n) && backward(n);
            if (fits) statistics(first, n, weight);
            else if (!(t.least > 0) || !in_scores(first, n, weight)) return false;
        }
        for (i64 s = 0; s < n && c.terms; ++s) c.terms[first + s] = known ? c.terms[first + s] - terms[s] : terms[s];
        return true;
    }

    // Computes sums over all labelings, minus sums over the labelings that agree with the known labels.
    bool run_known(i64 first, i64 n, double weight) {
        if (!kept) kept.reset(new Real[longest * c.stride]);
        std::copy_n(scores, n * c.stride, kept.get());
        scores = kept.get();
        const i32* given = labels;
        labels = nullptr;
        bool fits = run_chain(first, n, weight);
        known = given;
        fits = fits && run_chain(first, n, -weight);
        known = nullptr;
        return fits;
    }

    bool is_known_otherwise(i64 s, i64 a) const { return known && known[s] >= 0 && known[s] != a; }

    // Subtracts the maximum of each node from its scores, and pads with -inf. Returns false if the range is too wide.
    bool below_best(i64 s, double* row, double* best) const {
        const Real* here = scores + s * c.stride;
        Real top = here[0], least = here[0];
        for (i64 a = 1; a < K; ++a) {
            top = here[a] > top ? here[a] : top;
            least = here[a] < least ? here[a] : least;
        }
        if (t.least > 0 && double(least) == -kInfinity) {
            // With forbidden pairs, scores may be -inf: take the range of finite scores.
            least = top;
            for (i64 a = 0; a < K; ++a)
                if (here[a] < least && double(here[a]) > -kInfinity) least = here[a];
        }
        for (i64 a = 0; a < K; ++a) row[a] = is_known_otherwise(s, a) ? -kInfinity : double(here[a]) - double(top);
        for (i64 a = K; a < W; ++a) row[a] = -kInfinity;
        *best = top;
        return double(top) - double(least) <= t.widest;  // false for NaN and infinity too
    }

    // Subtracts the scores of a label and its pair from the term. Returns false if they are forbidden.
    bool add_label(i64 s, double best, double weight) const {
        double& term = terms[s];
        term = s ? best + t.best : best;
        if (!labels) return true;
        const i32* label = labels + s;
        term -= scores[s * c.stride + *label];
        if (s) {
            term -= t.table[label[-1] * K + *label];
            c.counts[label[-1] * K + *label] += weight;
        }
        return term < kInfinity;
    }

    i32 first_of_best(const double* row) const {
        const double top = row_max<double>(row, W);
        i32 a = 0;
        while (row[a] < top) ++a;
        return a;
    }

    // Returns whether every sum is zero, or lies between `least` and its inverse.
    bool are_sound(const double* row) const {
        bool sound = true;
        for (i64 a = 0; a < W; ++a) sound &= row[a] == 0 || (t.least <= row[a] && row[a] <= 1 / t.least);
        return sound;
    }

    bool forwards(i64 n) const {
        bool fits = true;
        exponentiate_all<double>(own, n * W);
        for (i64 s = 0; s < n; ++s) {
            double *alpha = forward + s * W, *here = own + s * W;
            if (s) sum_product<double>(t.factor, alpha - W, K, W, alpha);
            for (i64 a = 0; a < W; ++a) alpha[a] = s ? alpha[a] * here[a] : here[a];
            const double total = row_sum<double>(alpha, W);
            row_scale<double>(alpha, 1 / total, W);
            row_scale<double>(here, 1 / total, W);
            if (t.least > 0) fits &= are_sound(alpha);
            if (c.terms) terms[s] += std::log(total);
        }
        return fits;
    }

    bool backward(i64 n) const {
        bool fits = true;
        for (i64 a = 0; a < W; ++a) backwards[(n - 1) * W + a] = 1.0;
        for (i64 s = n - 1; s > 0; --s) {
            double* row = backwards + s * W;
            for (i64 a = 0; a < W; ++a) product[a] = own[s * W + a] * row[a];
            sum_product<double>(t.transposed, product, K, W, row - W);
            if (t.least > 0) fits &= are_sound(row - W);
        }
        return fits;
    }

    void statistics(i64 first, i64 n, double weight) const {
        for (i64 s = n - 1; s >= 0; --s) {
            const double *alpha = forward + s * W, *row = backwards + s * W;
            for (i64 a = 0; a < W; ++a) product[a] = alpha[a] * row[a];
            set_node(first, s, product);
            if (s && c.pairs) {
                for (i64 a = 0; a < W; ++a) product[a] = own[s * W + a] * row[a];
                add_outer<double>(alpha - W, weight, product, K, W, c.pairs);
            }
        }
    }

    void set_node(i64 first, i64 s, const double* probability) const {
        if (!known) c.predicted[first + s] = first_of_best(probability);
        if (c.posterior) set_posterior(first, s, probability);
    }

    void set_posterior(i64 first, i64 s, const double* probability) const {
        Real* out = c.posterior + (first + s) * c.stride;
        for (i64 a = 0; a < K; ++a) out[a] = known ? Real(out[a] - probability[a]) : Real(probability[a]);
        if (labels) out[labels[s]] -= 1;
    }

    // Returns the log-sum-exp of scores, or -inf if all scores are -inf.
    double log_sum(const double* row) const {
        double top = -kInfinity, total = 0;
        for (i64 a = 0; a < K; ++a) top = row[a] > top ? row[a] : top;
        if (top == -kInfinity) return top;
        for (i64 a = 0; a < K; ++a) total += std::exp(row[a] - top);
        return top + std::log(total);
    }

    // Computes the sums of one chain by log-sum-exp, which cannot underflow. Returns false if no labeling is allowed.
    bool in_scores(i64 first, i64 n, double weight) const {
        const double largest = sizeof(Real) == 4 ? 1e18 : 1e100;  // models have no larger scores
        for (i64 s = 0; s < n; ++s) {
            for (i64 b = 0; b < K; ++b) {
                const double score = is_known_otherwise(s, b) ? -kInfinity : double(scores[s * c.stride + b]);
                if (!(std::fabs(score) <= largest || score == -kInfinity)) return false;
                own[s * W + b] = forward[s * W + b] = score;
                for (i64 a = 0; a < K && s; ++a) product[a] = forward[(s - 1) * W + a] + t.table[a * K + b];
                if (s) forward[s * W + b] += log_sum(product);
            }
            const double total = log_sum(forward + s * W);
            if (total == -kInfinity) return false;
            for (i64 b = 0; b < K; ++b) {
                forward[s * W + b] -= total;
                own[s * W + b] -= total;
            }
            if (!c.terms) continue;
            double& term = terms[s];
            term = total;
            if (labels) {
                const i32* label = labels + s;
                term -= scores[s * c.stride + *label];
                if (s) term -= t.table[label[-1] * K + *label];
            }
        }
        for (i64 s = n - 1; s >= 0; --s)
            for (i64 a = 0; a < K; ++a) {
                const i64 next = (s + 1) * W;
                for (i64 b = 0; b < K && s < n - 1; ++b)
                    product[b] = t.table[a * K + b] + own[next + b] + backwards[next + b];
                backwards[s * W + a] = s < n - 1 ? log_sum(product) : 0;
            }
        for (i64 s = 0; s < n; ++s) statistics_of_scores(first, s, weight);
        return true;
    }

    void statistics_of_scores(i64 first, i64 s, double weight) const {
        double top = -kInfinity;
        i32 winner = 0;
        for (i64 a = 0; a < K; ++a) {
            const double score = forward[s * W + a] + backwards[s * W + a];
            if (score > top) {
                top = score;
                winner = i32(a);
            }
            product[a] = std::exp(score);
        }
        if (!known) c.predicted[first + s] = winner;
        if (c.posterior) set_posterior(first, s, product);
        if (!s || !c.pairs) return;
        for (i64 a = 0; a < K; ++a)
            for (i64 b = 0; b < K; ++b)
                // The factor of the pair's own score is multiplied in later.
                if (t.table[a * K + b] > -kInfinity)
                    c.pairs[a * W + b] += weight * std::exp(t.best + forward[(s - 1) * W + a] + own[s * W + b] +
                                                            backwards[s * W + b]);
    }
};

// The best labeling of each chain. run() returns false, with undefined labels, if a chain has no allowed labeling.
template <class Real>
class BestLabels {
  public:
    // table: (K, K) transition scores; factor: (K, W) transposed table minus its maximum, padded with -inf
    // work: (nodes of the longest chain + 2, W)
    BestLabels(const Chains<Real>& chains, i64 W, const Real* table, const Real* factor, Real* work)
        : c(chains), K(chains.stride), W(W), table(table), factor(factor), cavity(work), fresh(work + W),
          messages(work + 2 * W) {
        std::fill_n(cavity, W, Real(-kInfinity));
    }

    bool run() {
        bool fits = true;
        for (i64 i = 0; i < c.n_chains && fits; ++i) {
            const i64 first = c.ptr[i], n = c.ptr[i + 1] - first;
            fits = send(c.unary + first * K, n) && choose(c.unary + first * K, n, c.predicted + first);
        }
        return fits;
    }

  private:
    const Chains<Real>& c;
    const i64 K, W;
    const Real *table, *factor;
    Real *cavity, *fresh, *messages;  // messages: to each node except the last, from the next node

    bool send(const Real* unary, i64 n) {
        bool fits = true;
        for (i64 s = n - 1; s > 0; --s) {
            for (i64 a = 0; a < K; ++a) cavity[a] = s < n - 1 ? unary[s * K + a] + messages[s * W + a] : unary[s * K + a];
            max_sum<Real>(factor, cavity, K, W, fresh);
            fits &= replace_scores<Real>(fresh, messages + (s - 1) * W, W, -1) >= 0;
        }
        return fits;
    }

    bool choose(const Real* unary, i64 n, i32* labels) const {
        bool fits = true;
        for (i64 s = 0; s < n; ++s) {
            double top = -kInfinity;
            labels[s] = 0;
            for (i64 a = 0; a < K; ++a) {
                double score = unary[s * K + a];
                if (s) score += table[labels[s - 1] * K + a];
                if (s < n - 1) score += messages[s * W + a];
                if (score > top) {
                    top = score;
                    labels[s] = i32(a);
                }
            }
            fits &= top > -kInfinity;
        }
        return fits;
    }
};

}  // namespace crf
