"""Losses of the means of Gaussian fields, and derivatives by a field of a function of its mean."""

from cython cimport floating
from libc.math cimport exp, fabs, log
from libc.stdint cimport int64_t


cdef enum:
    SHORT = 8192


cdef inline double differences(
    const floating* mean, const floating* target, const double* scale, Py_ssize_t n, Py_ssize_t D, floating* out,
    double* largest,
) noexcept nogil:
    """Return the sum of squared differences; write half of its derivative, divided by the largest magnitude."""
    cdef:
        Py_ssize_t s, i, k
        double difference, total = 0.0, inverse
        # Eight independent sums, since a single sum would wait for each addition.
        double[8] sums, most
    for k in range(8):
        sums[k] = most[k] = 0.0
    for k in range(D):
        for s in range(n):
            i = s * D + k
            difference = scale[k] * (<double> mean[i] - <double> target[i])
            if target[i] != target[i]:
                difference = 0.0
            sums[s & 7] += difference * difference
            difference *= scale[k]
            most[s & 7] = max(most[s & 7], fabs(difference))
            out[i] = <floating> difference
    largest[0] = 0.0
    for k in range(8):
        total += sums[k]
        largest[0] = max(largest[0], most[k])
    inverse = 1 / largest[0] if largest[0] > 0 else 0.0
    for i in range(n * D):
        out[i] = <floating> (out[i] * inverse)
    return total


def squared_differences(
    const floating[:, ::1] mean,  # IN (N, D)
    const floating[:, ::1] target,  # IN (N, D), NaN where unknown, which counts as no difference
    const double[::1] scale,  # IN (D,) factor of differences before squaring
    floating[:, ::1] out,  # OUT (N, D) half of the derivative of the sum by the mean, divided by its largest magnitude
):
    """Return the sum of squared differences, and the largest magnitude of half of its derivative."""
    cdef double total = 0.0, largest = 0.0
    if mean.shape[0]:
        with nogil:
            total = differences(&mean[0, 0], &target[0, 0], &scale[0], mean.shape[0], mean.shape[1], &out[0, 0],
                                &largest)
    return total, largest


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


def multinomial_of_mean(
    const floating[:, ::1] mean,  # IN (N, K)
    const floating[:, ::1] target,  # IN (N, K) codes, largest at the label; NaN where unknown
    const double[::1] offset,  # IN (K,) scores for a mean of 0
    const double[::1] scale,  # IN (K,) factor of the mean in scores
    const double[::1] weight,  # IN (N,) weight of each pixel, or (1,) for all pixels
    double ridge,  # strength of the penalty on half the squared scores
    double[::1] scores,  # OUT (K,) workspace
    double[:, ::1] gradient,  # OUT (N, K) workspace
    floating[:, ::1] slope,  # OUT (N, K) derivative by the mean, divided by the largest magnitude
):
    """Return the mean multinomial loss for the scores of a mean, and the largest magnitude of its derivative.

    Unknown codes are replaced by the scores, and have derivative 0.
    """
    cdef:
        Py_ssize_t s, k, label, n = mean.shape[0], K = mean.shape[1], step = weight.shape[0] > 1
        double value = 0.0, largest = 0.0, inverse, share, pull, code, best
    if n == 0:
        return 0.0, 0.0
    with nogil:
        for s in range(n):
            share, label, best = weight[step * s] / n, 0, 0.0
            for k in range(K):
                scores[k] = offset[k] + scale[k] * mean[s, k]
                code = scores[k] if target[s, k] != target[s, k] else offset[k] + scale[k] * target[s, k]
                if k == 0 or code > best:
                    label, best = k, code
            value += softmax_terms(&scores[0], K, label, share, &gradient[s, 0])
            for k in range(K):
                pull = ridge * share * scores[k]
                value += 0.5 * pull * scores[k]
                gradient[s, k] = 0.0 if target[s, k] != target[s, k] else (gradient[s, k] + pull) * scale[k]
                largest = max(largest, fabs(gradient[s, k]))
        inverse = 1 / largest if largest > 0 else 0.0
        for s in range(n):
            for k in range(K):
                slope[s, k] = <floating> (gradient[s, k] * inverse)
    return value, largest
