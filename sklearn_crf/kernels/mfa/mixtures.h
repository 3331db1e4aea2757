/* Operations of Gaussian mixtures on each sample between two matrix products. Samples lie along rows, so that loops
   over samples are vectorised. Work is done in tiles that stay in the first-level cache. */

#ifndef SKLEARN_CRF_MIXTURES_H
#define SKLEARN_CRF_MIXTURES_H

#include "rows.h"

/* Number of samples in a tile, a multiple of the longest vector. */
#define MIXTURE_TILE 128

#define VECTOR vector_double
#define VECTOR_EXP vector_exp_double
#define VECTOR_LOG vector_log_double
#define NAME(name) name##_narrow
#define FUNCTION ROWS_INLINE
#define SPECIFIER static
#include "mixtures_template.h"
#undef VECTOR
#undef VECTOR_EXP
#undef VECTOR_LOG
#undef NAME
#undef FUNCTION
#undef SPECIFIER

#if ROWS_DISPATCH
#define VECTOR wide_vector_double
#define VECTOR_EXP wide_vector_exp_double
#define VECTOR_LOG wide_vector_log_double
#define NAME(name) name##_wide
#define FUNCTION static inline __attribute__((always_inline, target("avx2,fma")))
#define SPECIFIER ROWS_AVX2 static
#include "mixtures_template.h"
#undef VECTOR
#undef VECTOR_EXP
#undef VECTOR_LOG
#undef NAME
#undef FUNCTION
#undef SPECIFIER
#endif

ROWS_INLINE double weigh_tile(double *projected, ptrdiff_t n_components, ptrdiff_t n_factors, ptrdiff_t stride,
                              const double *quadratic, const int64_t *group, const double *weight, ptrdiff_t first,
                              ptrdiff_t last, double joint, double features, ptrdiff_t n, double *sums)
{
#if ROWS_DISPATCH
    if (use_avx2())
        return weigh_tile_wide(projected, n_components, n_factors, stride, quadratic, group, weight, first, last, joint,
                               features, n, sums);
#endif
    return weigh_tile_narrow(projected, n_components, n_factors, stride, quadratic, group, weight, first, last, joint,
                             features, n, sums);
}

ROWS_INLINE void class_scores_tile(double *projected, ptrdiff_t n_classes, ptrdiff_t n_own, ptrdiff_t n_factors,
                                   ptrdiff_t stride, const double *quadratic, const int64_t *group, ptrdiff_t n,
                                   double *out)
{
#if ROWS_DISPATCH
    if (use_avx2()) {
        class_scores_tile_wide(projected, n_classes, n_own, n_factors, stride, quadratic, group, n, out);
        return;
    }
#endif
    class_scores_tile_narrow(projected, n_classes, n_own, n_factors, stride, quadratic, group, n, out);
}

#endif
