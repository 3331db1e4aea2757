/* Hard thresholding of the cosine transform of every 8 x 8 patch, and the weighted mean of all patches at a pixel.

   Patches of one row are transformed together, eight at a time. The vertical transform of a column, and its inverse,
   are shared by all patches that contain the column. A patch therefore needs one horizontal transform, and one inverse
   for each set of thresholds. */

#ifndef SKLEARN_CRF_PATCH_SHRINKAGE_H
#define SKLEARN_CRF_PATCH_SHRINKAGE_H

#include "cosine_lanes.h"

#define PATCH_SIDE COSINE_SIDE

/* Number of patches whose coefficients stay in the first-level cache. */
#define PATCH_BLOCK 64

/* Row length of the arrays below, which is the length of a padded row of the image. */
#define PATCH_STRIDE(width) (((width) + PATCH_BLOCK - 1) / PATCH_BLOCK * PATCH_BLOCK + 2 * LANES)

/* Add the shrunk patches of a block, still transformed along columns, to sums, and write their weights. */
LANES_INLINE void patch_block(const float *columns, ptrdiff_t stride, const float *thresholds, ptrdiff_t n_thresholds,
                              const float *is_patch, float *sums, float *weights)
{
    float coefficient[PATCH_SIDE][PATCH_SIDE][PATCH_BLOCK];
    /* Contribution of each column of patches, with zeros on both sides. */
    float said[PATCH_SIDE][PATCH_BLOCK + 2 * LANES];
    lanes x[PATCH_SIDE], total, one = LANES_ALL(1.0f), seen;
    for (int b = 0; b < PATCH_SIDE; b++)
        for (int i = 0; i < LANES; i++)
            said[b][i] = said[b][LANES + PATCH_BLOCK + i] = 0.0f;
    for (int k = 0; k < PATCH_SIDE; k++)
        for (int j = 0; j < PATCH_BLOCK; j += LANES) {
            cosine_load(x, columns + k * stride + j, 1);
            cosine_transform(x);
            for (int l = 0; l < PATCH_SIDE; l++)
                LANES_STORE(&coefficient[k][l][j], x[l]);
        }
    for (ptrdiff_t t = 0; t < n_thresholds; t++) {
        const float *threshold = thresholds + t * PATCH_SIDE * PATCH_SIDE;
        float *weight = weights + t * stride;
        for (int j = 0; j < PATCH_BLOCK; j += LANES) {
            total = one;
            for (int k = 0; k < PATCH_SIDE; k++)
                for (int l = k == 0; l < PATCH_SIDE; l++) {
                    lanes least = LANES_ALL(threshold[k * PATCH_SIDE + l]);
                    LANES_LOAD(seen, &coefficient[k][l][j]);
                    seen = LANES_WHERE_ABOVE(one, seen, least);
                    total = LANES_ADD(total, seen);
                }
            LANES_LOAD(seen, is_patch + j);
            total = LANES_DIV(seen, total);
            LANES_STORE(weight + j, total);
        }
        for (int k = 0; k < PATCH_SIDE; k++) {
            for (int j = 0; j < PATCH_BLOCK; j += LANES) {
                lanes own;
                LANES_LOAD(own, weight + j);
                for (int l = 0; l < PATCH_SIDE; l++) {
                    lanes least = LANES_ALL(threshold[k * PATCH_SIDE + l]), scaled;
                    LANES_LOAD(seen, &coefficient[k][l][j]);
                    scaled = LANES_MUL(seen, own);
                    if (k == 0 && l == 0)
                        x[l] = scaled;
                    else
                        x[l] = LANES_WHERE_ABOVE(scaled, seen, least);
                }
                cosine_inverse(x);
                for (int b = 0; b < PATCH_SIDE; b++)
                    LANES_STORE(&said[b][LANES + j], x[b]);
            }
            float *out = sums + (t * PATCH_SIDE + k) * stride;
            for (int j = 0; j < PATCH_BLOCK + LANES; j += LANES) {
                LANES_LOAD(total, out + j);
                for (int b = 0; b < PATCH_SIDE; b++) {
                    LANES_LOAD(seen, &said[b][LANES + j - b]);
                    total = LANES_ADD(total, seen);
                }
                LANES_STORE(out + j, total);
            }
        }
    }
}

