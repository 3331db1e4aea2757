"""Tables of factors as layers of positions: the meaning of the arrays of a factor graph.

The joint states of a factor are paths through layers, one layer for each of its nodes. Reading the state of a node
moves a path from one position to the next. The final position determines the score. A position in a dense table is the
number of the joint state so far, in a count table the count so far, and in a sparse table the set of listed cells that
are still possible.

All values are logarithms in double precision: scores are divided by counting numbers and temperatures, which may be
small, so that probabilities could underflow.
"""

from libc.math cimport INFINITY, exp, log1p
from libc.stdint cimport int8_t, int32_t, int64_t

from sklearn_crf.kernels.core.addresses cimport set_address

# Kinds of tables as numbered by sklearn_crf.models, and one additional kind.
cdef enum:
    DENSE = 0
    SPARSE = 1
    COUNT = 2
    SPARSE_SUMS = 3  # sparse, with a score range narrow enough for sums of probabilities

cdef struct Layers:
    bint maximum  # maxima instead of sums
    Py_ssize_t n_nodes
    Py_ssize_t n_columns  # K
    const int32_t* n_states  # (N,)
    const int64_t* node_ptr  # (N + 1,) first entry of each node in node_slots
    const int32_t* node_slots  # (n_slots,) slots of each node
    const int64_t* slot_ptr  # (F + 1,) first slot of each factor; its nodes ascend
    const int32_t* slot_node  # (n_slots,)
    const int32_t* slot_factor  # (n_slots,)
    const int32_t* table  # (F,)
    const double* scale  # (F,) factor by which scores of the table are multiplied
    const int64_t* position_ptr  # (n_slots + 1,) first position before each slot in left and right; in sparse tables,
    # one extra number follows the positions
    const int8_t* kind  # (T,)
    const int32_t* counted  # (T,) the state that a count table counts
    const int64_t* leaf_ptr  # (T + 1,) first leaf (end of a path) of each table
    const double* leaf  # scores of leaves
    const double* leaf_weight  # exp(scale * score - shift of the table), unused for maxima
    const double* leaf_shift  # (T,) shift of each table, NaN if its factors differ in scale
    const int64_t* child_ptr  # (n_slots,) first listed child of the positions before a slot, if sparse
    const int32_t* child  # (n_positions + 1,) first child of each position, then (n_children,) state of each child,
    # then (n_children,) parent position of each child


cdef inline void open_layers(object arrays, Layers* f) except *:
    """Return the addresses of the arrays, which the caller must keep alive."""
    f.maximum = arrays.maximum
    f.n_nodes = len(arrays.n_states)
    f.n_columns = arrays.n_columns
    set_address(&f.n_states, arrays.n_states)
    set_address(&f.node_ptr, arrays.node_ptr)
    set_address(&f.node_slots, arrays.node_slots)
    set_address(&f.slot_ptr, arrays.slot_ptr)
    set_address(&f.slot_node, arrays.slot_node)
    set_address(&f.slot_factor, arrays.slot_factor)
    set_address(&f.table, arrays.table)
    set_address(&f.scale, arrays.scale)
    set_address(&f.position_ptr, arrays.position_ptr)
    set_address(&f.kind, arrays.kind)
    set_address(&f.counted, arrays.counted)
    set_address(&f.leaf_ptr, arrays.leaf_ptr)
    set_address(&f.leaf, arrays.leaf)
    set_address(&f.leaf_weight, arrays.leaf_weight)
    set_address(&f.leaf_shift, arrays.leaf_shift)
    set_address(&f.child_ptr, arrays.child_ptr)
    set_address(&f.child, arrays.child)


cdef inline int kind_of(const Layers* f, Py_ssize_t slot) noexcept nogil:
    return f.kind[f.table[f.slot_factor[slot]]]


cdef inline Py_ssize_t n_positions(const Layers* f, Py_ssize_t slot) noexcept nogil:
    cdef int kind = kind_of(f, slot)
    return f.position_ptr[slot + 1] - f.position_ptr[slot] - (kind == SPARSE or kind == SPARSE_SUMS)


cdef inline bint is_last(const Layers* f, Py_ssize_t slot) noexcept nogil:
    return slot + 1 == f.slot_ptr[f.slot_factor[slot] + 1]


cdef inline Py_ssize_t n_after(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Return the number of positions after a slot."""
    cdef Py_ssize_t table
    if is_last(f, slot):
        table = f.table[f.slot_factor[slot]]
        return f.leaf_ptr[table + 1] - f.leaf_ptr[table]
    return n_positions(f, slot + 1)


cdef inline double log_sum(double x, double y) noexcept nogil:
    if x < y:
        x, y = y, x
    return x + log1p(exp(y - x)) if y > -INFINITY else x


cdef inline double right_of(const Layers* f, Py_ssize_t slot, const double* right, Py_ssize_t q) noexcept nogil:
    """Return `right` of a position after a slot."""
    cdef Py_ssize_t factor = f.slot_factor[slot]
    if is_last(f, slot):
        return f.scale[factor] * f.leaf[f.leaf_ptr[f.table[factor]] + q]
    return right[f.position_ptr[slot + 1] + q]


cdef inline const double* leaf_weights(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Return the exponentiated scores of a table whose paths end after a slot, or NULL if logarithms are needed."""
    cdef Py_ssize_t table = f.table[f.slot_factor[slot]]
    if f.maximum or f.leaf_weight == NULL or not is_last(f, slot) or f.leaf_shift[table] != f.leaf_shift[table]:
        return NULL
    return f.leaf_weight + f.leaf_ptr[table]


cdef inline double leaf_shift(const Layers* f, Py_ssize_t slot) noexcept nogil:
    return f.leaf_shift[f.table[f.slot_factor[slot]]]


cdef inline double probabilities(const Layers* f, Py_ssize_t n, const double* state, double* probability,
                                 double* total) noexcept nogil:
    """Compute exp(weight - maximum) for all weights, and their sum; return the maximum."""
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


cdef inline const int32_t* first_children(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Return the first child of each position before a slot, (n_positions + 1,)."""
    return f.child + f.child_ptr[slot]


cdef inline const int32_t* states_of_children(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Return the state of each child, (n_children,), ascending within each position."""
    return f.child + f.child_ptr[slot] + n_positions(f, slot) + 1


cdef inline Py_ssize_t n_children(const Layers* f, Py_ssize_t slot) noexcept nogil:
    return first_children(f, slot)[n_positions(f, slot)]


cdef inline const int32_t* parents_of_children(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Return the parent position of each child, (n_children,)."""
    return states_of_children(f, slot) + n_children(f, slot)


cdef inline bint is_listed(const int32_t* state_of, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t a) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(start, stop):
        if state_of[c] == a:
            return True
    return False


cdef inline double sum_of_unlisted(Py_ssize_t n, const double* probability, const int32_t* listed,
                                   Py_ssize_t n_listed) noexcept nogil:
    """Return the sum of the probabilities of unlisted states, without cancellation."""
    cdef:
        Py_ssize_t a, c = 0
        double total = 0
    for a in range(n):
        if c < n_listed and listed[c] == a:
            c += 1
        else:
            total += probability[a]
    return total
