// Lead of the best state of each node over its second-best state, by its own score and the best possible contributions
// of its neighbours.
#pragma once

#include "two_states.hpp"

namespace crf {

class ScoredDomains : public TwoStateDomains {
protected:
    ScoredDomains(const Constraints& given, bool by_scores)
        : TwoStateDomains(given), by_scores(by_scores), n_decided(by_scores ? given.n_decided : n_nodes),
          preference(given.preference, given.preference + first[n_nodes]) {
        if (!by_scores) return;
        lead.assign(n_nodes, 0.0);
        surest.assign(n_nodes, 0);
        is_outdated.assign(n_nodes, 0);
        for (const int32_t r : relation_of) cell_ptr.push_back(given.cell_ptr[r]);
        for (const int32_t r : relation_of) n_columns.push_back(given.shape[2 * r + 1]);
        for (const int64_t e : edge_number) weight.push_back(given.weight[e]);
        scores.assign(given.scores, given.scores + given.n_cells);
        for (int64_t v = 0; v < n_decided; ++v) outdate(v);
    }

    const bool by_scores;
    const int64_t n_decided;    // number of decided nodes; they determine all other nodes
    const std::vector<double> preference;
    std::vector<double> lead;
    std::vector<int32_t> surest;

    void outdate_around(int64_t v) {
        outdate(v);
        for (int64_t k = incident_ptr[v]; k < incident_ptr[v + 1]; ++k) outdate(ends[incident[k] ^ 1]);
    }

    // Recomputes the leads of nodes that have changed.
    template <class Visit>
    void renew_leads(Visit visit) {
        for (const int32_t v : outdated) {
            is_outdated[v] = 0;
            if (!active[v] || value[v] >= 0) continue;
            compare(v);
            visit(v);
        }
        outdated.clear();
    }

private:
    std::vector<int64_t> cell_ptr, n_columns;    // by edge
    std::vector<double> weight, scores, total, best;
    std::vector<uint8_t> is_outdated;
    std::vector<int32_t> outdated;

    void outdate(int64_t v) {
        if (v >= n_decided || is_outdated[v]) return;
        is_outdated[v] = 1;
        outdated.push_back(static_cast<int32_t>(v));
    }

    void compare(int64_t v) {
        const int64_t n_states = first[v + 1] - first[v];
        total.assign(preference.begin() + first[v], preference.begin() + first[v + 1]);
        for (int64_t k = incident_ptr[v]; k < incident_ptr[v + 1]; ++k) {
            const int64_t half = incident[k], edge = half >> 1, u = ends[half ^ 1];
            const int side = static_cast<int>(half & 1);
            const double* cells = scores.data() + cell_ptr[edge];
            const int64_t step = side ? 1 : n_columns[edge], step_of_other = side ? n_columns[edge] : 1;
            best.assign(n_states, -1e300);
            for_each_possible(u, [&](int64_t other) {
                // For a factor node that lists joint states, the score belongs to its state.
                const double own = u >= n_decided ? preference[first[u] + other] : 0.0;
                const Word* mine = supports(edge, 1 - side, other);
                for (int64_t w = 0; w < word_of[v + 1] - word_of[v]; ++w)
                    for (Word left = mine[w] & domain[word_of[v] + w]; left; left &= left - 1, ++work) {
                        const int64_t state = 64 * w + lowest_bit(left);
                        best[state] = std::max(best[state], own + weight[edge] * cells[state * step + other * step_of_other]);
                    }
            });
            for (int64_t state = 0; state < n_states; ++state) total[state] += best[state];
        }
        int64_t one = -1;
        double second = -1e300;
        for_each_possible(v, [&](int64_t state) {
            if (one < 0 || total[state] > total[one]) {
                if (one >= 0) second = total[one];
                one = state;
            } else {
                second = std::max(second, total[state]);
            }
        });
        lead[v] = total[one] - second;
        surest[v] = static_cast<int32_t>(one);
    }
};

}  // namespace crf
