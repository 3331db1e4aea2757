// Terms of a flow network for one edge, in a choice between two labelings.
//
// With x_s = 0 for keep and 1 for take, the energy (minus the score) of an edge with scores a, b, c, d of
// (x_i, x_j) = (0, 0), (0, 1), (1, 0), (1, 1) is
//
//     const + (a + b - c - d) / 2 x_i + (a - b + c - d) / 2 x_j + q / 2 |x_i - x_j|,    q = a + d - b - c.
//
// If q >= 0, the edge is submodular, and the last term is a pair of arcs of capacity q / 2 (Kolmogorov & Zabih 2004).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "flow_topologies.hpp"

namespace crf {

// Treatment of an edge with q < 0.
enum : int {
    kStop,      // report it
    kTruncate,  // drop the term, which increases the cost of both mixed choices by |q| / 2
    kCross,     // exchange the states of its second end, with arcs to the mirror image of that node
};

constexpr double kEndless = std::numeric_limits<double>::infinity();

struct EdgeTerms {
    double first = 0, second = 0;  // costs of taking the alternative at the first and the second end
    double there = 0, back = 0;  // capacities from the first end to the second, and back
    double lacking = 0;  // -q if the edge is not submodular, else 0
    bool crossed = false;

    void set_finite(double a, double b, double c, double q) {
        there = back = q / 2;
        first = a - c - q / 2;
        second = a - b - q / 2;
    }

    // Sets the terms of an edge whose infinite scores, if any, are b and c.
    void set_submodular(double a, double b, double c, double d) {
        const double q = a + d - b - c;
        if (!std::isinf(q)) return set_finite(a, b, c, q);
        // If only (0, 1) is forbidden, the second end at 1 forces the first end to 1, and scores are split without b.
        there = std::isinf(b) ? kEndless : 0;
        back = std::isinf(c) ? kEndless : 0;
        if (std::isinf(b) && std::isinf(c)) first = a - d, second = 0;
        else if (std::isinf(b)) first = a - c, second = c - d;
        else first = b - d, second = a - b;
    }

    // Sets the terms of an edge that forbids a state of one end: two scores in a row or column are -inf.
    void set_hard(double a, double b, double c, double d) {
        const bool A = std::isinf(a), B = std::isinf(b), C = std::isinf(c), D = std::isinf(d);
        if (A && B && C && D) first = kEndless - kEndless;
        else if (A && B) first = -kEndless, second = c - d;
        else if (C && D) first = kEndless, second = a - b;
        else if (A && C) second = -kEndless, first = b - d;
        else second = kEndless, first = a - c;
    }
};

inline EdgeTerms unusual_terms(double a, double b, double c, double d, double precision, int mode) {
    EdgeTerms terms;
    const double q = a + d - b - c;
    if ((std::isinf(a) || std::isinf(d)) && (std::isinf(b) || std::isinf(c))) {
        terms.set_hard(a, b, c, d);
        return terms;
    }
    if (q >= 0) {
        terms.set_submodular(a, b, c, d);
        return terms;
    }
    // Tolerate rounding of tables that are exactly modular, such as [[0.1, 0.2], [0.3, 0.4]].
    const bool is_finite = !std::isinf(q);
    const bool is_modular = is_finite && -q <= precision * (std::fabs(a) + std::fabs(b) + std::fabs(c) + std::fabs(d));
    if (!is_modular) terms.lacking = -q;
    if (!is_modular && mode == kCross) {
        terms.crossed = true;
        terms.set_submodular(b, a, d, c);
        terms.second = -terms.second;
    } else if (is_finite) {
        terms.set_finite(a, b, c, q);
        terms.there = terms.back = 0;
    }
    return terms;
}

// Labelings between which nodes choose: states to keep, and alternative states to take.
struct Choice {
    const i32 *keep, *take;  // (N,)
};

// Scores of the edges of a pairwise model.
template <class Real>
struct EdgeScores {
    const Real* tables;  // (T, R, K, K)
    i64 n_features, n_states;
    const i32* type;  // (E,)
    const Real* weight;  // (E, R), or null for weights of 1

    double score(i64 edge, i32 i, i32 j) const {
        const i64 size = n_states * n_states;
        const Real* table = tables + type[edge] * n_features * size + i * n_states + j;
        if (!weight) return table[0];
        const Real* factor = weight + edge * n_features;
        double total = 0;
        for (i64 r = 0; r < n_features; ++r, table += size) total += double(factor[r]) * double(table[0]);
        return total;
    }

    // Terms of an edge between nodes i and j, which both have a choice.
    EdgeTerms terms(i64 edge, i32 keep_i, i32 take_i, i32 keep_j, i32 take_j, double precision, int mode) const {
        const i64 size = n_states * n_states;
        const Real one = 1, *table = tables + type[edge] * n_features * size;
        const Real* factor = weight ? weight + edge * n_features : &one;
        double a = 0, b = 0, c = 0, d = 0;
        for (i64 r = 0; r < n_features; ++r, table += size) {
            const double x = factor[r];
            a += x * table[keep_i * n_states + keep_j];
            b += x * table[keep_i * n_states + take_j];
            c += x * table[take_i * n_states + keep_j];
            d += x * table[take_i * n_states + take_j];
        }
        const double q = a + d - b - c;
        // The most common case; a finite sum has finite terms.
        if (!(q >= 0 && q < kEndless)) return unusual_terms(a, b, c, d, precision, mode);
        EdgeTerms found;
        found.set_finite(a, b, c, q);
        return found;
    }

