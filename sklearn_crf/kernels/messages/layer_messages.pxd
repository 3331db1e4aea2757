"""Messages of factors by one recursion for all kinds of tables.

Let `left` be the sum (or maximum) over all paths to a position, and `right` the sum over all paths from it to an end,
both weighted by the messages of nodes. The message to node d is

    m(a) = sum over q of  left_d(q) right_{d + 1}(next(q, a)).

Most positions are ends of paths. There, scores are exponentiated once for all messages, and probabilities are summed.
Sums that would be too small are computed by log-sum-exp.
"""

from libc.math cimport INFINITY, exp, log

from sklearn_crf.kernels.messages.layers cimport (
    COUNT,
    DENSE,
    SPARSE,
    SPARSE_SUMS,
    Layers,
    kind_of,
    leaf_shift,
    leaf_weights,
    log_sum,
    n_after,
    n_positions,
    probabilities,
    right_of,
)
from sklearn_crf.kernels.messages.sparse_layers cimport advance_sparse, emit_sparse, retreat_sparse
from sklearn_crf.kernels.messages.sparse_probabilities cimport (
    advance_probabilities,
    emit_probabilities,
    retreat_probabilities,
)


cdef inline Py_ssize_t next_position(const Layers* f, Py_ssize_t slot, int kind, Py_ssize_t last, Py_ssize_t q,
                                     Py_ssize_t a) noexcept nogil:
    """Return the position after reading symbol a at position q; ``last`` is the highest position."""
    if kind == DENSE:
        return q * f.n_states[f.slot_node[slot]] + a
    return q + a if q + a < last else last


cdef inline Py_ssize_t n_symbols(const Layers* f, Py_ssize_t slot) noexcept nogil:
    """Return the number of symbols that a table distinguishes: the states, or counted and not counted."""
    cdef Py_ssize_t table = f.table[f.slot_factor[slot]], n = f.n_states[f.slot_node[slot]]
    if f.kind[table] != COUNT:
        return n
    return 2 if f.counted[table] < n else 1


cdef inline void read_symbols(const Layers* f, Py_ssize_t slot, const double* state, double* symbol) noexcept nogil:
    """Combine the weights of states into weights of symbols."""
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
    """Expand a message over symbols to a message over states."""
    cdef Py_ssize_t table = f.table[f.slot_factor[slot]], n = f.n_states[f.slot_node[slot]], a
    for a in range(n):
        state[a] = symbol[a] if f.kind[table] != COUNT else symbol[1 if a == f.counted[table] else 0]


cdef inline double emit_to(const Layers* f, Py_ssize_t slot, int kind, const double* left, const double* right,
                           Py_ssize_t a) noexcept nogil:
    """Return the message of a factor for one symbol."""
    cdef:
        Py_ssize_t Q = n_positions(f, slot), last = n_after(f, slot) - 1, start = f.position_ptr[slot], q
        double top = -INFINITY, total = 0, x
    for q in range(Q):
        x = left[start + q] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
        top = x if x > top else top
    if f.maximum or top == -INFINITY or Q == 1:
        return top
    for q in range(Q):
        x = left[start + q] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
        total += exp(x - top)
    return top + log(total)


cdef inline void emit_dense_leaves(const Layers* f, Py_ssize_t slot, const double* weight, const double* left,
                                   const double* right, double* symbol) noexcept nogil:
    """Compute the message to the last node of a dense table, without an exponential for each of its scores."""
    cdef:
        Py_ssize_t S = n_symbols(f, slot), Q = n_positions(f, slot), start = f.position_ptr[slot], a, q
        double top = -INFINITY, x
    for a in range(S):
        symbol[a] = 0
    for q in range(Q):
        top = left[start + q] if left[start + q] > top else top
    if top > -INFINITY:
        for q in range(Q):
            x = exp(left[start + q] - top)
            if x > 0:
                for a in range(S):
                    symbol[a] += x * weight[q * S + a]
    for a in range(S):
        # Smaller sums may have lost digits to underflow.
        if symbol[a] > 1e-200:
            symbol[a] = top + leaf_shift(f, slot) + log(symbol[a])
        else:
            symbol[a] = emit_to(f, slot, DENSE, left, right, a)


cdef inline void emit(const Layers* f, Py_ssize_t slot, const double* left, const double* right, double* symbol,
                      double* message) noexcept nogil:
    """Compute the message of a factor to the node of a slot, as a logarithm for each state."""
    cdef:
        Py_ssize_t a
        int kind = kind_of(f, slot)
        const double* weight = leaf_weights(f, slot)
    if kind == SPARSE:
        emit_sparse(f, slot, left, right, symbol, message)
        return
    if kind == SPARSE_SUMS:
        emit_probabilities(f, slot, left, right, message)
        return
    if kind == DENSE and weight != NULL:
        emit_dense_leaves(f, slot, weight, left, right, symbol)
    else:
        for a in range(n_symbols(f, slot)):
            symbol[a] = emit_to(f, slot, kind, left, right, a)
    write_states(f, slot, symbol, message)


