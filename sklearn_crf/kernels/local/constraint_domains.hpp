// Remaining states of nodes under constraints, and propagation that stores a reason for everything that it infers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace crf {

// A variable is the number of a state among the states of all nodes. Literal 2 * variable says that the node has the
// state, literal 2 * variable + 1 that it does not.
using Variable = int32_t;
using Literal = int32_t;
using Word = uint64_t;

inline Literal taken(Variable x) { return 2 * x; }
inline Literal ruled_out(Variable x) { return 2 * x + 1; }
inline Literal negated(Literal p) { return p ^ 1; }
inline Variable variable_of(Literal p) { return p >> 1; }
inline bool is_taken(Literal p) { return !(p & 1); }

inline int64_t n_words(int64_t n_bits) { return (n_bits + 63) / 64; }

inline int lowest_bit(Word word) {
#if defined(_MSC_VER)
    unsigned long place;
    _BitScanForward64(&place, word);
    return static_cast<int>(place);
#else
    return __builtin_ctzll(word);
#endif
}

// A problem, in arrays that are copied. Constraints with an inactive node are left out.
struct Constraints {
    int64_t n_nodes;
    int64_t n_decided;          // nodes of the model, which come first; they determine all other nodes
    const int64_t* first;       // (n_nodes + 1,) first variable of each node
    const uint8_t* possible;    // (n_variables,)
    const double* preference;   // (n_variables,) preference of states, larger is tried first
    const int32_t* guide;       // (n_nodes,) state that is tried first
    const uint8_t* active;      // (n_nodes,)
    int64_t n_edges;
    const int32_t* ends;        // (n_edges, 2)
    const int32_t* relation;    // (n_edges,)
    const double* weight;       // (n_edges,) factor of the scores of the relation
    int64_t n_relations;
    const int64_t* shape;       // (n_relations, 2)
    const int64_t* cell_ptr;    // (n_relations,) first cell of each relation
    int64_t n_cells;
    const uint8_t* cells;       // whether each pair of states is allowed, in C order
    const double* scores;       // of pairs of states
    int64_t n_clauses;
    const int64_t* clause_ptr;  // (n_clauses + 1,)
    const int32_t* clause;      // variables of each clause: not all may be taken
    int64_t n_counts;
    const int64_t* count_ptr;   // (n_counts + 1,)
    const int32_t* counted;     // variables
    const int64_t* allowed_ptr; // (n_counts,) start of the flags of allowed counts, from 0 to all variables
    const uint8_t* allowed;
};

// Reason of a literal: the kind of constraint, and its number in the higher bits.
enum Kind : int64_t { NO_REASON, CLAUSE, OTHER_TAKEN, LAST_LEFT, UNSUPPORTED, COUNT };
inline int64_t reason_of(Kind kind, int64_t number) { return 8 * number + kind; }

class Domains {
public:
    explicit Domains(const Constraints& given)
        : n_nodes(given.n_nodes), first(given.first, given.first + given.n_nodes + 1),
          active(given.active, given.active + given.n_nodes) {
        const int64_t n_variables = first[n_nodes];
        node.resize(n_variables);
        word_of.resize(n_nodes + 1);
        size.assign(n_nodes, 0);
        value.assign(n_nodes, -1);
        degree.assign(n_nodes, 0);
        truth.assign(n_variables, 0);
        level.assign(n_variables, 0);
        place.assign(n_variables, -1);
        reason.assign(n_variables, NO_REASON);
        node_waits.assign(n_nodes, 0);
        for (int64_t v = 0; v < n_nodes; ++v) {
            word_of[v + 1] = word_of[v] + n_words(first[v + 1] - first[v]);
            for (int64_t x = first[v]; x < first[v + 1]; ++x) node[x] = static_cast<int32_t>(v);
        }
        domain.assign(word_of[n_nodes], 0);
        for (int64_t v = 0; v < n_nodes; ++v)
            for (int64_t x = first[v]; x < first[v + 1]; ++x) {
                if (given.possible[x]) {
                    domain[word_of[v] + (x - first[v]) / 64] |= Word(1) << ((x - first[v]) % 64);
                    ++size[v];
                } else {
                    truth[x] = -1;
                }
            }
        add_relations(given);
        add_edges(given);
        watches.resize(2 * n_variables);
        add_counts(given);
        for (int64_t c = 0; c < given.n_clauses; ++c) {
            const int32_t *begin = given.clause + given.clause_ptr[c], *end = given.clause + given.clause_ptr[c + 1];
            if (!std::all_of(begin, end, [&](int32_t x) { return active[node[x]]; })) continue;
            clauses.push_back({static_cast<int64_t>(literals.size()), static_cast<int32_t>(end - begin), 0, false});
            for (; begin < end; ++begin) {
                literals.push_back(ruled_out(*begin));
                ++degree[node[*begin]];
            }
        }
        n_given = clauses.size();
    }

