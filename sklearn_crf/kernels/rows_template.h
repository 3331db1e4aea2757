/* Included by rows.h once for each precision, with REAL, INTEGER (as wide), NAME, EXP and MAX_INSTRUCTION defined. */

#define V NAME(vector)
#define INTEGERS NAME(integers)
#if ROWS_VECTORS
typedef REAL V __attribute__((vector_size(16)));
typedef INTEGER INTEGERS __attribute__((vector_size(16)));
#else
typedef REAL V;
#endif
#define LANES ((ptrdiff_t)(sizeof(V) / sizeof(REAL)))

ROWS_INLINE V NAME(load)(const REAL *from)
{
    V v;
    memcpy(&v, from, sizeof(V));
    return v;
}

ROWS_INLINE void NAME(store)(REAL *to, V v) { memcpy(to, &v, sizeof(V)); }

ROWS_INLINE V NAME(splat)(REAL x)
{
#if ROWS_VECTORS
    V v = {0};
    return v + x;
#else
    return x;
#endif
}

/* The larger of a and b, or b if a is NaN: a change from -inf to -inf counts as no change. */
ROWS_INLINE V NAME(larger)(V a, V b)
{
#if ROWS_SSE2
    return (V)MAX_INSTRUCTION(a, b);
#elif ROWS_VECTORS
    const INTEGERS mask = a > b;
    return (V)((mask & (INTEGERS)a) | (~mask & (INTEGERS)b));
#else
    return a > b ? a : b;
#endif
}

ROWS_INLINE REAL NAME(sum_lanes)(V v)
{
    REAL x[sizeof(V) / sizeof(REAL)], total;
    memcpy(x, &v, sizeof(V));
    total = x[0];
    for (int l = 1; l < LANES; l++)
        total += x[l];
    return total;
}

ROWS_INLINE REAL NAME(max_lanes)(V v)
{
    REAL x[sizeof(V) / sizeof(REAL)], top;
    memcpy(x, &v, sizeof(V));
    top = x[0];
    for (int l = 1; l < LANES; l++)
        top = x[l] > top ? x[l] : top;
    return top;
}

ROWS_INLINE REAL NAME(row_sum)(const REAL *row, ptrdiff_t width)
{
    V total = NAME(splat)(0);
    for (ptrdiff_t j = 0; j < width; j += LANES)
        total += NAME(load)(row + j);
    return NAME(sum_lanes)(total);
}

ROWS_INLINE REAL NAME(row_max)(const REAL *row, ptrdiff_t width)
{
    V top = NAME(load)(row);
    for (ptrdiff_t j = LANES; j < width; j += LANES)
        top = NAME(larger)(NAME(load)(row + j), top);
    return NAME(max_lanes)(top);
}

ROWS_INLINE void NAME(row_scale)(REAL *row, REAL factor, ptrdiff_t width)
{
    for (ptrdiff_t j = 0; j < width; j += LANES)
        NAME(store)(row + j, NAME(load)(row + j) * factor);
}

ROWS_INLINE REAL NAME(row_dot)(const REAL *x, const REAL *y, ptrdiff_t width)
{
    V total = NAME(splat)(0);
    for (ptrdiff_t j = 0; j < width; j += LANES)
        total += NAME(load)(x + j) * NAME(load)(y + j);
    return NAME(sum_lanes)(total);
}

/* out = x / y, 0 where y is 0 */
ROWS_INLINE void NAME(row_quotient)(const REAL *x, const REAL *y, ptrdiff_t width, REAL *out)
{
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        V divisor = NAME(load)(y + j), ratio = NAME(load)(x + j) / divisor;
#if ROWS_VECTORS
        ratio = (V)((INTEGERS)ratio & (INTEGERS)(divisor > 0));
#else
        ratio = divisor > 0 ? ratio : 0;
#endif
        NAME(store)(out + j, ratio);
    }
}

