// Block-coordinate Frank-Wolfe for structured hinges. Examples form groups: the labels of a group are found at the same
// weights, and the steps of its examples are optimised jointly.
#pragma once

#include <vector>

#include "forest_hinge.hpp"
#include "team.hpp"

namespace crf {

// Maximum number of sweeps over the steps of a group.
constexpr int kSweeps = 10;

// Joint gain of a group, relative to the summed gains of single steps. Below the first limit, the group size is halved;
// above the second limit, it is doubled.
constexpr double kLeastGain = 0.8, kHighGain = 0.9;

// Maximises the quadratic function slack' step - step' gram step / 2 over steps in [0, 1] by coordinate ascent from the
// best common step. gram is a lower triangle in rows of length `width`; slack becomes the gradient.
inline void maximise_steps(const double* gram, i64 width, i64 n, double* slack, double* step) {
    constexpr double least = std::numeric_limits<double>::min();
    const auto at = [&](i64 i, i64 j) { return i < j ? gram[j * width + i] : gram[i * width + j]; };
    const auto move = [&](i64 i, double moved) {
        step[i] += moved;
        for (i64 j = 0; j < n && moved != 0; ++j) slack[j] -= moved * at(i, j);
    };
    double total = 0, square = 0;
    for (i64 i = 0; i < n; ++i) {
        step[i] = 0;
        total += slack[i];
        for (i64 j = 0; j < n; ++j) square += at(i, j);
    }
    const double common = n == 1 ? 0.0 : std::min(std::max(total, 0.0) / std::max(square, least), 1.0);
    for (i64 i = 0; i < n; ++i) move(i, common);
    for (int sweep = 0; sweep < (n == 1 ? 1 : kSweeps); ++sweep)
        for (i64 i = 0; i < n; ++i)
            move(i, std::min(std::max(step[i] + slack[i] / std::max(at(i, i), least), 0.0), 1.0) - step[i]);
}

// Set of a few distinct numbers, which are assigned consecutive slots in the order of their first use.
class Slots {
public:
    explicit Slots(i64 most) : numbers(workspace<i32>(most)), slots_(2 * above(most)) {}

    std::unique_ptr<i32[]> numbers;  // the distinct numbers, in the order of their slots
    i64 n = 0;

    // Forgets all numbers; at most `most` calls of find() follow.
    void clear(i64 most) {
        n = 0;
        mask_ = 2 * above(most) - 1;
        std::fill_n(slots_.begin(), mask_ + 1, -1);
    }

    // Returns the slot of a number; a new number has slot n.
    i64 find(i32 number) {
        i64 place = i64(std::uint64_t(number) * 0x9E3779B97F4A7C15 >> 32) & mask_;
        while (slots_[place] >= 0 && numbers[slots_[place]] != number) place = (place + 1) & mask_;
        if (slots_[place] < 0) {
            numbers[n] = number;
            slots_[place] = i32(n++);
        }
        return slots_[place];
    }

private:
    static i64 above(i64 most) {
        i64 size = 1;
        while (size < most) size *= 2;
        return size;
    }

    std::vector<i32> slots_;
    i64 mask_ = 0;
};

// Combined planes of all examples, and the weights that belong to them. With dense features, a combined plane is stored
// as its slope. With sparse features, it is stored as the share of each state at each node, and as the slope of the
// table weights that found labels have used so far.
struct HingeDual {
    const i64 *first_members, *first_nodes;  // (n_batches + 1,) of each batch among all examples and nodes
    double* offsets;  // (m,)
    double *slopes = nullptr, *shares = nullptr;  // (m, n) or null, and (N, K) or null
    const i64* row_ptr = nullptr;  // (m + 1,) first table weight of each example
    i64* row_sizes = nullptr;  // (m,) number of its table weights
    i32* row_index = nullptr;  // numbers of table weights, ascending for each example
    double* row_values = nullptr;
    double *x, *lag;  // (n,) minus the sum of all slopes, projected; and (n,), see Group::run
    double* free = nullptr;  // (n_bounded,) bounded entries of x before they are projected
    const i32* bounded = nullptr;  // (n_bounded,) entries of x that must not be negative
    i64 n_bounded, most_features;  // most_features: largest number of sparse features of an example
};

// Examples that make their steps together. The direction of an example is the slope of the plane of its found labels
// minus its combined slope: rows of feature weights, and the tail of all other weights. Dense features have a tail only.
template <class Real>
class Group {
public:
    Group(const HingeBatches<Real>& batches, const HingeDual& dual, i64 size)
        : batches_(batches), dual_(dual), n_(batches[0].n_weights()), C_(batches[0].n_columns),
          tail_at_(dual.shares ? batches[0].intercept_at() : 0), most_rows_(dual.shares ? dual.most_features : 0),
          tables_(workspace<double>(batches[0].size_of_tables())), all_rows_(size * most_rows_),
          last_(size * most_rows_), gram_(size * size), slack_(size), step_(size) {
        const i64 most_nodes = batches.most_nodes();
        for (i64 k = 0; k < size; ++k)
            directions_.push_back({batches.make_workspace(most_nodes), most_nodes, n_ - tail_at_, most_rows_, C_});
    }

