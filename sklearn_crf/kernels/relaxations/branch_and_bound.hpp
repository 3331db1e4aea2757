// Depth-first branch and bound over the states of nodes, with soft arc consistency. Costs are moved between factors and
// nodes so that the cost of every labeling stays equal, no cost becomes negative, and a constant, the lower bound,
// grows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace sklearn_crf {

class BranchAndBound {
public:
    // Costs of factors in C order, starting at ``start`` in ``costs``; ``unary`` node by node.
    BranchAndBound(int32_t n_nodes, const int64_t* n_states, const double* unary, int64_t n_factors,
                   const int64_t* factor_ptr, const int32_t* scope, const int64_t* start, const double* costs)
        : n_(n_nodes), first_(n_nodes + 1, 0), size_(n_nodes), weight_(n_nodes, 1.0), slots_of_(n_nodes),
          ptr_(factor_ptr, factor_ptr + n_factors + 1), scope_(scope, scope + factor_ptr[n_factors]),
          start_(start, start + n_factors), costs_(costs), waits_(n_nodes, 0), pruned_(n_nodes, 0) {
        for (int32_t i = 0; i < n_; ++i) {
            first_[i + 1] = first_[i] + static_cast<int32_t>(n_states[i]);
            size_[i] = static_cast<int32_t>(n_states[i]);
        }
        cost_.assign(unary, unary + first_[n_]);
        in_.assign(first_[n_], 1);
        step_.resize(scope_.size());
        of_factor_.resize(scope_.size());
        moved_first_.resize(scope_.size());
        int64_t n_moved = 0;
        for (int64_t f = 0; f < n_factors; ++f) {
            int64_t step = 1;
            for (int64_t s = ptr_[f + 1] - 1; s >= ptr_[f]; --s) {
                step_[s] = step;
                step *= n_states[scope_[s]];
                of_factor_[s] = f;
                moved_first_[s] = n_moved;
                n_moved += n_states[scope_[s]];
                slots_of_[scope_[s]].push_back(s);
            }
        }
        moved_.assign(n_moved, 0.0);
    }

    double bound = 0.0;   // final lower bound at the root
    double best = 0.0;    // cost of the best known labeling
    double work = 0.0;    // number of table entries read
    bool complete = false;

    // Replaces ``labels`` by better labels, whose cost is below ``best`` by at least ``margin``.
    void run(double upper, double margin, int32_t n_sweeps, double most_work, uint64_t seed,
             int32_t* labels) {
        best = upper;
        margin_ = margin;
        most_work_ = most_work;
        random_.seed(seed);
        labels_ = labels;
        for (int32_t sweep = 0; sweep < n_sweeps && work < 0.3 * most_work; ++sweep) {
            const double before = bound;
            for (int32_t i = 0; i < n_; ++i) diffuse(i, true);
            for (int32_t i = n_ - 1; i >= 0; --i) diffuse(i, false);
            if (sweep > 5 && bound - before < 1e-4 * std::max(best - bound, 0.0)) break;
        }
        tiny_ = std::max(1e-12 * std::abs(best), 1e-3 * std::max(best - bound, 0.0) / std::max(n_, 1));
        for (int32_t i = 0; i < n_; ++i) prune(i);
        if (!propagate()) {
            bound = best - margin_;
            complete = true;
            return;
        }
        for (double limit = FIRST_FAILURES;; limit *= 1.5) {
            const double before = work;
            if (!search(limit)) break;
            if (!improve_root() || !search_near(work + (work - before))) break;
            if (work > most_work_) {
                bound = std::min(bound, best);
                return;
            }
        }
        bound = best - margin_;
        complete = true;
    }

private:
    // Failures after which the first search, and every search around a labeling, is stopped.
    static constexpr double FIRST_FAILURES = 200, FAILURES_NEAR = 100;
    // Searches around a labeling accept labels that are worse by this fraction of the gap, and return to the best
    // labeling after this number of sets. More slack suits clauses and colourings, less suits networks with zeros.
    static constexpr double SLACK = 0.003;
    static constexpr int ROUNDS_NEAR = 100;

