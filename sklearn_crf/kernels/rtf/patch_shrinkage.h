/* Hard thresholding of the cosine transform of every 8 x 8 patch, and the weighted mean of what patches say of a pixel.

   Sixteen patches of one row are transformed side by side, as rows of vectors. The transform down the columns is shared
   by all patches that have the column, both ways: so a patch takes one transform along its rows, and one back for each
   threshold. */

#ifndef SKLEARN_CRF_PATCH_SHRINKAGE_H
#define SKLEARN_CRF_PATCH_SHRINKAGE_H

#include <stddef.h>
#include <string.h>

#define PATCH_SIDE 8
#define PATCH_LANES 16

#if defined(__GNUC__) || defined(__clang__)
#define PATCH_INLINE static inline __attribute__((always_inline))
#else
#define PATCH_INLINE static __inline
#endif

/* Wheels must run on any processor of an architecture, so what needs a newer one is chosen when it runs. */
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define PATCH_DISPATCH 1
#else
#define PATCH_DISPATCH 0
#endif

/* One row of patches: their columns transformed, out of 8 rows of the image. */
PATCH_INLINE void patch_columns(const float *image, ptrdiff_t width, const float *basis, float *columns,
                                ptrdiff_t stride)
{
    for (ptrdiff_t k = 0; k < PATCH_SIDE; k++) {
        float *out = columns + k * stride;
        memset(out, 0, (size_t)width * sizeof(float));
        for (ptrdiff_t a = 0; a < PATCH_SIDE; a++) {
            const float *row = image + a * width;
            float b = basis[k * PATCH_SIDE + a];
            for (ptrdiff_t j = 0; j < width; j++)
                out[j] += b * row[j];
        }
    }
}

/* Thresholds of sixteen patches: adds what they say, still transformed down the columns, and their weights. */
PATCH_INLINE void patch_block(const float *columns, ptrdiff_t stride, const float *basis, const float *thresholds,
                              ptrdiff_t n_thresholds, const float *is_patch, float *sums, float *weights)
{
    float coefficient[PATCH_SIDE][PATCH_SIDE][PATCH_LANES];
    float kept[PATCH_SIDE][PATCH_LANES];
    float weight[PATCH_LANES];
    for (ptrdiff_t k = 0; k < PATCH_SIDE; k++)
        for (ptrdiff_t l = 0; l < PATCH_SIDE; l++) {
            float total[PATCH_LANES] = {0};
            for (ptrdiff_t b = 0; b < PATCH_SIDE; b++)
                for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++)
                    total[lane] += basis[l * PATCH_SIDE + b] * columns[k * stride + b + lane];
            memcpy(coefficient[k][l], total, sizeof(total));
        }
    for (ptrdiff_t t = 0; t < n_thresholds; t++) {
        const float *threshold = thresholds + t * PATCH_SIDE * PATCH_SIDE;
        float count[PATCH_LANES];
        for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++)
            count[lane] = 1.0f;
        for (ptrdiff_t k = 0; k < PATCH_SIDE; k++)
            for (ptrdiff_t l = k == 0; l < PATCH_SIDE; l++)
                for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++) {
                    float c = coefficient[k][l][lane], least = threshold[k * PATCH_SIDE + l];
                    count[lane] += (c > least || c < -least) ? 1.0f : 0.0f;
                }
        for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++) {
            weight[lane] = is_patch[lane] / count[lane];
            weights[t * stride + lane] += weight[lane];
        }
        for (ptrdiff_t k = 0; k < PATCH_SIDE; k++) {
            float *out = sums + (t * PATCH_SIDE + k) * stride;
            for (ptrdiff_t l = 0; l < PATCH_SIDE; l++)
                for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++) {
                    float c = coefficient[k][l][lane], least = threshold[k * PATCH_SIDE + l];
                    kept[l][lane] = (c > least || c < -least || (k == 0 && l == 0)) ? c * weight[lane] : 0.0f;
                }
            for (ptrdiff_t b = 0; b < PATCH_SIDE; b++) {
                float total[PATCH_LANES] = {0};
                for (ptrdiff_t l = 0; l < PATCH_SIDE; l++)
                    for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++)
                        total[lane] += basis[l * PATCH_SIDE + b] * kept[l][lane];
                for (ptrdiff_t lane = 0; lane < PATCH_LANES; lane++)
                    out[b + lane] += total[lane];
            }
        }
    }
}