    int64_t work = 0;

protected:
    struct Relation {
        int64_t row_words, column_words;    // words of the bit set of a row and of a column
        int64_t rows, columns;              // starts of the bit sets of rows and of columns
        int32_t most_rows, most_columns;  // maximum number of rows that a column forbids; of columns that a row forbids
    };
    struct Clause {
        int64_t begin;
        int32_t length;
        int32_t n_levels;    // number of decision levels among its literals when it was learned
        bool learned;
    };
    struct Watch {
        int32_t clause;
        Literal other;    // if this literal holds, so does the clause
    };

    const int64_t n_nodes;
    const std::vector<int64_t> first;
    const std::vector<uint8_t> active;
    std::vector<int32_t> node, size, value, degree;
    std::vector<int64_t> word_of;
    std::vector<Word> domain;
    std::vector<int8_t> truth;    // by variable: 1 if the node has the state, -1 if not, 0 if open
    std::vector<int32_t> level, place;
    std::vector<int64_t> reason;
    std::vector<Literal> trail, conflict;    // literals that hold, in order; literals of a conflict
    int64_t conflict_reason = NO_REASON;    // reason of the literal that cannot hold
    std::vector<int64_t> level_start;

    std::vector<Relation> relations;
    std::vector<Word> bits;
    std::vector<int32_t> ends, relation_of;
    std::vector<int64_t> edge_number;    // number of each edge, counting edges that are left out
    std::vector<int64_t> incident_ptr;
    std::vector<int64_t> incident;    // 2 * edge, plus 1 if the node is its second end

    std::vector<Clause> clauses;
    std::vector<Literal> literals;
    std::vector<std::vector<Watch>> watches;    // by watched literal; if it becomes false, the clause finds another
    size_t n_given = 0;

    std::vector<int64_t> count_ptr, allowed_ptr, counts_of_ptr;
    std::vector<Variable> counted;
    std::vector<uint8_t> allowed;
    std::vector<int32_t> counts_of;

    std::vector<uint8_t> node_waits, count_waits;
    std::vector<int32_t> waiting_nodes, waiting_counts;
    size_t head = 0;

    int32_t current_level() const { return static_cast<int32_t>(level_start.size()); }
    int truth_of(Literal p) const { return is_taken(p) ? truth[variable_of(p)] : -truth[variable_of(p)]; }
    bool is_possible(int64_t v, int64_t state) const { return domain[word_of[v] + state / 64] >> (state % 64) & 1; }

    template <class Visit>
    void for_each_possible(int64_t v, Visit visit) const {
        for (int64_t w = word_of[v]; w < word_of[v + 1]; ++w)
            for (Word left = domain[w]; left; left &= left - 1) visit(64 * (w - word_of[v]) + lowest_bit(left));
    }

    // Returns the bit set of the states at the other end that are compatible with a state at one side of an edge.
    const Word* supports(int64_t edge, int side, int64_t state) const {
        const Relation& r = relations[relation_of[edge]];
        return bits.data() + (side ? r.columns + state * r.column_words : r.rows + state * r.row_words);
    }

    void wait(int64_t v) {
        if (node_waits[v]) return;
        node_waits[v] = 1;
        waiting_nodes.push_back(static_cast<int32_t>(v));
    }

    // Sets an open literal and its consequences within its node. This cannot cause a conflict.
    void push(Literal p, int64_t why) {
        const Variable x = variable_of(p);
        const int64_t v = node[x];
        truth[x] = is_taken(p) ? 1 : -1;
        level[x] = current_level();
        place[x] = static_cast<int32_t>(trail.size());
        reason[x] = why;
        trail.push_back(p);
        if (is_taken(p)) {
            value[v] = static_cast<int32_t>(x - first[v]);
            wait(v);
            for_each_possible(v, [&](int64_t state) {
                if (state != value[v]) push(ruled_out(first[v] + state), reason_of(OTHER_TAKEN, v));
            });
            return;
        }
        const int64_t state = x - first[v];
        domain[word_of[v] + state / 64] &= ~(Word(1) << (state % 64));
        --size[v];
        wait(v);
        if (size[v] == 1 && value[v] < 0) take_last(v);
    }