    int32_t n_;
    std::vector<int32_t> first_, size_;
    std::vector<double> weight_;
    std::vector<std::vector<int64_t>> slots_of_;
    std::vector<int64_t> ptr_;
    std::vector<int32_t> scope_;
    std::vector<int64_t> start_;
    const double* costs_;
    std::vector<uint8_t> waits_, pruned_;
    std::vector<int32_t> fresh_;
    std::vector<double> cost_, moved_;
    std::vector<uint8_t> in_;
    std::vector<int64_t> step_, of_factor_, moved_first_;
    std::priority_queue<int32_t> raised_;
    std::vector<std::pair<double*, double>> trail_;
    std::vector<std::pair<int32_t, int32_t>> removed_;
    std::vector<double> least_, extended_;
    double margin_ = 0, tiny_ = 0, most_work_ = 0, n_failures_ = 0, most_failures_ = 0;
    int32_t* labels_ = nullptr;
    int32_t last_conflict_ = -1;
    bool stopped_ = false;
    double pruned_at_ = std::numeric_limits<double>::infinity(), n_free_ = 10;
    std::vector<uint8_t> free_;
    std::vector<int32_t> order_;
    std::mt19937_64 random_;

    void set(double& at, double value) {
        trail_.emplace_back(&at, at);
        at = value;
    }

    void undo(size_t mark, size_t gone) {
        for (; trail_.size() > mark; trail_.pop_back()) *trail_.back().first = trail_.back().second;
        for (; removed_.size() > gone; removed_.pop_back()) {
            in_[removed_.back().second] = 1;
            ++size_[removed_.back().first];
        }
    }

    bool remove(int32_t i, int32_t v) {
        in_[v] = 0;
        removed_.emplace_back(i, v);
        prune(i);
        return --size_[i] > 0;
    }

    // Computes the minimum cost of a factor for each state of the node of a slot, over remaining states, in ``least_``.
    // ``with_nodes`` includes the costs of the other nodes.
    void minimise(int64_t slot, bool with_nodes) {
        const int64_t f = of_factor_[slot], begin = ptr_[f], end = ptr_[f + 1];
        const int32_t own = scope_[slot], k = first_[own + 1] - first_[own];
        least_.assign(k, std::numeric_limits<double>::infinity());
        // The overhead of a call counts as several entries.
        work += 20;
        const double* table = costs_ + start_[f];
        if (end - begin == 2) {
            const int64_t other = slot == begin ? begin + 1 : begin;
            const int32_t j = scope_[other], n_other = first_[j + 1] - first_[j];
            for (int32_t b = 0; b < n_other; ++b) {
                if (!in_[first_[j] + b]) continue;
                const double shift = (with_nodes ? cost_[first_[j] + b] : 0.0) - moved_[moved_first_[other] + b];
                const double* cell = table + b * step_[other];
                for (int32_t a = 0; a < k; ++a) least_[a] = std::min(least_[a], cell[a * step_[slot]] + shift);
            }
            work += static_cast<double>(k) * n_other;
        } else {
            walk(begin, end, slot, table, 0.0, 0, with_nodes);
        }
        for (int32_t a = 0; a < k; ++a) least_[a] -= moved_[moved_first_[slot] + a];
    }

    void walk(int64_t s, int64_t end, int64_t slot, const double* table, double shift, int32_t state, bool with_nodes) {
        const int32_t j = scope_[s], k = first_[j + 1] - first_[j];
        work += 3 * k;
        for (int32_t b = 0; b < k; ++b) {
            if (!in_[first_[j] + b]) continue;
            const int32_t own = s == slot ? b : state;
            const double *cell = table + b * step_[s], node = with_nodes ? cost_[first_[j] + b] : 0.0;
            const double cost = s == slot ? shift : shift + node - moved_[moved_first_[s] + b];
            if (s + 1 < end)
                walk(s + 1, end, slot, cell, cost, own, with_nodes);
            else
                least_[own] = std::min(least_[own], *cell + cost);
        }
    }

    // Moves the minimum costs of a factor to the node of a slot. Returns whether any cost moved.
    bool project(int64_t slot, double least) {
        const int32_t i = scope_[slot], k = first_[i + 1] - first_[i];
        bool gained = false;
        for (int32_t a = 0; a < k; ++a) {
            const int32_t v = first_[i] + a;
            if (!in_[v] || !(least_[a] > least)) continue;
            set(moved_[moved_first_[slot] + a], moved_[moved_first_[slot] + a] + least_[a]);
            set(cost_[v], cost_[v] + least_[a]);
            gained = true;
        }
        return gained;
    }

    // Whether ``least_`` has a relevant cost for a remaining state of a node.
    bool gains(int32_t i) const {
        for (int32_t a = 0; a < first_[i + 1] - first_[i]; ++a)
            if (in_[first_[i] + a] && least_[a] > tiny_) return true;
        return false;
    }

