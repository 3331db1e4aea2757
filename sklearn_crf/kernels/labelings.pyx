"""Score and statistics of a labeling, each in one pass over the edges."""

from cython cimport floating
from libc.stdint cimport int32_t


cdef inline double weight_of(const floating[:, ::1] edge_weight, Py_ssize_t edge, Py_ssize_t feature) noexcept nogil:
    return edge_weight[edge, feature] if edge_weight.shape[0] else 1.0


cdef inline double edge_score(const floating[:, :, :, ::1] tables, int32_t kind, const floating[:, ::1] edge_weight,
                              Py_ssize_t edge, int32_t a, int32_t b) noexcept nogil:
    cdef:
        Py_ssize_t r
        double total = 0.0
    for r in range(tables.shape[1]):
        total += weight_of(edge_weight, edge, r) * tables[kind, r, a, b]
    return total


cdef inline void count_pair(double[:, :, :, ::1] counts, int32_t kind, const floating[:, ::1] edge_weight,
                            Py_ssize_t edge, int32_t a, int32_t b) noexcept nogil:
    cdef Py_ssize_t r
    for r in range(counts.shape[1]):
        counts[kind, r, a, b] += weight_of(edge_weight, edge, r)


def labeling_terms(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    double[::1] terms,  # OUT (N,) score of each node plus the scores of the edges that start from it
):
    """Compute the contribution of each node to the score of a labeling."""
    cdef:
        Py_ssize_t node, e
        int32_t tail, head
    with nogil:
        for node in range(labels.shape[0]):
            terms[node] = unary[node, labels[node]]
        for e in range(edges.shape[0]):
            tail, head = edges[e, 0], edges[e, 1]
            terms[tail] += edge_score(tables, edge_type[e], edge_weight, e, labels[tail], labels[head])


def count_pairs(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), initially zero
):
    """Sum the edge weights for each combination (type, feature, state, state)."""
    cdef Py_ssize_t e
    with nogil:
        for e in range(edges.shape[0]):
            count_pair(counts, edge_type[e], edge_weight, e, labels[edges[e, 0]], labels[edges[e, 1]])


def changes_of_labelings(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    const int32_t[::1] others,  # IN (N,) labels to compare with
    double[::1] terms,  # OUT (N,) difference in score of each node and the edges that start from it
    floating[:, ::1] changed,  # IN OUT (N, K), initially zero: 1 at labels and -1 at others, if both differ
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), initially zero: differences in the sums of edge weights
):
    """Compute the differences in score and statistics of two labelings, skipping nodes and edges that agree."""
    cdef:
        Py_ssize_t n_features = tables.shape[1]
        Py_ssize_t node, e, r
        int32_t a, b, c, d, kind
        double value, total
    with nogil:
        for node in range(labels.shape[0]):
            a, c = labels[node], others[node]
            terms[node] = 0.0
            if a != c:
                changed[node, a], changed[node, c] = 1, -1
                terms[node] = <double> unary[node, a] - <double> unary[node, c]
        for e in range(edges.shape[0]):
            a, b, c, d = labels[edges[e, 0]], labels[edges[e, 1]], others[edges[e, 0]], others[edges[e, 1]]
            if a == c and b == d:
                continue
            kind, total = edge_type[e], 0.0
            for r in range(n_features):
                value = weight_of(edge_weight, e, r)
                counts[kind, r, a, b] += value
                counts[kind, r, c, d] -= value
                total += value * (<double> tables[kind, r, a, b] - <double> tables[kind, r, c, d])
            terms[edges[e, 0]] += total


def marginals_less_labels(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    const floating[:, ::1] marginals,  # IN (N, K)
    const double[::1] log_z_terms,  # IN (N,)
    floating[:, ::1] excess,  # OUT (N, K) marginals, minus 1 at labels
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), initially zero: sums of edge weights by the labels of both ends
    double[::1] terms,  # OUT (N,) log_z_terms minus the scores of each node and of the edges that start from it
    int32_t[::1] predicted,  # OUT (N,) state of largest marginal of each node, the first one if tied
):
    """Compute the loss of labels and the parts of its gradient; return False if a label is not a valid state."""
    cdef:
        bint are_states = True
        Py_ssize_t K = unary.shape[1], s, a, e, best
        int32_t tail, head
    with nogil:
        for s in range(labels.shape[0]):
            if not 0 <= labels[s] < K:
                are_states = False
                break
            best = 0
            for a in range(K):
                excess[s, a] = marginals[s, a]
                if marginals[s, a] > marginals[s, best]:
                    best = a
            predicted[s] = <int32_t> best
            excess[s, labels[s]] = excess[s, labels[s]] - 1
            terms[s] = unary[s, labels[s]]
        for e in range(edges.shape[0] if are_states else 0):
            tail, head = edges[e, 0], edges[e, 1]
            terms[tail] += edge_score(tables, edge_type[e], edge_weight, e, labels[tail], labels[head])
            count_pair(counts, edge_type[e], edge_weight, e, labels[tail], labels[head])
        for s in range(labels.shape[0] if are_states else 0):
            terms[s] = log_z_terms[s] - terms[s]
    return are_states
