/* Loops over the columns of a sparse plane, which has values for some rows of the weights. Every column has separate
   sums, so that the order of additions does not depend on the vector length. Wide vectors use fused multiply-add. */

#ifndef SKLEARN_CRF_HINGE_COLUMNS_H
#define SKLEARN_CRF_HINGE_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "vector_level.h"

#if defined(_MSC_VER)
#define restrict __restrict
#endif

#define TARGET
#define COLUMNS(name) plain_##name
#include "hinge_columns_template.h"
#undef TARGET
#undef COLUMNS

#if VECTOR_LEVEL_DISPATCH
#define TARGET __attribute__((target("avx2,fma")))
#define COLUMNS(name) wide_##name
#include "hinge_columns_template.h"
#undef TARGET
#undef COLUMNS
#define IN_COLUMNS(call) (use_avx2() ? wide_##call : plain_##call)
#else
#define IN_COLUMNS(call) (plain_##call)
#endif

static inline void add_to_slots(double *values, const int32_t *slot, const double *factors, ptrdiff_t n,
                                const double *row, ptrdiff_t width)
{
    IN_COLUMNS(add_to_slots(values, slot, factors, n, row, width));
}

static inline void weigh_rows(const double *x, const int32_t *rows, const double *values, ptrdiff_t n, ptrdiff_t width,
                              double *by_column, double *squares)
{
    IN_COLUMNS(weigh_rows(x, rows, values, n, width, by_column, squares));
}

static inline void move_rows(double *x, double *lag, const int32_t *rows, const double *values, ptrdiff_t n,
                             ptrdiff_t width, double size, double factor)
{
    IN_COLUMNS(move_rows(x, lag, rows, values, n, width, size, factor));
}

#endif
