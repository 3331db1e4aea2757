# distutils: language = c++
"""Updates of nodes given their neighbours: iterated conditional modes, mean field and Gibbs sampling."""

from cython cimport floating
from libc.math cimport fabs
from libc.stdint cimport int32_t, uint64_t, uint8_t

from sklearn_crf.kernels.local.local_model cimport LocalModel, describe
from sklearn_crf.kernels.random_streams cimport scrambled, uniform


# One sweep of iterated conditional modes over some nodes -------------------------------------------------------------


def icm_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    int32_t[::1] labels,  # IN OUT (N,)
    uint8_t[::1] pending,  # IN OUT (N,) whether a neighbour has changed since the last visit
    double[::1] scores,  # workspace (K,)
):
    """Assign nodes[start:stop], in turn, their best labels given neighbours; return the number of changed labels.

    The present label is kept where no other is strictly better.
    """
    cdef:
        Py_ssize_t position, slot, k, best
        int32_t node
        Py_ssize_t n_changed = 0
        double highest
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            if not pending[node]:
                continue
            pending[node] = False
            model.scores_given_labels(node, &labels[0], &scores[0])
            best = labels[node]
            highest = scores[best]
            for k in range(scores.shape[0]):
                # Conditional moves, because branches would be mispredicted.
                best = k if scores[k] > highest else best
                highest = scores[k] if scores[k] > highest else highest
            if best != labels[node]:
                labels[node] = <int32_t> best
                n_changed += 1
                for slot in range(model.ptr[node], model.ptr[node + 1]):
                    pending[model.neighbor[slot]] = True
    return n_changed


# Coordinate ascent on the naive mean-field bound, and the bound itself -----------------------------------------------


def mean_field_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    double damping,
    double[:, ::1] marginals,  # IN OUT (N, K)
    double[::1] scores,  # workspace (K,)
):
    """Optimise the marginals of nodes[start:stop], in turn, given their neighbours; return the largest change."""
    cdef:
        Py_ssize_t position, k
        int32_t node
        double change = 0, moved
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            model.scores_given_marginals(node, &marginals[0, 0], &scores[0])
            model.normalize(&scores[0])
            for k in range(scores.shape[0]):
                moved = (1 - damping) * (scores[k] - marginals[node, k])
                change = max(change, fabs(moved))
                marginals[node, k] += moved
    return change


def mean_field_bound(
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    const double[:, ::1] marginals,  # IN (N, K)
    double[::1] terms,  # OUT (N,) expected score plus entropy; edges count at their first end
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) products of marginals times edge weights, added to
):
    """Compute the mean-field bound of nodes start to stop - 1."""
    cdef:
        Py_ssize_t node
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for node in range(start, stop):
            terms[node] = model.bound(node, &marginals[0, 0], &pairs[0, 0, 0, 0])


# One sweep of Gibbs sampling over some nodes; random numbers depend on the node, not on the thread -------------------


def stream_key(uint64_t seed, uint64_t chain, uint64_t sweep):
    """Return the key of the random numbers of one sweep of one chain."""
    return scrambled(scrambled(scrambled(seed) + chain) + sweep)


def uniforms(uint64_t key, double[::1] out):
    """Fill ``out`` with the stream of ``key``: out[s] is the random number of node s."""
    cdef Py_ssize_t s
    with nogil:
        for s in range(out.shape[0]):
            out[s] = uniform(key, s)


cdef inline Py_ssize_t drawn(const double[::1] probability, double threshold) noexcept nogil:
    """Return the state whose part of the unit interval contains threshold; never a state of probability zero."""
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
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
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
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            model.scores_given_labels(node, &labels[0], &scores[0])
            model.normalize(&scores[0])
            labels[node] = <int32_t> drawn(scores, uniform(key, node))
            if totals.shape[0]:
                for k in range(scores.shape[0]):
                    totals[node, k] += scores[k]
                model.add_pairs(node, &labels[0], &scores[0], 0.5, &pairs[0, 0, 0, 0])