/* out = base * product of rows first to last - 1 without row skip */
ROWS_INLINE void NAME(product_of_rows)(const REAL *base, const REAL *rows, ptrdiff_t first, ptrdiff_t last,
                                       ptrdiff_t skip, ptrdiff_t width, REAL *out)
{
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        V x = NAME(load)(base + j);
        for (ptrdiff_t q = first; q < skip; q++)
            x *= NAME(load)(rows + q * width + j);
        for (ptrdiff_t q = skip + 1; q < last; q++)
            x *= NAME(load)(rows + q * width + j);
        NAME(store)(out + j, x);
    }
}

ROWS_INLINE void NAME(sum_of_rows)(const REAL *base, const REAL *rows, ptrdiff_t first, ptrdiff_t last,
                                   ptrdiff_t skip, ptrdiff_t width, REAL *out)
{
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        V x = NAME(load)(base + j);
        for (ptrdiff_t q = first; q < skip; q++)
            x += NAME(load)(rows + q * width + j);
        for (ptrdiff_t q = skip + 1; q < last; q++)
            x += NAME(load)(rows + q * width + j);
        NAME(store)(out + j, x);
    }
}

/* Keeps the columns in registers during the loop over rows: n_vectors must be a constant of at most 4. */
ROWS_INLINE void NAME(sum_product_block)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out,
                                         const int n_vectors)
{
    V total[4];
    for (int k = 0; k < n_vectors; k++)
        total[k] = NAME(splat)(0);
    for (ptrdiff_t a = 0; a < n; a++)
        for (int k = 0; k < n_vectors; k++)
            total[k] += x[a] * NAME(load)(table + a * width + k * LANES);
    for (int k = 0; k < n_vectors; k++)
        NAME(store)(out + k * LANES, total[k]);
}

ROWS_INLINE void NAME(max_sum_block)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out,
                                     const int n_vectors)
{
    V top[4];
    for (int k = 0; k < n_vectors; k++)
        top[k] = NAME(splat)((REAL)-INFINITY);
    for (ptrdiff_t a = 0; a < n; a++)
        for (int k = 0; k < n_vectors; k++)
            top[k] = NAME(larger)(x[a] + NAME(load)(table + a * width + k * LANES), top[k]);
    for (int k = 0; k < n_vectors; k++)
        NAME(store)(out + k * LANES, top[k]);
}

#if ROWS_DISPATCH
#include "rows_wide_template.h"
#endif

#include "rows_powers_template.h"

/* out[b] = sum over a < n of x[a] table[a, b] */
ROWS_INLINE void NAME(sum_product)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    ptrdiff_t j = 0;
#if ROWS_DISPATCH
    if (n * width >= ROWS_WORTH_A_CALL && use_avx2()) {
        NAME(wide_sum_product)(table, x, n, width, out);
        return;
    }
#endif
    for (; j + 4 * LANES <= width; j += 4 * LANES)
        NAME(sum_product_block)(table + j, x, n, width, out + j, 4);
    for (; j + 2 * LANES <= width; j += 2 * LANES)
        NAME(sum_product_block)(table + j, x, n, width, out + j, 2);
    for (; j < width; j += LANES)
        NAME(sum_product_block)(table + j, x, n, width, out + j, 1);
}

/* out[b] = max over a < n of x[a] + table[a, b] */
ROWS_INLINE void NAME(max_sum)(const REAL *table, const REAL *x, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    ptrdiff_t j = 0;
#if ROWS_DISPATCH
    if (n * width >= ROWS_WORTH_A_CALL && use_avx2()) {
        NAME(wide_max_sum)(table, x, n, width, out);
        return;
    }
#endif
    for (; j + 4 * LANES <= width; j += 4 * LANES)
        NAME(max_sum_block)(table + j, x, n, width, out + j, 4);
    for (; j + 2 * LANES <= width; j += 2 * LANES)
        NAME(max_sum_block)(table + j, x, n, width, out + j, 2);
    for (; j < width; j += LANES)
        NAME(max_sum_block)(table + j, x, n, width, out + j, 1);
}

