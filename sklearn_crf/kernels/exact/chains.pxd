"""Forward and backward along chains: what belongs to one stays in the cache from its scores to its statistics.

Sums are of probabilities, normalised at every node, in double precision whatever that of the scores. Where pairs are
forbidden, a chain whose probabilities would underflow is done again by sums of scores.
"""

from cython cimport floating
from libc.math cimport INFINITY, exp, fabs, log
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.rows cimport add_outer, exponentiate_all, row_max, row_scale, row_sum, sum_product


cdef inline bint probabilities(
    const floating* scores, Py_ssize_t n_states, Py_ssize_t width, double widest, bint forbids, double* row,
    double* best
) noexcept nogil:
    """Scores below the best one of a node, -inf in the padding; False where they range too widely."""
    cdef:
        Py_ssize_t a
        double top = scores[0], least = scores[0]
    for a in range(1, n_states):
        top = scores[a] if scores[a] > top else top
        least = scores[a] if scores[a] < least else least
    if forbids and least == -INFINITY:
        # Sums of zero are expected.
        least = top
        for a in range(n_states):
            least = scores[a] if -INFINITY < scores[a] < least else least
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


cdef inline double log_sum(const double* row, Py_ssize_t n) noexcept nogil:
    """log sum exp of scores, -inf of nothing but -inf."""
    cdef:
        Py_ssize_t a
        double top = -INFINITY, total = 0
    for a in range(n):
        top = row[a] if row[a] > top else top
    if top == -INFINITY:
        return top
    for a in range(n):
        total += exp(row[a] - top)
    return top + log(total)


