"""Updates of nodes given their neighbours: best states, mean fields and samples."""

from cython cimport floating
from libc.math cimport fabs, log
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from sklearn_crf.kernels.local_scores cimport (
    add_pairs,
    normalize,
    scores_given_labels,
    scores_given_marginals,
    weight_of,
)
from sklearn_crf.kernels.random_streams cimport scrambled, uniform


# One sweep of iterated conditional modes over some nodes -------------------------------------------------------------


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


# Coordinate ascent on the naive mean-field bound, and the bound itself -----------------------------------------------


def mean_field_update(
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
    double damping,
    double[:, ::1] marginals,  # IN OUT (N, K)
    double[::1] scores,  # workspace (K,)
):
    """Move the marginals of nodes[start:stop], in turn, to their best given their neighbours'; largest change."""
    cdef:
        Py_ssize_t position, k
        int32_t node
        double change = 0, moved
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            scores_given_marginals(
                node, unary, tables, agreement, edge_type, edge_weight, ptr, neighbor, half_edge, marginals, scores
            )
            normalize(scores)
            for k in range(scores.shape[0]):
                moved = (1 - damping) * (scores[k] - marginals[node, k])
                change = max(change, fabs(moved))
                marginals[node, k] += moved
    return change


def mean_field_bound(
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
    const double[:, ::1] marginals,  # IN (N, K)
    double[::1] terms,  # OUT (N,) expected score plus entropy, an edge at its first end
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) products of marginals times edge weights are added
):
    """Nodes start to stop."""
    cdef:
        Py_ssize_t node, k, j, feature
        Py_ssize_t n_columns = unary.shape[1]
        int64_t slot, edge
        int32_t kind, other
        double probability, weight, joint, total
    with nogil:
        for node in range(start, stop):
            total = 0
            for k in range(n_columns):
                probability = marginals[node, k]
                if probability > 0:
                    total += probability * (unary[node, k] - log(probability))
            for slot in range(ptr[node], ptr[node + 1]):
                if half_edge[slot] & 1:
                    continue
                edge = half_edge[slot] >> 1
                kind = edge_type[edge]
                other = neighbor[slot]
                for feature in range(tables.shape[1]):
                    weight = weight_of(edge_weight, edge, feature)
                    for k in range(n_columns):
                        for j in range(n_columns):
                            joint = marginals[node, k] * marginals[other, j]
                            if joint > 0:
                                total += joint * weight * tables[kind, feature, k, j]
                                pairs[kind, feature, k, j] += weight * joint
            terms[node] = total


# One sweep of Gibbs sampling over some nodes, with random numbers that belong to a node and not to a thread ----------


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
