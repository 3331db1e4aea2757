// Search for states of all nodes that satisfy all constraints. Conflicts are learned as clauses (Marques-Silva and
// Sakallah 1999, with lazy reasons as in Ohrimenko, Stuckey and Codish 2009), and the search restarts regularly. It
// decides the node with the most conflicts relative to its number of states, and assigns its previous state. With
// scores, it decides the node whose best state has the largest lead.
#pragma once

#include "scored_domains.hpp"

namespace crf {

enum Status : int { OPEN = 0, FOUND = 1, REFUTED = 2 };

class ConstraintSearch : public ScoredDomains {
public:
    ConstraintSearch(const Constraints& given, bool by_scores)
        : ScoredDomains(given, by_scores), involved(given.n_nodes, 0), preferred(given.guide, given.guide + n_nodes),
          deepest(preferred), activity(n_nodes, 1.0), key(n_nodes, 0), heap_place(n_nodes, -1), seen(first[n_nodes], 0),
          used(first[n_nodes], 0) {
        for (int64_t v = 0; v < n_nodes && !by_scores; ++v) activity[v] = 1e-3 * (1 + degree[v]);
    }

    // Continues for about the given amount of work.
    Status advance(int64_t more) {
        const int64_t most = work + more;
        if (!begun) {
            begun = true;
            status = begin();
        }
        while (status == OPEN && work < most) status = step();
        return status;
    }

    // The states found, else the largest assignment without a conflict, completed by the last states tried.
    Status finish(int32_t* labels) const {
        const bool is_known = status == OPEN && !known.empty();
        for (int64_t v = 0; v < n_nodes; ++v)
            labels[v] = status == FOUND && active[v] ? value[v] : is_known ? known[v] : deepest[v];
        return is_known ? FOUND : status;
    }

    std::vector<uint8_t> involved;    // nodes whose constraints are part of a refutation

private:
    std::vector<int32_t> preferred, deepest;
    std::vector<double> activity, key;
    std::vector<int32_t> heap, heap_place;
    std::vector<uint8_t> seen, used;    // used: literals of level 0 in a refutation
    std::vector<Variable> used_list;
    std::vector<Literal> learned, reasons;
    std::vector<int32_t> known;    // states found without a search
    double increment = 1;
    int64_t n_conflicts = 0, n_until_restart = 0, n_restarts = 0, n_taken = 0, most_taken = -1;
    int64_t n_kept_clauses = 2000;
    size_t raised = 0;    // number of literals of the trail after which the heap has been updated
    bool begun = false;
    Status status = OPEN;

    static constexpr double DECAY = 0.95;
    static constexpr int64_t CONFLICTS_OF_A_RUN = 64;

    Status begin() {
        for (int64_t v = 0; v < n_nodes; ++v) {
            if (!active[v]) continue;
            if (size[v] == 0) {
                involved[v] = 1;
                return REFUTED;
            }
            if (size[v] == 1 && value[v] < 0) take_last(v);
            wait(v);
        }
        for (size_t c = 0; c < n_given; ++c)
            if (!attach_given(static_cast<int32_t>(c))) return refuted();
        if (!propagate()) return refuted();
        if (has_two_states()) {
            known = preferred;
            for (int32_t v : decide(known)) {
                status = REFUTED;
                involved[v] = 1;
                for (int64_t x = first[v]; x < first[v + 1]; ++x)
                    if (truth[x] < 0) use(static_cast<Variable>(x));
            }
            conflict.clear();
            conflict_reason = NO_REASON;
            if (status == REFUTED) return refuted();
        }
        for (int64_t v = 0; v < n_nodes; ++v)
            if (active[v] && value[v] < 0) insert(static_cast<int32_t>(v));
        n_until_restart = CONFLICTS_OF_A_RUN;
        return OPEN;
    }

    // Watches literals that can still hold.
    bool attach_given(int32_t number) {
        const Clause& clause = clauses[number];
        Literal* own = literals.data() + clause.begin;
        std::stable_partition(own, own + clause.length, [&](Literal p) { return truth_of(p) >= 0; });
        attach(number);
        return truth_of(own[1]) >= 0 || require(own[0], reason_of(CLAUSE, number));
    }