    // Moves costs of a pair to one node, after moving useful costs from the other node into the pair.
    bool project_fully(int64_t slot) {
        const int64_t f = of_factor_[slot], other = slot == ptr_[f] ? slot + 1 : slot - 1;
        const int32_t i = scope_[slot], j = scope_[other], k = first_[i + 1] - first_[i];
        minimise(slot, true);
        if (!gains(i)) return false;
        for (int32_t b = 0; b < first_[j + 1] - first_[j]; ++b) {
            const int32_t v = first_[j] + b;
            if (!in_[v]) continue;
            double needed = 0.0;
            for (int32_t a = 0; a < k; ++a) {
                if (!in_[first_[i] + a]) continue;
                const double has = costs_[start_[f] + a * step_[slot] + b * step_[other]] -
                                   moved_[moved_first_[slot] + a] - moved_[moved_first_[other] + b];
                needed = std::max(needed, std::max(least_[a], 0.0) - has);
            }
            if (needed > 0) {
                needed = std::min(needed, cost_[v]);
                set(cost_[v], cost_[v] - needed);
                set(moved_[moved_first_[other] + b], moved_[moved_first_[other] + b] - needed);
            }
        }
        work += static_cast<double>(size_[i]) * size_[j];
        minimise(slot, false);
        return project(slot, 0.0);
    }

    // Raises the bound by the minimum cost of a node, and rules out states that no better labeling can have.
    bool settle(int32_t i) {
        double least = std::numeric_limits<double>::infinity();
        for (int32_t v = first_[i]; v < first_[i + 1]; ++v)
            if (in_[v]) least = std::min(least, cost_[v]);
        if (least > 0) {
            set(bound, bound + least);
            for (int32_t v = first_[i]; v < first_[i + 1]; ++v)
                if (in_[v]) set(cost_[v], cost_[v] - least);
        }
        return bound < best - margin_ && rule_out(i);
    }

    bool rule_out(int32_t i) {
        for (int32_t v = first_[i]; v < first_[i + 1]; ++v)
            if (in_[v] && bound + cost_[v] >= best - margin_ && !remove(i, v)) return false;
        return true;
    }

    bool rule_out_all() {
        work += static_cast<double>(cost_.size());
        for (int32_t i = 0; i < n_; ++i)
            if (!rule_out(i)) return false;
        return true;
    }

    void wait(int32_t i) {
        if (!waits_[i]) {
            waits_[i] = 1;
            raised_.push(i);
        }
    }

    void prune(int32_t i) {
        if (!pruned_[i]) {
            pruned_[i] = 1;
            fresh_.push_back(i);
        }
    }

    void clear() {
        for (; !fresh_.empty(); fresh_.pop_back()) pruned_[fresh_.back()] = 0;
        for (; !raised_.empty(); raised_.pop()) waits_[raised_.top()] = 0;
    }

    bool failed(int64_t slot) {
        for (int64_t s = ptr_[of_factor_[slot]]; s < ptr_[of_factor_[slot] + 1]; ++s) weight_[scope_[s]] += 1;
        return false;
    }

    // Ruling out states changes the minimum costs of factors.
    bool spread(int32_t j) {
        if (!settle(j)) return weight_[j] += 1, false;
        for (int64_t slot : slots_of_[j]) {
            const int64_t f = of_factor_[slot];
            for (int64_t s = ptr_[f]; s < ptr_[f + 1]; ++s) {
                if (s == slot) continue;
                minimise(s, false);
                if (project(s, 0.0)) {
                    wait(scope_[s]);
                    if (!settle(scope_[s])) return failed(s);
                }
            }
        }
        wait(j);
        return true;
    }

    // Nodes of higher numbers pass costs on to nodes of lower numbers.
    bool pass_on(int32_t j) {
        for (int64_t slot : slots_of_[j]) {
            const int64_t f = of_factor_[slot];
            if (ptr_[f + 1] - ptr_[f] != 2) continue;
            const int64_t other = slot == ptr_[f] ? slot + 1 : slot - 1;
            if (scope_[other] > j || !project_fully(other)) continue;
            wait(scope_[other]);
            if (!settle(scope_[other])) return failed(other);
        }
        return true;
    }

