/* Included by leaf_rows.h once for each precision. */

/* Compilers without vector extensions use arrays of equal length, and loops over them. */
#if LEAF_VECTORS
typedef REAL NAME(block) __attribute__((vector_size(LEAF_BLOCK * sizeof(REAL))));
typedef REAL NAME(half) __attribute__((vector_size(LEAF_HALF * sizeof(REAL))));

LEAF_INLINE void NAME(add_block_product)(const REAL *w, const REAL *x, NAME(block) *lane)
{
    NAME(block) a, b;
    memcpy(&a, w, sizeof(a));
    memcpy(&b, x, sizeof(b));
    *lane += a * b;
}

/* total += factor * x. */
LEAF_INLINE void NAME(add_block)(REAL factor, const REAL *x, REAL *total)
{
    NAME(block) a, sum;
    memcpy(&a, x, sizeof(a));
    memcpy(&sum, total, sizeof(sum));
    sum += factor * a;
    memcpy(total, &sum, sizeof(sum));
}

LEAF_INLINE void NAME(add_half_product)(const REAL *w, const REAL *x, NAME(half) *lane)
{
    NAME(half) a, b;
    memcpy(&a, w, sizeof(a));
    memcpy(&b, x, sizeof(b));
    *lane += a * b;
}

LEAF_INLINE void NAME(add_half)(REAL factor, const REAL *x, REAL *total)
{
    NAME(half) a, sum;
    memcpy(&a, x, sizeof(a));
    memcpy(&sum, total, sizeof(sum));
    sum += factor * a;
    memcpy(total, &sum, sizeof(sum));
}

/* Sums in pairs, since a sequential sum would wait for each addition. */
LEAF_INLINE REAL NAME(lane_total)(const NAME(block) *lane)
{
    NAME(half) low, high;
    memcpy(&low, lane, sizeof(low));
    memcpy(&high, (const REAL *)lane + LEAF_HALF, sizeof(high));
    low += high;
    return (low[0] + low[1]) + (low[2] + low[3]);
}

LEAF_INLINE REAL NAME(half_total)(const NAME(half) *lane)
{
    return ((*lane)[0] + (*lane)[1]) + ((*lane)[2] + (*lane)[3]);
}
#else
typedef struct {
    REAL at[LEAF_BLOCK];
} NAME(block);

typedef struct {
    REAL at[LEAF_HALF];
} NAME(half);

LEAF_INLINE void NAME(add_half_product)(const REAL *w, const REAL *x, NAME(half) *lane)
{
    for (int i = 0; i < LEAF_HALF; i++)
        lane->at[i] += w[i] * x[i];
}

LEAF_INLINE void NAME(add_half)(REAL factor, const REAL *x, REAL *total)
{
    for (int i = 0; i < LEAF_HALF; i++)
        total[i] += factor * x[i];
}

LEAF_INLINE REAL NAME(half_total)(const NAME(half) *lane)
{
    return (lane->at[0] + lane->at[1]) + (lane->at[2] + lane->at[3]);
}

LEAF_INLINE void NAME(add_block_product)(const REAL *w, const REAL *x, NAME(block) *lane)
{
    for (int i = 0; i < LEAF_BLOCK; i++)
        lane->at[i] += w[i] * x[i];
}

LEAF_INLINE void NAME(add_block)(REAL factor, const REAL *x, REAL *total)
{
    for (int i = 0; i < LEAF_BLOCK; i++)
        total[i] += factor * x[i];
}

LEAF_INLINE REAL NAME(lane_total)(const NAME(block) *lane)
{
    const REAL *at = lane->at;
    return ((at[0] + at[4]) + (at[1] + at[5])) + ((at[2] + at[6]) + (at[3] + at[7]));
}
#endif

/* Test for pixels away from borders: distances in memory from the first channel of a pixel to the compared values. A
   leaf is its own successor. */
typedef struct {
    double threshold;
    ptrdiff_t first, other;
    int32_t next[2];
    /* Masks of the subtracted value and of the difference: all bits, no bits, or all except the sign. */
    BITS of_other, of_difference;
} NAME(leaf_test);