    Status step() {
        if (!propagate()) {
            if (!current_level()) return refuted();
            ++n_conflicts;
            --n_until_restart;
            remember_deepest();
            return resolve() ? OPEN : refuted();
        }
        if (n_until_restart <= 0) {
            backtrack(0);
            ++n_restarts;
            n_until_restart = CONFLICTS_OF_A_RUN * luby(n_restarts);
            if (static_cast<int64_t>(clauses.size() - n_given) > n_kept_clauses) forget_clauses();
            return OPEN;
        }
        for (; raised < trail.size(); ++raised) {
            const int32_t v = node[variable_of(trail[raised])];
            if (by_scores) {
                outdate_around(v);
            } else if (value[v] < 0 && heap_place[v] >= 0) {
                raise(v);
            }
        }
        if (by_scores) renew_leads([&](int32_t v) { if (heap_place[v] >= 0) raise(v); });
        const int32_t v = next_node();
        if (v < 0) return FOUND;
        level_start.push_back(static_cast<int64_t>(trail.size()));
        push(taken(static_cast<Variable>(first[v] + choose_state(v))), NO_REASON);
        return OPEN;
    }

    int64_t choose_state(int64_t v) {
        if (by_scores) return surest[v];
        if (is_possible(v, preferred[v])) return preferred[v];
        int64_t best = -1;
        for_each_possible(v, [&](int64_t state) {
            if (best < 0 || preference[first[v] + state] > preference[first[v] + best]) best = state;
        });
        work += size[v];
        return best;
    }

    // 1, 1, 2, 1, 1, 2, 4, ... for n = 0, 1, 2, ... (Luby, Sinclair, Zuckerman 1993).
    static int64_t luby(int64_t n) {
        int64_t length = 1, value = 1;
        while (length < n + 1) {
            length = 2 * length + 1;
            value *= 2;
        }
        while (length - 1 != n) {
            length = (length - 1) / 2;
            value /= 2;
            n %= length;
        }
        return value;
    }

    void backtrack(int32_t to) {
        if (current_level() <= to) return;
        const int64_t begin = level_start[to];
        for (int64_t k = static_cast<int64_t>(trail.size()) - 1; k >= begin; --k) {
            const Literal p = trail[k];
            const Variable x = variable_of(p);
            const int32_t v = node[x];
            const int64_t state = x - first[v];
            truth[x] = 0;
            place[x] = -1;
            if (is_taken(p)) {
                preferred[v] = value[v];
                value[v] = -1;
            } else {
                domain[word_of[v] + state / 64] |= Word(1) << (state % 64);
                ++size[v];
            }
            if (by_scores) outdate_around(v);
            insert(v);
        }
        work += static_cast<int64_t>(trail.size()) - begin;
        trail.resize(begin);
        head = raised = begin;
        level_start.resize(to);
    }

    void remember_deepest() {
        int64_t n = 0;
        for (size_t k = 0; k < trail.size(); ++k) n += is_taken(trail[k]);
        work += static_cast<int64_t>(trail.size()) / 8;
        if (n <= most_taken) return;
        most_taken = n;
        for (int64_t v = 0; v < n_nodes; ++v) deepest[v] = value[v] >= 0 ? value[v] : preferred[v];
    }

    // Marks the literals of a list, which all hold. Returns how many belong to the current level.
    int64_t note(const std::vector<Literal>& list) {
        int64_t n = 0;
        for (const Literal q : list) {
            const Variable x = variable_of(q);
            if (seen[x]) continue;
            if (!level[x]) {
                use(x);
                continue;
            }
            seen[x] = 1;
            involved[node[x]] = 1;
            bump(node[x]);
            if (level[x] == current_level()) {
                ++n;
            } else {
                learned.push_back(negated(q));
            }
        }
        work += static_cast<int64_t>(list.size());
        return n;
    }

    void use(Variable x) {
        if (used[x]) return;
        used[x] = 1;
        used_list.push_back(x);
        involved[node[x]] = 1;
    }