    // Makes the steps of n examples, after n_before steps; returns their joint gain, as a fraction of the sum of the gains
    // that each step alone would have. The mean of x over all steps, where step k has weight k, is x minus
    // 2 / (k (k + 1)) times a lag: the sum of all moves, where a move in step j has the factor j (j - 1) / 2.
    double run(const i32* members, i64 n, i64 n_before, Team& team, double& gained, double& slack) {
        const double late = 0.5 * double(n_before + 1) * double(n_before);
        const i64 width = i64(slack_.size());
        double joint = 0, alone = 0;
        members_ = members;
        batches_[0].expand_tables(dual_.x, tables_.get());
        team.each(n, [&](i64 k) { find_direction(k); });
        for (i64 k = 0; k < n; ++k) slack_[k] = directions_[k].slack;
        link_rows(n);
        team.each((n + 3) / 4, [&](i64 k) { multiply(4 * k, n); });
        maximise_steps(gram_.data(), width, n, slack_.data(), step_.data());
        team.each(n, [&](i64 k) {
            if (step_[k] > 0) store(k);
            move(k, n, late);
        });
        project(n, late);
        for (i64 k = 0; k < n; ++k) {
            const double before = std::max(directions_[k].slack, 0.0), square = gram_[k * width + k];
            const double single = before < square ? before / square : 1.0;
            slack += before;
            joint += 0.5 * step_[k] * (directions_[k].slack + slack_[k]);
            alone += single * (before - 0.5 * single * square) * (before > 0);
            dual_.offsets[members[k]] += step_[k] * directions_[k].lift;
            gained += step_[k] * directions_[k].lift;
        }
        return alone > 0 ? joint / alone : 1.0;
    }

private:
    struct Direction {
        HingeWorkspace work;
        std::unique_ptr<i32[]> found, before;  // before: entry of the same row in an earlier direction, see link_rows
        std::unique_ptr<double[]> tail, values;  // values (n_rows, C)
        Slots rows;
        double lift = 0, slack = 0;

        Direction(HingeWorkspace work, i64 most_nodes, i64 n_tail, i64 most_rows, i64 C)
            : work(std::move(work)), found(workspace<i32>(most_nodes)), before(workspace<i32>(most_rows)),
              tail(workspace<double>(n_tail)), values(workspace<double>(most_rows * C)), rows(most_rows) {}
    };

    struct Place {
        const HingeExamples<Real>& examples;
        i64 i;
        double* shares;  // of the first node
    };

    Place place(i64 k) const {
        const i64 *first = dual_.first_members, member = members_[k];
        const i64 b = std::upper_bound(first, first + batches_.n_batches, member) - first - 1, i = member - first[b];
        const i64 node = dual_.first_nodes[b] + batches_[b].node_ptr[i];
        return {batches_[b], i, dual_.shares ? dual_.shares + node * batches_[b].n_states : nullptr};
    }

    void find_direction(i64 k) {
        const Place at = place(k);
        Direction& own = directions_[k];
        at.examples.find_labels(at.i, dual_.x, tables_.get(), own.work, own.found.get());
        own.lift = at.examples.offset(at.i, own.found.get()) - dual_.offsets[members_[k]];
        if (at.shares) {
            find_difference(at, members_[k], own);
        } else {
            const double* row = dual_.slopes + members_[k] * n_;
            for (i64 a = 0; a < n_; ++a) own.tail[a] = -row[a];
            at.examples.add_slope(at.i, own.found.get(), own.work, own.tail.get());
        }
        double* by_column = own.work.best.get();
        run_at_level<WeighRows>(dual_.x, own.rows.numbers.get(), own.values.get(), own.rows.n, C_, by_column);
        own.slack = own.lift + product(own.tail.get(), dual_.x + tail_at_, n_ - tail_at_);
        for (i64 a = 0; a < C_; ++a) own.slack += by_column[a];
    }

