// Elimination orders of graphs, and the separators of an order, without any tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <queue>
#include <tuple>
#include <vector>

namespace sklearn_crf {

using Nodes = std::vector<int32_t>;

// Concatenated lists of nodes or numbers.
template <typename T>
struct Lists {
    std::vector<int64_t> ptr{0};
    std::vector<T> items;

    void close() { ptr.push_back(static_cast<int64_t>(items.size())); }
};

// Connects the nodes of each scope. Returns the neighbours of each node, ascending.
inline void join_scopes(const int64_t* ptr, const int32_t* scope, int64_t n_scopes, int64_t n_nodes,
                        Lists<int32_t>& neighbors) {
    std::vector<Nodes> rows(n_nodes);
    for (int64_t f = 0; f < n_scopes; ++f)
        for (int64_t i = ptr[f]; i < ptr[f + 1]; ++i)
            for (int64_t j = ptr[f]; j < ptr[f + 1]; ++j)
                if (i != j) rows[scope[i]].push_back(scope[j]);
    for (Nodes& row : rows) {
        std::sort(row.begin(), row.end());
        row.erase(std::unique(row.begin(), row.end()), row.end());
        neighbors.items.insert(neighbors.items.end(), row.begin(), row.end());
        neighbors.close();
    }
}

// Degeneracy: the largest minimum degree of a subgraph, a lower bound on the width of every order.
inline int64_t degeneracy(const int64_t* ptr, const int32_t* neighbors, int64_t n_nodes) {
    std::vector<int64_t> degree(n_nodes), place(n_nodes);
    int64_t largest = 0, bound = 0;
    for (int64_t s = 0; s < n_nodes; ++s) {
        degree[s] = ptr[s + 1] - ptr[s];
        largest = std::max(largest, degree[s]);
    }
    // Nodes sorted by degree; swaps keep them sorted (Batagelj and Zaversnik 2003).
    std::vector<int64_t> first(largest + 2, 0), sorted(n_nodes);
    for (int64_t s = 0; s < n_nodes; ++s) ++first[degree[s] + 1];
    for (int64_t d = 0; d <= largest; ++d) first[d + 1] += first[d];
    std::vector<int64_t> next(first);
    for (int64_t s = 0; s < n_nodes; ++s) sorted[place[s] = next[degree[s]]++] = s;
    for (int64_t k = 0; k < n_nodes; ++k) {
        const int64_t s = sorted[k];
        bound = std::max(bound, degree[s]);
        for (int64_t e = ptr[s]; e < ptr[s + 1]; ++e) {
            const int64_t t = neighbors[e];
            if (degree[t] <= degree[s]) continue;
            const int64_t other = sorted[first[degree[t]]];
            std::swap(sorted[place[t]], sorted[place[other]]);
            std::swap(place[t], place[other]);
            ++first[degree[t]--];
        }
    }
    return bound;
}

// If one list is much longer, the nodes of the shorter list are searched in it one by one.
constexpr size_t MUCH_LONGER = 16;

// Returns the intersection of two ascending lists.
inline void intersect(const Nodes& a, const Nodes& b, Nodes& common) {
    common.clear();
    const Nodes &shorter = a.size() <= b.size() ? a : b, &longer = a.size() <= b.size() ? b : a;
    if (shorter.size() * MUCH_LONGER > longer.size()) {
        std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
        return;
    }
    for (int32_t s : shorter)
        if (std::binary_search(longer.begin(), longer.end(), s)) common.push_back(s);
}

// Minimum-fill order: eliminates the node with the fewest missing edges among its neighbours, ties by clique size.
class MinFill {
public:
    MinFill(const int64_t* ptr, const int32_t* neighbors, int64_t n_nodes, const double* log_states)
        : adjacency_(n_nodes), log_states_(log_states, log_states + n_nodes), fill_(n_nodes), log_size_(n_nodes),
          stamp_(n_nodes, 0), done_(n_nodes, 0) {
        for (int64_t s = 0; s < n_nodes; ++s) adjacency_[s].assign(neighbors + ptr[s], neighbors + ptr[s + 1]);
        for (int64_t s = 0; s < n_nodes; ++s) count(static_cast<int32_t>(s));
    }

    // Returns whether an order was found within the limits on the joint states of cliques and on steps.
    bool run(double most_log_size, double most_steps, int32_t* order) {
        steps_ = 0;
        int64_t n_done = 0;
        while (!heap_.empty()) {
            const auto [lacking, size, s] = heap_.top();
            heap_.pop();
            if (done_[s] || lacking != fill_[s] || size != log_size_[s]) continue;
            if (size > most_log_size || steps_ > most_steps) return false;
            done_[s] = 1;
            order[n_done++] = s;
            eliminate(s, lacking);
        }
        return true;
    }

private:
    using Entry = std::tuple<int64_t, double, int32_t>;

