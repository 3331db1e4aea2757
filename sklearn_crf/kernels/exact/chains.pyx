"""Marginals of chains, or the loss of their labels and its derivative, and their best labels."""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.rows cimport max_sum, replace_scores


def chain_likelihood(
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
    double[:, ::1] work,  # workspace (3 * longest + 2, W)
):
    """Marginals, or the derivative of the loss; False, and nothing of use, where scores range too widely."""
    cdef bint fits
    with nogil:
        fits = pass_over_chains(
            unary, ptr, table, factor, transposed, best_pair, widest, least, labels, terms[:0], posterior, pairs,
            counts, terms, predicted, work
        )
    return fits


def best_labels(
    const floating[:, ::1] unary,  # IN (N, K)
    const int64_t[::1] ptr,  # IN (n_chains + 1,) first node of each chain
    const floating[:, ::1] table,  # IN (K, K) scores of neighbours
    const floating[:, ::1] factor,  # IN (K, W) the same from right to left, below the best one, padded by -inf
    int32_t[::1] labels,  # OUT (N,)
    floating[:, ::1] work,  # workspace (longest + 2, W)
):
    """The best labeling of each chain; False, and nothing of use, where some chain has none."""
    cdef:
        Py_ssize_t K = unary.shape[1], W = factor.shape[1]
        Py_ssize_t i, s, t, a, n, winner
        bint fits = True
        floating* messages = &work[0, 0]  # to each node but the last one of a chain, from the next one
        floating* cavity = messages + (work.shape[0] - 2) * W
        floating* fresh = cavity + W
        double score, top
    with nogil:
        for a in range(K, W):
            cavity[a] = -INFINITY
        for i in range(ptr.shape[0] - 1):
            n = ptr[i + 1] - ptr[i]
            for t in range(n - 1, 0, -1):
                s = ptr[i] + t
                for a in range(K):
                    cavity[a] = unary[s, a] + messages[t * W + a] if t < n - 1 else unary[s, a]
                max_sum(&factor[0, 0], <const floating*> cavity, K, W, fresh)
                fits &= replace_scores(fresh, messages + (t - 1) * W, W, -1) >= 0
            for t in range(n):
                s, top, winner = ptr[i] + t, -INFINITY, 0
                for a in range(K):
                    score = unary[s, a]
                    if t:
                        score += table[labels[s - 1], a]
                    if t < n - 1:
                        score += messages[t * W + a]
                    if score > top:
                        top, winner = score, a
                labels[s] = <int32_t> winner
                fits &= top > -INFINITY
            if not fits:
                break
    return fits