/* Normalise a new row of probabilities and store it over the old row. Returns the largest change, or -1 if all entries
   are zero. With damping below 0, there is no old row. */
ROWS_INLINE double NAME(replace_probabilities)(const REAL *fresh, REAL *kept, ptrdiff_t width, double damping)
{
    REAL total = NAME(row_sum)(fresh, width), scale;
    V worst = NAME(splat)(0);
    if (!(total > 0))
        return -1.0;
    scale = 1 / total;
    if (damping < 0) {
        for (ptrdiff_t j = 0; j < width; j += LANES)
            NAME(store)(kept + j, NAME(load)(fresh + j) * scale);
        return 0;
    }
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        V p = NAME(load)(fresh + j) * scale, change = p - NAME(load)(kept + j);
        NAME(store)(kept + j, p - change * (REAL)damping);
        worst = NAME(larger)(NAME(larger)(change, -change), worst);
    }
    return NAME(max_lanes)(worst);
}

/* Shift a new row of scores to a maximum of 0 and store it over the old row; returns -1 if all entries are -inf. */
ROWS_INLINE double NAME(replace_scores)(REAL *fresh, REAL *kept, ptrdiff_t width, double damping)
{
    REAL top = NAME(row_max)(fresh, width);
    V worst = NAME(splat)(0);
    if (!(top > -INFINITY))
        return -1.0;
    if (damping < 0) {
        for (ptrdiff_t j = 0; j < width; j += LANES)
            NAME(store)(kept + j, NAME(load)(fresh + j) - top);
        return 0;
    }
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        V x = NAME(load)(fresh + j) - top, change = x - NAME(load)(kept + j);
        worst = NAME(larger)(NAME(larger)(change, -change), worst);
        NAME(store)(fresh + j, x);
        if (damping == 0)
            NAME(store)(kept + j, x);
    }
    if (damping == 0)
        return NAME(max_lanes)(worst);
    for (ptrdiff_t a = 0; a < width; a++) /* changes from or to -inf are not damped */
        kept[a] = isfinite(kept[a]) && isfinite(fresh[a]) ? (REAL)(fresh[a] + damping * (kept[a] - fresh[a])) : fresh[a];
    return NAME(max_lanes)(worst);
}

/* v in the lanes before n, padding in the rest */
ROWS_INLINE V NAME(padded)(V v, ptrdiff_t n, REAL padding)
{
#if ROWS_VECTORS
    INTEGERS lane, inside;
    for (int l = 0; l < LANES; l++)
        lane[l] = l;
    inside = lane < (INTEGER)n;
    return (V)((inside & (INTEGERS)v) | (~inside & (INTEGERS)NAME(splat)(padding)));
#else
    return n > 0 ? v : padding;
#endif
}

/* Only the last vector of a row may hold padding. */
ROWS_INLINE void NAME(pad)(REAL *row, ptrdiff_t n, ptrdiff_t width, REAL padding)
{
    REAL *last = row + width - LANES;
    NAME(store)(last, NAME(padded)(NAME(load)(last), n - (width - LANES), padding));
}

#include "rows_transposed_template.h"

/* Message of a Potts table: out[b] = on x[b] + off * (sum of all x except x[b]). One of on and off is 1, the other is
   ratio. No subtraction can cancel, because at most one state holds more than half of the sum. */
ROWS_INLINE void NAME(potts_sum_product)(const REAL *x, REAL on, REAL off, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    const REAL total = NAME(row_sum)(x, width);
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        V own = NAME(load)(x + j);
        NAME(store)(out + j, off * (total - own) + on * own);
    }
    if (n < width)
        NAME(pad)(out, n, width, 0);
    if (on < off)
        for (ptrdiff_t b = 0; b < n; b++)
            if (2 * x[b] > total) {
                REAL others = 0;
                for (ptrdiff_t a = 0; a < n; a++)
                    others += a == b ? 0 : x[a];
                out[b] = off * others + on * x[b];
            }
}

