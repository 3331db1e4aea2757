// Naive mean field on factor graphs: expected scores of factors whose nodes are independent.
//
// The expected score F of a factor is linear in the probabilities of each of its nodes. An update of a node needs the
// derivatives of F with respect to the probabilities of this node. Backpropagation replaces the probabilities of the
// node by the derivative of the loss, and needs the derivatives of F with respect to all other nodes and to the table.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "local/local_model.hpp"
#include "local/search_problem.hpp"

namespace crf {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

struct FactorMeanField {
    Problem<double> problem;

    // Updates a node, given the probabilities of all nodes. Writes the logarithms of its new probabilities.
    void update(i64 node, const double* q, double* log_q) {
        const i64 K = problem.n_columns, n = problem.n_states[node];
        std::fill_n(log_q, K, kForbidden);
        std::copy_n(problem.unary + node * K, n, log_q);
        for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
            const i64 slot = problem.node_slot[i], factor = problem.slot_factor[slot];
            set_rows(factor, q);
            expect(factor, slot - problem.slot_ptr[factor], n);
            for (i64 k = 0; k < n; ++k) log_q[k] += expected[k];
        }
        const double top = *std::max_element(log_q, log_q + n);
        double total = 0;
        for (i64 k = 0; k < n; ++k) total += std::exp(log_q[k] - top);
        // Scores of forbidden joint states are so large that the sum of top and the logarithm would be rounded to top.
        for (i64 k = 0; k < n; ++k) log_q[k] = (log_q[k] - top) - std::log(total);
    }

    // Returns the expected score of a factor, -inf if a forbidden joint state has a positive probability.
    double expected_score(i64 factor, const double* q) {
        const i64 node = problem.slot_node[problem.slot_ptr[factor]];
        const double* own = q + node * problem.n_columns;
        double total = 0;
        set_rows(factor, q);
        expect(factor, 0, problem.n_states[node]);
        for (i64 k = 0; k < problem.n_states[node]; ++k)
            if (own[k] > 0) total += expected[k] < FORBIDDEN_TRACE / 2 ? kForbidden : own[k] * expected[k];
        return total;
    }

    // Adds the probabilities of the cells of a factor's table, and of the cells with the default score.
    void add_probabilities(i64 factor, const double* q, double* of_values, double* of_defaults) {
        set_rows(factor, q);
        add_table_derivatives(factor, of_values, of_defaults);
    }

    // Backpropagates through the update of a node: adds to the derivatives with respect to the probabilities of all
    // other nodes and to the tables. `slope` is the derivative with respect to the scores of the node, and q(other) is
    // the row used in the update.
    template <class Row>
    void undo(i64 node, const double* slope, Row q, double* adjoint, double* of_values, double* of_defaults) {
        const i64 K = problem.n_columns;
        for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
            const i64 slot = problem.node_slot[i], factor = problem.slot_factor[slot], first = problem.slot_ptr[factor];
            rows.clear();
            for (i64 j = first; j < problem.slot_ptr[factor + 1]; ++j)
                rows.push_back(j == slot ? slope : q(problem.slot_node[j]));
            add_table_derivatives(factor, of_values, of_defaults);
            add_row_derivatives(factor, slot - first, [&](i64 j) { return adjoint + problem.slot_node[first + j] * K; });
        }
    }