    // Adds the terms of an edge with a choice at only one end to the cost of this end. Such an edge needs no arcs.
    void settle(i64 edge, const Choice& choice, i32 i, i32 j, double& cost) const {
        cost += score(edge, choice.keep[i], choice.keep[j]);
        cost -= score(edge, choice.take[i], choice.take[j]);
    }
};

// Conversion of scores to integers; most, precision and mode are as in flows.pyx.
struct Rounding {
    i64 most;
    double precision;
    int mode;

    // Sets 2**exponent units of capacity per unit of score.
    void set_exponent(i64 exponent) {
        first_scale_ = std::ldexp(1.0, int(exponent / 2));
        second_scale_ = std::ldexp(1.0, int(exponent - exponent / 2));
    }

    i64 capacity(double value) const { return std::isinf(value) ? most : std::llrint(to_units(value)); }

    // Converts a cost to units of capacity; returns false if both choices are forbidden.
    template <class Cap>
    bool excess(double cost, Cap& found) const {
        const double value = to_units(cost), top = double(most);
        found = static_cast<Cap>(value >= top ? most : value <= -top ? -most : std::isnan(value) ? 0 : std::llrint(value));
        return !std::isnan(value);
    }

private:
    double to_units(double value) const { return value * first_scale_ * second_scale_; }

    // The scale is the product of two powers of two, because it overflows for scores near the smallest double.
    double first_scale_ = 1, second_scale_ = 1;
};

// Lists the nodes that have a choice; returns their number.
inline i64 list_open(const Choice& choice, i64 n_nodes, u8* is_open, i32* nodes) {
    i64 n_open = 0;
    for (i64 i = 0; i < n_nodes; ++i) {
        is_open[i] = choice.keep[i] != choice.take[i];
        // Avoid a branch, which would often be mispredicted.
        nodes[n_open] = static_cast<i32>(i);
        n_open += is_open[i];
    }
    return n_open;
}

// Geometry of a lattice, whose edges are in the order of their offsets.
struct LatticeShape {
    i64 n_nodes, guard, degree, n_axes;
    const i64 *counts, *delta, *shape, *box;  // as in flows.pyx
    const i32* edges;
};

// Converts edges to arcs of a lattice, and adds to the costs of nodes; returns the edge at which it stopped, or -1.
// Arcs between two nodes without a choice are not written, since no flow reaches them.
template <class Real, class Cap>
i64 lattice_arcs(const EdgeScores<Real>& scores, const LatticeShape& lattice, const Choice& choice, const u8* is_open,
                 i64 n_open, const Rounding& rounding, double* cost, Cap* residuals) {
    constexpr i64 kAtOnce = 256;  // edges that are filtered at once for edges with a choice
    const i64 degree = lattice.degree, n_arcs = (lattice.n_nodes + 2 * lattice.guard) * degree;
    const Array<Cap> residual(residuals, n_arcs, lattice.guard * degree);
    const bool all = n_open == lattice.n_nodes;
    const i32 *keep = choice.keep, *take = choice.take, *edges = lattice.edges;
    i64 listed[kAtOnce], stop = 0;
    for (i64 k = 0; k < degree / 2; ++k) {
        const i64 back = degree - 1 - k;
        i64 high = stop;
        stop += lattice.counts[k];
        while (high < stop) {
            const i64 low = high;
            high = std::min(high + kAtOnce, stop);
            i64 n_listed = all ? high - low : 0;
            for (i64 edge = low; edge < high && !all; ++edge) {
                listed[n_listed] = edge;
                n_listed += is_open[edges[2 * edge]] | is_open[edges[2 * edge + 1]];
            }
            for (i64 position = 0; position < n_listed; ++position) {
                const i64 edge = all ? low + position : listed[position];
                const i32 i = edges[2 * edge], j = edges[2 * edge + 1];
                if (!(is_open[i] & is_open[j])) {
                    scores.settle(edge, choice, i, j, cost[is_open[i] ? i : j]);
                    residual[i * degree + k] = residual[j * degree + back] = 0;
                    continue;
                }
                const EdgeTerms terms =
                    scores.terms(edge, keep[i], take[i], keep[j], take[j], rounding.precision, rounding.mode);
                if (terms.lacking > 0 && (rounding.mode == kStop || std::isinf(terms.lacking))) return edge;
                cost[i] += terms.first;
                cost[j] += terms.second;
                residual[i * degree + k] = static_cast<Cap>(rounding.capacity(terms.there));
                residual[j * degree + back] = static_cast<Cap>(rounding.capacity(terms.back));
            }
        }
    }
    return -1;
}

}  // namespace crf