ROWS_INLINE void NAME(potts_max_sum)(const REAL *x, REAL on, REAL off, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    const REAL best = NAME(row_max)(x, width);
    V switched = NAME(splat)(best + off);
    for (ptrdiff_t j = 0; j < width; j += LANES)
        NAME(store)(out + j, NAME(larger)(NAME(load)(x + j) + on, switched));
    if (n < width)
        NAME(pad)(out, n, width, (REAL)-INFINITY);
    if (on < off) { /* the best state can only be reached from the second-best state */
        REAL second = (REAL)-INFINITY;
        ptrdiff_t winner = 0;
        while (winner < n - 1 && x[winner] != best)
            winner++;
        for (ptrdiff_t a = 0; a < n; a++)
            second = a != winner && x[a] > second ? x[a] : second;
        out[winner] = best + on > second + off ? best + on : second + off;
    }
}

/* Replace each entry by the sum of all other entries. */
ROWS_INLINE V NAME(sums_of_others)(V x)
{
#if ROWS_VECTORS
    V total = {0};
    for (int k = 1; k < LANES; k++) {
        V turned;
        for (int l = 0; l < LANES; l++)
            turned[l] = x[(l + k) % LANES];
        total += turned;
    }
    return total;
#else
    return 0 * x;
#endif
}

/* Compute a whole message in registers: cavity, sum over states, normalisation. Rows have one or two vectors (up to
   four states, or eight in single precision). n is the number of states of the sender, n_columns of all states; table
   is NULL for a Potts table. ``halved`` says that messages are raised to the power 1/2; the cavity then has the inverse
   of the message. n_vectors and halved must be constants. */
ROWS_INLINE double NAME(send_vectors)(const REAL *base, const REAL *rows, ptrdiff_t first, ptrdiff_t last,
                                      ptrdiff_t skip, const REAL *table, REAL on, REAL off, ptrdiff_t n,
                                      ptrdiff_t n_columns, REAL *kept, double damping, const int n_vectors,
                                      const int halved)
{
    const ptrdiff_t width = n_vectors * LANES;
    V x[2], out[2], total, worst = NAME(splat)(0);
    REAL scale;
    for (int k = 0; k < n_vectors; k++)
        x[k] = NAME(load)(base + k * LANES);
    for (ptrdiff_t q = first; q < skip; q++)
        for (int k = 0; k < n_vectors; k++)
            x[k] *= NAME(load)(rows + q * width + k * LANES);
    for (ptrdiff_t q = skip + 1; q < last; q++)
        for (int k = 0; k < n_vectors; k++)
            x[k] *= NAME(load)(rows + q * width + k * LANES);
    for (int k = 0; k < n_vectors && halved; k++) {
        const V own = NAME(load)(rows + skip * width + k * LANES);
        x[k] = NAME(where_normal)(x[k] / own, own);
    }
#if ROWS_VECTORS
    if (table == NULL) {
        for (int k = 0; k < n_vectors; k++) {
            V others = NAME(sums_of_others)(x[k]);
            if (n_vectors == 2)
                others += NAME(sum_lanes)(x[1 - k]);
            out[k] = on * x[k] + off * others;
        }
        if (n_columns < width)
            out[n_vectors - 1] = NAME(padded)(out[n_vectors - 1], n_columns - (width - LANES), 0);
    } else {
        for (int k = 0; k < n_vectors; k++)
            out[k] = x[0][0] * NAME(load)(table + k * LANES);
        ROWS_UNROLLED
        for (ptrdiff_t a = 1; a < width; a++) { /* constant loop bounds keep x in registers */
            if (a == n)
                break;
            for (int k = 0; k < n_vectors; k++)
                out[k] += x[a / LANES][a % LANES] * NAME(load)(table + a * width + k * LANES);
        }
    }
#else
    (void)on, (void)off, (void)n, (void)n_columns;
    out[0] = x[0] * table[0];
#endif
    for (int k = 0; k < n_vectors && halved; k++)
        out[k] = NAME(where_normal)(NAME(square_root)(out[k]), out[k]);
    total = n_vectors == 2 ? out[0] + out[1] : out[0];
    scale = NAME(sum_lanes)(total);
    if (!(scale > 0))
        return -1.0;
    scale = 1 / scale;
    for (int k = 0; k < n_vectors; k++) {
        const V p = out[k] * scale;
        if (damping < 0) {
            NAME(store)(kept + k * LANES, p);
        } else {
            const V change = p - NAME(load)(kept + k * LANES);
            /* The next message waits for the stored row; without damping, it need not wait for the change. */
            NAME(store)(kept + k * LANES, damping > 0 ? p - change * (REAL)damping : p);
            worst = NAME(larger)(NAME(larger)(change, -change), worst);
        }
    }
    return NAME(max_lanes)(worst);
}

