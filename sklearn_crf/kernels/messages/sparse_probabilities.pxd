"""Messages of sparse tables whose score range is narrow enough for sums of probabilities.

The messages of nodes are normalised, so that `left` sums to one in every layer and `right` is the mean of the weights
of the leaves that are reachable from a position. These weights lie between the smallest leaf weight and one, and so do
all messages. Terms that underflow are therefore negligible, and the only logarithms are one for each state of a node.
An extra number after the positions of a layer holds the logarithm of their normaliser.

Sums start as if all states led to the last position; each listed child then adds the difference to its own weight. Some
loops run over all children rather than by position, which is faster because most positions list one or two children.
Sums that lose digits to cancellation are computed again directly.
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

# Differences below 1 / DIGITS of the original sum may have lost too many digits.
cdef enum:
    DIGITS = 10000


cdef inline double normalised(const Layers* f, Py_ssize_t slot, const double* state,
                              double* probability) noexcept nogil:
    """Compute the probabilities of the states of a node; return their log-normaliser, -inf if all are impossible."""
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
    """Return the weights of the positions after a slot."""
    if is_last(f, slot):
        return f.leaf_weight + f.leaf_ptr[f.table[f.slot_factor[slot]]]
    return right + f.position_ptr[slot + 1]


cdef inline double scale_behind(const Layers* f, Py_ssize_t slot, const double* right) noexcept nogil:
    """Return the log-normaliser of the weights of the positions after a slot."""
    if is_last(f, slot):
        return f.leaf_shift[f.table[f.slot_factor[slot]]]
    return right[f.position_ptr[slot + 1] + n_positions(f, slot + 1)]


cdef inline void advance_probabilities(const Layers* f, Py_ssize_t slot, const double* state, double* probability,
                                       const double* before, double* after) noexcept nogil:
    """Compute `left` of the next layer."""
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
    """Compute `right` of the previous layer."""
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
    """Return the message for one state, without cancellation."""
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
    """Compute the message to the node of a slot."""
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
