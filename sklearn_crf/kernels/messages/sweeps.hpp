// Sweeps of belief propagation: nodes send their messages in a given order.
#pragma once

#include <utility>

#include "messages/field.hpp"

namespace crf {

// Prefetch distance in nodes. Prefetching halves the time of a sweep over messages larger than the caches, and costs 8
// % if all messages are in a cache.
constexpr i64 kAhead = 6;
constexpr i64 kFitACache = 1 << 18;

template <class Real>
struct Sweep {
    Field<Real> field;
    Workspace<Real> workspace;
    Real* values;  // (2E, width) messages by the slot of the receiving node
    const i32* nodes;  // nodes in the order of sending
    const i32* rank;  // (N,) position of each node in the order of all nodes, used if direction is not 0
    double damping;  // weight of the old message; below 0: there are no old messages

    // work: (6 + K) * width numbers; is_wide: whether a message may have a probability below 1/100
    void open(Real* messages, i64 n_messages, double* work, bool is_wide) {
        values = messages;
        workspace.open(field, work);
        former = reinterpret_cast<Real*>(work + (5 + field.n_columns) * field.width);
        by_logarithms = is_wide && damping >= 0 && field.semiring == SUM_PROBABILITY;
        in_registers = !field.appearance && field.is_short();
        comes_back = field.factors && field.factor && field.place[0] == field.place[1];
        asks_ahead = n_messages * field.width * i64(sizeof(Real)) > kFitACache;
    }

    // Sends the messages of nodes in turn. Direction 1: to nodes of higher rank; -1: to nodes of lower rank, in reverse
    // order; 0: to all neighbours. Returns the largest change of a message, or -1 - t if node t has no possible state.
    double send_nodes(int direction, i64 start, i64 stop) {
        const i64 last_asked = asks_ahead ? stop - kAhead : start;
        double worst = 0;
        for (i64 i = start; i < stop; i++) {
            if (i < last_asked) ask_for(nodes[direction >= 0 ? i + kAhead : start + stop - 1 - kAhead - i]);
            const i64 s = nodes[direction >= 0 ? i : start + stop - 1 - i], first = field.ptr[s], last = field.ptr[s + 1];
            const i32 place = direction != 0 ? rank[s] : 0;
            if (last - first > kFewEdges) field.total_messages(s, values, workspace);
            for (i64 q = first; q < last; q++) {
                if (direction != 0 && direction * (rank[field.neighbor[q]] - place) < 0) continue;
                const bool is_quick = in_registers && !by_logarithms && last - first <= kFewEdges;
                const double change = is_quick ? field.send_short_message(s, q, values, damping, false) : send(s, q, worst);
                if (change < 0) return -1.0 - field.neighbor[q];
                worst = std::max(worst, change);
            }
        }
        return worst;
    }

    // Sends messages forwards through a range of nodes, then backwards.
    double renew(i64 start, i64 stop) {
        const double change = send_nodes(1, start, stop);
        if (change < 0) return change;
        const double back = comes_back ? send_back(start, stop) : send_nodes(-1, start, stop);
        return back < 0 || back > change ? back : change;
    }

    // Sends the messages of at most n_nodes nodes, each time from the node whose input has changed most. heap: binary
    // heap of nodes, highest priority first; position: index of each node in the heap. Returns the highest priority
    // left, or -1 - t if node t has no possible state.
    double send_by_residual(double* priority, i32* heap, i32* position, i64 size, double tol, i64 n_nodes) {
        for (i64 k = 0; k < n_nodes && priority[heap[0]] > tol; k++) {
            const i64 s = heap[0];
            double worst = 0;
            priority[s] = 0;
            sift_down(priority, heap, position, size);
            if (field.ptr[s + 1] - field.ptr[s] > kFewEdges) field.total_messages(s, values, workspace);
            for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
                const i64 t = field.neighbor[q];
                const double change = send(s, q, worst);
                if (change < 0) return -1.0 - t;
                worst = std::max(worst, change);
                priority[t] += change;
                sift_up(priority, heap, position, position[t]);
            }
            if (damping > 0) {
                // The part that damping held back remains to be sent.
                priority[s] += damping * worst;
                sift_up(priority, heap, position, position[s]);
            }
        }
        return priority[heap[0]];
    }

private:
    Real* former;  // (width,)
    bool by_logarithms;  // whether changes are measured on logarithms, because probabilities may be tiny
    bool in_registers;  // cached here, because testing for each message doubles the time for two states
    bool comes_back;  // whether both directions of an edge share one stored table, which send_back requires
    bool asks_ahead;  // whether to prefetch messages, because they exceed the caches

