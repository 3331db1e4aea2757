// Memory layout of the parts of the tables of each elimination bucket.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "elimination_order.hpp"

namespace sklearn_crf {

// Larger sizes count as infinite; they still fit into a float.
constexpr double MOST_CELLS = 1e300;

inline double joint_states(const int32_t* nodes, int64_t n, const int64_t* n_states) {
    double size = 1.0;
    for (int64_t i = 0; i < n; ++i) size = std::min(size * static_cast<double>(n_states[nodes[i]]), MOST_CELLS);
    return size;
}

// The factors of a model over its free nodes, and its buckets and separators in elimination order.
struct Problem {
    const int64_t* factor_ptr;
    const int32_t* scope;
    int64_t n_factors;
    const int64_t* n_states;  // of each node
    int64_t n_nodes;
    const int32_t* order;
    const int64_t* separator_ptr;
    const int32_t* separators;
    int64_t n_buckets;

    // Assigns each factor and each message of an earlier bucket to the bucket of its first eliminated node. Nodes that
    // are not eliminated have no bucket.
    void share_out(Lists<int64_t>& factors, Lists<int64_t>& children) const {
        std::vector<int64_t> place(n_nodes, -1);
        std::vector<std::vector<int64_t>> of(n_buckets), from(n_buckets);
        for (int64_t k = 0; k < n_buckets; ++k) place[order[k]] = k;
        for (int64_t f = 0; f < n_factors; ++f) {
            int64_t first = n_buckets;
            for (int64_t i = factor_ptr[f]; i < factor_ptr[f + 1]; ++i) first = std::min(first, place[scope[i]]);
            if (first >= 0 && first < n_buckets) of[first].push_back(f);
        }
        for (int64_t k = 0; k < n_buckets; ++k)
            if (separator_ptr[k] < separator_ptr[k + 1]) from[place[separators[separator_ptr[k]]]].push_back(k);
        gather(of, factors);
        gather(from, children);
    }

private:
    static void gather(const std::vector<std::vector<int64_t>>& of, Lists<int64_t>& lists) {
        for (const auto& row : of) {
            lists.items.insert(lists.items.end(), row.begin(), row.end());
            lists.close();
        }
    }
};

// Splits each separator into the nodes of the left and right table. Each part lies in one table. The right table is the
// larger one.
inline void split_separators(const Problem& p, Lists<int32_t>& sides) {
    Lists<int64_t> factors, children;
    p.share_out(factors, children);
    Nodes group(p.n_nodes, -1), members;
    auto root = [&](int32_t s) {
        while (group[s] != s) s = group[s] = group[group[s]];
        return s;
    };
    for (int64_t k = 0; k < p.n_buckets; ++k) {
        const int32_t own = p.order[k];
        const int32_t *begin = p.separators + p.separator_ptr[k], *end = p.separators + p.separator_ptr[k + 1];
        for (const int32_t* s = begin; s < end; ++s) group[*s] = *s;
        auto join = [&](const int32_t* nodes, int64_t n) {
            int32_t first = -1;
            for (int64_t i = 0; i < n; ++i) {
                if (nodes[i] == own) continue;
                if (first < 0) first = root(nodes[i]);
                // The root of a group is its lowest node.
                int32_t other = root(nodes[i]);
                if (other < first) std::swap(first, other);
                group[other] = first;
            }
        };
        for (int64_t i = factors.ptr[k]; i < factors.ptr[k + 1]; ++i) {
            const int64_t f = factors.items[i];
            join(p.scope + p.factor_ptr[f], p.factor_ptr[f + 1] - p.factor_ptr[f]);
        }
        for (int64_t i = children.ptr[k]; i < children.ptr[k + 1]; ++i) {
            const int64_t c = children.items[i];
            join(p.separators + p.separator_ptr[c], p.separator_ptr[c + 1] - p.separator_ptr[c]);
        }
        // Groups as (-size, nodes ascending): largest first, ties by the first node.
        std::vector<std::pair<double, Nodes>> groups;
        members.assign(begin, end);
        std::sort(members.begin(), members.end());
        std::vector<std::pair<int32_t, size_t>> number;
        for (int32_t s : members) {
            const int32_t r = root(s);
            auto known = std::find_if(number.begin(), number.end(), [r](auto& entry) { return entry.first == r; });
            if (known == number.end()) {
                number.emplace_back(r, groups.size());
                known = number.end() - 1;
                groups.emplace_back(-1.0, Nodes());
            }
            auto& found = groups[known->second];
            found.first = std::max(found.first * static_cast<double>(p.n_states[s]), -MOST_CELLS);
            found.second.push_back(s);
        }
        std::sort(groups.begin(), groups.end());
        std::pair<double, Nodes> half[2] = {{1.0, Nodes()}, {1.0, Nodes()}};
        for (const auto& found : groups) {
            auto& smaller = half[1] < half[0] ? half[1] : half[0];
            smaller.first = std::min(-found.first * smaller.first, MOST_CELLS);
            smaller.second.insert(smaller.second.end(), found.second.begin(), found.second.end());
        }
        if (half[1] < half[0]) std::swap(half[0], half[1]);
        for (auto& side : half) {
            for (const int32_t* s = begin; s < end; ++s)
                if (std::find(side.second.begin(), side.second.end(), *s) != side.second.end())
                    sides.items.push_back(*s);
            sides.close();
        }
    }
}

// Axes of a table as (extent, step in the table, step in the part); adjacent axes are merged if both are contiguous.
class AxesOfPart {
public:
    explicit AxesOfPart(const Problem& p) : p_(p), step_(p.n_nodes, 0) {}

