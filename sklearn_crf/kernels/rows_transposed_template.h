/* Included by rows_template.h. */

/* The loops over pairs of states for transposed tables: each row gives one number. Tables larger than the caches are
   read from memory for each direction of their edge; storing a table once for both directions halves its memory. A
   backward sweep reads the tables in the opposite order, so rows are read from the last to the first: processors
   prefetch downwards as well as upwards. x is padded with 0 for sums and with -inf for maxima. */
#if ROWS_DISPATCH
typedef REAL NAME(whole) __attribute__((vector_size(32)));
#define W32 NAME(whole)
#define WIDE (2 * LANES)

ROWS_WIDE_INLINE W32 NAME(lengthened)(V v, REAL padding)
{
    return (W32)_mm256_set_m128d((__m128d)NAME(splat)(padding), (__m128d)v);
}

/* Combine the partial results of two rows pairwise, in one operation. */
#define ADDED(x, y) ((x) + (y))
#define BEST(x, y) ((W32)WIDE_MAX_INSTRUCTION(x, y))
#define IN_PAIRS(combine, x, y) combine((W32)UNPACK_LOW(x, y), (W32)UNPACK_HIGH(x, y))
#define IN_LONG_PAIRS(combine, x, y)                                                                                   \
    combine((W32)_mm256_unpacklo_pd((__m256d)(x), (__m256d)(y)), (W32)_mm256_unpackhi_pd((__m256d)(x), (__m256d)(y)))
#define IN_HALVES(combine, x, y)                                                                                       \
    combine((W32)_mm256_permute2f128_pd((__m256d)(x), (__m256d)(y), 0x20),                                             \
            (W32)_mm256_permute2f128_pd((__m256d)(x), (__m256d)(y), 0x31))

/* Compute one vector of results, one number for each row. n_rows is a constant: the length of a vector or half of it.
   Rows past the last row are read as the last row. */
#define ACROSS_BLOCK(name, combine, of_one, start)                                                                     \
    ROWS_WIDE_INLINE W32 NAME(name)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width,                    \
                                    const int n_rows)                                                                  \
    {                                                                                                                  \
        W32 total[8], part, own;                                                                                       \
        ROWS_UNROLLED                                                                                                  \
        for (int r = n_rows - 1; r >= 0; r--) {                                                                        \
            const REAL *from = table + (r < n ? r : n - 1) * width;                                                    \
            ptrdiff_t b = width & -WIDE;                                                                               \
            total[r] = (W32){0} + (REAL)(start);                                                                       \
            if (b < width) {                                                                                           \
                own = NAME(lengthened)(NAME(load)(x + b), (REAL)(start));                                              \
                total[r] = of_one(own, NAME(lengthened)(NAME(load)(from + b), 0), total[r]);                           \
            }                                                                                                          \
            for (b -= WIDE; b >= 0; b -= WIDE) {                                                                       \
                memcpy(&own, x + b, sizeof(W32));                                                                      \
                memcpy(&part, from + b, sizeof(W32));                                                                  \
                total[r] = of_one(own, part, total[r]);                                                                \
            }                                                                                                          \
        }                                                                                                              \
        for (int r = 0; r < n_rows; r += 2)                                                                            \
            total[r / 2] = IN_PAIRS(combine, total[r], total[r + 1]);                                                  \
        if (LANES == 4)                                                                                                \
            for (int r = 0; r < n_rows / 2; r += 2)                                                                    \
                total[r / 2] = IN_LONG_PAIRS(combine, total[r], total[r + 1]);                                         \
        return IN_HALVES(combine, total[0], n_rows == WIDE ? total[1] : total[0]);                                     \
    }
#define MULTIPLIED(x, y, total) ((total) + (x) * (y))
#define BETTER(x, y, total) BEST((x) + (y), total)
ACROSS_BLOCK(wide_sums_across, ADDED, MULTIPLIED, 0)
ACROSS_BLOCK(wide_maxima_across, BEST, BETTER, -INFINITY)
#undef MULTIPLIED
#undef BETTER
#undef ACROSS_BLOCK
#undef IN_HALVES
#undef IN_LONG_PAIRS
#undef IN_PAIRS
#undef BEST
#undef ADDED

#define WIDE_ROWS(block)                                                                                               \
    ptrdiff_t a = n & -WIDE;                                                                                           \
    W32 found;                                                                                                         \
    if (a + LANES < n) {                                                                                               \
        found = block(table + a * width, x, n - a, width, WIDE);                                                       \
        memcpy(out + a, &found, sizeof(W32));                                                                          \
    } else if (a < n) {                                                                                                \
        found = block(table + a * width, x, n - a, width, LANES);                                                      \
        memcpy(out + a, &found, sizeof(V));                                                                            \
    }                                                                                                                  \
    for (a -= WIDE; a >= 0; a -= WIDE) {                                                                               \
        found = block(table + a * width, x, n - a, width, WIDE);                                                       \
        memcpy(out + a, &found, sizeof(W32));                                                                          \
    }

ROWS_AVX2 static void NAME(wide_sum_product_across)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width,
                                                    REAL *out)
{
    WIDE_ROWS(NAME(wide_sums_across))
}

ROWS_AVX2 static void NAME(wide_max_sum_across)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width,
                                                REAL *out)
{
    WIDE_ROWS(NAME(wide_maxima_across))
}
#undef WIDE_ROWS
#undef WIDE
#undef W32
#endif

/* out[a] = sum over b of table[a, b] x[b] for a < n, 0 in the padding */
ROWS_INLINE void NAME(sum_product_across)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
#if ROWS_DISPATCH
    if (use_avx2())
        NAME(wide_sum_product_across)(table, x, n, width, out);
    else
#endif
        for (ptrdiff_t a = 0; a < n; a++)
            out[a] = NAME(row_dot)(table + a * width, x, width);
    if (n < width)
        NAME(pad)(out, n, width, 0);
}

/* out[a] = max over b of table[a, b] + x[b] for a < n, -inf in the padding */
ROWS_INLINE void NAME(max_sum_across)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
#if ROWS_DISPATCH
    if (use_avx2())
        NAME(wide_max_sum_across)(table, x, n, width, out);
    else
#endif
        for (ptrdiff_t a = 0; a < n; a++) {
            V top = NAME(splat)((REAL)-INFINITY);
            for (ptrdiff_t b = 0; b < width; b += LANES)
                top = NAME(larger)(NAME(load)(table + a * width + b) + NAME(load)(x + b), top);
            out[a] = NAME(max_lanes)(top);
        }
    if (n < width)
        NAME(pad)(out, n, width, (REAL)-INFINITY);
}