    void ask_for(i64 s) const {
        for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
            ROWS_PREFETCH(values + q * field.width);
            ROWS_PREFETCH(values + i64(field.reverse[q]) * field.width);
        }
    }

    double send(i64 s, i64 q, double worst) {
        return by_logarithms ? renew_by_logarithms(s, q, worst) : field.send_message(s, q, values, damping, workspace);
    }

    // Sends the messages of a backward send_nodes, but ordered by the receiving node, so that tables are read in the
    // reverse of the storage order. Each message depends on the same messages as in send_nodes, all of which were sent
    // before, so the results are identical bit by bit.
    double send_back(i64 start, i64 stop) {
        double worst = 0;
        for (i64 i = stop - 1; i >= start; i--) {
            const i64 t = nodes[i];
            for (i64 r = field.ptr[t + 1] - 1; r >= field.ptr[t]; r--) {
                const i64 s = field.neighbor[r], place = rank[s];
                if (!(i < place && place < stop)) continue;
                const double change = send_along(s, field.reverse[r], worst);
                if (change < 0) return -1.0 - t;
                worst = std::max(worst, change);
            }
        }
        // Nodes before the range also receive messages.
        for (i64 i = stop - 1; i >= start && start > 0; i--) {
            const i64 s = nodes[i];
            for (i64 q = field.ptr[s]; q < field.ptr[s + 1]; q++) {
                if (rank[field.neighbor[q]] >= start) continue;
                const double change = send_along(s, q, worst);
                if (change < 0) return -1.0 - field.neighbor[q];
                worst = std::max(worst, change);
            }
        }
        return worst;
    }

    // Sends the message of a node along one of its slots, independently of messages that it sent before.
    double send_along(i64 s, i64 q, double worst) {
        if (field.ptr[s + 1] - field.ptr[s] > kFewEdges) field.total_messages(s, values, workspace);
        return send(s, q, worst);
    }

    // Updates the message along a slot. Returns its change if larger than worst, or -1 if no state is possible.
    double renew_by_logarithms(i64 s, i64 q, double worst) {
        const i64 W = field.width;
        Real* kept = values + i64(field.reverse[q]) * W;
        const Real share = Real(count_change(0, 1) / (1 - damping));
        std::copy_n(kept, W, former);
        double change = field.send_message(s, q, values, damping, workspace);
        if (change < 0) return change;
        // A small relative change approximates the change of the logarithm.
        const Real limit = Real(std::max(change, worst));
        i64 n_worse = 0;
        for (i64 a = 0; a < W; a++)
            n_worse += share * std::fabs(kept[a] - former[a]) > limit * (kept[a] > former[a] ? kept[a] : former[a]);
        for (i64 a = 0; a < W && n_worse; a++) {
            const Real larger = kept[a] > former[a] ? kept[a] : former[a];
            if (larger > 0) change = std::max(change, double(share * std::fabs(kept[a] - former[a]) / larger));
        }
        return change;
    }

    static void sift_up(const double* priority, i32* heap, i32* position, i64 place) {
        for (i64 above; place > 0 && priority[heap[above = (place - 1) / 2]] < priority[heap[place]]; place = above) {
            std::swap(heap[place], heap[above]);
            position[heap[place]] = i32(place);
            position[heap[above]] = i32(above);
        }
    }

    static void sift_down(const double* priority, i32* heap, i32* position, i64 size) {
        for (i64 place = 0, child; (child = 2 * place + 1) < size; place = child) {
            if (child + 1 < size && priority[heap[child + 1]] > priority[heap[child]]) child++;
            if (priority[heap[child]] <= priority[heap[place]]) return;
            std::swap(heap[place], heap[child]);
            position[heap[place]] = i32(place);
            position[heap[child]] = i32(child);
        }
    }
};

}  // namespace crf
