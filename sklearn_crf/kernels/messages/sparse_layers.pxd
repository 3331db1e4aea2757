"""Messages of sparse tables, in time proportional to the number of their listed cells.

Each position lists a few states, and each listed state leads to its own position. All other states lead to the last
position after the node, from which no listed cell can be reached. The total weight of the unlisted states is the sum
over all states minus the sum over the listed states. If this difference would lose digits to cancellation, the weights
are summed directly, and if probabilities would underflow, by log-sum-exp.

This file is for maxima, and for sums with wide score ranges or forbidden states. For other sums, see
sparse_probabilities.pxd.
"""

from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.layers cimport (
    Layers,
    first_children,
    is_listed,
    leaf_shift,
    leaf_weights,
    log_sum,
    n_after,
    n_positions,
    probabilities,
    right_of,
    states_of_children,
    sum_of_unlisted,
)


cdef inline double share_of_unlisted(Py_ssize_t n, const double* probability, double total, const int32_t* listed,
                                     Py_ssize_t n_listed) noexcept nogil:
    """Return the sum of the probabilities of unlisted states."""
    cdef:
        Py_ssize_t c
        double rest = total
    for c in range(n_listed):
        rest -= probability[listed[c]]
    return rest if rest > 1e-4 * total else sum_of_unlisted(n, probability, listed, n_listed)


cdef inline double weigh_unlisted(const Layers* f, Py_ssize_t n, const double* state, const double* probability,
                                  double top, double total, const int32_t* listed, Py_ssize_t n_listed) noexcept nogil:
    """Return the total log-weight of the unlisted states, or their maximum for maxima."""
    cdef:
        Py_ssize_t a, c = 0
        double rest = 0 if f.maximum else share_of_unlisted(n, probability, total, listed, n_listed), best = -INFINITY
    if rest > 1e-200:
        return top + log(rest)
    for a in range(n):
        if c < n_listed and listed[c] == a:
            c += 1
        elif state[a] > best:
            best = state[a]
            if best == top:
                break
    if f.maximum or best == -INFINITY:
        return best
    rest = 0
    c = 0
    for a in range(n):
        if c < n_listed and listed[c] == a:
            c += 1
        else:
            rest += exp(state[a] - best)
    return best + log(rest)


cdef inline void advance_sparse(const Layers* f, Py_ssize_t slot, const double* state, double* symbol,
                                const double* before, double* after) noexcept nogil:
    """Compute `left` of the next layer: a listed child has one parent, the last position has all as parents."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), others = n_after(f, slot) - 1, q, c
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        double total, top = probabilities(f, n, state, symbol, &total), x, rest = -INFINITY
    for q in range(Q):
        for c in range(first[q], first[q + 1]):
            after[c] = before[q] + state[state_of[c]]
        if before[q] == -INFINITY or top == -INFINITY or (f.maximum and before[q] + top <= rest):
            continue
        x = before[q] + weigh_unlisted(f, n, state, symbol, top, total, state_of + first[q], first[q + 1] - first[q])
        if f.maximum:
            rest = x if x > rest else rest
        else:
            rest = log_sum(rest, x)
    after[others] = rest


cdef inline double retreat_sparse_from(const Layers* f, Py_ssize_t slot, const double* state, const double* right,
                                       const int32_t* first, const int32_t* state_of, double rest,
                                       Py_ssize_t q) noexcept nogil:
    """Return `right` of one position; ``rest`` is the term of its unlisted states."""
    cdef:
        Py_ssize_t c
        double best = rest, x, total
    for c in range(first[q], first[q + 1]):
        x = state[state_of[c]] + right_of(f, slot, right, c)
        best = x if x > best else best
    if f.maximum or best == -INFINITY or first[q + 1] == first[q]:
        return best
    total = exp(rest - best)
    for c in range(first[q], first[q + 1]):
        total += exp(state[state_of[c]] + right_of(f, slot, right, c) - best)
    return best + log(total)


cdef inline void retreat_sparse(const Layers* f, Py_ssize_t slot, const double* state, double* symbol,
                                double* right) noexcept nogil:
    """Compute `right` of the previous layer."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], others = n_after(f, slot) - 1, start = f.position_ptr[slot], q, c
        Py_ssize_t n_listed
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        const double* weight = leaf_weights(f, slot)
        double total, top = probabilities(f, n, state, symbol, &total), sum_of, rest
    for q in range(n_positions(f, slot)):
        if top == -INFINITY:
            right[start + q] = -INFINITY
            continue
        n_listed = first[q + 1] - first[q]
        if weight != NULL:
            sum_of = weight[others] * share_of_unlisted(n, symbol, total, state_of + first[q], n_listed)
            for c in range(first[q], first[q + 1]):
                sum_of += symbol[state_of[c]] * weight[c]
            # Smaller sums may have lost digits to underflow.
            if sum_of > 1e-200:
                right[start + q] = top + leaf_shift(f, slot) + log(sum_of)
                continue
        rest = -INFINITY
        if f.maximum:
            right[start + q] = retreat_sparse_from(f, slot, state, right, first, state_of, rest, q)
            if top + right_of(f, slot, right, others) <= right[start + q]:
                continue
        rest = weigh_unlisted(f, n, state, symbol, top, total, state_of + first[q], n_listed)
        rest += right_of(f, slot, right, others)
        right[start + q] = retreat_sparse_from(f, slot, state, right, first, state_of, rest, q)


