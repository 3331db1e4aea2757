# distutils: language = c++
"""Pseudolikelihood: conditionals of nodes given the true labels of their neighbours, and gradients."""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from sklearn_crf.kernels.local.local_model cimport FORBIDDEN_PAIR, LocalModel, describe


def pseudolikelihood_range(
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    const int32_t[::1] labels,  # IN (N,)
    const double[::1] node_weight,  # IN (N,) or empty for ones
    double[::1] scores,  # workspace (K,)
    double[::1] terms,  # OUT (N,) -log p(label | labels of the neighbours)
    floating[:, ::1] unary_gradient,  # OUT (N, K)
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) gradient of the tables, added to
):
    """Compute the loss and gradient of nodes start to stop - 1."""
    cdef:
        Py_ssize_t node, k
        double weight = 1, own, log_z
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for node in range(start, stop):
            model.scores_given_labels(node, &labels[0], &scores[0])
            own = scores[labels[node]]
            log_z = model.normalize(&scores[0])
            # Half the penalty of a violation separates violations from all finite scores.
            terms[node] = log_z - own if own > 0.5 * FORBIDDEN_PAIR else INFINITY
            scores[labels[node]] -= 1
            if node_weight.shape[0]:
                weight = node_weight[node]
            for k in range(scores.shape[0]):
                unary_gradient[node, k] = <floating> (weight * scores[k])
            if weight != 0:
                model.add_pairs(node, &labels[0], &scores[0], weight, &pairs[0, 0, 0, 0])


def count_neighbours(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,) or empty: 0 everywhere
    const int32_t[::1] labels,  # IN (N,)
    const floating[:, ::1] features,  # IN (E, R), or no rows: a single feature of 1
    double[:, :, :, :, ::1] counts,  # INOUT (N, T, R, 2, K) added to
):
    """Sum the edge features at each node, by the label of the neighbour and the end of the edge."""
    cdef:
        Py_ssize_t e, r, t = 0
        Py_ssize_t n_features = counts.shape[2], n_classes = counts.shape[4]
        int end
        bint has_types = edge_type.shape[0] > 0, has_features = features.shape[0] > 0
        double* row
    with nogil:
        for e in range(edges.shape[0]):
            if has_types:
                t = edge_type[e]
            for end in range(2):
                row = &counts[edges[e, end], t, 0, end, labels[edges[e, 1 - end]]]
                for r in range(n_features):
                    row[2 * n_classes * r] += features[e, r] if has_features else 1.0
