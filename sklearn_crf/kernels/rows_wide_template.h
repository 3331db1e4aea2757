/* Included by rows_template.h. */

/* The three loops over pairs of states once more, for processors with vectors of 32 bytes. Along a chain each message
   waits for the one before, so what counts is how soon a sum is done: rows are shared by several accumulators. */
#define W32 NAME(wide_vector)
#define WIDE (2 * LANES)
typedef REAL W32 __attribute__((vector_size(32)));

#define VECTOR W32
#define BITS NAME(wide_bits)
typedef UNSIGNED BITS __attribute__((vector_size(32)));
#define MATH_NAME(name) NAME(wide_##name)
#define MATH_INLINE ROWS_WIDE_INLINE
#define MATH_FUNCTION ROWS_AVX2 static
#include "vector_math_template.h"
#undef VECTOR
#undef BITS
#undef MATH_NAME
#undef MATH_INLINE
#undef MATH_FUNCTION

/* Columns are kept in registers while whole rows go by, so that tables that no cache holds are read once and in order:
   n_vectors must be a constant of at most 8. */
ROWS_WIDE_INLINE void NAME(wide_sum_block)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out,
                                           const int n_vectors)
{
    W32 total[8] = {{0}}, row;
    for (ptrdiff_t a = 0; a < n; a++)
        for (int k = 0; k < n_vectors; k++) {
            memcpy(&row, table + a * width + k * WIDE, sizeof(W32));
            total[k] += x[a] * row;
        }
    memcpy(out, total, n_vectors * sizeof(W32));
}

ROWS_WIDE_INLINE void NAME(wide_max_block)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out,
                                           const int n_vectors)
{
    W32 top[8], row;
    for (int k = 0; k < n_vectors; k++)
        top[k] = (W32){0} - (REAL)INFINITY;
    for (ptrdiff_t a = 0; a < n; a++)
        for (int k = 0; k < n_vectors; k++) {
            memcpy(&row, table + a * width + k * WIDE, sizeof(W32));
            top[k] = (W32)WIDE_MAX_INSTRUCTION(x[a] + row, top[k]);
        }
    memcpy(out, top, n_vectors * sizeof(W32));
}

ROWS_AVX2 static void NAME(wide_sum_product)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    ptrdiff_t j = 0;
    for (; j + 8 * WIDE <= width; j += 8 * WIDE)
        NAME(wide_sum_block)(table + j, x, n, width, out + j, 8);
    for (; j + 4 * WIDE <= width; j += 4 * WIDE) {
        W32 even[4] = {{0}}, odd[4] = {{0}}, row;
        for (ptrdiff_t a = 0; a + 1 < n; a += 2)
            for (int k = 0; k < 4; k++) {
                memcpy(&row, table + a * width + j + k * WIDE, sizeof(W32));
                even[k] += x[a] * row;
                memcpy(&row, table + (a + 1) * width + j + k * WIDE, sizeof(W32));
                odd[k] += x[a + 1] * row;
            }
        for (int k = 0; k < 4; k++) {
            memcpy(&row, table + (n - 1) * width + j + k * WIDE, sizeof(W32));
            even[k] += (n & 1 ? x[n - 1] : 0) * row + odd[k];
        }
        memcpy(out + j, even, sizeof(even));
    }
    for (; j + WIDE <= width; j += WIDE) {
        W32 total[4] = {{0}}, row;
        ptrdiff_t a = 0;
        for (; a + 4 <= n; a += 4)
            for (int k = 0; k < 4; k++) {
                memcpy(&row, table + (a + k) * width + j, sizeof(W32));
                total[k] += x[a + k] * row;
            }
        for (; a < n; a++) {
            memcpy(&row, table + a * width + j, sizeof(W32));
            total[0] += x[a] * row;
        }
        total[0] += total[1] + (total[2] + total[3]);
        memcpy(out + j, total, sizeof(W32));
    }
    if (j < width)
        NAME(sum_product_block)(table + j, x, n, width, out + j, 1);
}

ROWS_AVX2 static void NAME(wide_max_sum)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    ptrdiff_t j = 0;
    for (; j + 8 * WIDE <= width; j += 8 * WIDE)
        NAME(wide_max_block)(table + j, x, n, width, out + j, 8);
    for (; j + 4 * WIDE <= width; j += 4 * WIDE)
        NAME(wide_max_block)(table + j, x, n, width, out + j, 4);
    for (; j + WIDE <= width; j += WIDE) {
        W32 top[4], row;
        ptrdiff_t a = 0;
        for (int k = 0; k < 4; k++)
            top[k] = (W32){0} - (REAL)INFINITY;
        for (; a + 4 <= n; a += 4)
            for (int k = 0; k < 4; k++) {
                memcpy(&row, table + (a + k) * width + j, sizeof(W32));
                top[k] = (W32)WIDE_MAX_INSTRUCTION(x[a + k] + row, top[k]);
            }
        for (; a < n; a++) {
            memcpy(&row, table + a * width + j, sizeof(W32));
            top[0] = (W32)WIDE_MAX_INSTRUCTION(x[a] + row, top[0]);
        }
        for (int k = 1; k < 4; k++)
            top[0] = (W32)WIDE_MAX_INSTRUCTION(top[k], top[0]);
        memcpy(out + j, top, sizeof(W32));
    }
    if (j < width)
        NAME(max_sum_block)(table + j, x, n, width, out + j, 1);
}

ROWS_AVX2 static void NAME(wide_add_outer)(const REAL *x, double scale, const double *restrict y, ptrdiff_t n,
                                           ptrdiff_t width, double *accumulated)
{
    for (ptrdiff_t a = 0; a < n; a++) {
        const double factor = scale * x[a];
        double *restrict row = accumulated + a * width;
        for (ptrdiff_t b = 0; b < width; b++)
            row[b] += factor * y[b];
    }
}
#undef W32
#undef WIDE