LEAF_INLINE REAL NAME(kept_bits)(REAL x, BITS kept)
{
    BITS own;
    memcpy(&own, &x, sizeof(x));
    own &= kept;
    memcpy(&x, &own, sizeof(x));
    return x;
}

/* Without branches, which would be unpredictable; several pixels advance together, so that latencies overlap. */
static inline void NAME(leaf_walk)(const REAL *x, ptrdiff_t F, const NAME(leaf_test) *tests, ptrdiff_t depth,
                                   const int32_t *leaf, ptrdiff_t n, int32_t *out)
{
    int32_t node[LEAF_WALKERS];
    for (ptrdiff_t start = 0; start < n; start += LEAF_WALKERS, x += LEAF_WALKERS * F) {
        const ptrdiff_t n_here = n - start < LEAF_WALKERS ? n - start : LEAF_WALKERS;
        memset(node, 0, sizeof(node));
        for (ptrdiff_t level = 0; level < depth; level++)
            for (ptrdiff_t j = 0; j < n_here; j++) {
                const NAME(leaf_test) *test = tests + node[j];
                REAL value = x[j * F + test->first] - NAME(kept_bits)(x[j * F + test->other], test->of_other);
                node[j] = test->next[NAME(kept_bits)(value, test->of_difference) > test->threshold];
            }
        for (ptrdiff_t j = 0; j < n_here; j++)
            out[start + j] = leaf[node[j]];
    }
}

/* lane += w times the channels of one pixel; product i of each block is added to lane i. */
LEAF_INLINE void NAME(add_products)(const REAL *w, const REAL *x, ptrdiff_t F, NAME(block) *lane)
{
    ptrdiff_t k = 0;
    for (; k < LEAF_LAST(F); k += LEAF_BLOCK)
        NAME(add_block_product)(w + k, x + k, lane);
    NAME(add_block_product)(w + k, x + LEAF_LAST(F), lane);
}

/* total += d times the channels of one pixel. */
LEAF_INLINE void NAME(add_channels)(REAL d, const REAL *x, ptrdiff_t F, REAL *total)
{
    if (F < LEAF_HALF) {
        for (ptrdiff_t i = 0; i < F; i++)
            total[i] += d * x[i];
        return;
    }
    if (F < LEAF_BLOCK) {
        NAME(add_half)(d, x, total);
        NAME(add_half)(d, x + F - LEAF_HALF, total + LEAF_HALF);
        return;
    }
    ptrdiff_t k = 0;
    for (; k < LEAF_LAST(F); k += LEAF_BLOCK)
        NAME(add_block)(d, x + k, total + k);
    NAME(add_block)(d, x + LEAF_LAST(F), total + k);
}

/* One linear value of a factor with few channels. */
LEAF_INLINE REAL NAME(short_value)(const REAL *w, const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size)
{
    if (F < LEAF_HALF) {
        REAL total = w[0];
        for (ptrdiff_t i = 0; i < F; i++)
            total += w[1 + i] * first[i];
        for (ptrdiff_t i = 0; second && i < F; i++)
            total += w[1 + size + i] * second[i];
        return total;
    }
    NAME(half) lane = {0};
    NAME(add_half_product)(w + 1, first, &lane);
    NAME(add_half_product)(w + 1 + LEAF_HALF, first + F - LEAF_HALF, &lane);
    if (second) {
        NAME(add_half_product)(w + 1 + size, second, &lane);
        NAME(add_half_product)(w + 1 + size + LEAF_HALF, second + F - LEAF_HALF, &lane);
    }
    return w[0] + NAME(half_total)(&lane);
}

