// Minimum spanning forests, and covers of all edges of connected graphs by trees. Each further tree prefers edges that
// are in few trees so far.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace sklearn_crf {

// Edge in the order of Kruskal's algorithm: by cost, with ties broken by a second number.
struct RankedEdge {
    double cost, tie;
    int32_t edge;

    bool operator<(const RankedEdge& other) const {
        if (cost != other.cost) return cost < other.cost;
        return tie != other.tie ? tie < other.tie : edge < other.edge;
    }
};

// Minimum spanning forest of a list of edges.
class CheapestForest {
public:
    CheapestForest(const int32_t* edges, int32_t* parent) : edges_(edges), parent_(parent) {}

    void add(int32_t edge, double cost, double tie) {
        // NaN would violate the order that sorting requires.
        ranked_.push_back({std::isnan(cost) ? std::numeric_limits<double>::infinity() : cost, tie, edge});
        parent_[edges_[2 * edge]] = edges_[2 * edge];
        parent_[edges_[2 * edge + 1]] = edges_[2 * edge + 1];
    }

    // Processes all added edges in ascending order of cost, and calls visit(edge, whether the edge is in the forest).
    template <class Visit>
    void grow(Visit visit) {
        std::sort(ranked_.begin(), ranked_.end());
        for (const RankedEdge& each : ranked_) {
            const int32_t s = root(edges_[2 * each.edge]), t = root(edges_[2 * each.edge + 1]);
            parent_[s] = t;
            visit(each, s != t);
        }
        ranked_.clear();
    }

private:
    int32_t root(int32_t node) {
        while (parent_[node] != node) {
            parent_[node] = parent_[parent_[node]];
            node = parent_[node];
        }
        return node;
    }

    const int32_t* edges_;
    int32_t* parent_;
    std::vector<RankedEdge> ranked_;
};

// ties: second cost to break ties, or null; has: whether each edge is in the forest.
inline void cheapest_forest(const int32_t* edges, int64_t n_edges, const double* cost, const double* ties,
                            int32_t* parent, uint8_t* has) {
    CheapestForest forest(edges, parent);
    for (int64_t edge = 0; edge < n_edges; ++edge)
        forest.add(static_cast<int32_t>(edge), cost[edge], ties ? ties[edge] : 0.0);
    forest.grow([&](const RankedEdge& each, bool is_in) { has[each.edge] = is_in; });
}

inline double uniform(std::mt19937& generator) {
    const double high = static_cast<double>(generator() >> 5);
    const double low = static_cast<double>(generator() >> 6);
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

// Covers the edges of one component, in ascending order, by trees; returns their number, and writes the number of
// trees with each edge to counts.
inline int64_t cover(CheapestForest& forest, const int32_t* numbers, int64_t n_edges, int64_t* counts) {
    // Reproduces the random numbers of numpy.random.RandomState(0).
    std::mt19937 generator(0);
    for (int64_t i = 0; i < n_edges; ++i) counts[numbers[i]] = 0;
    for (int64_t n_trees = 1;; ++n_trees) {
        for (int64_t i = 0; i < n_edges; ++i)
            forest.add(numbers[i], static_cast<double>(counts[numbers[i]]), uniform(generator));
        int64_t n_uncovered = 0;
        forest.grow([&](const RankedEdge& each, bool is_in) {
            counts[each.edge] += is_in;
            n_uncovered += !is_in && each.cost == 0;
        });
        if (n_uncovered == 0) return n_trees;
    }
}

// Covers each component separately; its edges are numbers[ptr[c]] to numbers[ptr[c + 1] - 1].
inline void cover_components(const int32_t* edges, const int32_t* numbers, const int64_t* ptr, int64_t n_components,
                             int32_t* parent, int64_t* counts, int64_t* n_trees) {
    CheapestForest forest(edges, parent);
    for (int64_t c = 0; c < n_components; ++c) {
        const int64_t n_edges = ptr[c + 1] - ptr[c];
        n_trees[c] = n_edges ? cover(forest, numbers + ptr[c], n_edges, counts) : 0;
    }
}

}  // namespace sklearn_crf
