/* Means over the pixels of a window whose surroundings look alike, one row of an offset at a time.

   A row is handled as a whole for each offset of the window, so that all loops run along rows and are vectors. Sums over
   patches are made anew for every row, not carried from row to row, so that they do not depend on where rows begin. */

#ifndef SKLEARN_CRF_PATCH_AVERAGES_H
#define SKLEARN_CRF_PATCH_AVERAGES_H

#include <stddef.h>
#include <string.h>

#include "vector_level.h"

#if defined(__GNUC__) || defined(__clang__)
#define AVERAGE_INLINE static inline __attribute__((always_inline))
#else
#define AVERAGE_INLINE static __inline
#endif

/* Rows that are summed side by side, so that squared differences serve the patches of several rows. */
#define AVERAGE_ROWS 16

/* squares: (AVERAGE_ROWS + 2 * patch, width); column, distance: (width,); total, weight, square:
   (n_widths, AVERAGE_ROWS, width). image and guide: continued by search + patch on every side. */
AVERAGE_INLINE void average_block(const float *image, const float *guide, ptrdiff_t stride, ptrdiff_t width,
                                  ptrdiff_t search, ptrdiff_t patch, const float *inverse, ptrdiff_t n_widths,
                                  ptrdiff_t first, ptrdiff_t n_rows, float *squares, float *column, float *distance,
                                  float *total, float *weight, float *square)
{
    const ptrdiff_t margin = search + patch, across = width + 2 * patch, size = AVERAGE_ROWS * width;
    memset(total, 0, (size_t)(n_widths * size) * sizeof(float));
    memset(weight, 0, (size_t)(n_widths * size) * sizeof(float));
    memset(square, 0, (size_t)(n_widths * size) * sizeof(float));
    for (ptrdiff_t down = -search; down <= search; down++)
        for (ptrdiff_t right = -search; right <= search; right++) {
            for (ptrdiff_t i = 0; i < n_rows + 2 * patch; i++) {
                const float *own = guide + (first + i + search) * stride + search;
                const float *other = own + down * stride + right;
                float *out = squares + i * across;
                for (ptrdiff_t j = 0; j < across; j++) {
                    float d = own[j] - other[j];
                    out[j] = d * d;
                }
            }
            for (ptrdiff_t i = 0; i < n_rows; i++) {
                memcpy(column, squares + i * across, (size_t)across * sizeof(float));
                for (ptrdiff_t a = 1; a <= 2 * patch; a++) {
                    const float *row = squares + (i + a) * across;
                    for (ptrdiff_t j = 0; j < across; j++)
                        column[j] += row[j];
                }
                memcpy(distance, column, (size_t)width * sizeof(float));
                for (ptrdiff_t b = 1; b <= 2 * patch; b++)
                    for (ptrdiff_t j = 0; j < width; j++)
                        distance[j] += column[j + b];
                const float *seen = image + (first + i + margin + down) * stride + margin + right;
                for (ptrdiff_t t = 0; t < n_widths; t++) {
                    const float scale = inverse[t];
                    float *numerator = total + t * size + i * width, *denominator = weight + t * size + i * width;
                    float *spread = square + t * size + i * width;
                    for (ptrdiff_t j = 0; j < width; j++) {
                        float w = 1.0f - distance[j] * scale;
                        w = w > 0.0f ? w : 0.0f;
                        w *= w;
                        numerator[j] += w * seen[j];
                        denominator[j] += w;
                        spread[j] += w * w;
                    }
                }
            }
        }
}

#if VECTOR_LEVEL_DISPATCH
__attribute__((target("avx2,fma"), noinline)) static void average_block_wide(
    const float *image, const float *guide, ptrdiff_t stride, ptrdiff_t width, ptrdiff_t search, ptrdiff_t patch,
    const float *inverse, ptrdiff_t n_widths, ptrdiff_t first, ptrdiff_t n_rows, float *squares, float *column,
    float *distance, float *total, float *weight, float *square)
{
    average_block(image, guide, stride, width, search, patch, inverse, n_widths, first, n_rows, squares, column,
                  distance, total, weight, square);
}
#endif

static void average_rows(const float *image, const float *guide, ptrdiff_t stride, ptrdiff_t width, ptrdiff_t search,
                         ptrdiff_t patch, const float *inverse, ptrdiff_t n_widths, ptrdiff_t first, ptrdiff_t n_rows,
                         float *squares, float *column, float *distance, float *total, float *weight, float *square)
{
#if VECTOR_LEVEL_DISPATCH
    if (use_avx2()) {
        average_block_wide(image, guide, stride, width, search, patch, inverse, n_widths, first, n_rows, squares,
                           column, distance, total, weight, square);
        return;
    }
#endif
    average_block(image, guide, stride, width, search, patch, inverse, n_widths, first, n_rows, squares, column,
                  distance, total, weight, square);
}

#endif