    void find_difference(const Place& at, i64 member, Direction& own) {
        const auto& examples = at.examples;
        const i64 first = examples.node_ptr[at.i], last = examples.node_ptr[at.i + 1], skipped = examples.n_states - C_;
        double *tables = &own.tail[examples.tables_at() - tail_at_], *difference = own.work.best.get();
        const i64 start = dual_.row_ptr[member], stop = start + dual_.row_sizes[member];
        std::fill_n(own.tail.get(), n_ - tail_at_, 0.0);
        for (i64 a = start; a < stop; ++a) tables[dual_.row_index[a]] = -dual_.row_values[a];
        examples.add_tables(at.i, own.found.get(), tables);
        own.rows.clear(examples.feature_ptr[last] - examples.feature_ptr[first]);
        for (i64 s = first; s < last; ++s) {
            // With two states, only the second state has a column.
            const double* share = at.shares + (s - first) * examples.n_states + skipped;
            bool differs = false;
            for (i64 a = 0; a < C_; ++a) {
                difference[a] = examples.weight[at.i] * ((own.found[s - first] == a + skipped) - share[a]);
                differs |= difference[a] != 0;
            }
            if (!differs) continue;
            const i64 n_nonzero = examples.find_nonzero(s, own.work);
            for (i64 q = 0; q < n_nonzero; ++q) {
                const i64 n_before = own.rows.n, slot = own.rows.find(own.work.nonzero[q]);
                if (slot == n_before) std::fill_n(&own.values[slot * C_], C_, 0.0);
                own.work.nonzero[q] = i32(slot);
            }
            run_at_level<AddToSlots>(own.values.get(), own.work.nonzero.get(), own.work.factors.get(), n_nonzero,
                                     difference, C_);
            for (i64 a = 0; a < C_ && *examples.constant != 0; ++a)
                own.tail[examples.kind(s) * C_ + a] += *examples.constant * difference[a];
        }
    }

    // Links the rows of all directions: each row to the same row of an earlier direction, or -1. Rows are numbered
    // through all directions, most_rows for each.
    void link_rows(i64 n) {
        i64 most = 0;
        for (i64 k = 0; k < n; ++k) most += directions_[k].rows.n;
        all_rows_.clear(most);
        for (i64 k = 0; k < n; ++k)
            for (i64 s = 0; s < directions_[k].rows.n; ++s) {
                const i64 n_before = all_rows_.n, slot = all_rows_.find(directions_[k].rows.numbers[s]);
                directions_[k].before[s] = slot == n_before ? -1 : last_[slot];
                last_[slot] = i32(k * most_rows_ + s);
            }
    }

    // Computes the products of directions first to first + 3 with the directions before them and with themselves.
    void multiply(i64 first, i64 n) {
        const i64 width = i64(slack_.size()), last = std::min(first + 4, n);
        const double *own[4], *others[2];
        double found[8];
        for (i64 k = 0; k < 4; ++k) own[k] = directions_[std::min(first + k, n - 1)].tail.get();
        for (i64 j = 0; j < last; j += 2) {
            for (i64 k = 0; k < 2; ++k) others[k] = directions_[std::min(j + k, n - 1)].tail.get();
            run_at_level<Products>(own, others, n_ - tail_at_, found);
            for (i64 k = first; k < last; ++k)
                for (i64 other = j; other < std::min(j + 2, last); ++other)
                    gram_[k * width + other] = found[2 * (k - first) + other - j];
        }
        for (i64 k = first; k < last; ++k) multiply_rows(directions_[k], k, &gram_[k * width]);
    }

    void multiply_rows(const Direction& own, i64 k, double* row) {
        for (i64 s = 0; s < own.rows.n; ++s)
            for (i64 other = k * most_rows_ + s; other >= 0;) {
                const i64 j = other / most_rows_, place = other % most_rows_;
                const double *values = &own.values[s * C_], *others = &directions_[j].values[place * C_];
                for (i64 a = 0; a < C_; ++a) row[j] += values[a] * others[a];
                other = directions_[j].before[place];
            }
    }

