/* Included by mixtures.h once for each vector length. */

#define STEP ((ptrdiff_t)(sizeof(VECTOR) / sizeof(double)))

/* x = exp(x) or log(x) of n numbers, in place; x has space for padding the last vector. */
FUNCTION void NAME(exponentials)(double *x, ptrdiff_t n)
{
    for (ptrdiff_t j = n; j % STEP; j++)
        x[j] = 0;
    for (ptrdiff_t j = 0; j < n; j += STEP) {
        VECTOR v;
        memcpy(&v, x + j, sizeof(VECTOR));
        v = VECTOR_EXP(v);
        memcpy(x + j, &v, sizeof(VECTOR));
    }
}

FUNCTION void NAME(logarithms)(double *x, ptrdiff_t n)
{
    for (ptrdiff_t j = n; j % STEP; j++)
        x[j] = 1;
    for (ptrdiff_t j = 0; j < n; j += STEP) {
        VECTOR v;
        memcpy(&v, x + j, sizeof(VECTOR));
        v = VECTOR_LOG(v);
        memcpy(x + j, &v, sizeof(VECTOR));
    }
}

/* Replace linear by the scores of one component, (|z|^2 - quadratic) / 2 + linear; top = max(top, scores). */
FUNCTION void NAME(score)(const double *z, ptrdiff_t n_factors, ptrdiff_t stride, const double *restrict quadratic,
                          ptrdiff_t n, double *restrict linear, double *restrict top)
{
    double square[MIXTURE_TILE];
    for (ptrdiff_t j = 0; j < n; j++)
        square[j] = -quadratic[j];
    for (ptrdiff_t k = 0; k < n_factors; k++)
        for (ptrdiff_t j = 0; j < n; j++)
            square[j] += z[k * stride + j] * z[k * stride + j];
    for (ptrdiff_t j = 0; j < n; j++) {
        linear[j] += 0.5 * square[j];
        top[j] = linear[j] > top[j] ? linear[j] : top[j];
    }
}

/* scores = exp(scores - top); total += scores. */
FUNCTION void NAME(exponentiate_below)(const double *restrict top, ptrdiff_t n, double *restrict scores,
                                       double *restrict total)
{
    double x[MIXTURE_TILE];
    for (ptrdiff_t j = 0; j < n; j++)
        x[j] = scores[j] - top[j];
    NAME(exponentials)(x, n);
    for (ptrdiff_t j = 0; j < n; j++) {
        scores[j] = x[j];
        total[j] += x[j];
    }
}

/* weights *= factor; z *= weights; sums += weights. */
FUNCTION void NAME(weigh)(const double *restrict factor, ptrdiff_t n_factors, ptrdiff_t stride, ptrdiff_t n,
                          double *restrict weights, double *restrict z, double *restrict sums)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        weights[j] *= factor[j];
        sums[j] += weights[j];
    }
    for (ptrdiff_t k = 0; k < n_factors; k++)
        for (ptrdiff_t j = 0; j < n; j++)
            z[k * stride + j] *= weights[j];
}

/* Process one tile; arguments are described in mixtures.pyx, and their rows begin at the first sample of the tile. */
SPECIFIER double NAME(weigh_tile)(double *projected, ptrdiff_t n_components, ptrdiff_t n_factors, ptrdiff_t stride,
                                  const double *quadratic, const int64_t *group, const double *weight,
                                  ptrdiff_t first, ptrdiff_t last, double joint, double features, ptrdiff_t n,
                                  double *sums)
{
    /* Components of the class and others are exponentiated relative to their own maximum, so no sum can underflow. */
    double top[2][MIXTURE_TILE], total[2][MIXTURE_TILE], factor[2][MIXTURE_TILE];
    double log_own[MIXTURE_TILE], log_all[MIXTURE_TILE], value = 0;
    const ptrdiff_t size = (n_factors + 1) * stride;
    for (ptrdiff_t j = 0; j < n; j++) {
        top[0][j] = top[1][j] = -INFINITY;
        total[0][j] = total[1][j] = factor[1][j] = 0;
    }
    for (ptrdiff_t s = 0; s < n_components; s++) {
        double *z = projected + s * size;
        NAME(score)(z, n_factors, stride, quadratic + group[s] * stride, n, z + size - stride,
                    top[s < first || s >= last]);
    }
    for (ptrdiff_t s = 0; s < n_components; s++) {
        const int other = s < first || s >= last;
        NAME(exponentiate_below)(top[other], n, projected + s * size + size - stride, total[other]);
    }
    for (ptrdiff_t j = 0; j < n; j++) {
        log_own[j] = total[0][j];
        factor[0][j] = joint * weight[j] / total[0][j];
    }
    NAME(logarithms)(log_own, n);
    for (ptrdiff_t j = 0; j < n; j++)
        value += joint * weight[j] * (top[0][j] + log_own[j]);
    if (features) {
        for (ptrdiff_t j = 0; j < n; j++) {
            const double highest = top[0][j] > top[1][j] ? top[0][j] : top[1][j];
            top[0][j] -= highest;
            top[1][j] -= highest;
            log_own[j] = highest;
        }
        NAME(exponentials)(top[0], n);
        NAME(exponentials)(top[1], n);
        for (ptrdiff_t j = 0; j < n; j++) {
            log_all[j] = top[0][j] * total[0][j] + top[1][j] * total[1][j];
            factor[1][j] = -features * weight[j] * top[1][j] / log_all[j];
            factor[0][j] -= features * weight[j] * top[0][j] / log_all[j];
        }
        NAME(logarithms)(log_all, n);
        for (ptrdiff_t j = 0; j < n; j++)
            value -= features * weight[j] * (log_own[j] + log_all[j]);
    }
    for (ptrdiff_t s = 0; s < n_components; s++) {
        double *z = projected + s * size;
        NAME(weigh)(factor[s < first || s >= last], n_factors, stride, n, z + size - stride, z,
                    sums + group[s] * stride);
    }
    return value;
}

/* Log-sum-exp of the scores of each class over its components, (n, n_classes), for one tile; NaN if any score is NaN or
   all are -inf. */
SPECIFIER void NAME(class_scores_tile)(double *projected, ptrdiff_t n_classes, ptrdiff_t n_own, ptrdiff_t n_factors,
                                       ptrdiff_t stride, const double *quadratic, const int64_t *group, ptrdiff_t n,
                                       double *out)
{
    double top[MIXTURE_TILE], total[MIXTURE_TILE], nans[MIXTURE_TILE];
    const ptrdiff_t size = (n_factors + 1) * stride;
    for (ptrdiff_t c = 0; c < n_classes; c++) {
        double *own = projected + c * n_own * size;
        for (ptrdiff_t j = 0; j < n; j++) {
            top[j] = -INFINITY;
            total[j] = nans[j] = 0;
        }
        for (ptrdiff_t s = 0; s < n_own; s++) {
            double *z = own + s * size, *scores = z + size - stride;
            NAME(score)(z, n_factors, stride, quadratic + group[c * n_own + s] * stride, n, scores, top);
            for (ptrdiff_t j = 0; j < n; j++)
                nans[j] = scores[j] == scores[j] ? nans[j] : scores[j];
        }
        for (ptrdiff_t s = 0; s < n_own; s++)
            NAME(exponentiate_below)(top, n, own + s * size + size - stride, total);
        NAME(logarithms)(total, n);
        for (ptrdiff_t j = 0; j < n; j++)
            out[j * n_classes + c] = top[j] > -INFINITY ? top[j] + total[j] + nans[j] : NAN;
    }
}

#undef STEP
