"""Messages of factors by one recursion, whatever their tables.

With `left`, the sum (or maximum) over all ways to a position, and `right`, that over all ways from it to an end, each
weighted by what nodes send, the message to node d is

    m(a) = sum over q of  left_d(q) right_{d + 1}(next(q, a)).
"""

from libc.math cimport INFINITY, exp, log

from sklearn_crf.kernels.layers cimport COUNT, DENSE, SPARSE, Layers, log_sum, n_after, n_positions, right_of
from sklearn_crf.kernels.sparse_layers cimport advance_sparse, emit_sparse, retreat_sparse


cdef inline Py_ssize_t next_position(const Layers* f, Py_ssize_t slot, int kind, Py_ssize_t last, Py_ssize_t q,
                                     Py_ssize_t a) noexcept nogil:
    """Position after symbol a is read at position q; ``last`` is the highest there is."""
    if kind == DENSE:
        return q * f.n_states[f.slot_node[slot]] + a
    return q + a if q + a < last else last


cdef inline Py_ssize_t n_symbols(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Symbols that a table tells apart: the states of the node, or whether it is counted."""
    cdef Py_ssize_t table = f.table[f.slot_factor[slot]], n = f.n_states[f.slot_node[slot]]
    if f.kind[table] != COUNT:
        return n
    return 2 if f.counted[table] < n else 1


cdef inline void read_symbols(const Layers* f, Py_ssize_t slot, const double* state, double* symbol) noexcept nogil:
    """From weights of states to weights of symbols."""
    cdef:
        Py_ssize_t table = f.table[f.slot_factor[slot]], n = f.n_states[f.slot_node[slot]], a
        double other = -INFINITY
    if f.kind[table] != COUNT:
        for a in range(n):
            symbol[a] = state[a]
        return
    for a in range(n):
        if a == f.counted[table]:
            symbol[1] = state[a]
        elif f.maximum:
            other = state[a] if state[a] > other else other
        else:
            other = log_sum(other, state[a])
    symbol[0] = other


cdef inline void write_states(const Layers* f, Py_ssize_t slot, const double* symbol, double* state) noexcept nogil:
    """From a message to symbols to that to states."""
    cdef Py_ssize_t table = f.table[f.slot_factor[slot]], n = f.n_states[f.slot_node[slot]], a
    for a in range(n):
        state[a] = symbol[a] if f.kind[table] != COUNT else symbol[1 if a == f.counted[table] else 0]


cdef inline void emit(const Layers* f, Py_ssize_t slot, const double* left, const double* right, double* symbol,
                      double* message) noexcept nogil:
    """Message of a factor to the node of a slot, as a logarithm for each state."""
    cdef:
        Py_ssize_t table = f.table[f.slot_factor[slot]], S = n_symbols(f, slot), Q = n_positions(f, slot)
        Py_ssize_t last = n_after(f, slot) - 1, start = f.position_ptr[slot], a, q
        int kind = f.kind[table]
        double top, total, x
    if kind == SPARSE:
        emit_sparse(f, slot, left, right, symbol, message)
        return
    for a in range(S):
        top = -INFINITY
        for q in range(Q):
            x = left[start + q] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
            top = x if x > top else top
        if not f.maximum and top > -INFINITY and Q > 1:
            total = 0
            for q in range(Q):
                x = left[start + q] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
                total += exp(x - top)
            top += log(total)
        symbol[a] = top
    write_states(f, slot, symbol, message)


cdef inline void advance(const Layers* f, Py_ssize_t slot, const double* state, double* symbol, const double* before,
                         double* after) noexcept nogil:
    """Positions after a slot from those before it: `left` one layer on."""
    cdef:
        Py_ssize_t S = n_symbols(f, slot), Q = n_positions(f, slot), n = n_after(f, slot), a, q, r
        int kind = f.kind[f.table[f.slot_factor[slot]]]
        double x
    if kind == SPARSE:
        advance_sparse(f, slot, state, symbol, before, after)
        return
    read_symbols(f, slot, state, symbol)
    for r in range(n):
        after[r] = -INFINITY
    for q in range(Q):
        for a in range(S):
            x = before[q] + symbol[a]
            r = next_position(f, slot, kind, n - 1, q, a)
            if f.maximum or after[r] == -INFINITY:
                after[r] = x if x > after[r] else after[r]
            else:
                after[r] = log_sum(after[r], x)


cdef inline void retreat(const Layers* f, Py_ssize_t slot, const double* state, double* symbol,
                         double* right) noexcept nogil:
    """Positions before a slot from those after it: `right` one layer back."""
    cdef:
        Py_ssize_t S = n_symbols(f, slot), Q = n_positions(f, slot), last = n_after(f, slot) - 1
        Py_ssize_t start = f.position_ptr[slot], a, q
        int kind = f.kind[f.table[f.slot_factor[slot]]]
        double top, total, x
    if kind == SPARSE:
        retreat_sparse(f, slot, state, symbol, right)
        return
    read_symbols(f, slot, state, symbol)
    for q in range(Q):
        top = -INFINITY
        for a in range(S):
            x = symbol[a] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
            top = x if x > top else top
        if not f.maximum and top > -INFINITY and S > 1:
            total = 0
            for a in range(S):
                x = symbol[a] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
                total += exp(x - top)
            top += log(total)
        right[start + q] = top