/* second is NULL for factors of one pixel. A leaf has m rows of 1 + size weights, or 1 + 2 size for pairs. */
LEAF_INLINE void NAME(values_body)(const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size,
                                   const int32_t *leaf, const REAL *weight, ptrdiff_t m, ptrdiff_t n, REAL *out)
{
    ptrdiff_t stride = 1 + (second ? 2 : 1) * size;
    if (F < LEAF_BLOCK) {
        for (ptrdiff_t j = 0; j < n; j++)
            for (ptrdiff_t a = 0; a < m; a++)
                out[j * m + a] = NAME(short_value)(weight + (leaf[j] * m + a) * stride, first + j * F,
                                                   second ? second + j * F : NULL, F, size);
        return;
    }
    for (ptrdiff_t j = 0; j < n; j++)
        for (ptrdiff_t a = 0; a < m; a++) {
            const REAL *w = weight + (leaf[j] * m + a) * stride;
            NAME(block) lane = {0};
            NAME(add_products)(w + 1, first + j * F, F, &lane);
            if (second)
                NAME(add_products)(w + 1 + size, second + j * F, F, &lane);
            out[j * m + a] = w[0] + NAME(lane_total)(&lane);
        }
}

/* Add the partial sums of a leaf, in the precision of the channels, to its total in float64, and reset them. */
LEAF_INLINE void NAME(flush_leaf)(REAL *part, ptrdiff_t n, double *total)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        total[i] += (double)part[i];
        part[i] = 0;
    }
}

/* d and e hold the D derivatives by the linear values of each first and second pixel. A leaf sums up to LEAF_GATHERED
   factors in part, in the precision of the channels, and counts them. */
LEAF_INLINE void NAME(gradient_body)(const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size,
                                     const int32_t *leaf, const double *d, const double *e, ptrdiff_t D, ptrdiff_t n,
                                     REAL *part, int32_t *count, double *out)
{
    ptrdiff_t m = (second ? 2 : 1) * D, stride = 1 + (second ? 2 : 1) * size;
    for (ptrdiff_t j = 0; j < n; j++) {
        REAL *total = part + leaf[j] * m * stride;
        for (ptrdiff_t a = 0; a < m; a++, total += stride) {
            REAL slope = (REAL)(a < D ? d[j * D + a] : e[j * D + a - D]);
            total[0] += slope;
            NAME(add_channels)(slope, first + j * F, F, total + 1);
            if (second)
                NAME(add_channels)(slope, second + j * F, F, total + 1 + size);
        }
        if (++count[leaf[j]] == LEAF_GATHERED) {
            NAME(flush_leaf)(part + leaf[j] * m * stride, m * stride, out + leaf[j] * m * stride);
            count[leaf[j]] = 0;
        }
    }
}

#if LEAF_DISPATCH
LEAF_AVX2 static void NAME(wide_values)(const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size,
                                        const int32_t *leaf, const REAL *weight, ptrdiff_t m, ptrdiff_t n, REAL *out)
{
    NAME(values_body)(first, second, F, size, leaf, weight, m, n, out);
}

LEAF_AVX2 static void NAME(wide_gradient)(const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size,
                                          const int32_t *leaf, const double *d, const double *e, ptrdiff_t D,
                                          ptrdiff_t n, REAL *part, int32_t *count, double *out)
{
    NAME(gradient_body)(first, second, F, size, leaf, d, e, D, n, part, count, out);
}
#endif

static inline void NAME(leaf_values)(const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size,
                                     const int32_t *leaf, const REAL *weight, ptrdiff_t m, ptrdiff_t n, REAL *out)
{
#if LEAF_DISPATCH
    if (use_avx2()) {
        NAME(wide_values)(first, second, F, size, leaf, weight, m, n, out);
        return;
    }
#endif
    NAME(values_body)(first, second, F, size, leaf, weight, m, n, out);
}

static inline void NAME(leaf_gradient)(const REAL *first, const REAL *second, ptrdiff_t F, ptrdiff_t size,
                                       const int32_t *leaf, const double *d, const double *e, ptrdiff_t D,
                                       ptrdiff_t n, REAL *part, int32_t *count, double *out)
{
#if LEAF_DISPATCH
    if (use_avx2()) {
        NAME(wide_gradient)(first, second, F, size, leaf, d, e, D, n, part, count, out);
        return;
    }
#endif
    NAME(gradient_body)(first, second, F, size, leaf, d, e, D, n, part, count, out);
}
