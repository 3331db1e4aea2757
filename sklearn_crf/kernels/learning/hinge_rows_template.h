/* Included by hinge_rows.h once for each length of vectors, with BYTES, TARGET and ROWS(name) defined. */

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
        const double factor = factors[q];
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

TARGET static double ROWS(product)(const double *a, const double *b, ptrdiff_t n)
{
    ROWS(vector) sums[HINGE_SUMS / LANES] = {{0}};
    double lanes[HINGE_SUMS], total = 0;
    ptrdiff_t k = 0;
    for (; k + HINGE_SUMS <= n; k += HINGE_SUMS)
        for (int v = 0; v < HINGE_SUMS / LANES; v++)
            sums[v] += ROWS(load)(a + k + v * LANES) * ROWS(load)(b + k + v * LANES);
    memcpy(lanes, sums, sizeof(lanes));
    for (int i = 0; i < HINGE_SUMS; i++)
        total += lanes[i];
    for (; k < n; k++)
        total += a[k] * b[k];
    return total;
}

TARGET static void ROWS(move)(double size, const double *along, double recent, double *x, double *mean, ptrdiff_t n)
{
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        ROWS(vector) own = ROWS(load)(x + k), average = ROWS(load)(mean + k);
        own += size * ROWS(load)(along + k);
        average += recent * (own - average);
        memcpy(x + k, &own, sizeof(own));
        memcpy(mean + k, &average, sizeof(average));
    }
    for (; k < n; k++) {
        x[k] += size * along[k];
        mean[k] += recent * (x[k] - mean[k]);
    }
}

#undef INLINE
#undef LANES