    void take_last(int64_t v) {
        int64_t w = word_of[v];
        while (!domain[w]) ++w;
        push(taken(first[v] + 64 * (w - word_of[v]) + lowest_bit(domain[w])), reason_of(LAST_LEFT, v));
    }

    // Returns false at a conflict.
    bool require(Literal p, int64_t why) {
        const int known = truth_of(p);
        if (known > 0) return true;
        if (known == 0) {
            push(p, why);
            return true;
        }
        conflict.clear();
        conflict.push_back(negated(p));
        conflict_reason = why;
        explain(p, why, static_cast<int64_t>(trail.size()), conflict);
        return false;
    }

    // Propagates all literals that hold. Returns false at a conflict.
    bool propagate() {
        bool holds = true;
        while (holds) {
            if (head < trail.size()) {
                const Literal p = trail[head++];
                for (int64_t k = counts_of_ptr[variable_of(p)]; k < counts_of_ptr[variable_of(p) + 1]; ++k)
                    if (!count_waits[counts_of[k]]) {
                        count_waits[counts_of[k]] = 1;
                        waiting_counts.push_back(counts_of[k]);
                    }
                holds = look_at_clauses(negated(p));
            } else if (!waiting_counts.empty()) {
                const int32_t c = waiting_counts.back();
                waiting_counts.pop_back();
                count_waits[c] = 0;
                holds = look_at_count(c);
            } else if (!waiting_nodes.empty()) {
                const int32_t v = waiting_nodes.back();
                waiting_nodes.pop_back();
                node_waits[v] = 0;
                holds = look_at_neighbours(v);
            } else {
                return true;
            }
        }
        head = trail.size();
        for (int32_t v : waiting_nodes) node_waits[v] = 0;
        for (int32_t c : waiting_counts) count_waits[c] = 0;
        waiting_nodes.clear();
        waiting_counts.clear();
        return false;
    }

    // Returns the literals that imply a literal, all set before a given position of the trail.
    void explain(Literal p, int64_t why, int64_t before, std::vector<Literal>& found) {
        const int64_t number = why >> 3;
        const Variable x = variable_of(p);
        switch (static_cast<Kind>(why & 7)) {
        case NO_REASON: return;
        case OTHER_TAKEN: found.push_back(taken(first[number] + value[number])); return;
        case LAST_LEFT:
            work += first[number + 1] - first[number];
            for (int64_t y = first[number]; y < first[number + 1]; ++y)
                if (y != x) found.push_back(ruled_out(static_cast<Variable>(y)));
            return;
        case CLAUSE: {
            const Clause& clause = clauses[number];
            work += clause.length;
            for (int64_t k = clause.begin; k < clause.begin + clause.length; ++k)
                if (literals[k] != p) found.push_back(negated(literals[k]));
            return;
        }
        case UNSUPPORTED: explain_missing_support(x, number, before, found); return;
        case COUNT: explain_count(p, number, before, found); return;
        }
    }

    void attach(int32_t number) {
        const Clause& clause = clauses[number];
        const Literal a = literals[clause.begin], b = literals[clause.begin + 1];
        watches[a].push_back({number, b});
        watches[b].push_back({number, a});
    }

private:
    void add_relations(const Constraints& given) {
        for (int64_t r = 0; r < given.n_relations; ++r) {
            const int64_t n_rows = given.shape[2 * r], n_columns = given.shape[2 * r + 1];
            const uint8_t* cells = given.cells + given.cell_ptr[r];
            Relation found{n_words(n_columns), n_words(n_rows), static_cast<int64_t>(bits.size()), 0, 0, 0};
            found.columns = found.rows + n_rows * found.row_words;
            bits.resize(found.columns + n_columns * found.column_words, 0);
            std::vector<int32_t> of_column(n_columns, 0);
            for (int64_t a = 0; a < n_rows; ++a) {
                int32_t of_row = 0;
                for (int64_t b = 0; b < n_columns; ++b) {
                    if (cells[a * n_columns + b]) {
                        bits[found.rows + a * found.row_words + b / 64] |= Word(1) << (b % 64);
                        bits[found.columns + b * found.column_words + a / 64] |= Word(1) << (a % 64);
                    } else {
                        ++of_row;
                        ++of_column[b];
                    }
                }
                found.most_columns = std::max(found.most_columns, of_row);
            }
            for (int32_t n : of_column) found.most_rows = std::max(found.most_rows, n);
            relations.push_back(found);
        }
    }

