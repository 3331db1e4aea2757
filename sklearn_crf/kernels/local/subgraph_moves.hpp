// Optimal labels of an induced subgraph of low treewidth, given the labels of all other nodes.
#pragma once

#include "search_problem.hpp"

namespace crf {

// Parameters of the random choice of a subgraph.
struct Neighborhood {
    double largest_table;  // base-2 logarithm of the cells of the largest allowed table
    double most_cells;     // approximate limit on the cells of all tables together
    i64 most_nodes;        // largest number of nodes of the region that contains the subgraph
    bool connected;        // whether the region is connected, or random nodes
    i64 most_options;      // largest number of candidate states of a node
    double temperature;    // temperature at which candidates are drawn if there are more states
    u64 region_key;
};

// A random subgraph and an elimination order of its nodes.
//
// The node of the smallest table is eliminated first. Ties are broken by the latest change, so that elimination
// continues locally, which gives larger subgraphs than a random order. If all tables would be too large, a node with
// the most neighbours keeps its label and is removed.
class SubgraphPlan {
public:
    std::vector<i32> order;             // nodes in elimination order
    std::vector<i64> separator_ptr;     // start of the separator of each node
    std::vector<i32> separators;
    std::vector<i32> place;             // (N,) position in the order, or KEPT if the label is kept
    std::vector<i32> options;           // candidate states, the present label first
    i64 work = 0;
    i64 n_kept = 0;                     // number of nodes of the region with a choice that were removed

    static constexpr i32 KEPT = -1, WAITING = -2;

    i64 n_options(i64 node) const { return n_option[node]; }
    const i32* options_of(i64 node) const { return options.data() + option_start[node]; }

    template <class Score>
    void make(const Problem<Score>& problem, const i32* labels, const i64* cells, const Neighborhood& given,
              Random& random) {
        reserve(problem.n_nodes);
        forget();
        work = n_kept = 0;
        Random of_region{given.region_key};
        find_region(problem, given, of_region);
        for (const i32 node : region) find_options(problem, node, labels, cells, given, random);
        split_large_factors(problem, static_cast<i64>(given.largest_table), random);
        join(problem);
        eliminate(given, random);
    }

private:
    std::vector<i32> region, n_option;
    std::vector<i64> option_start;
    std::vector<std::vector<i32>> adjacency, buckets;
    std::vector<double> log_options, cost, local;
    std::vector<char> near, in_region;
    std::vector<std::pair<double, i32>> ranked;
    std::vector<i32> free_ends;

    void reserve(i64 n_nodes) {
        if (static_cast<i64>(place.size()) == n_nodes) return;
        place.assign(n_nodes, KEPT);
        n_option.assign(n_nodes, 0);
        option_start.assign(n_nodes, 0);
        adjacency.resize(n_nodes);
        log_options.assign(n_nodes, 0);
        cost.assign(n_nodes, 0);
        near.assign(n_nodes, 0);
        in_region.assign(n_nodes, 0);
    }

    void forget() {
        for (const i32 node : region) {
            place[node] = KEPT;
            n_option[node] = 0;
            in_region[node] = 0;
            adjacency[node].clear();
        }
        region.clear();
        options.clear();
        order.clear();
        separators.clear();
        separator_ptr.assign(1, 0);
        for (auto& bucket : buckets) bucket.clear();
    }

    // The region: all nodes, the surroundings of a random node, or random nodes.
    template <class Score>
    void find_region(const Problem<Score>& problem, const Neighborhood& given, Random& random) {
        const i64 size = std::min(given.most_nodes, problem.n_nodes);
        for (i64 node = 0; node < problem.n_nodes && size == problem.n_nodes; ++node) {
            region.push_back(static_cast<i32>(node));
        }
        std::size_t next = 0;
        while (static_cast<i64>(region.size()) < size) {
            if (next == region.size() || !given.connected) {
                enter(static_cast<i32>(random.below(problem.n_nodes)));
                continue;
            }
            const i32 node = region[next++];
            for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
                const i64 factor = problem.slot_factor[problem.node_slot[i]];
                for (i64 slot = problem.slot_ptr[factor]; slot < problem.slot_ptr[factor + 1]; ++slot) {
                    if (static_cast<i64>(region.size()) < size) enter(problem.slot_node[slot]);
                }
            }
        }
        work += size;
    }