cdef inline double lefts_without(const Layers* f, Py_ssize_t Q, const double* left, const int32_t* first,
                                 const int32_t* state_of, Py_ssize_t a) noexcept nogil:
    """Return the sum or maximum of `left` over the positions that do not list a state."""
    cdef:
        Py_ssize_t q
        double best = -INFINITY, total = 0
    for q in range(Q):
        if left[q] > best and not is_listed(state_of, first[q], first[q + 1], a):
            best = left[q]
    if f.maximum or best == -INFINITY:
        return best
    for q in range(Q):
        if left[q] > -INFINITY and not is_listed(state_of, first[q], first[q + 1], a):
            total += exp(left[q] - best)
    return best + log(total)


cdef inline double emit_sparse_to(const Layers* f, Py_ssize_t slot, const double* left, const double* right,
                                  const int32_t* first, const int32_t* state_of, Py_ssize_t a) noexcept nogil:
    """Return the message for one state, by log-sum-exp."""
    cdef:
        Py_ssize_t Q = n_positions(f, slot), q, c
        double total = lefts_without(f, Q, left, first, state_of, a) + right_of(f, slot, right, n_after(f, slot) - 1), x
    for q in range(Q):
        for c in range(first[q], first[q + 1]):
            if state_of[c] == a:
                x = left[q] + right_of(f, slot, right, c)
                if f.maximum:
                    total = x if x > total else total
                else:
                    total = log_sum(total, x)
    return total


cdef inline void emit_best(const Layers* f, Py_ssize_t slot, const double* left, const double* right,
                           Py_ssize_t best, double* message) noexcept nogil:
    """Compute a message of maxima; ``best`` is the position of the largest `left`."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), second = -1, q, c, a
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        double of_others = right_of(f, slot, right, n_after(f, slot) - 1), x
    for q in range(Q):
        if q != best and (second < 0 or left[q] > left[second]):
            second = q
    for a in range(n):
        message[a] = left[best] + of_others
    for c in range(first[best], first[best + 1]):
        message[state_of[c]] = -INFINITY
    for q in range(Q):
        for c in range(first[q], first[q + 1]):
            x = left[q] + right_of(f, slot, right, c)
            message[state_of[c]] = x if x > message[state_of[c]] else message[state_of[c]]
    if second < 0:
        return
    for c in range(first[best], first[best + 1]):
        a = state_of[c]
        x = left[second] + of_others
        if x > message[a] and is_listed(state_of, first[second], first[second + 1], a):
            x = lefts_without(f, Q, left, first, state_of, a) + of_others
        message[a] = x if x > message[a] else message[a]


cdef inline void emit_sparse(const Layers* f, Py_ssize_t slot, const double* left, const double* right, double* symbol,
                             double* message) noexcept nogil:
    """Compute the message to the node of a slot, from positions that list a state and from all other positions."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), others = n_after(f, slot) - 1, q, c, a
        Py_ssize_t best = -1
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        const double* weight = leaf_weights(f, slot)
        double total = 0, top = -INFINITY, top_right = -INFINITY, of_others, x, rest
    left += f.position_ptr[slot]
    for q in range(Q):
        if left[q] > top:
            top = left[q]
            best = q
    for a in range(n):
        message[a] = -INFINITY if best < 0 else 0
        symbol[a] = 0
    if best < 0:
        return
    if f.maximum:
        emit_best(f, slot, left, right, best, message)
        return
    if weight != NULL:
        top_right = leaf_shift(f, slot)
        of_others = weight[others]
    else:
        for c in range(others + 1):
            x = right_of(f, slot, right, c)
            top_right = x if x > top_right else top_right
        of_others = exp(right_of(f, slot, right, others) - top_right) if top_right > -INFINITY else 0
    for q in range(Q):
        x = exp(left[q] - top)
        total += x
        if x > 0 and top_right > -INFINITY:
            for c in range(first[q], first[q + 1]):
                symbol[state_of[c]] += x
                message[state_of[c]] += x * (weight[c] if weight != NULL else
                                             exp(right_of(f, slot, right, c) - top_right))
    for a in range(n):
        rest = total - symbol[a]
        if rest < 1e-4 * total:
            rest = exp(lefts_without(f, Q, left, first, state_of, a) - top)
        message[a] += rest * of_others
        # Smaller sums may have lost digits to underflow.
        if message[a] > 1e-200:
            message[a] = top + top_right + log(message[a])
        else:
            message[a] = emit_sparse_to(f, slot, left, right, first, state_of, a)
