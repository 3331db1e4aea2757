// Spanning trees that cover all edges of connected graphs: each further one has the edges that the fewest had so far.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace sklearn_crf {

// An edge in the order of Kruskal's algorithm: those of few trees first, ties by random numbers.
struct RankedEdge {
    int64_t n_trees;
    double tie;
    int32_t edge;

    bool operator<(const RankedEdge& other) const {
        if (n_trees != other.n_trees) return n_trees < other.n_trees;
        return tie != other.tie ? tie < other.tie : edge < other.edge;
    }
};

class CoveringTrees {
public:
    CoveringTrees(const int32_t* edges, int64_t* counts, int32_t* parent)
        : edges_(edges), counts_(counts), parent_(parent) {}

    // Number of trees that cover the edges of one component, whose numbers ascend; counts are those of each edge.
    int64_t cover(const int32_t* numbers, int64_t n_edges) {
        // The numbers of numpy.random.RandomState(0), in its order.
        std::mt19937 generator(0);
        ranked_.resize(static_cast<size_t>(n_edges));
        for (int64_t i = 0; i < n_edges; ++i) counts_[numbers[i]] = 0;
        for (int64_t n_trees = 1;; ++n_trees) {
            for (int64_t i = 0; i < n_edges; ++i) {
                const int32_t edge = numbers[i];
                ranked_[static_cast<size_t>(i)] = {counts_[edge], uniform(generator), edge};
                parent_[edges_[2 * edge]] = edges_[2 * edge];
                parent_[edges_[2 * edge + 1]] = edges_[2 * edge + 1];
            }
            std::sort(ranked_.begin(), ranked_.end());
            if (add_tree() == 0) return n_trees;
        }
    }

private:
    // Count the edges of the cheapest tree; the number of edges that no tree has had yet.
    int64_t add_tree() {
        int64_t n_uncovered = 0;
        for (const RankedEdge& each : ranked_) {
            const int32_t s = root(edges_[2 * each.edge]), t = root(edges_[2 * each.edge + 1]);
            if (s != t) {
                parent_[s] = t;
                ++counts_[each.edge];
            } else if (each.n_trees == 0) {
                ++n_uncovered;
            }
        }
        return n_uncovered;
    }

    int32_t root(int32_t node) {
        while (parent_[node] != node) {
            parent_[node] = parent_[parent_[node]];
            node = parent_[node];
        }
        return node;
    }

    static double uniform(std::mt19937& generator) {
        const double high = static_cast<double>(generator() >> 5);
        const double low = static_cast<double>(generator() >> 6);
        return (high * 67108864.0 + low) / 9007199254740992.0;
    }

    const int32_t* edges_;
    int64_t* counts_;
    int32_t* parent_;
    std::vector<RankedEdge> ranked_;
};

// Cover each component, whose edges are numbers[ptr[c]] to numbers[ptr[c + 1] - 1], as if it were alone.
inline void cover_components(const int32_t* edges, const int32_t* numbers, const int64_t* ptr, int64_t n_components,
                             int32_t* parent, int64_t* counts, int64_t* n_trees) {
    CoveringTrees trees(edges, counts, parent);
    for (int64_t c = 0; c < n_components; ++c) {
        const int64_t n_edges = ptr[c + 1] - ptr[c];
        n_trees[c] = n_edges ? trees.cover(numbers + ptr[c], n_edges) : 0;
    }
}

}  // namespace sklearn_crf
