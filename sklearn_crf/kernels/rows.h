/* Arithmetic on rows of numbers, for the inner loops of message passing.

   Loops over the graph are written in Cython; this file has the loops that must be vectorised to be fast. A row is
   padded to whole vectors of 16 bytes, so that no loop has a remainder. The code uses the vector extensions of GCC and
   clang, as auto-vectorisation would need -ffast-math, which is not possible because scores may be -inf. Other
   compilers compile the same code with vectors of one number. */

#ifndef SKLEARN_CRF_ROWS_H
#define SKLEARN_CRF_ROWS_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/types.hpp"
#include "vector_level.h"

#if defined(__GNUC__) || defined(__clang__)
#define ROWS_INLINE static inline __attribute__((always_inline))
#define ROWS_VECTORS 1
#define ROWS_VECTOR_BYTES 16
#define ROWS_PREFETCH(address) __builtin_prefetch(address, 1)
#if defined(__clang__)
#define ROWS_UNROLLED _Pragma("unroll")
#else
#define ROWS_UNROLLED _Pragma("GCC unroll 8")
#endif
#else
#define ROWS_INLINE static __inline
#define ROWS_VECTORS 0
#define ROWS_VECTOR_BYTES 0
#define ROWS_PREFETCH(address) ((void)(address))
#define ROWS_UNROLLED
#endif

/* Intrinsics for operations that compilers do not vectorise. */
#if ROWS_VECTORS && defined(__SSE2__)
#include <emmintrin.h>
#define ROWS_SSE2 1
#else
#define ROWS_SSE2 0
#endif

#if ROWS_SSE2 && VECTOR_LEVEL_DISPATCH
#include <immintrin.h>
#define ROWS_DISPATCH 1
#define ROWS_AVX2 __attribute__((target("avx2,fma"), noinline))
#define ROWS_WIDE_INLINE static inline __attribute__((always_inline, target("avx2,fma")))
#define ROWS_WORTH_A_CALL 96
#else
#define ROWS_DISPATCH 0
#endif

#define REAL float
#define INTEGER int32_t
#define UNSIGNED uint32_t
#define NAME(name) name##_float
#define EXP expf
#define LOG logf
#define ROOT sqrtf
#define MANTISSA 23
#define BIAS 127
#define SQRT_HALF_BITS 0x3F3504F3u
#define LEAST_NORMAL FLT_MIN
#define LOG2_HIGH 0.693359375f
#define LOG2_LOW -2.12194440e-4f
#define MAX_INSTRUCTION _mm_max_ps
#define ROOT_INSTRUCTION _mm_sqrt_ps
#define WIDE_MAX_INSTRUCTION _mm256_max_ps
#define UNPACK_LOW _mm256_unpacklo_ps
#define UNPACK_HIGH _mm256_unpackhi_ps
#include "rows_template.h"
#undef REAL
#undef INTEGER
#undef UNSIGNED
#undef NAME
#undef EXP
#undef LOG
#undef ROOT
#undef MANTISSA
#undef BIAS
#undef SQRT_HALF_BITS
#undef LEAST_NORMAL
#undef LOG2_HIGH
#undef LOG2_LOW
#undef MAX_INSTRUCTION
#undef ROOT_INSTRUCTION
#undef WIDE_MAX_INSTRUCTION
#undef UNPACK_LOW
#undef UNPACK_HIGH

#define REAL double
#define INTEGER int64_t
#define UNSIGNED uint64_t
#define NAME(name) name##_double
#define EXP exp
#define LOG log
#define ROOT sqrt
#define MANTISSA 52
#define BIAS 1023
#define SQRT_HALF_BITS 0x3FE6A09E667F3BCDu
#define LEAST_NORMAL DBL_MIN
#define LOG2_HIGH 6.93147180369123816490e-01
#define LOG2_LOW 1.90821492927058770002e-10
#define MAX_INSTRUCTION _mm_max_pd
#define ROOT_INSTRUCTION _mm_sqrt_pd
#define WIDE_MAX_INSTRUCTION _mm256_max_pd
#define UNPACK_LOW _mm256_unpacklo_pd
#define UNPACK_HIGH _mm256_unpackhi_pd
#include "rows_template.h"
#undef REAL
#undef INTEGER
#undef UNSIGNED
#undef NAME
#undef EXP
#undef LOG
#undef ROOT
#undef MANTISSA
#undef BIAS
#undef SQRT_HALF_BITS
#undef LEAST_NORMAL
#undef LOG2_HIGH
#undef LOG2_LOW
#undef MAX_INSTRUCTION
#undef ROOT_INSTRUCTION
#undef WIDE_MAX_INSTRUCTION
#undef UNPACK_LOW
#undef UNPACK_HIGH

#endif
