/* Vectorised loops of Frank-Wolfe steps on structured hinges. The order of additions does not depend on the vector
   length. Wide vectors use fused multiply-add. */

#ifndef SKLEARN_CRF_HINGE_ROWS_H
#define SKLEARN_CRF_HINGE_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_level.h"

/* Number of accumulators of an inner product, so that additions need not wait for each other. */
#define HINGE_SUMS 16

#if VECTOR_LEVEL_DISPATCH
#define BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define ROWS(name) wide_##name
#include "hinge_rows_template.h"
#undef BYTES
#undef TARGET
#undef ROWS
#endif

static void plain_sum_weighted_rows(const double *rows, const int32_t *index, const double *factors, ptrdiff_t n,
                                    ptrdiff_t width, double *out)
{
    for (ptrdiff_t k = 0; k < width; k++)
        out[k] = 0;
    for (ptrdiff_t q = 0; q < n; q++) {
        const double *row = rows + index[q] * width;
        const double factor = factors[q];
        for (ptrdiff_t k = 0; k < width; k++)
            out[k] += factor * row[k];
    }
}

static double plain_product(const double *a, const double *b, ptrdiff_t n)
{
    double sums[HINGE_SUMS] = {0}, total = 0;
    ptrdiff_t k = 0;
    for (; k + HINGE_SUMS <= n; k += HINGE_SUMS)
        for (int i = 0; i < HINGE_SUMS; i++)
            sums[i] += a[k + i] * b[k + i];
    for (int i = 0; i < HINGE_SUMS; i++)
        total += sums[i];
    for (; k < n; k++)
        total += a[k] * b[k];
    return total;
}

static void plain_move(double size, const double *along, double recent, double *x, double *mean, ptrdiff_t n)
{
    for (ptrdiff_t k = 0; k < n; k++) {
        x[k] += size * along[k];
        mean[k] += recent * (x[k] - mean[k]);
    }
}

/* out = sum of factors[q] * rows[index[q]] */
static inline void sum_weighted_rows(const double *rows, const int32_t *index, const double *factors, ptrdiff_t n,
                                     ptrdiff_t width, double *out)
{
#if VECTOR_LEVEL_DISPATCH
    if (width >= 4 && use_avx2()) {
        wide_sum_weighted_rows(rows, index, factors, n, width, out);
        return;
    }
#endif
    plain_sum_weighted_rows(rows, index, factors, n, width, out);
}

/* Sum of a[k] * b[k] */
static inline double product(const double *a, const double *b, ptrdiff_t n)
{
#if VECTOR_LEVEL_DISPATCH
    if (use_avx2())
        return wide_product(a, b, n);
#endif
    return plain_product(a, b, n);
}

/* x += size * along, and the mean of x over all moves, in one pass, because both exceed the near caches. */
static inline void move(double size, const double *along, double recent, double *x, double *mean, ptrdiff_t n)
{
#if VECTOR_LEVEL_DISPATCH
    if (use_avx2()) {
        wide_move(size, along, recent, x, mean, n);
        return;
    }
#endif
    plain_move(size, along, recent, x, mean, n);
}

#endif
