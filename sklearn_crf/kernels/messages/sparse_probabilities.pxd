"""Messages of sparse tables whose scores lie so near to each other that nothing can get lost: sums of probabilities.

What each node sends is normalised, so that `left` adds up to one in every layer and `right` is the mean of the leaves'
weights behind a position. These are at most one, and at least the least of all; so is every message. What falls below
the least number there is was therefore too small to matter, and no logarithm is needed but one for each state of a
node. One number more than there are positions, behind them, is the logarithm of what they were divided by.

Sums begin as if all states led to the last position, and each listed child adds by how much it weighs more. Loops go
over children whatever position lists them, where that is quicker than by position: most list one or two. Digits are
lost where little is left of what a sum began with: such sums are added up anew.
"""

from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.layers cimport (
    Layers,
    first_children,
    is_last,
    n_after,
    n_children,
    n_positions,
    parents_of_children,
    probabilities,
    states_of_children,
    sum_of_unlisted,
)

# Sums below their DIGITS-th part may have lost too many of them to a difference.
cdef enum:
    DIGITS = 10000


cdef inline double normalised(const Layers* f, Py_ssize_t slot, const double* state,
                              double* probability) noexcept nogil:
    """Probabilities of the states of a node; the logarithm of what they were divided by, -inf if all are impossible."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], a
        double total, top = probabilities(f, n, state, probability, &total)
    if top == -INFINITY:
        for a in range(n):
            probability[a] = 0
        return top
    total = 1 / total
    for a in range(n):
        probability[a] *= total
    return top - log(total)


cdef inline const double* weights_behind(const Layers* f, Py_ssize_t slot, const double* right) noexcept nogil:
    """Weight of each position after a slot."""
    if is_last(f, slot):
        return f.leaf_weight + f.leaf_ptr[f.table[f.slot_factor[slot]]]
    return right + f.position_ptr[slot + 1]


cdef inline double scale_behind(const Layers* f, Py_ssize_t slot, const double* right) noexcept nogil:
    """Logarithm of what these were divided by."""
    if is_last(f, slot):
        return f.leaf_shift[f.table[f.slot_factor[slot]]]
    return right[f.position_ptr[slot + 1] + n_positions(f, slot + 1)]


cdef inline void advance_probabilities(const Layers* f, Py_ssize_t slot, const double* state, double* probability,
                                       const double* before, double* after) noexcept nogil:
    """`left` one layer on."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), others = n_after(f, slot) - 1, q, c
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        const int32_t* parent = parents_of_children(f, slot)
        double scale = normalised(f, slot, state, probability), rest = 1
    for c in range(n_children(f, slot)):
        after[c] = before[parent[c]] * probability[state_of[c]]
        rest -= after[c]
    if DIGITS * rest < 1:
        rest = 0
        for q in range(Q):
            if before[q] > 0:
                rest += before[q] * sum_of_unlisted(n, probability, state_of + first[q], first[q + 1] - first[q])
    after[others] = rest
    after[others + 1] = before[Q] + scale


cdef inline void retreat_probabilities(const Layers* f, Py_ssize_t slot, const double* state, double* probability,
                                       double* right) noexcept nogil:
    """`right` one layer back."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), q, c
        const int32_t* first = first_children(f, slot)
        const int32_t* state_of = states_of_children(f, slot)
        const double* weight = weights_behind(f, slot, right)
        double* out = right + f.position_ptr[slot]
        double scale = normalised(f, slot, state, probability), total
        double of_others = weight[n_after(f, slot) - 1]
    for q in range(Q):
        total = of_others
        for c in range(first[q], first[q + 1]):
            total += probability[state_of[c]] * (weight[c] - of_others)
        if DIGITS * total < of_others:
            total = of_others * sum_of_unlisted(n, probability, state_of + first[q], first[q + 1] - first[q])
            for c in range(first[q], first[q + 1]):
                total += probability[state_of[c]] * weight[c]
        out[q] = total
    out[Q] = scale_behind(f, slot, right) + scale


cdef inline double emit_digits(Py_ssize_t Q, const double* left, const int32_t* first, const int32_t* state_of,
                               const double* weight, double of_others, Py_ssize_t a) noexcept nogil:
    """Message for one state, to the last digit."""
    cdef:
        Py_ssize_t q, c
        double total = 0
    for q in range(Q):
        if left[q] > 0:
            for c in range(first[q], first[q + 1]):
                if state_of[c] == a:
                    total += left[q] * weight[c]
                    break
            else:
                total += left[q] * of_others
    return total


cdef inline void emit_probabilities(const Layers* f, Py_ssize_t slot, const double* left, const double* right,
                                    double* message) noexcept nogil:
    """Message to the node of a slot."""
    cdef:
        Py_ssize_t n = f.n_states[f.slot_node[slot]], Q = n_positions(f, slot), c, a
        const int32_t* state_of = states_of_children(f, slot)
        const int32_t* parent = parents_of_children(f, slot)
        const double* weight = weights_behind(f, slot, right)
        double scale, of_others = weight[n_after(f, slot) - 1]
    left += f.position_ptr[slot]
    scale = left[Q] + scale_behind(f, slot, right)
    for a in range(n):
        message[a] = of_others if scale > -INFINITY else 0
    if scale > -INFINITY:
        for c in range(n_children(f, slot)):
            message[state_of[c]] += left[parent[c]] * (weight[c] - of_others)
    for a in range(n):
        if scale > -INFINITY and DIGITS * message[a] < of_others:
            message[a] = emit_digits(Q, left, first_children(f, slot), state_of, weight, of_others, a)
        message[a] = scale + log(message[a])
