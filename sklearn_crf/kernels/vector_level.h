/* Choice of the vector instructions that kernels use. Wheels must run on any processor of an architecture, so newer
   instructions are selected at run time. An environment variable fixes the choice; it is read once, at first use. */

#ifndef SKLEARN_CRF_VECTOR_LEVEL_H
#define SKLEARN_CRF_VECTOR_LEVEL_H

#include <stdlib.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define VECTOR_LEVEL_DISPATCH 1
#else
#define VECTOR_LEVEL_DISPATCH 0
#endif

/* Whether the processor has vectors of 32 bytes with fused multiply-add. */
static inline int processor_has_avx2(void)
{
#if VECTOR_LEVEL_DISPATCH
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

/* Whether kernels use these vectors. */
static inline int use_avx2(void)
{
    static int known = -1;
    if (known < 0) {
        const char *level = getenv("SKLEARN_CRF_VECTOR_LEVEL");
        known = processor_has_avx2() && !(level != NULL && strcmp(level, "baseline") == 0);
    }
    return known;
}

#endif