    void enter(i32 node) {
        if (in_region[node]) return;
        in_region[node] = 1;
        region.push_back(node);
    }

    // Candidates: the present label, then all allowed states, or states that are likely given the neighbours.
    template <class Score>
    void find_options(const Problem<Score>& problem, i64 node, const i32* labels, const i64* cells,
                      const Neighborhood& given, Random& random) {
        const i64 n = problem.n_states[node];
        option_start[node] = static_cast<i64>(options.size());
        options.push_back(labels[node]);
        if (n <= given.most_options) {
            for (i32 k = 0; k < n; ++k) {
                const Score score = problem.unary[node * problem.n_columns + k];
                if (k != labels[node] && score > -std::numeric_limits<Score>::infinity()) options.push_back(k);
            }
        } else {
            local.resize(problem.n_columns);
            work += problem.local_scores(node, labels, cells, local.data());
            ranked.clear();
            for (i32 k = 0; k < n; ++k) {
                if (k == labels[node] || local[k] <= problem.forbidden / 2) continue;
                ranked.emplace_back(-(local[k] + given.temperature * random.gumbel()), k);
            }
            const i64 n_taken = std::min<i64>(given.most_options - 1, static_cast<i64>(ranked.size()));
            std::partial_sort(ranked.begin(), ranked.begin() + n_taken, ranked.end());
            for (i64 j = 0; j < n_taken; ++j) options.push_back(ranked[j].second);
        }
        n_option[node] = static_cast<i32>(options.size() - option_start[node]);
        log_options[node] = std::log2(static_cast<double>(n_option[node]));
        place[node] = n_option[node] > 1 ? WAITING : KEPT;
    }