ROWS_INLINE double NAME(send_short)(const REAL *base, const REAL *rows, ptrdiff_t first, ptrdiff_t last, ptrdiff_t skip,
                                    const REAL *table, REAL on, REAL off, ptrdiff_t n, ptrdiff_t n_columns, REAL *kept,
                                    double damping, ptrdiff_t width, int halved)
{
    if (width == LANES && !halved)
        return NAME(send_vectors)(base, rows, first, last, skip, table, on, off, n, n_columns, kept, damping, 1, 0);
    if (width == LANES)
        return NAME(send_vectors)(base, rows, first, last, skip, table, on, off, n, n_columns, kept, damping, 1, 1);
    if (!halved)
        return NAME(send_vectors)(base, rows, first, last, skip, table, on, off, n, n_columns, kept, damping, 2, 0);
    return NAME(send_vectors)(base, rows, first, last, skip, table, on, off, n, n_columns, kept, damping, 2, 1);
}

/* out = row - max row over n entries, -inf in the padding. Returns the maximum. */
ROWS_INLINE REAL NAME(row_below_best)(const REAL *row, ptrdiff_t n, ptrdiff_t width, REAL *out)
{
    REAL best;
    for (ptrdiff_t a = 0; a < n; a++)
        out[a] = row[a];
    for (ptrdiff_t a = n; a < width; a++)
        out[a] = (REAL)-INFINITY;
    best = NAME(row_max)(out, width);
    for (ptrdiff_t j = 0; j < width; j += LANES)
        NAME(store)(out + j, NAME(load)(out + j) - best);
    return best;
}

/* x = exp(x - max x) over n entries, 0 in the padding. Returns the maximum. */
ROWS_INLINE REAL NAME(exponentiate)(REAL *x, ptrdiff_t n, ptrdiff_t width)
{
    REAL top = NAME(row_max)(x, width);
    for (ptrdiff_t a = 0; a < n; a++)
        x[a] = EXP(x[a] - top);
    for (ptrdiff_t a = n; a < width; a++)
        x[a] = 0;
    return top;
}

/* accumulated[a, b] += x[a] y[b] in double precision, whatever the precision of x and y */
ROWS_INLINE void NAME(add_outer)(const REAL *x, double scale, const double *restrict y, ptrdiff_t n,
                                 ptrdiff_t width, double *accumulated)
{
#if ROWS_DISPATCH
    if (n * width >= ROWS_WORTH_A_CALL && use_avx2()) {
        NAME(wide_add_outer)(x, scale, y, n, width, accumulated);
        return;
    }
#endif
    for (ptrdiff_t a = 0; a < n; a++) {
        const double factor = scale * x[a];
        double *restrict row = accumulated + a * width;
        for (ptrdiff_t b = 0; b < width; b++)
            row[b] += factor * y[b];
    }
}

#undef V
#undef INTEGERS
#undef LANES
