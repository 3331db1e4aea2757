"""Each node's conditional given the true labels of its neighbours, and its derivatives."""

from cython cimport floating
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.local_scores cimport FORBIDDEN_PAIR, add_pairs, normalize, scores_given_labels
from sklearn_crf.kernels.rows cimport exponentiate_all, logarithms

# Rows that are done at once; a multiple of the numbers in a vector.
cdef enum:
    ROWS = 64


def pseudolikelihood_range(
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
    const int32_t[::1] labels,  # IN (N,)
    const double[::1] node_weight,  # IN (N,) or empty for ones
    double[::1] scores,  # workspace (K,)
    double[::1] terms,  # OUT (N,) -log p(label | labels of the neighbours)
    floating[:, ::1] unary_gradient,  # OUT (N, K)
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) gradient by the tables is added
):
    """Nodes start to stop."""
    cdef:
        Py_ssize_t node, k
        double weight = 1, own, log_z
    with nogil:
        for node in range(start, stop):
            scores_given_labels(
                node, unary, tables, agreement, edge_type, edge_weight, ptr, neighbor, half_edge, labels, scores
            )
            own = scores[labels[node]]
            log_z = normalize(scores)
            # Half of what one violation costs tells it from any finite score.
            terms[node] = log_z - own if own > 0.5 * FORBIDDEN_PAIR else INFINITY
            scores[labels[node]] -= 1
            if node_weight.shape[0]:
                weight = node_weight[node]
            for k in range(scores.shape[0]):
                unary_gradient[node, k] = <floating> (weight * scores[k])
            if weight != 0:
                add_pairs(node, edge_type, edge_weight, ptr, neighbor, half_edge, labels, scores, weight, pairs)


