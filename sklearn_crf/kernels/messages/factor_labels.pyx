"""Decoding of labels from the messages of factors, one node at a time."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.layer_messages cimport advance, begin, emit
from sklearn_crf.kernels.messages.layers cimport Layers, is_last, open_layers


def decode_factors(
    object layers,  # IN arrays of the model
    const double[:, ::1] node_scores,  # IN (N, K)
    const double[:, ::1] beliefs,  # IN (N, K)
    double[::1] left,  # OUT (n_positions,)
    double[::1] right,  # IN (n_positions,) computed from the messages
    int32_t[::1] labels,  # OUT (N,)
    double[::1] work,  # workspace (4 * K,)
):
    """Assign each node in turn its best state, given the labels of earlier nodes and messages from later nodes.

    If earlier labels forbid all states of a node, it gets the state of its largest belief.
    Return the last such node, or -1 if there is none.
    """
    cdef:
        Layers f
        Py_ssize_t s, i, slot, a, K, best, failed = -1
        double top
        double* state = &work[0]
        double* symbol
        double* message
    open_layers(layers, &f)
    K = f.n_columns
    symbol = &work[K]
    message = &work[3 * K]
    with nogil:
        for s in range(f.n_nodes):
            for a in range(f.n_states[s]):
                state[a] = node_scores[s, a]
            for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
                slot = f.node_slots[i]
                if slot == f.slot_ptr[f.slot_factor[slot]]:
                    begin(&f, slot, &left[0])
                emit(&f, slot, &left[0], &right[0], symbol, message)
                for a in range(f.n_states[s]):
                    state[a] += message[a] / f.scale[f.slot_factor[slot]]
            best = -1
            top = -INFINITY
            for a in range(f.n_states[s]):
                if state[a] > top:
                    top = state[a]
                    best = a
            if best < 0:
                failed = s
                best = 0
                for a in range(f.n_states[s]):
                    if beliefs[s, a] > beliefs[s, best]:
                        best = a
            labels[s] = <int32_t> best
            for a in range(f.n_states[s]):
                state[a] = 0 if a == best else -INFINITY
            for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
                slot = f.node_slots[i]
                if not is_last(&f, slot):
                    advance(&f, slot, state, symbol, &left[f.position_ptr[slot]], &left[f.position_ptr[slot + 1]])
    return failed
