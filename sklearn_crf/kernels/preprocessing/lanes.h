/* Vectors of eight float32 numbers. Compilers with vector extensions use one vector of 32 bytes, or two of 16 bytes on
   processors without larger ones; other compilers use loops. No operation mixes lanes. */

#ifndef SKLEARN_CRF_LANES_H
#define SKLEARN_CRF_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/vectors.hpp"

#define LANES 8

#if defined(__GNUC__) || defined(__clang__)
#define LANES_INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(32)));
typedef int32_t lane_bits __attribute__((vector_size(32)));

/* Macros, since functions must not pass vectors that the processor does not support. */
/* x - 0 is x, even for -0, so this needs no computation. */
#define LANES_ALL(number) ((number) - (lanes){0})
#define LANES_ADD(a, b) ((a) + (b))
#define LANES_SUB(a, b) ((a) - (b))
#define LANES_MUL(a, b) ((a) * (b))
#define LANES_DIV(a, b) ((a) / (b))
/* c + a * b and c - a * b, fused if the processor supports it. */
#define LANES_ADD_PRODUCT(c, a, b) ((c) + (a) * (b))
#define LANES_SUB_PRODUCT(c, a, b) ((c) - (a) * (b))
/* a where the magnitude of b is above c, else 0. */
#define LANES_WHERE_ABOVE(a, b, c) \
    ((lanes)((lane_bits)(a) & (lane_bits)((lanes)((lane_bits)(b) & 0x7FFFFFFF) > (c))))
#define LANES_POSITIVE(a) ((lanes)((lane_bits)(a) & (lane_bits)((a) > 0.0f)))
#else
#define LANES_INLINE static __inline

typedef struct {
    float at[LANES];
} lanes;

#define LANES_OPERATION(name, arguments, value) \
    LANES_INLINE lanes name arguments \
    { \
        lanes out; \
        for (int i = 0; i < LANES; i++) \
            out.at[i] = value; \
        return out; \
    }

LANES_INLINE float lanes_magnitude(float a)
{
    return a < 0.0f ? -a : a;
}

LANES_OPERATION(LANES_ALL, (float number), number)
LANES_OPERATION(LANES_ADD, (lanes a, lanes b), a.at[i] + b.at[i])
LANES_OPERATION(LANES_SUB, (lanes a, lanes b), a.at[i] - b.at[i])
LANES_OPERATION(LANES_MUL, (lanes a, lanes b), a.at[i] * b.at[i])
LANES_OPERATION(LANES_DIV, (lanes a, lanes b), a.at[i] / b.at[i])
LANES_OPERATION(LANES_ADD_PRODUCT, (lanes c, lanes a, lanes b), c.at[i] + a.at[i] * b.at[i])
LANES_OPERATION(LANES_SUB_PRODUCT, (lanes c, lanes a, lanes b), c.at[i] - a.at[i] * b.at[i])
LANES_OPERATION(LANES_WHERE_ABOVE, (lanes a, lanes b, lanes c), lanes_magnitude(b.at[i]) > c.at[i] ? a.at[i] : 0.0f)
LANES_OPERATION(LANES_POSITIVE, (lanes a), a.at[i] > 0.0f ? a.at[i] : 0.0f)
#endif

#define LANES_LOAD(out, from) memcpy(&(out), (from), sizeof(lanes))
#define LANES_STORE(to, value) memcpy((to), &(value), sizeof(lanes))

#endif
