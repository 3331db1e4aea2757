"""Messages of sparse tables, in time that goes by the number of their listed cells.

Each position lists a few states, each of which leads to a position of its own; all others lead to the last position
behind the node, from where no listed cell can be reached any more. What the states that a position does not list weigh
together is the sum over all less that over the listed ones. Where little is left of it, so that digits would be lost,
it is added up anew, and where probabilities are too small for that, by their logarithms.
"""

from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int32_t

from sklearn_crf.kernels.layers cimport Layers, log_sum, n_after, n_positions, right_of


cdef inline const int32_t* first_children(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """(n_positions + 1,) where the children of each position before a slot begin."""
    return f.child + f.child_ptr[slot]


cdef inline const int32_t* states_of_children(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """(n_children,) the state that leads to each, ascending among those of one position."""
    return f.child + f.child_ptr[slot] + n_positions(f, slot) + 1


cdef inline bint is_listed(const int32_t* state_of, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t a) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(start, stop):
        if state_of[c] == a:
            return True
    return False


cdef inline double weigh_unlisted(const Layers* f, Py_ssize_t n, const double* state, const double* probability,
                                  double top, double total, const int32_t* listed, Py_ssize_t n_listed) noexcept nogil:
    """What the states that are not listed weigh together; of maxima, the best of them."""
    cdef:
        Py_ssize_t a, c
        double rest = total, best
    if not f.maximum:
        for c in range(n_listed):
            rest -= probability[listed[c]]
        if rest > 1e-4 * total:
            return top + log(rest)
    rest = 0
    best = -INFINITY
    c = 0
    for a in range(n):
        if c < n_listed and listed[c] == a:
            c += 1
            continue
        if not f.maximum:
            rest += probability[a]
        best = state[a] if state[a] > best else best
    if f.maximum or best == -INFINITY:
        return best
    if rest > 1e-280:
        return top + log(rest)
    rest = 0
    c = 0
    for a in range(n):
        if c < n_listed and listed[c] == a:
            c += 1
        else:
            rest += exp(state[a] - best)
    return best + log(rest)


cdef inline double probabilities(const Layers* f, Py_ssize_t n, const double* state, double* probability,
                                 double* total) noexcept nogil:
    """Exponentials of weights below the best, and their sum; the best."""
    cdef:
        Py_ssize_t a
        double top = -INFINITY
    for a in range(n):
        top = state[a] if state[a] > top else top
    total[0] = 0
    if f.maximum or top == -INFINITY:
        return top
    for a in range(n):
        probability[a] = exp(state[a] - top)
        total[0] += probability[a]
    return top


cdef inline void advance_sparse(const Layers* f, Py_ssize_t slot, const double* state, double* symbol,
                                const double* before, double* after) noexcept nogil:
    """`left` one layer on: a listed child has one parent, and the last position has all of them."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), others = n_after(f, slot) - 1, q, c
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        double total, top = probabilities(f, n, state, symbol, &total), x, rest = -INFINITY
    for q in range(Q):
        for c in range(first[q], first[q + 1]):
            after[c] = before[q] + state[state_of[c]]
        if before[q] == -INFINITY or top == -INFINITY:
            continue
        x = before[q] + weigh_unlisted(f, n, state, symbol, top, total, state_of + first[q], first[q + 1] - first[q])
        if f.maximum:
            rest = x if x > rest else rest
        else:
            rest = log_sum(rest, x)
    after[others] = rest


cdef inline void retreat_sparse(const Layers* f, Py_ssize_t slot, const double* state, double* symbol,
                                double* right) noexcept nogil:
    """`right` one layer back."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), others = n_after(f, slot) - 1, q, c
        Py_ssize_t start = f.position_ptr[slot]
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        double total, top = probabilities(f, n, state, symbol, &total), x, rest, best, sum_of
        double right_of_others = right_of(f, slot, right, others)
    for q in range(Q):
        rest = -INFINITY
        if top > -INFINITY:
            rest = right_of_others + weigh_unlisted(f, n, state, symbol, top, total, state_of + first[q],
                                                    first[q + 1] - first[q])
        best = rest
        for c in range(first[q], first[q + 1]):
            x = state[state_of[c]] + right_of(f, slot, right, c)
            best = x if x > best else best
        if not f.maximum and best > -INFINITY and first[q + 1] > first[q]:
            sum_of = exp(rest - best)
            for c in range(first[q], first[q + 1]):
                sum_of += exp(state[state_of[c]] + right_of(f, slot, right, c) - best)
            best += log(sum_of)
        right[start + q] = best


cdef inline double lefts_without(const Layers* f, Py_ssize_t Q, const double* left, const int32_t* first,
                                 const int32_t* state_of, Py_ssize_t a) noexcept nogil:
    """Sum or maximum of `left` over the positions that do not list a state."""
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


cdef inline void emit_sparse(const Layers* f, Py_ssize_t slot, const double* left, const double* right, double* symbol,
                             double* message) noexcept nogil:
    """Message to the node of a slot: of the positions that list a state, and of all others together."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), others = n_after(f, slot) - 1, q, c, a
        Py_ssize_t start = f.position_ptr[slot], best_of = -1
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        double total = 0, top = -INFINITY, x, rest
        double right_of_others = right_of(f, slot, right, others)
    left += start
    for q in range(Q):
        if left[q] > top:
            top = left[q]
            best_of = q
    for a in range(n):
        message[a] = -INFINITY
        symbol[a] = 0
    if best_of < 0:
        return
    for q in range(Q):
        for c in range(first[q], first[q + 1]):
            x = left[q] + right_of(f, slot, right, c)
            message[state_of[c]] = x if x > message[state_of[c]] else message[state_of[c]]
    if f.maximum:
        for a in range(n):
            rest = top
            if is_listed(state_of, first[best_of], first[best_of + 1], a):
                rest = lefts_without(f, Q, left, first, state_of, a)
            x = rest + right_of_others
            message[a] = x if x > message[a] else message[a]
        return
    for q in range(Q):
        for c in range(first[q], first[q + 1]):
            a = state_of[c]
            if message[a] > -INFINITY:
                symbol[a] += exp(left[q] + right_of(f, slot, right, c) - message[a])
    for a in range(n):
        if message[a] > -INFINITY:
            message[a] += log(symbol[a])
        symbol[a] = 0
    for q in range(Q):
        x = exp(left[q] - top)
        total += x
        for c in range(first[q], first[q + 1]):
            symbol[state_of[c]] += x
    for a in range(n):
        rest = total - symbol[a]
        rest = top + log(rest) if rest > 1e-4 * total else lefts_without(f, Q, left, first, state_of, a)
        message[a] = log_sum(message[a], rest + right_of_others)
