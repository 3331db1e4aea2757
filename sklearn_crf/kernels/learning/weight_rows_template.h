/* Included by weight_rows.h once for each set of instructions, with TARGET and ROWS(name) defined: the compiler
   vectorises over columns. Sums of rows use vectors of BYTES explicitly, if it is defined, to stay in registers. */

#ifdef BYTES

typedef double ROWS(vector) __attribute__((vector_size(BYTES)));

#define LANES ((ptrdiff_t)(BYTES / sizeof(double)))
#define INLINE TARGET static inline __attribute__((always_inline))

INLINE ROWS(vector) ROWS(load)(const double *from)
{
    ROWS(vector) found;
    memcpy(&found, from, sizeof(found));
    return found;
}

/* Columns first to first + n_vectors * LANES. The last vector starts at ``last`` and may overlap the previous vector,
   with equal results. n_vectors is a constant of at most 8, so that the sums stay in registers. */
INLINE void ROWS(weighted_block)(const double *rows, const int32_t *index, const double *factors, ptrdiff_t n,
                                 ptrdiff_t width, ptrdiff_t first, ptrdiff_t last, double *out, const int n_vectors)
{
    ROWS(vector) total[8] = {{0}};
    for (ptrdiff_t q = 0; q < n; q++) {
        const double *row = rows + index[q] * width;
        const double factor = factors ? factors[q] : 1;
        for (int v = 0; v < n_vectors - 1; v++)
            total[v] += factor * ROWS(load)(row + first + v * LANES);
        total[n_vectors - 1] += factor * ROWS(load)(row + last);
    }
    for (int v = 0; v < n_vectors - 1; v++)
        memcpy(out + first + v * LANES, &total[v], sizeof(total[v]));
    memcpy(out + last, &total[n_vectors - 1], sizeof(total[0]));
}

/* width is LANES or more. */
TARGET static void ROWS(sum_weighted_rows)(const double *rows, const int32_t *index, const double *factors, ptrdiff_t n,
                                           ptrdiff_t width, double *out)
{
#define BLOCK(n_vectors)                                                                                               \
    case n_vectors:                                                                                                    \
        ROWS(weighted_block)(rows, index, factors, n, width, k, last, out, n_vectors);                                 \
        break
    for (ptrdiff_t k = 0; k < width; k += 8 * LANES) {
        const ptrdiff_t left = (width - k + LANES - 1) / LANES, n_vectors = left < 8 ? left : 8;
        const ptrdiff_t whole = k + (n_vectors - 1) * LANES, last = whole + LANES <= width ? whole : width - LANES;
        switch (n_vectors) {
            BLOCK(1);
            BLOCK(2);
            BLOCK(3);
            BLOCK(4);
            BLOCK(5);
            BLOCK(6);
            BLOCK(7);
            BLOCK(8);
        }
    }
#undef BLOCK
}

/* out (4, 2) = products of four rows a with two rows b; their sums stay in registers */
TARGET static void ROWS(products)(const double *const *a, const double *const *b, ptrdiff_t n, double *out)
{
    ROWS(vector) sums[8] = {{0}};
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        const ROWS(vector) first = ROWS(load)(b[0] + k), second = ROWS(load)(b[1] + k);
        for (int i = 0; i < 4; i++) {
            const ROWS(vector) own = ROWS(load)(a[i] + k);
            sums[2 * i] += own * first;
            sums[2 * i + 1] += own * second;
        }
    }
    for (int i = 0; i < 8; i++) {
        out[i] = 0;
        for (int lane = 0; lane < LANES; lane++)
            out[i] += sums[i][lane];
        for (ptrdiff_t left = k; left < n; left++)
            out[i] += a[i / 2][left] * b[i % 2][left];
    }
}

#undef INLINE
#undef LANES

#else

static void ROWS(sum_weighted_rows)(const double *rows, const int32_t *index, const double *factors, ptrdiff_t n,
                                    ptrdiff_t width, double *out)
{
    for (ptrdiff_t k = 0; k < width; k++)
        out[k] = 0;
    for (ptrdiff_t q = 0; q < n; q++) {
        const double *row = rows + index[q] * width;
        const double factor = factors ? factors[q] : 1;
        for (ptrdiff_t k = 0; k < width; k++)
            out[k] += factor * row[k];
    }
}

static void ROWS(products)(const double *const *a, const double *const *b, ptrdiff_t n, double *out)
{
    for (int i = 0; i < 8; i++) {
        out[i] = 0;
        for (ptrdiff_t k = 0; k < n; k++)
            out[i] += a[i / 2][k] * b[i % 2][k];
    }
}

#endif

/* Sum of a[k] * b[k] */
TARGET static double ROWS(product)(const double *restrict a, const double *restrict b, ptrdiff_t n)
{
    double sums[N_SUMS] = {0}, total = 0;
    ptrdiff_t k = 0;
    for (; k + N_SUMS <= n; k += N_SUMS)
        for (int i = 0; i < N_SUMS; i++)
            sums[i] += a[k + i] * b[k + i];
    for (int i = 0; i < N_SUMS; i++)
        total += sums[i];
    for (; k < n; k++)
        total += a[k] * b[k];
    return total;
}

/* x -= size * along; lag changes likewise, times a factor */
TARGET static void ROWS(move_weights)(double *restrict x, double *restrict lag, const double *restrict along,
                                      ptrdiff_t n, double size, double factor)
{
    for (ptrdiff_t k = 0; k < n; k++) {
        const double moved = size * along[k];
        x[k] -= moved;
        lag[k] -= factor * moved;
    }
}

/* rows[index[q]] += added */
TARGET static void ROWS(add_to_rows)(double *rows, const int32_t *restrict index, ptrdiff_t n, ptrdiff_t width,
                                     const double *restrict added)
{
    for (ptrdiff_t q = 0; q < n; q++) {
        double *restrict row = rows + index[q] * width;
        for (ptrdiff_t k = 0; k < width; k++)
            row[k] += added[k];
    }
}

/* values[slot[q]] += factors[q] * row */
TARGET static void ROWS(add_to_slots)(double *restrict values, const int32_t *restrict slot,
                                         const double *restrict factors, ptrdiff_t n, const double *restrict row,
                                         ptrdiff_t width)
{
    for (ptrdiff_t q = 0; q < n; q++) {
        double *restrict own = values + slot[q] * width;
        const double factor = factors[q];
        for (ptrdiff_t k = 0; k < width; k++)
            own[k] += factor * row[k];
    }
}

/* by_column[k] = sum of x[rows[q]][k] * values[q][k] */
TARGET static void ROWS(weigh_rows)(const double *restrict x, const int32_t *restrict rows,
                                    const double *restrict values, ptrdiff_t n, ptrdiff_t width,
                                    double *restrict by_column)
{
    for (ptrdiff_t k = 0; k < width; k++)
        by_column[k] = 0;
    for (ptrdiff_t q = 0; q < n; q++) {
        const double *restrict at = x + rows[q] * width, *restrict own = values + q * width;
        for (ptrdiff_t k = 0; k < width; k++)
            by_column[k] += at[k] * own[k];
    }
}
