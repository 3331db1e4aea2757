"""One sweep of Gibbs sampling over some nodes, with random numbers that belong to a node and not to a thread."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint64_t

from sklearn_crf.kernels.local_scores cimport add_pairs, normalize, scores_given_labels
from sklearn_crf.kernels.random_streams cimport scrambled, uniform


def stream_key(uint64_t seed, uint64_t chain, uint64_t sweep):
    """Start of the stream of random numbers of one sweep of one chain."""
    return scrambled(scrambled(scrambled(seed) + chain) + sweep)


def uniforms(uint64_t key, double[::1] out):
    """Fill ``out`` with the stream of ``key``: node s draws its label with out[s]."""
    cdef Py_ssize_t s
    with nogil:
        for s in range(out.shape[0]):
            out[s] = uniform(key, s)


cdef inline Py_ssize_t drawn(const double[::1] probability, double threshold) noexcept nogil:
    """The state whose cell of the unit interval holds threshold; never one of probability zero."""
    cdef:
        Py_ssize_t k, chosen = 0
        double cumulated = 0
    for k in range(probability.shape[0]):
        if probability[k] > 0:
            chosen = k
            cumulated += probability[k]
            if threshold < cumulated:
                break
    return chosen


def gibbs_update(
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
    uint64_t key,
    int32_t[::1] labels,  # IN OUT (N,)
    double[::1] scores,  # workspace (K,)
    double[:, ::1] totals,  # IN OUT (N, K) sums of the conditionals, or empty
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) sums over both ends of the edges, or empty
):
    """Draw the labels of nodes[start:stop], in turn, from their conditionals given their neighbours."""
    cdef:
        Py_ssize_t position, k
        int32_t node
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            scores_given_labels(
                node, unary, tables, agreement, edge_type, edge_weight, ptr, neighbor, half_edge, labels, scores
            )
            normalize(scores)
            labels[node] = <int32_t> drawn(scores, uniform(key, node))
            if totals.shape[0]:
                for k in range(scores.shape[0]):
                    totals[node, k] += scores[k]
                add_pairs(node, edge_type, edge_weight, ptr, neighbor, half_edge, labels, scores, 0.5, pairs)