    void add_edges(const Constraints& given) {
        incident_ptr.assign(n_nodes + 1, 0);
        for (int64_t e = 0; e < given.n_edges; ++e) {
            const int32_t a = given.ends[2 * e], b = given.ends[2 * e + 1];
            if (!active[a] || !active[b]) continue;
            ends.push_back(a);
            ends.push_back(b);
            relation_of.push_back(given.relation[e]);
            edge_number.push_back(e);
            ++incident_ptr[a + 1];
            ++incident_ptr[b + 1];
        }
        for (int64_t v = 0; v < n_nodes; ++v) {
            degree[v] += static_cast<int32_t>(incident_ptr[v + 1]);
            incident_ptr[v + 1] += incident_ptr[v];
        }
        incident.resize(ends.size());
        std::vector<int64_t> next(incident_ptr.begin(), incident_ptr.end() - 1);
        for (size_t half = 0; half < ends.size(); ++half) incident[next[ends[half]]++] = static_cast<int64_t>(half);
    }

    void add_counts(const Constraints& given) {
        count_ptr.push_back(0);
        counts_of_ptr.assign(first[n_nodes] + 1, 0);
        for (int64_t c = 0; c < given.n_counts; ++c) {
            const int32_t *begin = given.counted + given.count_ptr[c], *end = given.counted + given.count_ptr[c + 1];
            if (!std::all_of(begin, end, [&](int32_t x) { return active[node[x]]; })) continue;
            allowed_ptr.push_back(static_cast<int64_t>(allowed.size()));
            const uint8_t* of_count = given.allowed + given.allowed_ptr[c];
            allowed.insert(allowed.end(), of_count, of_count + (end - begin) + 1);
            waiting_counts.push_back(static_cast<int32_t>(count_ptr.size()) - 1);
            for (; begin < end; ++begin) {
                counted.push_back(*begin);
                ++counts_of_ptr[*begin + 1];
                ++degree[node[*begin]];
            }
            count_ptr.push_back(static_cast<int64_t>(counted.size()));
        }
        count_waits.assign(waiting_counts.size(), 1);
        for (int64_t x = 0; x < first[n_nodes]; ++x) counts_of_ptr[x + 1] += counts_of_ptr[x];
        counts_of.resize(counted.size());
        std::vector<int64_t> next(counts_of_ptr.begin(), counts_of_ptr.end() - 1);
        for (size_t c = 0; c + 1 < count_ptr.size(); ++c)
            for (int64_t k = count_ptr[c]; k < count_ptr[c + 1]; ++k)
                counts_of[next[counted[k]]++] = static_cast<int32_t>(c);
    }

    // Propagates clauses with a literal that became false.
    bool look_at_clauses(Literal lost) {
        std::vector<Watch>& all = watches[lost];
        size_t kept = 0;
        bool holds = true;
        work += static_cast<int64_t>(all.size());
        for (size_t k = 0; k < all.size(); ++k) {
            const Watch watch = all[k];
            if (!holds || truth_of(watch.other) > 0) {
                all[kept++] = watch;
                continue;
            }
            const Clause& clause = clauses[watch.clause];
            Literal* own = literals.data() + clause.begin;
            if (own[0] == lost) std::swap(own[0], own[1]);
            int32_t next = 2;
            if (truth_of(own[0]) <= 0)
                while (next < clause.length && truth_of(own[next]) < 0) ++next;
            work += next;
            if (truth_of(own[0]) > 0) {
                all[kept++] = {watch.clause, own[0]};
            } else if (next < clause.length) {
                std::swap(own[1], own[next]);
                watches[own[1]].push_back({watch.clause, own[0]});
            } else {
                all[kept++] = watch;
                holds = require(own[0], reason_of(CLAUSE, watch.clause));
            }
        }
        all.resize(kept);
        return holds;
    }

    // Rules out states of neighbours that are incompatible with all remaining states of a node.
    bool look_at_neighbours(int64_t v) {
        for (int64_t k = incident_ptr[v]; k < incident_ptr[v + 1]; ++k) {
            const int64_t half = incident[k], edge = half >> 1;
            const int side = static_cast<int>(half & 1);
            const int64_t u = ends[half ^ 1];
            const Relation& r = relations[relation_of[edge]];
            ++work;
            if (size[v] > (side ? r.most_columns : r.most_rows)) continue;
            const int64_t words = word_of[v + 1] - word_of[v], why = reason_of(UNSUPPORTED, half);
            for (int64_t w = word_of[u]; w < word_of[u + 1]; ++w) {
                const int64_t from = 64 * (w - word_of[u]);
                Word lost = domain[w];
                if (value[v] >= 0) {
                    lost &= ~supports(edge, side, value[v])[w - word_of[u]];
                    ++work;
                } else {
                    for (Word left = domain[w]; left; left &= left - 1) {
                        const int state = lowest_bit(left);
                        const Word* mine = supports(edge, 1 - side, from + state);
                        int64_t at = 0;
                        while (at < words && !(mine[at] & domain[word_of[v] + at])) ++at;
                        work += 1 + at;
                        if (at < words) lost &= ~(Word(1) << state);
                    }
                }
                for (; lost; lost &= lost - 1)
                    if (!require(ruled_out(static_cast<Variable>(first[u] + from + lowest_bit(lost))), why))
                        return false;
            }
        }
        return true;
    }

