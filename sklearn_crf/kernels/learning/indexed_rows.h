/* Sums over indexed rows of a table, and the adjoint, for binary features. Rows are added in order for any vector
   length, because every column has a separate sum. */

#ifndef SKLEARN_CRF_INDEXED_ROWS_H
#define SKLEARN_CRF_INDEXED_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_level.h"

#if VECTOR_LEVEL_DISPATCH
#define BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define ROWS(name) wide_##name
#include "indexed_rows_template.h"
#undef BYTES
#undef TARGET
#undef ROWS
#endif

static void plain_sum_indexed_rows(const double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width, double *out)
{
    for (ptrdiff_t k = 0; k < width; k++)
        out[k] = 0;
    for (ptrdiff_t q = 0; q < n; q++)
        for (ptrdiff_t k = 0; k < width; k++)
            out[k] += rows[index[q] * width + k];
}

static void plain_add_to_indexed_rows(double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width,
                                      const double *added)
{
    for (ptrdiff_t q = 0; q < n; q++)
        for (ptrdiff_t k = 0; k < width; k++)
            rows[index[q] * width + k] += added[k];
}

/* out = sum of rows[index[q]] */
static inline void sum_indexed_rows(const double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width, double *out)
{
#if VECTOR_LEVEL_DISPATCH
    if (use_avx2()) {
        wide_sum_indexed_rows(rows, index, n, width, out);
        return;
    }
#endif
    plain_sum_indexed_rows(rows, index, n, width, out);
}

/* rows[index[q]] += added */
static inline void add_to_indexed_rows(double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width,
                                       const double *added)
{
#if VECTOR_LEVEL_DISPATCH
    if (use_avx2()) {
        wide_add_to_indexed_rows(rows, index, n, width, added);
        return;
    }
#endif
    plain_add_to_indexed_rows(rows, index, n, width, added);
}

#endif