private:
    std::vector<const double*> rows;  // probabilities of each node of a factor
    std::vector<double> expected;     // (n_states,) of one node, expected score of each state
    std::vector<double> mass;         // (n_states,) of one node, probability of the listed cells of each state
    std::vector<double> n_reached;    // (n_states,) of one node, number of listed cells of positive probability
    std::vector<double> partial;      // products or distributions of counts of the first nodes
    std::vector<double> adjoints;     // derivatives by distributions of counts
    std::vector<i64> state;           // (n,) joint state

    // Forbidden joint states cost nothing at probability zero, and very much otherwise.
    static double times(double probability, double score) {
        if (probability == 0) return 0;
        return score == kForbidden ? std::min(FORBIDDEN_PAIR * probability, FORBIDDEN_TRACE) : probability * score;
    }

    i64 size(i64 factor) const { return problem.slot_ptr[factor + 1] - problem.slot_ptr[factor]; }
    i64 n_listed(i32 t) const { return problem.table_ptr[t + 1] - problem.table_ptr[t]; }
    i64 n_states(i64 factor, i64 j) const { return problem.n_states[problem.slot_node[problem.slot_ptr[factor] + j]]; }

    void set_rows(i64 factor, const double* q) {
        rows.clear();
        for (i64 slot = problem.slot_ptr[factor]; slot < problem.slot_ptr[factor + 1]; ++slot)
            rows.push_back(q + problem.slot_node[slot] * problem.n_columns);
    }

    // Calls visit(cell) for each listed cell of a dense or sparse table, after setting its joint state.
    template <class Visit>
    void each_cell(i64 factor, Visit visit) {
        const i32 t = problem.table[factor];
        const i64 n = size(factor), first = problem.slot_ptr[factor];
        state.assign(n, 0);
        for (i64 at = problem.table_ptr[t]; at < problem.table_ptr[t + 1]; ++at) {
            const i64 cell = problem.kind[t] == DENSE_TABLE ? at - problem.table_ptr[t] : problem.listed[at];
            for (i64 j = 0, rest = cell; j < n; ++j) {
                state[j] = rest / problem.slot_step[first + j];
                rest -= state[j] * problem.slot_step[first + j];
            }
            visit(at);
        }
    }

    // Product of the rows at the joint state, without row `left_out`.
    double product(i64 left_out) const {
        double total = 1;
        for (i64 j = 0; j < i64(rows.size()); ++j)
            if (j != left_out) total *= rows[j][state[j]];
        return total;
    }

    // Product of the sums of the rows, without row `left_out`.
    double product_of_sums(i64 factor, i64 left_out) const {
        double total = 1;
        for (i64 j = 0; j < i64(rows.size()); ++j)
            if (j != left_out) total *= std::accumulate(rows[j], rows[j] + n_states(factor, j), 0.0);
        return total;
    }

    // Computes the expected score of each state of one node, given the rows of all other nodes.
    void expect(i64 factor, i64 own, i64 n) {
        const i32 t = problem.table[factor];
        expected.assign(n, 0.0);
        if (problem.kind[t] == COUNT_TABLE) return expect_counts(factor, own, n);
        mass.assign(n, 0.0);
        n_reached.assign(n, 0.0);
        each_cell(factor, [&](i64 at) {
            const double p = product(own);
            expected[state[own]] += times(p, problem.values[at]);
            mass[state[own]] += p;
            n_reached[state[own]] += p > 0;
        });
        if (problem.kind[t] == DENSE_TABLE) return;
        double n_possible = 1;
        for (i64 j = 0; j < i64(rows.size()); ++j)
            if (j != own)
                n_possible *= double(std::count_if(rows[j], rows[j] + n_states(factor, j), [](double p) { return p > 0; }));
        // The number of cells decides whether there are others, because rounding errors hide small probabilities.
        for (i64 k = 0; k < n; ++k)
            if (n_reached[k] < n_possible) expected[k] += times(std::max(1 - mass[k], 1e-300), problem.fallback[t]);
    }

    // Score of a number of nodes in the counted state; `most` stands for itself and all larger numbers.
    double score_of_count(i32 t, i64 count) const {
        return count < n_listed(t) ? problem.values[problem.table_ptr[t] + count] : problem.fallback[t];
    }

    i64 most_counted(i64 factor) const { return std::min(n_listed(problem.table[factor]), size(factor)); }

    // Probability that a node of a factor is in the counted state, or in any other state.
    double counted(i64 factor, i64 j, bool is_in) const {
        double total = 0;
        for (i64 a = 0; a < n_states(factor, j); ++a)
            if ((a == problem.counted[problem.table[factor]]) == is_in) total += rows[j][a];
        return total;
    }

    // Computes the distributions of the count over the first nodes, (n + 1, most + 1), without one node.
    void count(i64 factor, i64 left_out) {
        const i64 most = most_counted(factor), n = size(factor), width = most + 1;
        partial.assign((n + 1) * width, 0.0);
        partial[0] = 1;
        for (i64 j = 0; j < n; ++j) {
            const bool is_left_out = j == left_out;
            const double in = is_left_out ? 0 : counted(factor, j, true), out = is_left_out ? 1 : counted(factor, j, false);
            const double* before = partial.data() + j * width;
            double* after = partial.data() + (j + 1) * width;
            for (i64 c = 0; c <= most; ++c) {
                after[c] += before[c] * out;
                after[std::min(c + 1, most)] += before[c] * in;
            }
        }
    }

    void expect_counts(i64 factor, i64 own, i64 n) {
        const i32 t = problem.table[factor];
        const i64 most = most_counted(factor);
        count(factor, own);
        const double* of_count = partial.data() + size(factor) * (most + 1);
        for (i64 k = 0; k < n; ++k)
            for (i64 c = 0; c <= most; ++c)
                expected[k] += times(of_count[c], score_of_count(t, std::min(c + (k == problem.counted[t]), most)));
    }

    // Adds the derivatives of the expected score with respect to the scores of the table.
    void add_table_derivatives(i64 factor, double* of_values, double* of_defaults) {
        const i32 t = problem.table[factor];
        if (problem.kind[t] == COUNT_TABLE) {
            count(factor, -1);
            const i64 most = most_counted(factor), start = problem.table_ptr[t];
            const double* of_count = partial.data() + size(factor) * (most + 1);
            for (i64 c = 0; c <= most; ++c) (c < n_listed(t) ? of_values[start + c] : of_defaults[t]) += of_count[c];
            return;
        }
        double listed = 0;
        each_cell(factor, [&](i64 at) {
            const double p = product(-1);
            of_values[at] += p;
            listed += p;
        });
        if (problem.kind[t] == SPARSE_TABLE) of_defaults[t] += product_of_sums(factor, -1) - listed;
    }

    // Adds the derivatives of the expected score with respect to all rows but one to row_of(j). The table must be
    // finite.
    template <class RowOf>
    void add_row_derivatives(i64 factor, i64 left_out, RowOf row_of) {
        const i32 t = problem.table[factor];
        if (problem.kind[t] == COUNT_TABLE) return add_count_derivatives(factor, left_out, row_of);
        const double other = problem.kind[t] == SPARSE_TABLE ? problem.fallback[t] : 0.0;
        each_cell(factor, [&](i64 at) {
            for (i64 j = 0; j < i64(rows.size()); ++j)
                if (j != left_out) row_of(j)[state[j]] += product(j) * (problem.values[at] - other);
        });
        for (i64 j = 0; j < i64(rows.size()) && other != 0; ++j) {
            if (j == left_out) continue;
            const double of_all = other * product_of_sums(factor, j);
            for (i64 a = 0; a < n_states(factor, j); ++a) row_of(j)[a] += of_all;
        }
    }

    template <class RowOf>
    void add_count_derivatives(i64 factor, i64 left_out, RowOf row_of) {
        const i32 t = problem.table[factor];
        const i64 most = most_counted(factor);
        count(factor, -1);
        adjoints.resize(most + 1);
        for (i64 c = 0; c <= most; ++c) adjoints[c] = score_of_count(t, c);
        for (i64 j = size(factor) - 1; j >= 0; --j) {
            const double* before = partial.data() + j * (most + 1);
            const double in = counted(factor, j, true), out = counted(factor, j, false);
            double by_in = 0, by_out = 0;
            for (i64 c = 0; c <= most; ++c) {
                const double next = adjoints[std::min(c + 1, most)];
                by_in += before[c] * next;
                by_out += before[c] * adjoints[c];
                adjoints[c] = out * adjoints[c] + in * next;
            }
            for (i64 a = 0; a < n_states(factor, j) && j != left_out; ++a)
                row_of(j)[a] += a == problem.counted[t] ? by_in : by_out;
        }
    }
};

// Backpropagates through a sweep. A node reads later nodes before their update, and earlier nodes after it.
inline void undo_sweep(FactorMeanField& field, const double* before, const double* after, const double* further,
                       double* adjoint, double* of_unary, double* of_values, double* of_defaults) {
    const i64 K = field.problem.n_columns;
    std::vector<double> slope(K);
    for (i64 node = field.problem.n_nodes - 1; node >= 0; --node) {
        const double* q = after + node * K;
        double *own = adjoint + node * K, mean = 0;
        for (i64 a = 0; a < K; ++a) mean += q[a] * own[a];
        for (i64 a = 0; a < K; ++a) {
            slope[a] = q[a] * (own[a] - mean) + further[node * K + a];
            of_unary[node * K + a] += slope[a];
            own[a] = 0;
        }
        const auto row = [&](i64 other) { return (other < node ? after : before) + other * K; };
        field.undo(node, slope.data(), row, adjoint, of_values, of_defaults);
    }
}

}  // namespace crf