    // Steps of the axes of a part in C order (the last axis changes fastest).
    void set(const int32_t* nodes, int64_t n, int64_t step) {
        for (int64_t i = n - 1; i >= 0; --i) {
            step_[nodes[i]] = step;
            step *= p_.n_states[nodes[i]];
        }
    }

    void clear(const int32_t* nodes, int64_t n) {
        for (int64_t i = 0; i < n; ++i) step_[nodes[i]] = 0;
    }

    void add(std::vector<int64_t>& axes, size_t first, int32_t node, int64_t of_table) const {
        int64_t extent = p_.n_states[node];
        const int64_t of_part = step_[node];
        if (axes.size() > first) {
            const int64_t* last = axes.data() + axes.size() - 3;
            if (last[1] == of_table * extent && last[2] == of_part * extent) {
                extent *= last[0];
                axes.resize(axes.size() - 3);
            }
        }
        axes.insert(axes.end(), {extent, of_table, of_part});
    }

private:
    const Problem& p_;
    std::vector<int64_t> step_;
};

// Fills the last two fields of buckets (n_buckets, 9), and lists parts (5 fields each) and axes (3 fields each).
inline void lay_out_parts(const Problem& p, const int64_t* side_ptr, const int32_t* sides, const int64_t* value_start,
                          int64_t padded_to, int64_t* buckets, std::vector<int64_t>& parts,
                          std::vector<int64_t>& axes) {
    auto padded = [&](int64_t n) { return (n + padded_to - 1) / padded_to * padded_to; };
    Lists<int64_t> factors, children;
    p.share_out(factors, children);
    AxesOfPart part(p);
    std::vector<int64_t> right_of(p.n_nodes, -1), steps;
    for (int64_t k = 0; k < p.n_buckets; ++k) {
        const int32_t own = p.order[k];
        const int32_t* side[2] = {sides + side_ptr[2 * k], sides + side_ptr[2 * k + 1]};
        const int64_t length[2] = {side_ptr[2 * k + 1] - side_ptr[2 * k], side_ptr[2 * k + 2] - side_ptr[2 * k + 1]};
        int64_t* bucket = buckets + 9 * k;
        for (int64_t i = 0; i < length[1]; ++i) right_of[side[1][i]] = k;
        auto add_axes = [&](bool in_right) {
            const size_t first = axes.size();
            const int64_t n = length[in_right];
            const int32_t* nodes = side[in_right];
            steps.resize(n);
            int64_t step = in_right ? 1 : padded(p.n_states[own]);
            for (int64_t i = n - 1; i >= 0; --i) {
                steps[i] = step;
                step *= p.n_states[nodes[i]];
            }
            if (in_right) part.add(axes, first, own, padded(step));
            for (int64_t i = 0; i < n; ++i) part.add(axes, first, nodes[i], steps[i]);
            if (!in_right) part.add(axes, first, own, 1);
        };
        auto add_part = [&](const int32_t* nodes, int64_t n, int64_t is_message, int64_t start) {
            bool in_right = false;
            for (int64_t i = 0; i < n; ++i) in_right = in_right || right_of[nodes[i]] == k;
            const int64_t first = static_cast<int64_t>(axes.size() / 3);
            add_axes(in_right);
            parts.insert(parts.end(), {in_right, is_message, start, first, static_cast<int64_t>(axes.size() / 3)});
        };
        bucket[7] = static_cast<int64_t>(parts.size() / 5);
        for (int64_t i = factors.ptr[k]; i < factors.ptr[k + 1]; ++i) {
            const int64_t f = factors.items[i], n = p.factor_ptr[f + 1] - p.factor_ptr[f];
            const int32_t* nodes = p.scope + p.factor_ptr[f];
            part.set(nodes, n, 1);
            add_part(nodes, n, 0, value_start[f]);
            part.clear(nodes, n);
        }
        for (int64_t i = children.ptr[k]; i < children.ptr[k + 1]; ++i) {
            const int64_t c = children.items[i];
            const int32_t *left = sides + side_ptr[2 * c], *right = sides + side_ptr[2 * c + 1];
            const int64_t n_left = right - left, n_right = side_ptr[2 * c + 2] - side_ptr[2 * c + 1];
            part.set(left, n_left, padded(buckets[9 * c + 2]));
            part.set(right, n_right, 1);
            add_part(left, n_left + n_right, 1, buckets[9 * c + 4]);
            part.clear(left, n_left + n_right);
        }
        bucket[8] = static_cast<int64_t>(parts.size() / 5);
    }
}

}  // namespace sklearn_crf