    // Moves the combined plane of an example.
    void store(i64 k) {
        const Place at = place(k);
        const double size = step_[k], *tail = directions_[k].tail.get();
        if (!at.shares) {
            double* row = dual_.slopes + members_[k] * n_;
            for (i64 a = 0; a < n_; ++a) row[a] += size * tail[a];
            return;
        }
        for (i64 s = 0; s < at.examples.n_nodes(at.i); ++s) {
            double* share = at.shares + s * at.examples.n_states;
            for (i64 a = 0; a < at.examples.n_states; ++a) share[a] -= size * share[a];
            share[directions_[k].found[s]] += size;
        }
        const i64 tables_at = at.examples.tables_at();
        add_to_row(members_[k], size, tail + tables_at - tail_at_, n_ - tables_at);
    }

    // Adds table weights to the row of an example, which has space for all of them.
    void add_to_row(i64 member, double size, const double* tables, i64 n_tables) {
        const i64 start = dual_.row_ptr[member], stop = start + dual_.row_sizes[member];
        i32* index = dual_.row_index;
        double* values = dual_.row_values;
        i64 n_new = 0, q = start;
        for (i64 a = 0; a < n_tables; ++a)
            if (q < stop && index[q] == a) values[q++] += size * tables[a];
            else n_new += tables[a] != 0;
        dual_.row_sizes[member] += n_new;
        for (i64 a = n_tables - 1; n_new > 0; --a)
            if (q > start && index[q - 1] == a) {
                --q;
                index[q + n_new] = index[q];
                values[q + n_new] = values[q];
            } else if (tables[a] != 0) {
                --n_new;
                index[q + n_new] = i32(a);
                values[q + n_new] = size * tables[a];
            }
    }

    // Moves one of n parts of the weights; parts are processed in parallel.
    void move(i64 piece, i64 n, double late) {
        const auto bound = [&](i64 total, i64 k) { return total * k / n; };
        const i64 start = bound(n_ - tail_at_, piece), stop = bound(n_ - tail_at_, piece + 1);
        for (i64 k = 0; k < n; ++k)
            move_along(k, tail_at_ + start, &directions_[k].tail[start], stop - start, late);
        for (i64 u = bound(all_rows_.n, piece); u < bound(all_rows_.n, piece + 1); ++u)
            for (i64 other = last_[u]; other >= 0;) {
                const i64 k = other / most_rows_, place = other % most_rows_;
                move_along(k, all_rows_.numbers[u] * C_, &directions_[k].values[place * C_], C_, late);
                other = directions_[k].before[place];
            }
    }

    void move_along(i64 k, i64 at, const double* along, i64 n, double late) {
        if (step_[k] > 0) run_at_level<MoveWeights>(dual_.x + at, dual_.lag + at, along, n, step_[k], late);
    }

    // Projects the bounded entries of x.
    void project(i64 n, double late) {
        for (i64 q = 0; q < dual_.n_bounded; ++q) {
            const i64 at = dual_.bounded[q];
            for (i64 k = 0; k < n; ++k) dual_.free[q] -= step_[k] * directions_[k].tail[at - tail_at_];
            const double after = std::max(dual_.free[q], 0.0);
            dual_.lag[at] += late * (after - dual_.x[at]);
            dual_.x[at] = after;
        }
    }

    const HingeBatches<Real>& batches_;
    const HingeDual& dual_;
    const i64 n_, C_, tail_at_, most_rows_;
    const i32* members_ = nullptr;
    const std::unique_ptr<double[]> tables_;
    Slots all_rows_;  // rows of all directions
    std::vector<i32> last_;  // (all_rows_.n,) latest entry of each row, in the numbering of link_rows
    std::vector<double> gram_, slack_, step_;
    std::vector<Direction> directions_;
};

// Makes one step for each of some examples, in groups, after n_before steps. Adds to the sums of offsets and of slacks;
// returns the size of the next group. Steps that hinder each other are made in smaller groups.
template <class Real>
i64 make_steps(const HingeBatches<Real>& batches, const HingeDual& dual, const i32* members, i64 n_members, i64 n_before,
               i64 size, i64 largest, const Threads& threads, double& gained, double& slack) {
    Group<Real> group(batches, dual, largest);
    Team::run(threads, [&](Team& team) {
        for (i64 k = 0, n; k < n_members; k += n) {
            n = std::min(size, n_members - k);
            const double gain = group.run(members + k, n, n_before + k, team, gained, slack);
            if (gain < kLeastGain) size = std::max<i64>(size / 2, 1);
            else if (gain > kHighGain) size = std::min(2 * size, largest);
        }
    });
    return size;
}

}  // namespace crf
