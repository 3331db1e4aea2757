"""Losses of the means of Gaussian fields, and derivatives by a field of a function of its mean."""

from cython cimport floating
from libc.math cimport exp, log
from libc.stdint cimport int64_t


cdef enum:
    SHORT = 8192


cdef inline void statistics(
    const floating* mean, const floating* adjoint, double scale, Py_ssize_t n, Py_ssize_t D, double* linear,
    double* values, double* square,
) noexcept nogil:
    cdef Py_ssize_t s, a, b
    for s in range(n * D):
        linear[s], values[s] = scale * adjoint[s], mean[s]
    for s in range(n):
        for a in range(D):
            for b in range(D):
                square[(s * D + a) * D + b] = -0.5 * (
                    linear[s * D + a] * values[s * D + b] + linear[s * D + b] * values[s * D + a]
                )


def field_statistics(
    const floating[:, ::1] mean,  # IN (N, D)
    const floating[:, ::1] adjoint,  # IN (N, D)
    double scale,
    double[:, ::1] linear,  # OUT (N, D) scale times the adjoint
    double[:, ::1] values,  # OUT (N, D) the mean
    double[:, :, ::1] square,  # OUT (N, D, D) minus the symmetric part of their outer product
):
    """Compute derivatives by a field of a function of its mean, given the solution of the adjoint system.

    For short arrays the lock is kept: the work takes less time than waking up a thread that waits for it.
    """
    cdef Py_ssize_t n = mean.shape[0], D = mean.shape[1]
    if n * D > SHORT:
        with nogil:
            statistics(&mean[0, 0], &adjoint[0, 0], scale, n, D, &linear[0, 0], &values[0, 0], &square[0, 0, 0])
    elif n:
        statistics(&mean[0, 0], &adjoint[0, 0], scale, n, D, &linear[0, 0], &values[0, 0], &square[0, 0, 0])


cdef inline double softmax_terms(
    const double* scores, Py_ssize_t K, Py_ssize_t label, double weight, double* gradient
) noexcept nogil:
    """Return the weighted log-sum-exp of scores minus the score of the label; write its derivative."""
    cdef:
        Py_ssize_t k
        double top = scores[0], total = 0.0, value
    for k in range(1, K):
        top = max(top, scores[k])
    for k in range(K):
        gradient[k] = exp(scores[k] - top)
        total += gradient[k]
    value = weight * (top + log(total) - scores[label])
    for k in range(K):
        gradient[k] *= weight / total
    gradient[label] -= weight
    return value


def multinomial_sum(
    const double[:, ::1] scores,  # IN (N, K)
    const int64_t[::1] labels,  # IN (N,)
    const double[::1] weight,  # IN (N,)
    double[:, ::1] gradient,  # OUT (N, K) by the scores
):
    """Return the weighted sum over rows of log-sum-exp of scores minus the score of the label."""
    cdef:
        Py_ssize_t s, K = scores.shape[1]
        double value = 0.0
    with nogil:
        for s in range(scores.shape[0]):
            value += softmax_terms(&scores[s, 0], K, labels[s], weight[s], &gradient[s, 0])
    return value