    // Marks the nodes of a constraint as involved, because they may not appear in any reason.
    void involve_scope(int64_t why) {
        const int64_t number = why >> 3;
        if ((why & 7) == UNSUPPORTED) involved[ends[number]] = 1;
        if ((why & 7) != COUNT) return;
        for (int64_t k = count_ptr[number]; k < count_ptr[number + 1]; ++k) involved[node[counted[k]]] = 1;
    }

    // Learns a clause from the conflict and backtracks to the level where it propagates. Returns false if it is empty.
    bool resolve() {
        int32_t last = 0;
        for (const Literal q : conflict) last = std::max(last, level[variable_of(q)]);
        if (!last) return false;
        backtrack(last);
        learned.assign(1, 0);
        involve_scope(conflict_reason);
        int64_t n_open = note(conflict), k = static_cast<int64_t>(trail.size()) - 1;
        Literal p = 0;
        for (;;) {
            while (!seen[variable_of(trail[k])] || level[variable_of(trail[k])] != current_level()) --k;
            p = trail[k--];
            if (--n_open <= 0) break;
            seen[variable_of(p)] = 0;
            reasons.clear();
            explain(p, reason[variable_of(p)], place[variable_of(p)], reasons);
            involve_scope(reason[variable_of(p)]);
            n_open += note(reasons);
        }
        learned[0] = negated(p);
        const size_t n_noted = learned.size();
        std::vector<Literal> all(learned);
        size_t kept = 1;
        for (size_t i = 1; i < n_noted; ++i)
            if (!follows(negated(learned[i]))) learned[kept++] = learned[i];
        learned.resize(kept);
        for (const Literal q : all) seen[variable_of(q)] = 0;
        increment /= DECAY;
        if (increment > 1e100) rescale();
        return learn();
    }

    // Returns whether a marked literal is implied by other marked literals.
    bool follows(Literal p) {
        const Variable x = variable_of(p);
        if ((reason[x] & 7) == NO_REASON) return false;
        reasons.clear();
        explain(p, reason[x], place[x], reasons);
        for (const Literal q : reasons)
            if (level[variable_of(q)] && !seen[variable_of(q)]) return false;
        for (const Literal q : reasons)
            if (!level[variable_of(q)]) use(variable_of(q));
        involve_scope(reason[x]);
        return true;
    }

    bool learn() {
        if (learned.size() == 1) {
            backtrack(0);
            return require(learned[0], NO_REASON);
        }
        size_t second = 1;
        for (size_t i = 2; i < learned.size(); ++i)
            if (level[variable_of(learned[i])] > level[variable_of(learned[second])]) second = i;
        std::swap(learned[1], learned[second]);
        const int32_t back = level[variable_of(learned[1])], number = static_cast<int32_t>(clauses.size());
        clauses.push_back({static_cast<int64_t>(literals.size()), static_cast<int32_t>(learned.size()), n_levels(), true});
        literals.insert(literals.end(), learned.begin(), learned.end());
        backtrack(back);
        attach(number);
        return require(learned[0], reason_of(CLAUSE, number));
    }

    int32_t n_levels() {
        std::vector<int32_t> levels;
        for (const Literal q : learned) levels.push_back(level[variable_of(q)]);
        std::sort(levels.begin(), levels.end());
        return static_cast<int32_t>(std::unique(levels.begin(), levels.end()) - levels.begin());
    }

