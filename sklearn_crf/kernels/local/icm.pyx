"""One sweep of iterated conditional modes over some nodes."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.local_scores cimport scores_given_labels


def icm_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,
    const floating[:, :, :, ::1] tables,
    const double[:, ::1] agreement,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int64_t[::1] ptr,
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    int32_t[::1] labels,  # IN OUT (N,)
    uint8_t[::1] pending,  # IN OUT (N,) whether a node may change: it was not visited since a neighbour did
    double[::1] scores,  # workspace (K,)
):
    """Give nodes[start:stop], in turn, their best label given their neighbours; number of labels changed.

    The present label is kept where no other is strictly better.
    """
    cdef:
        Py_ssize_t position, slot, k, best
        int32_t node
        Py_ssize_t n_changed = 0
        double highest
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            if not pending[node]:
                continue
            pending[node] = False
            scores_given_labels(
                node, unary, tables, agreement, edge_type, edge_weight, ptr, neighbor, half_edge, labels, scores
            )
            best = labels[node]
            highest = scores[best]
            for k in range(scores.shape[0]):
                # Selections, as branches would be guesses.
                best = k if scores[k] > highest else best
                highest = scores[k] if scores[k] > highest else highest
            if best != labels[node]:
                labels[node] = <int32_t> best
                n_changed += 1
                for slot in range(ptr[node], ptr[node + 1]):
                    pending[neighbor[slot]] = True
    return n_changed
