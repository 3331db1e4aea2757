// Constraints on pairs of nodes with two states (2-SAT), in linear time. They are satisfiable if no two states of a
// node imply each other (Aspvall, Plass and Tarjan 1979).
#pragma once

#include "constraint_domains.hpp"

namespace crf {

class TwoStateDomains : public Domains {
protected:
    using Domains::Domains;

    // Whether all constraints are on pairs of nodes with at most two states each.
    bool has_two_states() const {
        if (n_given || count_ptr.size() > 1) return false;
        for (int64_t v = 0; v < n_nodes; ++v)
            if (active[v] && size[v] > 2) return false;
        return true;
    }

    // Returns the nodes of a contradiction after propagation, or finds states that satisfy all pairs.
    std::vector<int32_t> decide(std::vector<int32_t>& states) {
        number.assign(n_nodes, -1);
        for (int64_t v = 0; v < n_nodes; ++v) {
            states[v] = value[v] >= 0 ? value[v] : states[v];
            if (!active[v] || value[v] >= 0) continue;
            number[v] = static_cast<int32_t>(open.size());
            open.push_back(static_cast<int32_t>(v));
            for_each_possible(v, [&](int64_t state) { choices.push_back(static_cast<int32_t>(state)); });
        }
        const size_t n = choices.size();
        order.assign(n, -1);
        lowest.assign(n, 0);
        component.assign(n, -1);
        next.resize(n);
        for (size_t root = 0; root < n; ++root)
            if (order[root] < 0) visit(static_cast<int32_t>(root));
        std::vector<int32_t> members(n_components, 0);
        for (int32_t c : component) ++members[c];
        int32_t worst = -1;
        for (size_t k = 0; k < open.size(); ++k) {
            const int32_t one = component[2 * k], other = component[2 * k + 1];
            if (one == other && (worst < 0 || members[one] < members[worst])) worst = one;
            states[open[k]] = choices[2 * k + (one < other ? 0 : 1)];
        }
        std::vector<int32_t> nodes;
        for (size_t id = 0; worst >= 0 && id < n; ++id)
            if (component[id] == worst) nodes.push_back(open[id / 2]);
        return nodes;
    }

private:
    // Choices 2 i and 2 i + 1 are the states of open node i.
    std::vector<int32_t> open, number, choices, order, lowest, component, stack;
    std::vector<int64_t> next;
    int32_t n_seen = 0, n_components = 0;

    // Returns the choice that a given choice implies by an edge, or -1.
    int32_t implied(int32_t id, int64_t half) const {
        const int32_t u = ends[half ^ 1], k = number[u];
        if (k < 0) return -1;
        const Word* row = supports(half >> 1, static_cast<int>(half & 1), choices[id]);
        const auto goes = [&](int32_t choice) { return row[choices[choice] / 64] >> (choices[choice] % 64) & 1; };
        const bool one = goes(2 * k), other = goes(2 * k + 1);
        return one == other ? -1 : 2 * k + (one ? 0 : 1);
    }

    void enter(int32_t id, std::vector<int32_t>& path) {
        order[id] = lowest[id] = n_seen++;
        next[id] = incident_ptr[open[id / 2]];
        stack.push_back(id);
        path.push_back(id);
    }

    // Strongly connected components reachable from a choice, in reverse topological order (Tarjan 1972).
    void visit(int32_t root) {
        std::vector<int32_t> path;
        enter(root, path);
        while (!path.empty()) {
            const int32_t id = path.back();
            ++work;
            if (next[id] < incident_ptr[open[id / 2] + 1]) {
                const int32_t to = implied(id, incident[next[id]++]);
                if (to < 0) continue;
                if (order[to] < 0) {
                    enter(to, path);
                } else if (component[to] < 0) {
                    lowest[id] = std::min(lowest[id], order[to]);
                }
                continue;
            }
            path.pop_back();
            if (!path.empty()) lowest[path.back()] = std::min(lowest[path.back()], lowest[id]);
            if (lowest[id] != order[id]) continue;
            for (;;) {
                const int32_t member = stack.back();
                stack.pop_back();
                component[member] = n_components;
                if (member == id) break;
            }
            ++n_components;
        }
    }
};

}  // namespace crf
