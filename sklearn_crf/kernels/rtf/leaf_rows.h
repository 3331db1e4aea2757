/* Leaves of rows of factors, their linear models, and the adjoint: most of the arithmetic of a regression tree field.

   The channels of a pixel are read in blocks of eight. If their number is not a multiple of eight, the last block ends
   with the pixel and overlaps the block before it; overlapping channels have weight zero. Loops then have no remainder,
   and no memory beyond the pixel is read. Weights are packed accordingly in advance (packed_inputs). For four to seven
   channels, a pixel has two blocks of four; for fewer than four, channels are read one by one. */

#ifndef SKLEARN_CRF_LEAF_ROWS_H
#define SKLEARN_CRF_LEAF_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_level.h"

#define LEAF_BLOCK 8

/* Number of factors that a leaf sums in float32 before adding to float64, small enough not to lose accuracy. */
#define LEAF_GATHERED 64

#if defined(__GNUC__) || defined(__clang__)
#define LEAF_INLINE static inline __attribute__((always_inline))
#define LEAF_VECTORS 1
#else
#define LEAF_INLINE static __inline
#define LEAF_VECTORS 0
#endif

/* Number of pixels that descend a tree together. */
#define LEAF_WALKERS 64

#define LEAF_HALF 4

/* Start of the last block of a pixel with F channels; other blocks start at multiples of LEAF_BLOCK. */
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