cdef inline bint pass_in_scores(
    const floating* unary,  # IN (n, K)
    Py_ssize_t n,
    const double[:, ::1] table,  # IN (K, K)
    Py_ssize_t W,
    double best_pair,
    const int32_t* labels,  # IN (n,) or NULL
    floating* posterior,  # OUT (n, K) or NULL
    double weight,  # of its pairs
    double[:, ::1] pairs,  # IN OUT (K, W) or (0, W)
    double* terms,  # OUT (n,) or NULL
    int32_t* predicted,  # OUT (n,)
    double* work,  # workspace (3 n + 2, W)
) noexcept nogil:
    """The same of one chain by sums of scores, which cannot underflow; False where no labeling is allowed."""
    cdef:
        Py_ssize_t K = table.shape[0], t, a, b, winner
        double largest = 1e18 if floating is float else 1e100  # models hold no larger scores
        double* forward = work
        double* own = forward + n * W
        double* backward = own + n * W
        double* row = backward + n * W
        double total, top
    for t in range(n):
        for b in range(K):
            own[t * W + b] = unary[t * K + b]
            if not (fabs(own[t * W + b]) <= largest or own[t * W + b] == -INFINITY):
                return False
            forward[t * W + b] = own[t * W + b]
            if t:
                for a in range(K):
                    row[a] = forward[(t - 1) * W + a] + table[a, b]
                forward[t * W + b] += log_sum(row, K)
        total = log_sum(forward + t * W, K)
        if total == -INFINITY:
            return False
        for b in range(K):
            forward[t * W + b] -= total
            own[t * W + b] -= total
        if terms != NULL:
            terms[t] = total
            if labels != NULL:
                terms[t] -= unary[t * K + labels[t]]
                if t:
                    terms[t] -= table[labels[t - 1], labels[t]]
    for t in range(n - 1, -1, -1):
        for a in range(K):
            backward[t * W + a] = 0
            if t < n - 1:
                for b in range(K):
                    row[b] = table[a, b] + own[(t + 1) * W + b] + backward[(t + 1) * W + b]
                backward[t * W + a] = log_sum(row, K)
    for t in range(n):
        top, winner = -INFINITY, 0
        for a in range(K):
            row[a] = forward[t * W + a] + backward[t * W + a]
            if row[a] > top:
                top, winner = row[a], a
            if posterior != NULL:
                posterior[t * K + a] = <floating> exp(row[a])
        predicted[t] = <int32_t> winner
        if posterior != NULL and labels != NULL:
            posterior[t * K + labels[t]] -= 1
        if t and pairs.shape[0] > 0:
            for a in range(K):
                for b in range(K):
                    # What a pair weighs by its own score is multiplied in later.
                    if table[a, b] > -INFINITY:
                        pairs[a, b] += weight * exp(
                            best_pair + forward[(t - 1) * W + a] + own[t * W + b] + backward[t * W + b]
                        )
    return True


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
    const double[::1] weights,  # IN (n_chains,) of the pairs of each chain, or (0,) where all are one
    floating[:, ::1] posterior,  # OUT (N, K) probabilities, less one at the label; no rows: not asked for
    double[:, ::1] pairs,  # IN OUT (K, W) probabilities of neighbours over factor, added to; no rows: not asked for
    double[:, ::1] counts,  # IN OUT (K, K) pairs of labels, added to
    double[::1] terms,  # OUT (N,) negative log-likelihood of labels given those before; else terms of log_z; or (0,)
    int32_t[::1] predicted,  # OUT (N,) most probable state
    double[:, ::1] work,  # workspace (3 * longest + 2, W)
) noexcept nogil:
    """Marginals, or the derivative of the loss; False, and nothing of use, where scores range too widely.

    Where pairs are forbidden scores may range as they like, and False says that labels or all labelings are forbidden.
    """
    cdef:
        Py_ssize_t K = unary.shape[1], W = factor.shape[1]
        Py_ssize_t i, s, t, a, n, first, longest = (work.shape[0] - 2) // 3
        double total, best, weight = 1
        bint fits = True, labelled = labels.shape[0] > 0, has_pairs = pairs.shape[0] > 0
        bint has_terms = terms.shape[0] > 0, has_posterior = posterior.shape[0] > 0
        bint labels_alone = not has_terms and not has_posterior and not has_pairs
        double* forward = &work[0, 0]
        double* own = forward + longest * W
        double* backwards = own + longest * W
        double* product = backwards + longest * W
        double* alpha
        double* backward
        floating* row
    for i in range(ptr.shape[0] - 1):
        first, n = ptr[i], ptr[i + 1] - ptr[i]
        if weights.shape[0]:
            weight = weights[i]
        for t in range(n):
            s = first + t
            fits &= probabilities(&unary[s, 0], K, W, widest, least > 0, own + t * W, &best)
            if not has_terms:
                continue
            terms[s] = best + best_pair if t else best
            if labelled:
                terms[s] -= unary[s, labels[s]]
                if t:
                    terms[s] -= table[labels[s - 1], labels[s]]
                    counts[labels[s - 1], labels[s]] += weight
                if not terms[s] < INFINITY:
                    return False
        if fits and n == 1 and labels_alone:
            predicted[first] = <int32_t> first_of_best(own, W)
            continue
        if fits:
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
        if fits:
            for a in range(W):
                backwards[(n - 1) * W + a] = 1.0
            for t in range(n - 1, 0, -1):
                backward = backwards + t * W
                for a in range(W):
                    product[a] = own[t * W + a] * backward[a]
                sum_product(&transposed[0, 0], <const double*> product, K, W, backward - W)
                if least > 0:
                    fits &= are_sound(backward - W, least, W)
        if not fits and least == 0:
            return False
        if not fits:
            fits = pass_in_scores(
                &unary[first, 0], n, table, W, best_pair, &labels[first] if labelled else NULL,
                &posterior[first, 0] if has_posterior else NULL, weight, pairs, &terms[first] if has_terms else NULL,
                &predicted[first], forward
            )
            if not fits:
                return False
            continue
        for t in range(n - 1, -1, -1):
            s = first + t
            alpha = forward + t * W
            backward = backwards + t * W
            for a in range(W):
                product[a] = alpha[a] * backward[a]
            predicted[s] = <int32_t> first_of_best(product, W)
            if has_posterior:
                row = &posterior[s, 0]
                for a in range(K):
                    row[a] = <floating> product[a]
                if labelled:
                    row[labels[s]] -= 1
            if t and has_pairs:
                for a in range(W):
                    product[a] = own[t * W + a] * backward[a]
                add_outer(<const double*> alpha - W, weight, product, K, W, &pairs[0, 0])
    return True