    // A factor of many nodes would be a large clique: all but a few of its nodes keep their labels.
    template <class Score>
    void split_large_factors(const Problem<Score>& problem, i64 most_free, Random& random) {
        for (const i32 node : region) {
            for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
                const i64 slot = problem.node_slot[i], factor = problem.slot_factor[slot];
                const i64 first = problem.slot_ptr[factor], last = problem.slot_ptr[factor + 1];
                if (slot != first || last - first <= most_free) continue;
                free_ends.clear();
                for (i64 other = first; other < last; ++other) {
                    if (place[problem.slot_node[other]] == WAITING) free_ends.push_back(problem.slot_node[other]);
                }
                work += last - first;
                for (i64 n = static_cast<i64>(free_ends.size()); n > most_free; --n) {
                    const i64 chosen = random.below(n);
                    place[free_ends[chosen]] = KEPT;
                    ++n_kept;
                    free_ends[chosen] = free_ends[n - 1];
                }
            }
        }
    }

    template <class Score>
    void join(const Problem<Score>& problem) {
        for (const i32 node : region) {
            if (place[node] != WAITING) continue;
            auto& neighbors = adjacency[node];
            for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
                const i64 factor = problem.slot_factor[problem.node_slot[i]];
                for (i64 slot = problem.slot_ptr[factor]; slot < problem.slot_ptr[factor + 1]; ++slot) {
                    const i32 other = problem.slot_node[slot];
                    ++work;
                    if (other == node || place[other] != WAITING || near[other]) continue;
                    near[other] = 1;
                    neighbors.push_back(other);
                }
            }
            for (const i32 other : neighbors) near[other] = 0;
        }
    }

    void enqueue(i32 node) {
        double total = log_options[node];
        for (const i32 other : adjacency[node]) total += log_options[other];
        cost[node] = total;
        const std::size_t bucket = bucket_of(total);
        if (bucket >= buckets.size()) buckets.resize(bucket + 1);
        buckets[bucket].push_back(node);
        lowest = std::min(lowest, bucket);
    }

    static std::size_t bucket_of(double cost) { return static_cast<std::size_t>(std::min(cost, 4000.0)); }

    std::size_t lowest = 0;

    // Returns a node with the smallest table, or -1 if no node is left.
    i32 next_node(Random& random) {
        for (; lowest < buckets.size(); ++lowest) {
            auto& bucket = buckets[lowest];
            while (!bucket.empty()) {
                const i64 chosen = static_cast<i64>(bucket.size()) - 1 - random.below(std::min<i64>(4, bucket.size()));
                const i32 node = bucket[chosen];
                bucket[chosen] = bucket.back();
                bucket.pop_back();
                if (place[node] == WAITING && bucket_of(cost[node]) == lowest) return node;
            }
        }
        return -1;
    }

    void eliminate(const Neighborhood& given, Random& random) {
        lowest = 0;
        for (const i32 node : region) {
            if (place[node] == WAITING) enqueue(node);
        }
        double total = 0;
        for (i32 node = next_node(random); node >= 0; node = next_node(random)) {
            // Once half of the memory is used, remaining nodes get small tables only.
            const double most = total < given.most_cells ? given.largest_table : std::min(given.largest_table, 6.0);
            if (cost[node] > most + 1e-9 && !adjacency[node].empty()) {
                keep(most_joined(node, random));
                if (place[node] == WAITING) enqueue(node);
                continue;
            }
            total += std::exp2(cost[node]);
            take(node);
        }
    }

    i32 most_joined(i32 node, Random& random) {
        i32 best = node;
        i64 n_best = 1;
        for (const i32 other : adjacency[node]) {
            const std::size_t degree = adjacency[other].size(), most = adjacency[best].size();
            if (degree > most) {
                best = other;
                n_best = 1;
            } else if (degree == most && random.below(++n_best) == 0) {
                best = other;
            }
        }
        return best;
    }

    void remove(i32 node, i32 from) {
        auto& list = adjacency[from];
        list.erase(std::find(list.begin(), list.end(), node));
    }

    void keep(i32 node) {
        place[node] = KEPT;
        ++n_kept;
        for (const i32 other : adjacency[node]) {
            work += static_cast<i64>(adjacency[other].size());
            remove(node, other);
            enqueue(other);
        }
        adjacency[node].clear();
    }

    void take(i32 node) {
        auto& own = adjacency[node];
        place[node] = static_cast<i32>(order.size());
        order.push_back(node);
        separators.insert(separators.end(), own.begin(), own.end());
        separator_ptr.push_back(static_cast<i64>(separators.size()));
        for (const i32 other : own) {
            remove(node, other);
            auto& list = adjacency[other];
            for (const i32 third : list) near[third] = 1;
            near[other] = 1;
            const std::size_t before = list.size();
            for (const i32 third : own) {
                if (!near[third]) list.push_back(third);
            }
            near[other] = 0;
            for (std::size_t j = 0; j < before; ++j) near[list[j]] = 0;
            work += static_cast<i64>(before + own.size());
        }
        for (const i32 other : own) enqueue(other);
    }
};

// Max-product elimination of nodes, and decoding of the best labels.
class SubgraphMove {
public:
    SubgraphPlan plan;

    i64 n_kept() const { return plan.n_kept; }

    template <class Score>
    Outcome run(const Problem<Score>& problem, i32* labels, i64* cells, const Neighborhood& given, double noise,
                u64 key) {
        Random random{key};
        plan.make(problem, labels, cells, given, random);
        Outcome outcome{0, plan.work, 0};
        const i64 n = static_cast<i64>(plan.order.size());
        arena.clear();
        parts.clear();
        part_axes.clear();
        first_part.assign(n, -1);
        for (i64 k = 0; k < n; ++k) outcome.work += send(problem, k, labels, cells, noise, random);
        choice.resize(n);
        for (i64 k = n - 1; k >= 0; --k) decide(k, random);
        local.resize(problem.n_columns);
        for (i64 k = 0; k < n; ++k) {
            const i32 node = plan.order[k], state = plan.options_of(node)[choice[k]];
            if (state == labels[node]) continue;
            outcome.work += problem.local_scores(node, labels, cells, local.data());
            outcome.gain += local[state] - local[labels[node]];
            ++outcome.changes;
            problem.change(node, state, labels, cells);
        }
        return outcome;
    }

private:
    // A table over positions in the order. The earliest position changes fastest, and owns the table.
    struct Part {
        i64 start;      // in the arena
        i64 first_axis; // in part_axes
        i64 n_axes;
        i64 next;       // next part of the same position, or -1
    };
    std::vector<double> arena, table, local;
    std::vector<Part> parts;
    std::vector<i32> part_axes;
    std::vector<i64> first_part;
    std::vector<i32> choice;
    std::vector<i64> near_offset, far_offset, axis_step;
    std::vector<i32> axes, scope;

