"""Max-product linear programming: block minimisation of the dual over the messages of one factor at a time."""

from libc.math cimport INFINITY

from sklearn_crf.kernels.messages.layer_messages cimport advance, begin, emit, retreat
from sklearn_crf.kernels.messages.layers cimport Layers, is_last, open_layers


def mplp_sweep(
    object layers,  # IN arrays of the model
    double[:, ::1] messages,  # INOUT (n_slots, K) delta_Fs
    double[:, ::1] totals,  # INOUT (N, K) score of each node plus the messages to it, -inf where impossible
    double[::1] left,  # OUT (n_positions,)
    double[::1] right,  # OUT (n_positions,)
    int direction,  # 1: first to last factor, -1: last to first
    double[::1] work,  # workspace ((2 + 2 * largest arity) * K,)
):
    """Update the messages of all factors in turn; return -1, or a factor that leaves a node without a state."""
    cdef:
        Layers f
        Py_ssize_t i, factor, n_factors = layers.n_factors, first, last, slot, node, a, K, failed = -1
        double best
        double* symbol = &work[0]
        double* cavity
        double* found
    open_layers(layers, &f)
    K = f.n_columns
    with nogil:
        for i in range(n_factors):
            factor = i if direction > 0 else n_factors - 1 - i
            first, last = f.slot_ptr[factor], f.slot_ptr[factor + 1] - 1
            cavity = &work[2 * K]
            found = cavity + (last + 1 - first) * K
            begin(&f, first, &left[0])
            for slot in range(first, last + 1):
                node = f.slot_node[slot]
                for a in range(f.n_states[node]):
                    cavity[(slot - first) * K + a] = totals[node, a] - messages[slot, a]
                if not is_last(&f, slot):
                    advance(&f, slot, cavity + (slot - first) * K, symbol, &left[f.position_ptr[slot]],
                            &left[f.position_ptr[slot + 1]])
            for slot in range(last, first - 1, -1):
                emit(&f, slot, &left[0], &right[0], symbol, found + (slot - first) * K)
                if slot > first:
                    retreat(&f, slot, cavity + (slot - first) * K, symbol, &right[0])
            for slot in range(first, last + 1):
                node = f.slot_node[slot]
                best = -INFINITY
                for a in range(f.n_states[node]):
                    totals[node, a] = cavity[(slot - first) * K + a] + found[(slot - first) * K + a]
                    totals[node, a] /= last + 1 - first
                    if totals[node, a] > -INFINITY:
                        messages[slot, a] = totals[node, a] - cavity[(slot - first) * K + a]
                        best = totals[node, a]
                if best == -INFINITY:
                    failed = factor
            if failed >= 0:
                break
    return failed