    std::vector<Nodes> adjacency_;  // ascending
    std::vector<double> log_states_;
    std::vector<int64_t> fill_;
    std::vector<double> log_size_;
    std::vector<int64_t> stamp_;
    std::vector<uint8_t> done_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> heap_;
    Nodes touched_, common_;
    int64_t turn_ = 0;
    double steps_ = 0;

    void count(int32_t s) {
        const Nodes& around = adjacency_[s];
        int64_t joined = 0;
        double size = 0.0;
        for (int32_t t : around) {
            intersect(around, adjacency_[t], common_);
            joined += static_cast<int64_t>(common_.size());
            size += log_states_[t];
        }
        const int64_t degree = static_cast<int64_t>(around.size());
        fill_[s] = (degree * (degree - 1) - joined) / 2;
        log_size_[s] = size + log_states_[s];
        heap_.emplace(fill_[s], log_size_[s], s);
    }

    void touch(int32_t s) {
        if (stamp_[s] != turn_) {
            stamp_[s] = turn_;
            touched_.push_back(s);
        }
    }

    void eliminate(int32_t s, int64_t lacking) {
        const Nodes around = std::move(adjacency_[s]);
        ++turn_;
        touched_.clear();
        stamp_[s] = turn_;
        for (int32_t t : around) touch(t);
        if (lacking) join(around, s);
        for (int32_t t : around) {
            Nodes& own = adjacency_[t];
            // The neighbours are a clique now. Missing edges from s to neighbours of t outside of the clique no longer
            // count.
            fill_[t] -= static_cast<int64_t>(own.size()) - static_cast<int64_t>(around.size());
            own.erase(std::lower_bound(own.begin(), own.end(), s));
            log_size_[t] -= log_states_[s];
            // Moving memory is fast, so an erasure counts as few steps.
            steps_ += 1 + static_cast<double>(own.size()) / 64;
        }
        for (int32_t t : touched_) heap_.emplace(fill_[t], log_size_[t], t);
    }

    // Connects nodes to each other. The eliminated node is adjacent to all of them, and still in their lists.
    void join(const Nodes& nodes, int32_t s) {
        Nodes missing;
        for (size_t i = 0; i < nodes.size(); ++i) {
            const int32_t a = nodes[i];
            missing.clear();
            std::set_difference(nodes.begin() + i + 1, nodes.end(), adjacency_[a].begin(), adjacency_[a].end(),
                                std::back_inserter(missing));
            for (int32_t b : missing) {
                Nodes &of_a = adjacency_[a], &of_b = adjacency_[b];
                intersect(of_a, of_b, common_);
                steps_ += static_cast<double>(of_a.size() + of_b.size());
                for (int32_t t : common_) {
                    --fill_[t];
                    if (t != s) touch(t);
                }
                const int64_t n_common = static_cast<int64_t>(common_.size());
                fill_[a] += static_cast<int64_t>(of_a.size()) - n_common;
                fill_[b] += static_cast<int64_t>(of_b.size()) - n_common;
                of_a.insert(std::lower_bound(of_a.begin(), of_a.end(), b), b);
                of_b.insert(std::lower_bound(of_b.begin(), of_b.end(), a), a);
                log_size_[a] += log_states_[b];
                log_size_[b] += log_states_[a];
            }
        }
    }
};

// Returns the separator of each node: its remaining neighbours when it is eliminated, in elimination order.
inline void find_separators(const int64_t* ptr, const int32_t* neighbors, int64_t n_nodes, const int32_t* order,
                            int64_t n_order, Lists<int32_t>& separators) {
    std::vector<int64_t> place(n_nodes, -1), stamp(n_nodes, -1), next(n_order, -1), first(n_order, -1);
    for (int64_t k = 0; k < n_order; ++k) place[order[k]] = k;
    Nodes found;
    for (int64_t k = 0; k < n_order; ++k) {
        const int32_t s = order[k];
        found.clear();
        auto add = [&](int32_t t) {
            if (place[t] > k && stamp[t] != k) {
                stamp[t] = k;
                found.push_back(t);
            }
        };
        for (int64_t e = ptr[s]; e < ptr[s + 1]; ++e) add(neighbors[e]);
        // Sufficient for later separators: the next eliminated node passes on the rest.
        for (int64_t c = first[k]; c >= 0; c = next[c])
            for (int64_t i = separators.ptr[c]; i < separators.ptr[c + 1]; ++i) add(separators.items[i]);
        std::sort(found.begin(), found.end(), [&](int32_t t, int32_t u) { return place[t] < place[u]; });
        separators.items.insert(separators.items.end(), found.begin(), found.end());
        separators.close();
        if (!found.empty()) {
            const int64_t heir = place[found[0]];
            next[k] = first[heir];
            first[heir] = k;
        }
    }
}

}  // namespace sklearn_crf