    i64 extent(i32 at) const { return plan.n_options(plan.order[at]); }

    // Starts a part of zeros. Returns its number.
    i64 add_part(const std::vector<i32>& over, i64 size) {
        const i32 owner = over[0];
        parts.push_back({static_cast<i64>(arena.size()), static_cast<i64>(part_axes.size()),
                         static_cast<i64>(over.size()), first_part[owner]});
        first_part[owner] = static_cast<i64>(parts.size()) - 1;
        part_axes.insert(part_axes.end(), over.begin(), over.end());
        arena.resize(arena.size() + size);
        return first_part[owner];
    }

    template <class Score>
    i64 send(const Problem<Score>& problem, i64 k, const i32* labels, const i64* cells, double noise,
             Random& random) {
        const i32 node = plan.order[k];
        i64 work = own_scores(problem, k, node, labels, cells, noise, random);
        axes.assign(1, static_cast<i32>(k));
        for (i64 i = plan.separator_ptr[k]; i < plan.separator_ptr[k + 1]; ++i) {
            // Some nodes were fixed to their labels only later.
            const i32 at = plan.place[plan.separators[i]];
            if (at >= 0) axes.push_back(at);
        }
        std::sort(axes.begin() + 1, axes.end());
        i64 size = 1;
        for (const i32 at : axes) size *= extent(at);
        if (static_cast<i64>(table.size()) < size) table.resize(size);
        std::fill(table.begin(), table.begin() + size, 0.0);
        for (i64 p = first_part[k]; p >= 0; p = parts[p].next) {
            add(parts[p]);
            work += size;
        }
        if (axes.size() == 1) return work;
        const i64 own = extent(static_cast<i32>(k)), n_rows = size / own;
        axes.erase(axes.begin());
        const i64 message = add_part(axes, n_rows);
        double* out = arena.data() + parts[message].start;
        if (own == 2) {
            for (i64 row = 0; row < n_rows; ++row) out[row] = std::max(table[2 * row], table[2 * row + 1]);
        } else {
            for (i64 row = 0; row < n_rows; ++row) {
                const double* value = table.data() + row * own;
                out[row] = *std::max_element(value, value + own);
            }
        }
        return work;
    }

    // Adds the scores of the node, including factors whose other nodes keep their labels, and a separate table for each
    // factor with later nodes.
    template <class Score>
    i64 own_scores(const Problem<Score>& problem, i64 k, i32 node, const i32* labels, const i64* cells, double noise,
                   Random& random) {
        const i64 n = plan.n_options(node);
        const i32* option = plan.options_of(node);
        i64 work = n;
        axes.assign(1, static_cast<i32>(k));
        const i64 own = add_part(axes, n);
        const i64 start = parts[own].start;
        for (i64 j = 0; j < n; ++j) {
            arena[start + j] = problem.node_score(node, option[j]) + (noise > 0 ? noise * random.gumbel() : 0);
        }
        for (i64 i = problem.node_ptr[node]; i < problem.node_ptr[node + 1]; ++i) {
            const i64 slot = problem.node_slot[i], factor = problem.slot_factor[slot];
            scope.clear();
            axes.clear();
            bool is_first = true;
            for (i64 other = problem.slot_ptr[factor]; other < problem.slot_ptr[factor + 1]; ++other) {
                const i32 at = plan.place[problem.slot_node[other]];
                if (at < 0) continue;
                is_first = is_first && at >= k;
                axes.push_back(at);
            }
            if (!is_first) continue;
            if (axes.size() == 1) {
                const i64 others = cells[factor] - problem.step(slot, labels[node]);
                for (i64 j = 0; j < n; ++j) {
                    arena[start + j] += problem.factor_score(factor, others + problem.step(slot, option[j]));
                }
                work += n;
            } else {
                work += factor_part(problem, factor, labels, cells);
            }
        }
        return work;
    }

