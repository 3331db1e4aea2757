/* Cosine transform of eight numbers, for eight transforms at once. */

#ifndef SKLEARN_CRF_COSINE_LANES_H
#define SKLEARN_CRF_COSINE_LANES_H

#include "lanes.h"

#define COSINE_SIDE 8

/* cos(k pi / 16) / 2 and 1 / sqrt(8). */
#define COSINE_C1 0.49039264f
#define COSINE_C2 0.46193977f
#define COSINE_C3 0.41573481f
#define COSINE_C4 0.35355339f
#define COSINE_C5 0.27778512f
#define COSINE_C6 0.19134172f
#define COSINE_C7 0.09754516f

/* a * c + b * d + e * f + g * h, for four vectors and four constants. */
#define COSINE_SUM(a, c, b, d, e, f, g, h) \
    LANES_ADD_PRODUCT( \
        LANES_ADD_PRODUCT(LANES_ADD_PRODUCT(LANES_MUL(a, LANES_ALL(c)), b, LANES_ALL(d)), e, LANES_ALL(f)), g, \
        LANES_ALL(h))

/* Orthonormal cosine transform of eight numbers, in place, by sums and differences of symmetric pairs. */
LANES_INLINE void cosine_transform(lanes *x)
{
    lanes s[4], d[4], outer, inner;
    for (int i = 0; i < 4; i++) {
        s[i] = LANES_ADD(x[i], x[7 - i]);
        d[i] = LANES_SUB(x[i], x[7 - i]);
    }
    outer = LANES_ADD(s[0], s[3]);
    inner = LANES_ADD(s[1], s[2]);
    x[0] = LANES_MUL(LANES_ADD(outer, inner), LANES_ALL(COSINE_C4));
    x[4] = LANES_MUL(LANES_SUB(outer, inner), LANES_ALL(COSINE_C4));
    outer = LANES_SUB(s[0], s[3]);
    inner = LANES_SUB(s[1], s[2]);
    x[2] = LANES_ADD_PRODUCT(LANES_MUL(outer, LANES_ALL(COSINE_C2)), inner, LANES_ALL(COSINE_C6));
    x[6] = LANES_ADD_PRODUCT(LANES_MUL(outer, LANES_ALL(COSINE_C6)), inner, LANES_ALL(-COSINE_C2));
    x[1] = COSINE_SUM(d[0], COSINE_C1, d[1], COSINE_C3, d[2], COSINE_C5, d[3], COSINE_C7);
    x[3] = COSINE_SUM(d[0], COSINE_C3, d[1], -COSINE_C7, d[2], -COSINE_C1, d[3], -COSINE_C5);
    x[5] = COSINE_SUM(d[0], COSINE_C5, d[1], -COSINE_C1, d[2], COSINE_C7, d[3], COSINE_C3);
    x[7] = COSINE_SUM(d[0], COSINE_C7, d[1], -COSINE_C5, d[2], COSINE_C3, d[3], -COSINE_C1);
}

/* Inverse of cosine_transform, in place. */
LANES_INLINE void cosine_inverse(lanes *x)
{
    lanes s[4], d[4], outer, inner, more, less;
    outer = LANES_MUL(LANES_ADD(x[0], x[4]), LANES_ALL(COSINE_C4));
    inner = LANES_MUL(LANES_SUB(x[0], x[4]), LANES_ALL(COSINE_C4));
    more = LANES_ADD_PRODUCT(LANES_MUL(x[2], LANES_ALL(COSINE_C2)), x[6], LANES_ALL(COSINE_C6));
    less = LANES_ADD_PRODUCT(LANES_MUL(x[2], LANES_ALL(COSINE_C6)), x[6], LANES_ALL(-COSINE_C2));
    s[0] = LANES_ADD(outer, more);
    s[3] = LANES_SUB(outer, more);
    s[1] = LANES_ADD(inner, less);
    s[2] = LANES_SUB(inner, less);
    d[0] = COSINE_SUM(x[1], COSINE_C1, x[3], COSINE_C3, x[5], COSINE_C5, x[7], COSINE_C7);
    d[1] = COSINE_SUM(x[1], COSINE_C3, x[3], -COSINE_C7, x[5], -COSINE_C1, x[7], -COSINE_C5);
    d[2] = COSINE_SUM(x[1], COSINE_C5, x[3], -COSINE_C1, x[5], COSINE_C7, x[7], COSINE_C3);
    d[3] = COSINE_SUM(x[1], COSINE_C7, x[3], -COSINE_C5, x[5], COSINE_C3, x[7], -COSINE_C1);
    for (int i = 0; i < 4; i++) {
        x[i] = LANES_ADD(s[i], d[i]);
        x[7 - i] = LANES_SUB(s[i], d[i]);
    }
}

LANES_INLINE void cosine_load(lanes *x, const float *from, ptrdiff_t step)
{
    for (int i = 0; i < COSINE_SIDE; i++)
        LANES_LOAD(x[i], from + i * step);
}

#endif