    // Keeps the half of the learned clauses with the fewest levels, and the reasons of literals of level 0.
    void forget_clauses() {
        std::vector<uint8_t> is_kept(clauses.size(), 0);
        for (const Literal p : trail)
            if ((reason[variable_of(p)] & 7) == CLAUSE) is_kept[reason[variable_of(p)] >> 3] = 1;
        std::vector<int32_t> order;
        for (size_t c = 0; c < clauses.size(); ++c) {
            if (!clauses[c].learned || clauses[c].n_levels <= 2) is_kept[c] = 1;
            if (!is_kept[c]) order.push_back(static_cast<int32_t>(c));
        }
        std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            const Clause &one = clauses[a], &other = clauses[b];
            if (one.n_levels != other.n_levels) return one.n_levels < other.n_levels;
            return one.length != other.length ? one.length < other.length : a > b;
        });
        for (size_t k = 0; k < order.size() / 2; ++k) is_kept[order[k]] = 1;
        std::vector<int32_t> number(clauses.size(), -1);
        std::vector<Literal> left;
        size_t n = 0;
        for (size_t c = 0; c < clauses.size(); ++c) {
            if (!is_kept[c]) continue;
            Clause clause = clauses[c];
            const int64_t begin = static_cast<int64_t>(left.size());
            left.insert(left.end(), literals.begin() + clause.begin, literals.begin() + clause.begin + clause.length);
            clause.begin = begin;
            number[c] = static_cast<int32_t>(n);
            clauses[n++] = clause;
        }
        clauses.resize(n);
        literals.swap(left);
        for (auto& all : watches) {
            size_t kept = 0;
            for (const Watch watch : all)
                if (number[watch.clause] >= 0) all[kept++] = {number[watch.clause], watch.other};
            all.resize(kept);
        }
        for (const Literal p : trail) {
            int64_t& why = reason[variable_of(p)];
            if ((why & 7) == CLAUSE) why = reason_of(CLAUSE, number[why >> 3]);
        }
        work += static_cast<int64_t>(literals.size() + watches.size());
        n_kept_clauses += 500;
    }

    // Marks all nodes that are involved in the conflict at level 0.
    Status refuted() {
        for (const Literal q : conflict) use(variable_of(q));
        involve_scope(conflict_reason);
        while (!used_list.empty()) {
            const Variable x = used_list.back();
            used_list.pop_back();
            involve_scope(reason[x]);
            if (place[x] < 0) continue;
            reasons.clear();
            explain(trail[place[x]], reason[x], place[x], reasons);
            for (const Literal q : reasons) use(variable_of(q));
        }
        return REFUTED;
    }

    // A heap of open nodes, by high activity and few remaining states. Stored keys are upper bounds.
    double key_of(int32_t v) const { return by_scores ? activity[v] * lead[v] : activity[v] / size[v]; }

    void bump(int32_t v) {
        activity[v] += increment;
        if (heap_place[v] >= 0) raise(v);
    }

    void rescale() {
        for (int64_t v = 0; v < n_nodes; ++v) {
            activity[v] *= 1e-100;
            key[v] *= 1e-100;
        }
        increment *= 1e-100;
    }

    void raise(int32_t v) {
        const double now = key_of(v);
        if (now <= key[v]) return;
        key[v] = now;
        sift_up(heap_place[v]);
    }

    bool before(int32_t a, int32_t b) const { return key[a] != key[b] ? key[a] > key[b] : a < b; }

    void put(size_t at, int32_t v) {
        heap[at] = v;
        heap_place[v] = static_cast<int32_t>(at);
    }

    void sift_up(size_t at) {
        const int32_t v = heap[at];
        for (; at && before(v, heap[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap[(at - 1) / 2]);
        put(at, v);
    }

    void sift_down(size_t at) {
        const int32_t v = heap[at];
        for (;;) {
            size_t child = 2 * at + 1;
            if (child >= heap.size()) break;
            if (child + 1 < heap.size() && before(heap[child + 1], heap[child])) ++child;
            if (!before(heap[child], v)) break;
            put(at, heap[child]);
            at = child;
        }
        put(at, v);
    }

    void insert(int32_t v) {
        if (heap_place[v] >= 0 || value[v] >= 0 || v >= n_decided) return;
        key[v] = key_of(v);
        heap.push_back(v);
        heap_place[v] = static_cast<int32_t>(heap.size()) - 1;
        sift_up(heap.size() - 1);
    }

    int32_t next_node() {
        while (!heap.empty()) {
            const int32_t v = heap[0];
            work += 4;
            if (value[v] < 0 && key[v] > key_of(v)) {
                key[v] = key_of(v);
                sift_down(0);
                continue;
            }
            const int32_t last = heap.back();
            heap.pop_back();
            heap_place[v] = -1;
            if (!heap.empty()) {
                put(0, last);
                sift_down(0);
            }
            if (value[v] < 0) return v;
        }
        return -1;
    }
};

}  // namespace crf