/* Rows start to stop of the image, 7 pixels of continuation around it; out has them channel by channel. */
PATCH_INLINE void patch_rows(const float *image, ptrdiff_t width, const float *basis, const float *thresholds,
                             ptrdiff_t n_thresholds, const float *is_patch, ptrdiff_t start, ptrdiff_t stop,
                             float *columns, float *sums, float *weights, float *numerator, float *denominator,
                             ptrdiff_t stride)
{
    const ptrdiff_t margin = PATCH_SIDE - 1, n_patches = width - margin;
    for (ptrdiff_t first = start; first < stop + margin; first++) {
        memset(sums, 0, (size_t)(n_thresholds * PATCH_SIDE * stride) * sizeof(float));
        memset(weights, 0, (size_t)(n_thresholds * stride) * sizeof(float));
        patch_columns(image + first * width, width, basis, columns, stride);
        for (ptrdiff_t j = 0; j < n_patches; j += PATCH_LANES)
            patch_block(columns + j, stride, basis, thresholds, n_thresholds, is_patch + j, sums + j, weights + j);
        for (ptrdiff_t t = 0; t < n_thresholds; t++) {
            /* The weight of a patch counts for each of its columns. */
            float *own = weights + t * stride;
            for (ptrdiff_t j = width - 1; j >= 0; j--) {
                float total = 0.0f;
                for (ptrdiff_t b = 0; b < PATCH_SIDE && b <= j; b++)
                    total += own[j - b];
                own[j] = total;
            }
            for (ptrdiff_t a = 0; a < PATCH_SIDE; a++) {
                ptrdiff_t row = first + a - margin;
                if (row < start || row >= stop)
                    continue;
                float *above = numerator + (t * (stop - start) + row - start) * stride;
                float *below = denominator + (t * (stop - start) + row - start) * stride;
                for (ptrdiff_t j = 0; j < width; j++)
                    below[j] += own[j];
                for (ptrdiff_t k = 0; k < PATCH_SIDE; k++) {
                    const float *part = sums + (t * PATCH_SIDE + k) * stride;
                    float b = basis[k * PATCH_SIDE + a];
                    for (ptrdiff_t j = 0; j < width; j++)
                        above[j] += b * part[j];
                }
            }
        }
    }
}

#if PATCH_DISPATCH
__attribute__((target("avx2,fma"), noinline)) static void patch_rows_wide(
    const float *image, ptrdiff_t width, const float *basis, const float *thresholds, ptrdiff_t n_thresholds,
    const float *is_patch, ptrdiff_t start, ptrdiff_t stop, float *columns, float *sums, float *weights,
    float *numerator, float *denominator, ptrdiff_t stride)
{
    patch_rows(image, width, basis, thresholds, n_thresholds, is_patch, start, stop, columns, sums, weights, numerator,
               denominator, stride);
}
#endif

static void shrink_rows(const float *image, ptrdiff_t width, const float *basis, const float *thresholds,
                        ptrdiff_t n_thresholds, const float *is_patch, ptrdiff_t start, ptrdiff_t stop, float *columns,
                        float *sums, float *weights, float *numerator, float *denominator, ptrdiff_t stride)
{
#if PATCH_DISPATCH
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        patch_rows_wide(image, width, basis, thresholds, n_thresholds, is_patch, start, stop, columns, sums, weights,
                        numerator, denominator, stride);
        return;
    }
#endif
    patch_rows(image, width, basis, thresholds, n_thresholds, is_patch, start, stop, columns, sums, weights, numerator,
               denominator, stride);
}

#endif