def conditionals_of_two(
    double[::1] scores,  # IN OUT (n,) score of state 1 less that of state 0; then the derivative of the loss by it
    const int32_t[::1] labels,  # IN (n,)
    const double[::1] weight,  # IN (n,) or empty for ones
):
    """Weighted sum of the logistic losses of some nodes, and weight of those whose label is not the likeliest."""
    cdef:
        Py_ssize_t n = scores.shape[0], block
        double loss = 0, n_errors = 0
    with nogil:
        for block in range((n + ROWS - 1) // ROWS):
            _lose_block(
                &scores[block * ROWS], labels, weight, block * ROWS, min(<Py_ssize_t> ROWS, n - block * ROWS),
                &loss, &n_errors,
            )
    return loss, n_errors


cdef void _lose_block(
    double* scores,  # IN OUT (count,) of nodes from the first on; then the derivatives of their losses
    const int32_t[::1] labels,
    const double[::1] weight,
    Py_ssize_t first,
    Py_ssize_t count,
    double* loss,  # IN OUT added to
    double* n_errors,  # IN OUT added to
) noexcept nogil:
    """The same of at most 64 nodes."""
    cdef:
        Py_ssize_t j
        double own[ROWS]
        double odds[ROWS]
        double logs[ROWS]
        double margin, wrong, own_weight
    for j in range(ROWS):
        own[j] = scores[j] if j < count else 0
        odds[j] = -fabs(own[j])
    exponentiate_all(odds, ROWS)
    for j in range(ROWS):
        logs[j] = 1 + odds[j]
    logarithms(logs, ROWS, logs)
    for j in range(count):
        own_weight = weight[first + j] if weight.shape[0] else 1.0
        margin = own[j] if labels[first + j] else -own[j]
        wrong = own_weight * (odds[j] if margin > 0 else 1.0) / (1 + odds[j])
        loss[0] += own_weight * (logs[j] + (0 if margin > 0 else -margin))
        scores[j] = -wrong if labels[first + j] else wrong
        if (own[j] > 0) != (labels[first + j] > 0):
            n_errors[0] += own_weight


def losses_of_two(
    const floating[:, ::1] features,  # IN (n, F)
    const floating[:, ::1] neighbours,  # IN (n, M) sums over neighbours
    const double[::1] coef,  # IN (F + M + 1,) weights of both and the intercept: by how much state 1 exceeds state 0
    const int32_t[::1] labels,  # IN (n,)
    const double[::1] weight,  # IN (n,) or empty for ones
    double[::1] gradient,  # OUT (F + M + 1,) derivative of the loss by the weights
):
    """The same from features, at once for each few nodes, so that no scores of all nodes are kept."""
    cdef:
        Py_ssize_t n = labels.shape[0], F = features.shape[1], M = neighbours.shape[1], block, first, j, count
        double loss = 0, n_errors = 0
        double scores[ROWS]
        const floating* of_features = &features[0, 0] if n and F else NULL
        const floating* of_neighbours = &neighbours[0, 0] if n and M else NULL
    with nogil:
        gradient[:] = 0
        for block in range((n + ROWS - 1) // ROWS):
            first = block * ROWS
            count = min(<Py_ssize_t> ROWS, n - first)
            for j in range(count):
                scores[j] = coef[F + M]
            _add_products(of_features + first * F, &coef[0], count, F, scores)
            _add_products(of_neighbours + first * M, &coef[F], count, M, scores)
            _lose_block(scores, labels, weight, first, count, &loss, &n_errors)
            _add_adjoint(of_features + first * F, scores, count, F, &gradient[0])
            _add_adjoint(of_neighbours + first * M, scores, count, M, &gradient[F])
            for j in range(count):
                gradient[F + M] += scores[j]
    return loss, n_errors


cdef inline void _add_products(
    const floating* rows, const double* factors, Py_ssize_t n, Py_ssize_t width, double* sums
) noexcept nogil:
    """Add to each of n sums that of a row times factors."""
    cdef:
        Py_ssize_t j, k
        double even, odd
    for j in range(n):
        # Two sums, since each addition waits for the one before.
        even = odd = 0
        for k in range(width // 2):
            even += factors[2 * k] * rows[2 * k]
            odd += factors[2 * k + 1] * rows[2 * k + 1]
        if width % 2:
            even += factors[width - 1] * rows[width - 1]
        sums[j] += even + odd
        rows += width


cdef inline void _add_adjoint(
    const floating* rows, const double* factors, Py_ssize_t n, Py_ssize_t width, double* totals
) noexcept nogil:
    """Add n rows times a factor each."""
    cdef:
        Py_ssize_t j, k
        double a, b, c, d
    for j in range(0, n - 3, 4):
        a, b, c, d = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        for k in range(width):
            totals[k] += (a * rows[k] + b * rows[width + k]) + (c * rows[2 * width + k] + d * rows[3 * width + k])
        rows += 4 * width
    for j in range(n - n % 4, n):
        for k in range(width):
            totals[k] += factors[j] * rows[k]
        rows += width


def conditionals_of_many(
    double[:, ::1] scores,  # IN OUT (n, K) scores of the states; then the derivative of the loss by them
    const double[::1] intercept,  # IN (K,) or empty for zeros: added to scores
    const int32_t[::1] labels,  # IN (n,)
    const double[::1] weight,  # IN (n,) or empty for ones
    double[::1] work,  # workspace (64 K,)
):
    """Weighted sum of the losses of some nodes, and weight of those whose label is not the likeliest."""
    cdef:
        Py_ssize_t n = scores.shape[0], K = scores.shape[1], block, first, j, k, count
        double logs[ROWS]
        double largest[ROWS]
        double loss = 0, n_errors = 0, total, own_weight
        double* row
        int32_t best
    with nogil:
        for block in range((n + ROWS - 1) // ROWS):
            first = block * ROWS
            count = min(<Py_ssize_t> ROWS, n - first)
            for j in range(ROWS):
                row = &work[j * K]
                if j >= count:
                    for k in range(K):
                        row[k] = 0
                    continue
                best = 0
                for k in range(intercept.shape[0]):
                    scores[first + j, k] += intercept[k]
                for k in range(1, K):
                    if scores[first + j, k] > scores[first + j, best]:
                        best = k
                largest[j] = scores[first + j, best]
                for k in range(K):
                    row[k] = scores[first + j, k] - largest[j]
                if best != labels[first + j]:
                    n_errors += weight[first + j] if weight.shape[0] else 1.0
            exponentiate_all(&work[0], ROWS * K)
            for j in range(ROWS):
                total = 0
                for k in range(K):
                    total += work[j * K + k]
                logs[j] = total
            for j in range(count):
                own_weight = weight[first + j] if weight.shape[0] else 1.0
                largest[j] -= scores[first + j, labels[first + j]]
                for k in range(K):
                    scores[first + j, k] = own_weight / logs[j] * work[j * K + k]
                scores[first + j, labels[first + j]] -= own_weight
            logarithms(logs, ROWS, logs)
            for j in range(count):
                loss += (weight[first + j] if weight.shape[0] else 1.0) * (logs[j] + largest[j])
    return loss, n_errors


def count_neighbours(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,) or empty: 0 everywhere
    const int32_t[::1] labels,  # IN (N,)
    const floating[:, ::1] features,  # IN (E, R), or no rows: one that is 1 everywhere
    double[:, :, :, :, ::1] counts,  # INOUT (N, T, R, 2, K) added to
):
    """Sums of edge features at the first and at the second end of edges, by the label at the other end."""
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