    // x: a state of the node at the other end of a half-edge
    void explain_missing_support(Variable x, int64_t half, int64_t before, std::vector<Literal>& found) {
        const int64_t v = ends[half], b = x - first[node[x]];
        const int side = static_cast<int>(half & 1);
        const Word* mine = supports(half >> 1, 1 - side, b);
        if (value[v] >= 0) {
            const Variable y = static_cast<Variable>(first[v] + value[v]);
            if (place[y] < before && !(mine[value[v] / 64] >> (value[v] % 64) & 1)) {
                found.push_back(taken(y));
                return;
            }
        }
        for (int64_t w = 0; w < word_of[v + 1] - word_of[v]; ++w)
            for (Word left = mine[w]; left; left &= left - 1, ++work)
                found.push_back(ruled_out(static_cast<Variable>(first[v] + 64 * w + lowest_bit(left))));
    }

    bool any_allowed(int64_t c, int64_t low, int64_t high) const {
        const uint8_t* of_count = allowed.data() + allowed_ptr[c];
        for (int64_t n = low; n <= high; ++n)
            if (of_count[n]) return true;
        return false;
    }

    bool look_at_count(int64_t c) {
        int64_t least = 0, most = 0;
        work += count_ptr[c + 1] - count_ptr[c];
        for (int64_t k = count_ptr[c]; k < count_ptr[c + 1]; ++k) {
            least += truth[counted[k]] > 0;
            most += truth[counted[k]] >= 0;
        }
        const int64_t why = reason_of(COUNT, c);
        if (!any_allowed(c, least, most)) {
            conflict.clear();
            conflict_reason = why;
            explain_count(-1, c, static_cast<int64_t>(trail.size()), conflict);
            return false;
        }
        if (least == most) return true;
        const bool none = !any_allowed(c, least + 1, most), all = !any_allowed(c, least, most - 1);
        if (!none && !all) return true;
        for (int64_t k = count_ptr[c]; k < count_ptr[c + 1]; ++k)
            if (!truth[counted[k]]) {
                const Literal p = none ? ruled_out(counted[k]) : taken(counted[k]);
                if (!require(p, why)) return false;
            }
        return true;
    }

    // Finds a minimal set of decided variables that leaves no allowed count. p: implied literal, or -1 at a conflict
    void explain_count(Literal p, int64_t c, int64_t before, std::vector<Literal>& found) {
        const uint8_t* of_count = allowed.data() + allowed_ptr[c];
        const int64_t n = count_ptr[c + 1] - count_ptr[c];
        int64_t least = 0, most = n;
        for (int64_t k = count_ptr[c]; k < count_ptr[c + 1]; ++k)
            if (truth[counted[k]] && place[counted[k]] < before) {
                least += truth[counted[k]] > 0;
                most -= truth[counted[k]] < 0;
            }
        work += 2 * n;
        // No count from low to high is allowed if the variable of p has the opposite value.
        const int64_t more = p >= 0 && !is_taken(p), less = p >= 0 && is_taken(p);
        int64_t low = least + more, high = most - less;
        while (low > 0 && !of_count[low - 1]) --low;
        while (high < n && !of_count[high + 1]) ++high;
        int64_t n_taken = std::max<int64_t>(low - more, 0), n_out = std::max<int64_t>(n - (high + less), 0);
        for (int64_t k = count_ptr[c]; k < count_ptr[c + 1]; ++k) {
            const Variable x = counted[k];
            if (!truth[x] || place[x] >= before) continue;
            if (truth[x] > 0 && n_taken > 0) {
                --n_taken;
                found.push_back(taken(x));
            } else if (truth[x] < 0 && n_out > 0) {
                --n_out;
                found.push_back(ruled_out(x));
            }
        }
    }
};

}  // namespace crf
