"""Likelihood of labelled chains with sparse features: from weights to their gradient by one call for each batch."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.exact.chains cimport pass_over_chains
from sklearn_crf.kernels.learning.feature_pairs cimport add_pair_gradient, add_pair_scores


def risk_of_chains(
    const int32_t[::1] feature,  # IN (n,) ascending, those that occur
    const int32_t[::1] ptr,  # IN (n + 1,)
    const int32_t[::1] node,  # IN (nnz,)
    const floating[::1] value,  # IN (nnz,), or (0,) where every value is one
    const int64_t[::1] pair_ptr,  # IN (F + 1,) pairs of each feature
    const int32_t[::1] pair_column,  # IN (P,) ascending for each feature
    const double[::1] weights,  # IN (P,)
    const double[::1] intercept,  # IN (K,)
    const int64_t[::1] chains,  # IN (n_chains + 1,) first node of each chain
    const double[:, ::1] table,  # IN (K, K) scores of neighbours
    const double[:, ::1] factor,  # IN (K, W) their exp below the best one, padded by zeros
    const double[:, ::1] transposed,  # IN (K, W) the same of the table from right to left
    double best_pair,
    double widest,
    double least,
    const double[:, ::1] ends,  # IN (2, K) added to the scores of the first and the last node of each chain, or (0, K)
    const int32_t[::1] labels,  # IN (N,)
    const double[::1] chain_weight,  # IN (n_chains,), or (0,) where all are one
    double[:, ::1] statistics,  # OUT (N, K) derivative of the risk by scores
    double[:, ::1] pairs,  # IN OUT (K, W) probabilities of neighbours over factor, added to
    double[:, ::1] counts,  # IN OUT (K, K) pairs of labels, added to
    double[::1] by_intercept,  # OUT (K,)
    double[::1] gradient,  # IN OUT (P,) added to, or (0,): not asked for
    double[::1] terms,  # workspace (N,)
    int32_t[::1] predicted,  # workspace (N,)
    double[:, ::1] work,  # workspace (3 * longest + 2, W)
    double[::1] columns,  # workspace (K,)
):
    """Weighted sum of the losses of nodes and of wrong labels; None where scores range too widely."""
    cdef:
        Py_ssize_t n_nodes = statistics.shape[0], K = statistics.shape[1], i, s, k
        double loss = 0, n_wrong = 0, weight = 1
        bint fits
    with nogil:
        for s in range(n_nodes):
            for k in range(K):
                statistics[s, k] = intercept[k]
        add_pair_scores(feature, ptr, node, value, pair_ptr, pair_column, weights, statistics, columns)
        for s in range(chains.shape[0] - 1 if ends.shape[0] else 0):
            for k in range(K):
                statistics[chains[s], k] += ends[0, k]
                statistics[chains[s + 1] - 1, k] += ends[1, k]
        fits = pass_over_chains(
            statistics, chains, table, factor, transposed, best_pair, widest, least, labels, chain_weight, statistics,
            pairs, counts, terms, predicted, work
        )
        for k in range(K):
            by_intercept[k] = 0
        for i in range(chains.shape[0] - 1 if fits else 0):
            if chain_weight.shape[0]:
                weight = chain_weight[i]
            for s in range(chains[i], chains[i + 1]):
                loss += weight * terms[s]
                n_wrong += weight * (predicted[s] != labels[s])
                for k in range(K):
                    statistics[s, k] *= weight
                    by_intercept[k] += statistics[s, k]
        if fits and gradient.shape[0]:
            add_pair_gradient(
                feature, ptr, node, value, 0, feature.shape[0], pair_ptr, pair_column, statistics, gradient, columns
            )
    return (loss, n_wrong) if fits else None
