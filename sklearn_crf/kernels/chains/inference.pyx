# distutils: language = c++
"""Marginals and best labels of chains that share one table."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.chains.chains cimport (
    BestLabels,
    ChainPass,
    Chains,
    Transitions,
    pass_workspace,
    transitions_of,
)


cdef inline int64_t longest_of(const int64_t[::1] ptr) noexcept nogil:
    cdef int64_t i, longest = 1
    for i in range(ptr.shape[0] - 1):
        longest = max(longest, ptr[i + 1] - ptr[i])
    return longest


def chain_marginals(
    const floating[:, ::1] unary,  # IN (N, K)
    const int64_t[::1] ptr,  # IN (n_chains + 1,) first node of each chain
    const double[:, ::1] table,  # IN (K, K) this and what follows: the fields of Transitions
    const double[:, ::1] factor,  # IN (K, W)
    const double[:, ::1] transposed,  # IN (K, W)
    double best,
    double widest,
    double least,
    floating[:, ::1] posterior,  # OUT (N, K) probabilities; no rows: not asked for
    double[:, ::1] pairs,  # IN OUT (K, W) probabilities of neighbours over factor, added to; no rows: not asked for
    double[::1] terms,  # OUT (N,) terms of log Z, or (0,): not asked for
    int32_t[::1] predicted,  # OUT (N,) most probable state
):
    """Marginals; False, and nothing of use, where scores range too widely."""
    cdef:
        Transitions transitions = transitions_of(table, factor, transposed, best, widest, least)
        Chains[floating] chains
        int64_t longest = longest_of(ptr)
        vector[double] work
        bint fits
    chains.n_chains, chains.ptr, chains.stride = ptr.shape[0] - 1, &ptr[0], unary.shape[1]
    chains.unary, chains.predicted = &unary[0, 0], &predicted[0]
    if posterior.shape[0]:
        chains.posterior = &posterior[0, 0]
    if pairs.shape[0]:
        chains.pairs = &pairs[0, 0]
    if terms.shape[0]:
        chains.terms = &terms[0]
    with nogil:
        work.resize(pass_workspace(longest, transitions.width))
        fits = ChainPass[floating](transitions, chains, longest, work.data()).run()
    return fits


def best_labels(
    const floating[:, ::1] unary,  # IN (N, K)
    const int64_t[::1] ptr,  # IN (n_chains + 1,) first node of each chain
    const floating[:, ::1] table,  # IN (K, K) scores of neighbours
    const floating[:, ::1] factor,  # IN (K, W) the same from right to left, below the best one, padded by -inf
    int32_t[::1] labels,  # OUT (N,)
):
    """The best labeling of each chain; False, and nothing of use, where some chain has none."""
    cdef:
        Chains[floating] chains
        int64_t W = factor.shape[1]
        vector[floating] work
        bint fits
    chains.n_chains, chains.ptr, chains.stride = ptr.shape[0] - 1, &ptr[0], unary.shape[1]
    chains.unary, chains.predicted = &unary[0, 0], &labels[0]
    with nogil:
        work.resize((longest_of(ptr) + 2) * W)
        fits = BestLabels[floating](chains, W, &table[0, 0], &factor[0, 0], work.data()).run()
    return fits