cdef inline void begin(const Layers* f, Py_ssize_t slot, double* left) noexcept nogil:
    """Initialize `left` before the first slot of a factor: a single path of weight one."""
    cdef Py_ssize_t start = f.position_ptr[slot]
    left[start] = 0
    if kind_of(f, slot) == SPARSE_SUMS:
        left[start], left[start + 1] = 1, 0


cdef inline double weigh_leaves(const Layers* f, Py_ssize_t slot, double* end) noexcept nogil:
    """Turn `left` after the last slot into weights of leaves; return their sum, 0 if all are impossible."""
    cdef:
        Py_ssize_t n = n_after(f, slot), a
        double top = -INFINITY, total = 0
        const double* weight = leaf_weights(f, slot)
    if kind_of(f, slot) == SPARSE_SUMS:
        for a in range(n):
            end[a] *= weight[a]
            total += end[a]
        return total if end[n] > -INFINITY else 0
    for a in range(n):
        end[a] += right_of(f, slot, NULL, a)
        top = end[a] if end[a] > top else top
    if top == -INFINITY:
        return 0
    for a in range(n):
        end[a] = exp(end[a] - top)
        total += end[a]
    return total


cdef inline void advance(const Layers* f, Py_ssize_t slot, const double* state, double* symbol, const double* before,
                         double* after) noexcept nogil:
    """Compute `left` after a slot from `left` before it."""
    cdef:
        Py_ssize_t S = n_symbols(f, slot), Q = n_positions(f, slot), n = n_after(f, slot), a, q, r
        int kind = kind_of(f, slot)
        double x
    if kind == SPARSE:
        advance_sparse(f, slot, state, symbol, before, after)
        return
    if kind == SPARSE_SUMS:
        advance_probabilities(f, slot, state, symbol, before, after)
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


cdef inline double retreat_from(const Layers* f, Py_ssize_t slot, int kind, const double* symbol, const double* right,
                                Py_ssize_t q) noexcept nogil:
    """Return `right` of a single position before a slot."""
    cdef:
        Py_ssize_t S = n_symbols(f, slot), last = n_after(f, slot) - 1, a
        double top = -INFINITY, total = 0, x
    for a in range(S):
        x = symbol[a] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
        top = x if x > top else top
    if f.maximum or top == -INFINITY or S == 1:
        return top
    for a in range(S):
        x = symbol[a] + right_of(f, slot, right, next_position(f, slot, kind, last, q, a))
        total += exp(x - top)
    return top + log(total)


cdef inline double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    """Return the sum of products, in four independent partial sums."""
    cdef:
        Py_ssize_t i
        double a = 0, b = 0, c = 0, d = 0
    for i in range(0, n - 3, 4):
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
    for i in range(n - n % 4, n):
        a += x[i] * y[i]
    return (a + b) + (c + d)


cdef inline void retreat_dense_leaves(const Layers* f, Py_ssize_t slot, const double* weight, const double* state,
                                      double* probability, double* right) noexcept nogil:
    """Compute `right` before the last node of a dense table, without an exponential for each of its scores."""
    cdef:
        Py_ssize_t S = n_symbols(f, slot), q
        double total, top = probabilities(f, S, state, probability, &total)
    for q in range(n_positions(f, slot)):
        total = dot(probability, weight + q * S, S) if top > -INFINITY else 0
        if total > 1e-200:
            right[f.position_ptr[slot] + q] = top + leaf_shift(f, slot) + log(total)
        else:
            right[f.position_ptr[slot] + q] = retreat_from(f, slot, DENSE, state, right, q)


cdef inline void retreat(const Layers* f, Py_ssize_t slot, const double* state, double* symbol,
                         double* right) noexcept nogil:
    """Compute `right` before a slot from `right` after it."""
    cdef:
        Py_ssize_t q
        int kind = kind_of(f, slot)
        const double* weight = leaf_weights(f, slot)
    if kind == SPARSE:
        retreat_sparse(f, slot, state, symbol, right)
    elif kind == SPARSE_SUMS:
        retreat_probabilities(f, slot, state, symbol, right)
    elif kind == DENSE and weight != NULL:
        retreat_dense_leaves(f, slot, weight, state, symbol, right)
    else:
        read_symbols(f, slot, state, symbol)
        for q in range(n_positions(f, slot)):
            right[f.position_ptr[slot] + q] = retreat_from(f, slot, kind, symbol, right, q)
