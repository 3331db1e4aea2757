/* Included by rows_template.h. */

/* The three loops over pairs of states for processors with vectors of 32 bytes. Along a chain, each message waits for
   the previous message, so latency matters: the rows are distributed over several accumulators. */
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

/* Keeps columns in registers during the loop over rows, so that tables larger than the caches are read once and in
   order: n_vectors vectors of 32 bytes, at most 8, and one of 16 bytes if `half`. The rows are distributed over n_sums
   accumulators, at most 4. All three must be constants. */
ROWS_WIDE_INLINE void NAME(wide_sum_block)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out,
                                           const int n_vectors, const int half, const int n_sums)
{
    W32 total[4][8], row;
    V last[4], part;
    ptrdiff_t a = 0;
    for (int r = 0; r < n_sums; r++) {
        for (int k = 0; k < n_vectors; k++)
            total[r][k] = (W32){0};
        last[r] = (V){0};
    }
    for (; a + n_sums <= n; a += n_sums)
        for (int r = 0; r < n_sums; r++) {
            const REAL *from = table + (a + r) * width;
            for (int k = 0; k < n_vectors; k++) {
                memcpy(&row, from + k * WIDE, sizeof(W32));
                total[r][k] += x[a + r] * row;
            }
            if (half) {
                memcpy(&part, from + n_vectors * WIDE, sizeof(V));
                last[r] += x[a + r] * part;
            }
        }
    for (; n_sums > 1 && a < n; a++) {
        const REAL *from = table + a * width;
        for (int k = 0; k < n_vectors; k++) {
            memcpy(&row, from + k * WIDE, sizeof(W32));
            total[0][k] += x[a] * row;
        }
        if (half) {
            memcpy(&part, from + n_vectors * WIDE, sizeof(V));
            last[0] += x[a] * part;
        }
    }
    for (int k = 0; k < n_vectors; k++) {
        row = total[0][k];
        if (n_sums == 4)
            row += total[1][k] + (total[2][k] + total[3][k]);
        else if (n_sums == 2)
            row += total[1][k];
        memcpy(out + k * WIDE, &row, sizeof(W32));
    }
    if (half) {
        part = last[0];
        if (n_sums == 4)
            part += last[1] + (last[2] + last[3]);
        else if (n_sums == 2)
            part += last[1];
        memcpy(out + n_vectors * WIDE, &part, sizeof(V));
    }
}

ROWS_WIDE_INLINE void NAME(wide_max_block)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out,
                                           const int n_vectors, const int half, const int n_sums)
{
    W32 top[4][8], row;
    V last[4], part;
    ptrdiff_t a = 0;
    for (int r = 0; r < n_sums; r++) {
        for (int k = 0; k < n_vectors; k++)
            top[r][k] = (W32){0} - (REAL)INFINITY;
        last[r] = (V){0} - (REAL)INFINITY;
    }
    for (; a + n_sums <= n; a += n_sums)
        for (int r = 0; r < n_sums; r++) {
            const REAL *from = table + (a + r) * width;
            for (int k = 0; k < n_vectors; k++) {
                memcpy(&row, from + k * WIDE, sizeof(W32));
                top[r][k] = (W32)WIDE_MAX_INSTRUCTION(x[a + r] + row, top[r][k]);
            }
            if (half) {
                memcpy(&part, from + n_vectors * WIDE, sizeof(V));
                last[r] = NAME(larger)(x[a + r] + part, last[r]);
            }
        }
    for (; n_sums > 1 && a < n; a++) {
        const REAL *from = table + a * width;
        for (int k = 0; k < n_vectors; k++) {
            memcpy(&row, from + k * WIDE, sizeof(W32));
            top[0][k] = (W32)WIDE_MAX_INSTRUCTION(x[a] + row, top[0][k]);
        }
        if (half) {
            memcpy(&part, from + n_vectors * WIDE, sizeof(V));
            last[0] = NAME(larger)(x[a] + part, last[0]);
        }
    }
    for (int k = 0; k < n_vectors; k++) {
        row = top[0][k];
        for (int r = 1; r < n_sums; r++)
            row = (W32)WIDE_MAX_INSTRUCTION(top[r][k], row);
        memcpy(out + k * WIDE, &row, sizeof(W32));
    }
    if (half) {
        part = last[0];
        for (int r = 1; r < n_sums; r++)
            part = NAME(larger)(last[r], part);
        memcpy(out + n_vectors * WIDE, &part, sizeof(V));
    }
}

/* Process all columns in one pass over the rows, at most eight vectors at a time. */
#define WIDE_COLUMNS(block)                                                                                            \
    ptrdiff_t j = 0;                                                                                                   \
    for (; j + 8 * WIDE <= width; j += 8 * WIDE)                                                                       \
        block(table + j, x, n, width, out + j, 8, 0, 1);                                                               \
    switch ((width - j) / LANES) {                                                                                     \
    case 1: block(table + j, x, n, width, out + j, 0, 1, 4); break;                                                    \
    case 2: block(table + j, x, n, width, out + j, 1, 0, 4); break;                                                    \
    case 3: block(table + j, x, n, width, out + j, 1, 1, 4); break;                                                    \
    case 4: block(table + j, x, n, width, out + j, 2, 0, 4); break;                                                    \
    case 5: block(table + j, x, n, width, out + j, 2, 1, 4); break;                                                    \
    case 6: block(table + j, x, n, width, out + j, 3, 0, 2); break;                                                    \
    case 7: block(table + j, x, n, width, out + j, 3, 1, 2); break;                                                    \
    case 8: block(table + j, x, n, width, out + j, 4, 0, 2); break;                                                    \
    case 9: block(table + j, x, n, width, out + j, 4, 1, 2); break;                                                    \
    case 10: block(table + j, x, n, width, out + j, 5, 0, 1); break;                                                   \
    case 11: block(table + j, x, n, width, out + j, 5, 1, 1); break;                                                   \
    case 12: block(table + j, x, n, width, out + j, 6, 0, 1); break;                                                   \
    case 13: block(table + j, x, n, width, out + j, 6, 1, 1); break;                                                   \
    case 14: block(table + j, x, n, width, out + j, 7, 0, 1); break;                                                   \
    case 15: block(table + j, x, n, width, out + j, 7, 1, 1); break;                                                   \
    default: break;                                                                                                    \
    }

ROWS_AVX2 static void NAME(wide_sum_product)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    WIDE_COLUMNS(NAME(wide_sum_block))
}

ROWS_AVX2 static void NAME(wide_max_sum)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    WIDE_COLUMNS(NAME(wide_max_block))
}
#undef WIDE_COLUMNS

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