/* Process rows start to stop of an image with rows of length stride, padded by 7 pixels on every side.
   columns: (8, stride); sums, ring: (T, 8, stride); weights: (T, stride), is_patch and line: (stride,); of_ring:
   (T, 8, stride). A ring buffer holds the last rows of the weighted sums, since a row of patches adds to eight rows. */
LANES_INLINE void patch_rows(const float *image, ptrdiff_t stride, ptrdiff_t width, const float *thresholds,
                             ptrdiff_t n_thresholds, const float *is_patch, float level, ptrdiff_t start,
                             ptrdiff_t stop, float *columns, float *sums, float *weights, float *ring, float *of_ring,
                             float *line, float *out, ptrdiff_t row_step, ptrdiff_t pixel_step, ptrdiff_t step)
{
    const ptrdiff_t margin = PATCH_SIDE - 1, n_patches = width - margin;
    lanes x[PATCH_SIDE], total, seen;
    for (ptrdiff_t first = start; first < stop + margin; first++) {
        memset(sums, 0, (size_t)(n_thresholds * PATCH_SIDE * stride) * sizeof(float));
        for (ptrdiff_t j = 0; j < stride; j += LANES) {
            cosine_load(x, image + first * stride + j, stride);
            cosine_transform(x);
            for (int k = 0; k < PATCH_SIDE; k++)
                LANES_STORE(columns + k * stride + j, x[k]);
        }
        for (ptrdiff_t j = 0; j < n_patches; j += PATCH_BLOCK)
            patch_block(columns + j, stride, thresholds, n_thresholds, is_patch + j, sums + j, weights + LANES + j);
        for (ptrdiff_t t = 0; t < n_thresholds; t++) {
            const float *weight = weights + t * stride + LANES;
            float *own = of_ring + (t * PATCH_SIDE + first % PATCH_SIDE) * stride;
            /* Add the weight of a patch to each of its columns. */
            for (ptrdiff_t j = 0; j < width; j += LANES) {
                LANES_LOAD(total, weight + j);
                for (int b = 1; b < PATCH_SIDE; b++) {
                    LANES_LOAD(seen, weight + j - b);
                    total = LANES_ADD(total, seen);
                }
                LANES_STORE(own + j, total);
            }
            for (ptrdiff_t j = 0; j < width; j += LANES) {
                cosine_load(x, sums + t * PATCH_SIDE * stride + j, stride);
                cosine_inverse(x);
                for (int a = 0; a < PATCH_SIDE; a++) {
                    float *to = ring + (t * PATCH_SIDE + (first + a + 1) % PATCH_SIDE) * stride + j;
                    /* The last row of these patches has no contributions yet. */
                    if (a < margin) {
                        LANES_LOAD(seen, to);
                        x[a] = LANES_ADD(seen, x[a]);
                    }
                    LANES_STORE(to, x[a]);
                }
            }
            const ptrdiff_t done = first - margin;
            if (done < start)
                continue;
            for (ptrdiff_t j = 0; j < width; j += LANES) {
                LANES_LOAD(total, of_ring + (t * PATCH_SIDE + done % PATCH_SIDE) * stride + j);
                for (ptrdiff_t a = 1; a < PATCH_SIDE; a++) {
                    LANES_LOAD(seen, of_ring + (t * PATCH_SIDE + (done + a) % PATCH_SIDE) * stride + j);
                    total = LANES_ADD(total, seen);
                }
                LANES_LOAD(seen, ring + (t * PATCH_SIDE + done % PATCH_SIDE) * stride + j);
                seen = LANES_ADD(LANES_DIV(seen, total), LANES_ALL(level));
                LANES_STORE(line + j, seen);
            }
            float *to = out + done * row_step + t * step;
            for (ptrdiff_t j = 0; j < width - 2 * margin; j++)
                to[j * pixel_step] = line[margin + j];
        }
    }
}

static void shrink_rows(const float *image, ptrdiff_t stride, ptrdiff_t width, const float *thresholds,
                        ptrdiff_t n_thresholds, const float *is_patch, float level, ptrdiff_t start, ptrdiff_t stop,
                        float *columns, float *sums, float *weights, float *ring, float *of_ring, float *line,
                        float *out, ptrdiff_t row_step, ptrdiff_t pixel_step, ptrdiff_t step)
{
    crf::call_at_level([&] {
        patch_rows(image, stride, width, thresholds, n_thresholds, is_patch, level, start, stop, columns, sums, weights,
                   ring, of_ring, line, out, row_step, pixel_step, step);
    });
}

#endif
