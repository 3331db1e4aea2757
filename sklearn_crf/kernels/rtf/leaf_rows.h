/* Leaves of rows of factors, their linear models, and the adjoint: nearly all the arithmetic of a regression tree field.

   The channels of a pixel are read in blocks of eight. Where eight does not divide their number, the last block begins
   so that it ends with the pixel, and what it has in common with the block before is weighted by zero: so no loop has a
   remainder, and nothing is read that is not there. Weights are packed in this way beforehand (packed_inputs).
   From four to seven channels blocks are of four, and a pixel has two of them; below four there are only numbers. */

#ifndef SKLEARN_CRF_LEAF_ROWS_H
#define SKLEARN_CRF_LEAF_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_level.h"

#define LEAF_BLOCK 8

/* Factors that a leaf adds up in float32 before their sum goes to float64: it is then as exact as its terms. */
#define LEAF_GATHERED 64

#if defined(__GNUC__) || defined(__clang__)
#define LEAF_INLINE static inline __attribute__((always_inline))
#define LEAF_VECTORS 1
#else
#define LEAF_INLINE static __inline
#define LEAF_VECTORS 0
#endif

/* Pixels that go down a tree side by side. */
#define LEAF_WALKERS 64

#define LEAF_HALF 4

/* Where the last block of a pixel of F channels begins; the others begin at multiples of LEAF_BLOCK. */
#define LEAF_LAST(F) ((F) - LEAF_BLOCK)

#if VECTOR_LEVEL_DISPATCH
#define LEAF_DISPATCH 1
#define LEAF_AVX2 __attribute__((target("avx2,fma"), noinline))
#else
#define LEAF_DISPATCH 0
#endif

#define REAL float
#define BITS uint32_t
#define NAME(name) name##_float
#include "leaf_rows_template.h"
#undef REAL
#undef BITS
#undef NAME

#define REAL double
#define BITS uint64_t
#define NAME(name) name##_double
#include "leaf_rows_template.h"
#undef REAL
#undef BITS
#undef NAME

#endif
