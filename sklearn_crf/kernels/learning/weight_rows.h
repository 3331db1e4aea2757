/* Loops over rows of weights, such as the weights of one feature for all states. Every column has separate sums, and the
   order of additions does not depend on the vector length. Wide vectors use fused multiply-add. */

#ifndef SKLEARN_CRF_WEIGHT_ROWS_H
#define SKLEARN_CRF_WEIGHT_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_level.h"

#ifndef restrict
#define restrict __restrict
#endif

/* Number of accumulators of an inner product, so that additions need not wait for each other. */
#define N_SUMS 16

#define TARGET
#define ROWS(name) plain_##name
#include "weight_rows_template.h"
#undef TARGET
#undef ROWS

#if VECTOR_LEVEL_DISPATCH
#define BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define ROWS(name) wide_##name
#include "weight_rows_template.h"
#undef BYTES
#undef TARGET
#undef ROWS
#define AT_LEVEL(call) (use_avx2() ? wide_##call : plain_##call)
#else
#define AT_LEVEL(call) (plain_##call)
#endif

/* out = sum of factors[q] * rows[index[q]]; factors may be null for ones */
static inline void sum_weighted_rows(const double *rows, const int32_t *index, const double *factors, ptrdiff_t n,
                                     ptrdiff_t width, double *out)
{
    if (width < 4)
        plain_sum_weighted_rows(rows, index, factors, n, width, out);
    else
        AT_LEVEL(sum_weighted_rows(rows, index, factors, n, width, out));
}

static inline double product(const double *a, const double *b, ptrdiff_t n)
{
    return AT_LEVEL(product(a, b, n));
}

static inline void products(const double *const *a, const double *const *b, ptrdiff_t n, double *out)
{
    AT_LEVEL(products(a, b, n, out));
}

static inline void move_weights(double *x, double *lag, const double *along, ptrdiff_t n, double size, double factor)
{
    AT_LEVEL(move_weights(x, lag, along, n, size, factor));
}

static inline void add_to_rows(double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width, const double *added)
{
    AT_LEVEL(add_to_rows(rows, index, n, width, added));
}

static inline void add_to_slots(double *values, const int32_t *slot, const double *factors, ptrdiff_t n,
                                const double *row, ptrdiff_t width)
{
    AT_LEVEL(add_to_slots(values, slot, factors, n, row, width));
}

static inline void weigh_rows(const double *x, const int32_t *rows, const double *values, ptrdiff_t n, ptrdiff_t width,
                              double *by_column)
{
    AT_LEVEL(weigh_rows(x, rows, values, n, width, by_column));
}

#endif
