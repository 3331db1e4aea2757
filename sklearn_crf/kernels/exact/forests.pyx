# distutils: language = c++
"""Decoding of labels along a forest: the best labeling, or random samples."""

from cython cimport floating
from libc.math cimport INFINITY, exp
from libc.stdint cimport int32_t

from sklearn_crf.kernels.decoding cimport decode_in_order
from sklearn_crf.kernels.messages.field cimport Field, open_field


def decode(
    object field,  # IN arrays of the model, unary as scores
    const floating[:, ::1] messages,  # IN (2E, width) max-product messages
    const int32_t[::1] order,  # IN (N,) every node after its parent
    const int32_t[::1] rank,  # IN (N,) position of each node in order
    int32_t[::1] labels,  # OUT (N,)
    double[::1] work,  # workspace
):
    """Assign each node in turn its best state, given labelled neighbours and messages from all other neighbours.

    If the labels of its neighbours forbid all states, a node takes the best state by messages alone. Return the last
    such node, or -1.
    """
    cdef:
        Field[floating] f
        Py_ssize_t failed
        const floating* values = &messages[0, 0] if messages.shape[0] else NULL
    if not order.shape[0]:
        return -1
    open_field(field, &f)
    with nogil:
        failed = decode_in_order(&f, values, &order[0], &rank[0], order.shape[0], &labels[0], &work[0])
    return failed


def sample_forest(
    object field,  # IN arrays of the model
    const floating[:, ::1] upward,  # IN (N, width) score of each state of a node with its whole subtree summed out
    const int32_t[::1] order,  # IN (N,) every node after its parent
    const int32_t[::1] parent_slot,  # IN (N,) -1 at a root
    const double[:, ::1] uniform,  # IN (n_samples, N) numbers in [0, 1)
    int32_t[:, ::1] labels,  # OUT (n_samples, N)
    Py_ssize_t start,
    Py_ssize_t stop,  # samples to draw
    double[::1] work,  # workspace
):
    """Sample labelings from the root to the leaves, each node given its parent."""
    cdef:
        Field[floating] f
        Py_ssize_t i, k, s, a, n
        double top, total
        int32_t slot, parent_label
    open_field(field, &f)
    with nogil:
        for k in range(start, stop):
            for i in range(order.shape[0]):
                s = order[i]
                n = f.states_of(s)
                slot = parent_slot[s]
                parent_label = labels[k, f.neighbor[slot]] if slot >= 0 else 0
                top = -INFINITY
                for a in range(n):
                    work[a] = upward[s, a]
                    if slot >= 0:
                        work[a] += f.pair_score(f.half_edge[slot], a, parent_label)
                    top = work[a] if work[a] > top else top
                total = 0
                for a in range(n):
                    total += exp(work[a] - top)
                    work[a] = total
                # The second condition: rounding must not select a state of probability zero.
                for a in range(n):
                    if work[a] > uniform[k, s] * total or work[a] == total:
                        labels[k, s] = <int32_t> a
                        break