    template <class Score>
    i64 factor_part(const Problem<Score>& problem, i64 factor, const i32* labels, const i64* cells) {
        std::sort(axes.begin(), axes.end());
        near_offset.assign(1, cells[factor]);
        for (const i32 at : axes) {
            const i32 node = plan.order[at];
            i64 slot = problem.slot_ptr[factor];
            while (problem.slot_node[slot] != node) ++slot;
            const i64 before = static_cast<i64>(near_offset.size());
            const i64 present = problem.step(slot, labels[node]);
            const i32* option = plan.options_of(node);
            const i64 n = plan.n_options(node);
            near_offset.resize(before * n);
            // The first candidate is the present label, which adds 0.
            for (i64 j = n - 1; j >= 0; --j) {
                const i64 by = problem.step(slot, option[j]) - present;
                for (i64 c = 0; c < before; ++c) near_offset[j * before + c] = near_offset[c] + by;
            }
        }
        const i64 size = static_cast<i64>(near_offset.size());
        const i64 start = parts[add_part(axes, size)].start;
        for (i64 c = 0; c < size; ++c) arena[start + c] = problem.factor_score(factor, near_offset[c]);
        return size;
    }

    // Cells of the part along some axes of the table.
    void find_offsets(std::size_t first, std::size_t last, std::vector<i64>& offset) const {
        offset.assign(1, 0);
        for (std::size_t a = first; a < last; ++a) {
            const std::size_t before = offset.size(), n = static_cast<std::size_t>(extent(axes[a]));
            offset.resize(before * n);
            for (std::size_t j = 1; j < n; ++j) {
                for (std::size_t c = 0; c < before; ++c) offset[j * before + c] = offset[c] + j * axis_step[a];
            }
        }
    }

    // Adds a part to the table with the axes `axes`.
    void add(const Part& part) {
        const double* given = arena.data() + part.start;
        axis_step.assign(axes.size(), 0);
        i64 step = 1;
        std::size_t a = 0;
        for (i64 j = 0; j < part.n_axes; ++j) {
            const i32 at = part_axes[part.first_axis + j];
            while (axes[a] != at) ++a;
            axis_step[a] = step;
            step *= extent(at);
        }
        std::size_t split = 0;
        i64 n_near = 1;
        while (split < axes.size() && n_near < 64) n_near *= extent(axes[split++]);
        find_offsets(0, split, near_offset);
        find_offsets(split, axes.size(), far_offset);
        double* to = table.data();
        const i64* offset = near_offset.data();
        const bool runs = step >= n_near && near_offset[n_near - 1] == n_near - 1;
        for (const i64 far : far_offset) {
            const double* from = given + far;
            if (runs) {
                for (i64 c = 0; c < n_near; ++c) to[c] += from[c];
            } else {
                for (i64 c = 0; c < n_near; ++c) to[c] += from[offset[c]];
            }
            to += n_near;
        }
    }

    // Returns the best candidate of a position given its separator; ties are broken at random.
    void decide(i64 k, Random& random) {
        const i64 n = extent(static_cast<i32>(k));
        local.assign(n, 0.0);
        for (i64 p = first_part[k]; p >= 0; p = parts[p].next) {
            const Part& part = parts[p];
            i64 at = part.start, step = n;
            for (i64 j = 1; j < part.n_axes; ++j) {
                const i32 other = part_axes[part.first_axis + j];
                at += step * choice[other];
                step *= extent(other);
            }
            for (i64 j = 0; j < n; ++j) local[j] += arena[at + j];
        }
        i64 best = random.below(n);
        const i64 from = best;
        for (i64 j = 0; j < n; ++j) {
            const i64 other = from + j < n ? from + j : from + j - n;
            if (local[other] > local[best]) best = other;
        }
        choice[k] = static_cast<i32>(best);
    }
};

}  // namespace crf
