"""Forward and backward along chains: what belongs to one stays in the cache from its scores to its statistics.

Sums are of probabilities, normalised at every node, in double precision whatever that of the scores.
"""

from cython cimport floating
from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.rows cimport add_outer, exponentiate_all, row_max, row_scale, row_sum, sum_product


cdef inline bint probabilities(
    const floating* scores, Py_ssize_t n_states, Py_ssize_t width, double widest, double* row, double* best
) noexcept nogil:
    """Scores below the best one of a node, -inf in the padding; False where they range too widely."""
    cdef:
        Py_ssize_t a
        double top = scores[0], least = scores[0]
    for a in range(1, n_states):
        top = scores[a] if scores[a] > top else top
        least = scores[a] if scores[a] < least else least
    for a in range(n_states):
        row[a] = scores[a] - top
    for a in range(n_states, width):
        row[a] = -INFINITY
    best[0] = top
    return top - least <= widest  # False for NaN and infinity too


cdef inline Py_ssize_t first_of_best(const double* row, Py_ssize_t width) noexcept nogil:
    cdef:
        double top = row_max(row, width)
        Py_ssize_t a = 0
    while row[a] < top:
        a += 1
    return a


cdef inline bint are_sound(const double* row, double least, Py_ssize_t width) noexcept nogil:
    """Whether every sum is zero or so large, and as far from infinity."""
    cdef:
        Py_ssize_t a
        bint sound = True
    for a in range(width):
        sound &= row[a] == 0 or least <= row[a] <= 1 / least
    return sound


cdef inline void multiply(double* row, const double* other, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t a
    for a in range(width):
        row[a] *= other[a]


cdef inline bint pass_over_chains(
    const floating[:, ::1] unary,  # IN (N, K)
    const int64_t[::1] ptr,  # IN (n_chains + 1,) first node of each chain
    const double[:, ::1] table,  # IN (K, K) scores of neighbours
    const double[:, ::1] factor,  # IN (K, W) their exp below the best one, padded by zeros
    const double[:, ::1] transposed,  # IN (K, W) the same of the table from right to left
    double best_pair,  # the best score of the table
    double widest,  # range of scores of a node up to which no probability underflows
    double least,  # where pairs are forbidden: what sums that are not zero must be for that, too; else 0
    const int32_t[::1] labels,  # IN (N,), or (0,) where there are none
    floating[:, ::1] posterior,  # OUT (N, K) probabilities, less one at the label; no rows: not asked for
    double[:, ::1] pairs,  # IN OUT (K, W) probabilities of neighbours over factor, added to; no rows: not asked for
    double[:, ::1] counts,  # IN OUT (K, K) pairs of labels, added to
    double[::1] terms,  # OUT (N,) negative log-likelihood of labels given those before; else terms of log_z; or (0,)
    int32_t[::1] predicted,  # OUT (N,) most probable state
    double[:, ::1] work,  # workspace (2 * longest + 3, W)
) noexcept nogil:
    """Marginals, or the derivative of the loss; False, and nothing of use, where scores range too widely."""
    cdef:
        Py_ssize_t K = unary.shape[1], W = factor.shape[1]
        Py_ssize_t i, s, t, a, n, first, longest = (work.shape[0] - 3) // 2
        double total, best
        bint fits = True, labelled = labels.shape[0] > 0, has_pairs = pairs.shape[0] > 0
        bint has_terms = terms.shape[0] > 0, has_posterior = posterior.shape[0] > 0
        bint labels_alone = not has_terms and not has_posterior and not has_pairs
        double* forward = &work[0, 0]
        double* own = forward + longest * W
        double* backward = own + longest * W
        double* product = backward + W
        double* alpha
        floating* row
    for i in range(ptr.shape[0] - 1):
        first, n = ptr[i], ptr[i + 1] - ptr[i]
        for t in range(n):
            s = first + t
            fits &= probabilities(&unary[s, 0], K, W, widest, own + t * W, &best)
            if not has_terms:
                continue
            terms[s] = best + best_pair if t else best
            if labelled:
                terms[s] -= unary[s, labels[s]]
                if t:
                    terms[s] -= table[labels[s - 1], labels[s]]
                    fits &= table[labels[s - 1], labels[s]] > -INFINITY
                    counts[labels[s - 1], labels[s]] += 1
        if not fits:
            break
        if n == 1 and labels_alone:
            predicted[first] = <int32_t> first_of_best(own, W)
            continue
        exponentiate_all(own, n * W)
        for t in range(n):
            alpha = forward + t * W
            if t:
                sum_product(&factor[0, 0], <const double*> alpha - W, K, W, alpha)
                multiply(alpha, own + t * W, W)
            else:
                for a in range(W):
                    alpha[a] = own[a]
            total = row_sum(<const double*> alpha, W)
            row_scale(alpha, 1 / total, W)
            row_scale(own + t * W, 1 / total, W)
            if least > 0:
                fits &= are_sound(alpha, least, W)
            if has_terms:
                terms[first + t] += log(total)
        if not fits:
            break
        for a in range(W):
            backward[a] = 1.0
        for t in range(n - 1, -1, -1):
            s = first + t
            alpha = forward + t * W
            for a in range(W):
                product[a] = alpha[a] * backward[a]
            predicted[s] = <int32_t> first_of_best(product, W)
            if has_posterior:
                row = &posterior[s, 0]
                for a in range(K):
                    row[a] = <floating> product[a]
                if labelled:
                    row[labels[s]] -= 1
            if t:
                for a in range(W):
                    product[a] = own[t * W + a] * backward[a]
                if has_pairs:
                    add_outer(<const double*> alpha - W, 1.0, product, K, W, &pairs[0, 0])
                sum_product(&transposed[0, 0], <const double*> product, K, W, backward)
                if least > 0:
                    fits &= are_sound(backward, least, W)
    return fits