    // Moves costs from neighbours to a node if all states of the node would then have positive cost.
    bool support(int32_t i) {
        const int32_t k = first_[i + 1] - first_[i];
        extended_.assign(cost_.begin() + first_[i], cost_.begin() + first_[i + 1]);
        for (int64_t slot : slots_of_[i]) {
            const int64_t f = of_factor_[slot];
            if (ptr_[f + 1] - ptr_[f] != 2) continue;
            minimise(slot, true);
            // Ignore costs too small to be moved below; otherwise this node would be revisited forever.
            if (!gains(i)) continue;
            for (int32_t a = 0; a < k; ++a) extended_[a] += std::max(least_[a], 0.0);
        }
        double least = std::numeric_limits<double>::infinity();
        for (int32_t a = 0; a < k; ++a)
            if (in_[first_[i] + a]) least = std::min(least, extended_[a]);
        if (!(least > tiny_)) return true;
        for (int64_t slot : slots_of_[i]) {
            const int64_t f = of_factor_[slot];
            if (ptr_[f + 1] - ptr_[f] == 2) project_fully(slot);
        }
        wait(i);
        return settle(i) || (weight_[i] += 1, false);
    }

    bool propagate() {
        bool holds = true;
        std::vector<int32_t> passed;
        while (holds) {
            const double before = bound;
            if (!fresh_.empty()) {
                const int32_t j = fresh_.back();
                fresh_.pop_back();
                pruned_[j] = 0;
                holds = spread(j);
            } else if (!raised_.empty()) {
                const int32_t j = raised_.top();
                raised_.pop();
                waits_[j] = 0;
                passed.push_back(j);
                holds = pass_on(j);
            } else if (!passed.empty()) {
                std::sort(passed.begin(), passed.end());
                passed.erase(std::unique(passed.begin(), passed.end()), passed.end());
                const std::vector<int32_t> around(std::move(passed));
                passed.clear();
                for (size_t at = 0; holds && at < around.size(); ++at) holds = support(around[at]);
            } else {
                break;
            }
            if (holds && bound > before) holds = rule_out_all();
            if (work > most_work_) break;
        }
        if (!holds) clear();
        return holds;
    }

    int32_t next_node() const {
        if (last_conflict_ >= 0 && size_[last_conflict_] > 1) return last_conflict_;
        int32_t found = -1;
        double score = 0;
        for (int32_t i = 0; i < n_; ++i) {
            if (size_[i] < 2) continue;
            const double own = size_[i] / (weight_[i] + static_cast<double>(slots_of_[i].size()));
            if (found < 0 || own < score) {
                found = i;
                score = own;
            }
        }
        return found;
    }

    int32_t next_state(int32_t i) const {
        const int32_t known = labels_[i] < 0 ? -1 : first_[i] + labels_[i];
        int32_t found = -1;
        for (int32_t v = first_[i]; v < first_[i + 1]; ++v)
            if (in_[v] && (found < 0 || cost_[v] < cost_[found] || (cost_[v] == cost_[found] && v == known))) found = v;
        return found;
    }

    void keep() {
        best = bound;
        for (int32_t i = 0; i < n_; ++i)
            for (int32_t v = first_[i]; v < first_[i + 1]; ++v)
                if (in_[v]) labels_[i] = v - first_[i];
    }

    // Searches the remaining labelings up to a number of failures. Returns whether the search was stopped.
    bool search(double most_failures) {
        n_failures_ = 0;
        most_failures_ = most_failures;
        stopped_ = false;
        const size_t mark = trail_.size(), gone = removed_.size();
        descend();
        undo(mark, gone);
        return stopped_;
    }

    // Rules out states for good after better labels were found. Returns false if no better labeling is left.
    bool improve_root() {
        if (best == pruned_at_) return true;
        pruned_at_ = best;
        if (bound >= best - margin_ || !rule_out_all() || !propagate()) {
            clear();
            return false;
        }
        trail_.clear();
        removed_.clear();
        return true;
    }

