"""Decoding of labels from max-product messages, one node at a time."""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.field cimport Field


cdef inline Py_ssize_t decode_in_order(
    Field[floating]* f,
    const floating* values,  # (2E, width) max-product messages
    const int32_t* order,  # (N,) order in which nodes are decoded, or NULL for ascending numbers
    const int32_t* rank,  # (N,) position of each node in order, or NULL
    Py_ssize_t n_nodes,
    int32_t* labels,  # OUT (N,)
    double* work,
) noexcept nogil:
    """Assign each node in turn its best state, given labelled neighbours and messages from all other neighbours.

    If the labels of its neighbours forbid all states, a node takes the best state by messages alone. Return the last
    such node, or -1.
    """
    cdef:
        Py_ssize_t i, s, q, a, best = 0, n_tries, W = f.width, failed = -1
        const floating* unary = f.unary
        double score, top
        int32_t other
        bint has_label
    for i in range(n_nodes):
        s = i if order == NULL else order[i]
        for n_tries in range(2):
            best = 0
            for a in range(W):
                work[a] = unary[s * W + a]
            for q in range(f.ptr[s], f.ptr[s + 1]):
                other = f.neighbor[q]
                has_label = other < s if rank == NULL else rank[other] < rank[s]
                if has_label and n_tries == 0:
                    for a in range(f.n_columns):
                        work[a] += f.pair_score(f.half_edge[q], a, labels[other])
                else:
                    for a in range(f.n_columns):
                        work[a] += values[q * W + a]
            top = -INFINITY
            for a in range(f.states_of(s)):
                score = work[a]
                if score > top:
                    top = score
                    best = a
            if top > -INFINITY:
                break
            failed = s
        labels[s] = <int32_t> best
    return failed
