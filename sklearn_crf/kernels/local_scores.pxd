"""One node given its neighbours: written once, inlined by every kernel that visits nodes one at a time.

The arguments that describe a model come in the same order everywhere:

    unary (N, K), tables (T, R, K, K), agreement (T, R) or (0, 0), edge_type (E,), edge_weight (E, R) or (0, 0),
    ptr (N + 1,), neighbor (2E,), half_edge (2E,)

``agreement`` is what a Potts table has on its diagonal over what it has off it, empty where tables are not Potts;
``edge_weight`` is empty where all weights are one.
"""

from cython cimport floating
from libc.math cimport exp, log, log1p
from libc.stdint cimport int32_t, int64_t


cdef extern from *:
    """
    /* A forbidden pair counts this much instead of -inf. A node whose neighbours forbid all its states then still has
       an order among them, fewest violations first, and no difference is NaN; its exponential is zero all the same. */
    #define FORBIDDEN_PAIR (-1e100)
    /* The least a forbidden pair of any positive probability counts: enough for an exponential of zero. */
    #define FORBIDDEN_TRACE (-1e40)
    """
    double FORBIDDEN_PAIR
    double FORBIDDEN_TRACE


cdef inline double weight_of(
    const floating[:, ::1] edge_weight, int64_t edge, Py_ssize_t feature
) noexcept nogil:
    return edge_weight[edge, feature] if edge_weight.shape[0] else 1.0


cdef inline double agreement_of(
    const double[:, ::1] agreement, const floating[:, ::1] edge_weight, int32_t kind, int64_t edge
) noexcept nogil:
    """What an edge with a Potts table adds to the score if its ends agree."""
    cdef:
        Py_ssize_t feature
        double gain = 0
    if edge_weight.shape[0] == 0:
        return agreement[kind, 0]
    for feature in range(agreement.shape[1]):
        gain += edge_weight[edge, feature] * agreement[kind, feature]
    return gain


cdef inline double at_least(double value, double least) noexcept nogil:
    return value if value > least else least


cdef inline void scores_given_labels(
    Py_ssize_t node,
    const floating[:, ::1] unary,
    const floating[:, :, :, ::1] tables,
    const double[:, ::1] agreement,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int64_t[::1] ptr,
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    const int32_t[::1] labels,
    double[::1] scores,  # OUT (K,)
) noexcept nogil:
    """Score of each state of a node while its neighbours keep their labels, up to a constant."""
    cdef:
        Py_ssize_t k, feature
        Py_ssize_t n_columns = unary.shape[1]
        int64_t slot, edge
        int32_t kind, other
        double weight
    for k in range(n_columns):
        scores[k] = unary[node, k]
    if agreement.shape[0]:
        for slot in range(ptr[node], ptr[node + 1]):
            edge = half_edge[slot] >> 1
            scores[labels[neighbor[slot]]] += agreement_of(agreement, edge_weight, edge_type[edge], edge)
        return
    for slot in range(ptr[node], ptr[node + 1]):
        edge = half_edge[slot] >> 1
        kind = edge_type[edge]
        other = labels[neighbor[slot]]
        for feature in range(tables.shape[1]):
            weight = weight_of(edge_weight, edge, feature)
            if half_edge[slot] & 1:
                for k in range(n_columns):
                    scores[k] += at_least(weight * tables[kind, feature, other, k], FORBIDDEN_PAIR)
            else:
                for k in range(n_columns):
                    scores[k] += at_least(weight * tables[kind, feature, k, other], FORBIDDEN_PAIR)


cdef inline void scores_given_marginals(
    Py_ssize_t node,
    const floating[:, ::1] unary,
    const floating[:, :, :, ::1] tables,
    const double[:, ::1] agreement,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int64_t[::1] ptr,
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    const double[:, ::1] marginals,
    double[::1] scores,  # OUT (K,)
) noexcept nogil:
    """Expected score of each state of a node under independent neighbours, up to a constant."""
    cdef:
        Py_ssize_t k, j, feature
        Py_ssize_t n_columns = unary.shape[1]
        int64_t slot, edge
        int32_t kind, other
        double weight, gain, least
    for k in range(n_columns):
        scores[k] = unary[node, k]
    if agreement.shape[0]:
        for slot in range(ptr[node], ptr[node + 1]):
            edge = half_edge[slot] >> 1
            gain = agreement_of(agreement, edge_weight, edge_type[edge], edge)
            other = neighbor[slot]
            for k in range(n_columns):
                scores[k] += gain * marginals[other, k]
        return
    for slot in range(ptr[node], ptr[node + 1]):
        edge = half_edge[slot] >> 1
        kind = edge_type[edge]
        other = neighbor[slot]
        for feature in range(tables.shape[1]):
            for j in range(n_columns):
                # What is forbidden costs nothing if it cannot happen, and very much if it can.
                if marginals[other, j] == 0:
                    continue
                least = min(FORBIDDEN_PAIR * marginals[other, j], FORBIDDEN_TRACE)
                weight = weight_of(edge_weight, edge, feature) * marginals[other, j]
                if half_edge[slot] & 1:
                    for k in range(n_columns):
                        scores[k] += at_least(weight * tables[kind, feature, j, k], least)
                else:
                    for k in range(n_columns):
                        scores[k] += at_least(weight * tables[kind, feature, k, j], least)


cdef inline double normalize(double[::1] scores) noexcept nogil:
    """Turn scores into probabilities in place; their log-partition."""
    cdef:
        Py_ssize_t k
        double largest = scores[0], total = 0, odds
    if scores.shape[0] == 2:
        # One exponential is enough, and its argument is never positive.
        if scores[1] > scores[0]:
            largest = scores[1]
            odds = exp(scores[0] - largest)
            scores[1] = 1 / (1 + odds)
            scores[0] = odds * scores[1]
        else:
            odds = exp(scores[1] - largest)
            scores[0] = 1 / (1 + odds)
            scores[1] = odds * scores[0]
        return largest + log1p(odds)
    for k in range(1, scores.shape[0]):
        largest = max(largest, scores[k])
    for k in range(scores.shape[0]):
        scores[k] = exp(scores[k] - largest)
        total += scores[k]
    for k in range(scores.shape[0]):
        scores[k] /= total
    return largest + log(total)


cdef inline void add_pairs(
    Py_ssize_t node,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int64_t[::1] ptr,
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    const int32_t[::1] labels,
    const double[::1] probability,
    double factor,
    double[:, :, :, ::1] pairs,  # OUT (T, R, K, K)
) noexcept nogil:
    """Add factor * edge weight * probability of (state of the node, label of a neighbour), for all its edges."""
    cdef:
        Py_ssize_t k, feature
        Py_ssize_t n_columns = probability.shape[0]
        int64_t slot, edge
        int32_t kind, other
        double weight
    for slot in range(ptr[node], ptr[node + 1]):
        edge = half_edge[slot] >> 1
        kind = edge_type[edge]
        other = labels[neighbor[slot]]
        for feature in range(pairs.shape[1]):
            weight = factor * weight_of(edge_weight, edge, feature)
            if half_edge[slot] & 1:
                for k in range(n_columns):
                    pairs[kind, feature, other, k] += weight * probability[k]
            else:
                for k in range(n_columns):
                    pairs[kind, feature, k, other] += weight * probability[k]