    // Searches around some labels, at first the best: all nodes outside a random connected set keep their states.
    // Slightly worse labels replace the present labels, and the best labels do so from time to time.
    // Sets grow if they are searched completely, and shrink if not. Returns false if no better labeling is left.
    bool search_near(double most_work) {
        if (n_ == 0 || labels_[0] < 0) return true;
        int32_t* const best_labels = labels_;
        double present = best, least = best;
        std::vector<int32_t> labels(labels_, labels_ + n_);
        bool is_open = true;
        for (int number = 1; is_open && work < std::min(most_work, most_work_); ++number) {
            if (number % ROUNDS_NEAR == 0) {
                std::copy(best_labels, best_labels + n_, labels.begin());
                present = least;
            }
            const size_t mark = trail_.size(), gone = removed_.size();
            choose_free(std::min(static_cast<int32_t>(n_free_), n_));
            for (int32_t i = 0; i < n_; ++i) {
                const int32_t v = first_[i] + labels[i];
                if (free_[i] || !in_[v]) continue;
                for (int32_t u = first_[i]; u < first_[i + 1]; ++u)
                    if (in_[u] && u != v) remove(i, u);
            }
            work += n_;
            stopped_ = false;
            labels_ = labels.data();
            best = present + (number % 2 ? std::max(SLACK * (least - bound), 1.01 * margin_) : 0);
            const double upper = best;
            if (propagate()) search(FAILURES_NEAR);
            undo(mark, gone);
            labels_ = best_labels;
            if (best < upper) present = best;
            best = least;
            n_free_ = stopped_ ? std::max(n_free_ * 0.95, 2.0) : std::min(n_free_ * 1.02 + 0.1, 0.9 * n_);
            last_conflict_ = -1;
            if (present <= least - margin_) {
                best = least = present;
                std::copy(labels.begin(), labels.end(), labels_);
                is_open = improve_root();
            }
        }
        return is_open;
    }

    // Marks a random connected set of nodes in ``free_``.
    void choose_free(int32_t n_nodes) {
        free_.assign(n_, 0);
        order_.clear();
        size_t done = 0;
        while (static_cast<int32_t>(order_.size()) < n_nodes) {
            if (done == order_.size()) add_free(static_cast<int32_t>(random_() % n_));
            if (done == order_.size()) continue;
            std::swap(order_[done], order_[done + random_() % (order_.size() - done)]);
            for (int64_t slot : slots_of_[order_[done++]]) {
                const int64_t f = of_factor_[slot];
                for (int64_t s = ptr_[f]; s < ptr_[f + 1]; ++s) add_free(scope_[s]);
            }
        }
    }

    void add_free(int32_t i) {
        if (free_[i]) return;
        free_[i] = 1;
        order_.push_back(i);
    }

    void descend() {
        while (true) {
            if (work > most_work_ || n_failures_ > most_failures_) {
                stopped_ = true;
                return;
            }
            const int32_t i = next_node();
            if (i < 0) return keep();
            const int32_t v = next_state(i);
            const size_t mark = trail_.size(), gone = removed_.size();
            for (int32_t u = first_[i]; u < first_[i + 1]; ++u)
                if (in_[u] && u != v) remove(i, u);
            if (propagate()) {
                descend();
            } else {
                last_conflict_ = i;
                ++n_failures_;
            }
            undo(mark, gone);
            if (stopped_) return;
            if (bound >= best - margin_) return;
            if (!remove(i, v)) return clear();
            if (!rule_out_all() || !propagate()) {
                clear();
                ++n_failures_;
                return;
            }
        }
    }

    // A node collects the minimum costs of its factors, and distributes them among the factors ahead in the sweep.
    void diffuse(int32_t i, bool forwards) {
        double n_ahead = 0, n_behind = 0;
        for (int64_t slot : slots_of_[i]) {
            minimise(slot, false);
            project(slot, -std::numeric_limits<double>::infinity());
            n_ahead += is_ahead(slot, true);
            n_behind += is_ahead(slot, false);
        }
        double least = std::numeric_limits<double>::infinity();
        for (int32_t v = first_[i]; v < first_[i + 1]; ++v) least = std::min(least, cost_[v]);
        bound += least;
        const double share = 1 / std::max(std::max(n_ahead, n_behind), 1.0);
        for (int32_t v = first_[i]; v < first_[i + 1]; ++v) cost_[v] -= least;
        for (int32_t v = first_[i]; v < first_[i + 1]; ++v) {
            const double given = share * cost_[v];
            for (int64_t slot : slots_of_[i]) {
                if (!is_ahead(slot, forwards)) continue;
                moved_[moved_first_[slot] + v - first_[i]] -= given;
                cost_[v] = std::max(cost_[v] - given, 0.0);
            }
        }
        trail_.clear();
    }

    bool is_ahead(int64_t slot, bool forwards) const {
        for (int64_t s = ptr_[of_factor_[slot]]; s < ptr_[of_factor_[slot] + 1]; ++s)
            if (forwards ? scope_[s] > scope_[slot] : scope_[s] < scope_[slot]) return true;
        return false;
    }
};

}  // namespace sklearn_crf
