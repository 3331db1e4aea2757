/* Means over the pixels of a window, weighted by the similarity of their surroundings (non-local means).

   Blocks of some rows and columns are processed for each offset of the window, so that their sums stay in the
   first-level cache and all loops run along rows. Sums over patches are recomputed for every row, so that they do not
   depend on where blocks begin. */

#ifndef SKLEARN_CRF_PATCH_AVERAGES_H
#define SKLEARN_CRF_PATCH_AVERAGES_H

#include "lanes.h"

/* Rows of a block; columns of a block, in whole vectors; columns of a block with margins for patches. */
#define AVERAGE_ROWS 16
#define AVERAGE_COLUMNS 64
#define AVERAGE_ACROSS(patch) (AVERAGE_COLUMNS + ((2 * (patch) + LANES - 1) / LANES) * LANES)

typedef struct {
    /* Rows of length stride, padded to whole blocks, and then by search + patch pixels on every side. */
    const float *image, *guide;
    ptrdiff_t stride, width, search, patch;
    /* 1 / (sum of squared differences above which a weight is 0), for each bandwidth. */
    const float *inverse;
    ptrdiff_t n_widths;
    float level;
    /* (AVERAGE_ROWS + 2 * patch, AVERAGE_ACROSS); (AVERAGE_ACROSS,); (n_widths, 3, AVERAGE_ROWS, AVERAGE_COLUMNS). */
    float *squares, *column, *sums;
    float *out;
    ptrdiff_t row_step, pixel_step, channel_step;
} average_task;

/* Squared differences of a block, with margins for patches, from the block at an offset. */
LANES_INLINE void average_squares(const float *own, const float *other, ptrdiff_t stride, ptrdiff_t n_rows,
                                  ptrdiff_t across, float *squares)
{
    lanes a, b;
    for (ptrdiff_t i = 0; i < n_rows; i++)
        for (ptrdiff_t j = 0; j < across; j += LANES) {
            LANES_LOAD(a, own + i * stride + j);
            LANES_LOAD(b, other + i * stride + j);
            a = LANES_SUB(a, b);
            a = LANES_MUL(a, a);
            LANES_STORE(squares + i * across + j, a);
        }
}

/* Add the pixels at an offset to the sums of a row of a block, weighted by the similarity of patches. */
LANES_INLINE void average_row(const float *squares, ptrdiff_t patch, ptrdiff_t across, const float *seen,
                              const float *inverse, ptrdiff_t n_widths, float *column, float *sums)
{
    lanes distance, part, weight, x;
    for (ptrdiff_t j = 0; j < across; j += LANES) {
        LANES_LOAD(distance, squares + j);
        for (ptrdiff_t a = 1; a <= 2 * patch; a++) {
            LANES_LOAD(part, squares + a * across + j);
            distance = LANES_ADD(distance, part);
        }
        LANES_STORE(column + j, distance);
    }
    for (ptrdiff_t j = 0; j < AVERAGE_COLUMNS; j += LANES) {
        LANES_LOAD(distance, column + j);
        for (ptrdiff_t b = 1; b <= 2 * patch; b++) {
            LANES_LOAD(part, column + j + b);
            distance = LANES_ADD(distance, part);
        }
        LANES_LOAD(x, seen + j);
        for (ptrdiff_t t = 0; t < n_widths; t++) {
            const ptrdiff_t size = AVERAGE_ROWS * AVERAGE_COLUMNS;
            float *total = sums + 3 * t * size + j;
            weight = LANES_SUB_PRODUCT(LANES_ALL(1.0f), distance, LANES_ALL(inverse[t]));
            weight = LANES_POSITIVE(weight);
            weight = LANES_MUL(weight, weight);
            LANES_LOAD(part, total);
            part = LANES_ADD_PRODUCT(part, weight, x);
            LANES_STORE(total, part);
            LANES_LOAD(part, total + size);
            part = LANES_ADD(part, weight);
            LANES_STORE(total + size, part);
            LANES_LOAD(part, total + 2 * size);
            part = LANES_ADD_PRODUCT(part, weight, weight);
            LANES_STORE(total + 2 * size, part);
        }
    }
}

LANES_INLINE void average_block(const average_task *task, ptrdiff_t top, ptrdiff_t left, ptrdiff_t n_rows,
                                ptrdiff_t search, ptrdiff_t patch)
{
    const ptrdiff_t stride = task->stride, across = AVERAGE_ACROSS(patch), size = AVERAGE_ROWS * AVERAGE_COLUMNS;
    const float *guide = task->guide + (top + search) * stride + left + search;
    const float *image = task->image + (top + search + patch) * stride + left + search + patch;
    memset(task->sums, 0, (size_t)(3 * task->n_widths * size) * sizeof(float));
    for (ptrdiff_t down = -search; down <= search; down++)
        for (ptrdiff_t right = -search; right <= search; right++) {
            const ptrdiff_t offset = down * stride + right;
            average_squares(guide, guide + offset, stride, n_rows + 2 * patch, across, task->squares);
            for (ptrdiff_t i = 0; i < n_rows; i++)
                average_row(task->squares + i * across, patch, across, image + offset + i * stride, task->inverse,
                            task->n_widths, task->column, task->sums + i * AVERAGE_COLUMNS);
        }
}

LANES_INLINE void average_body(const average_task *task, ptrdiff_t start, ptrdiff_t stop)
{
    const ptrdiff_t size = AVERAGE_ROWS * AVERAGE_COLUMNS, T = task->n_widths;
    for (ptrdiff_t top = start; top < stop; top += AVERAGE_ROWS)
        for (ptrdiff_t left = 0; left < task->width; left += AVERAGE_COLUMNS) {
            const ptrdiff_t n_rows = stop - top < AVERAGE_ROWS ? stop - top : AVERAGE_ROWS;
            const ptrdiff_t n = task->width - left < AVERAGE_COLUMNS ? task->width - left : AVERAGE_COLUMNS;
            if (task->patch == 1)
                average_block(task, top, left, n_rows, task->search, 1);
            else
                average_block(task, top, left, n_rows, task->search, task->patch);
            for (ptrdiff_t i = 0; i < n_rows; i++)
                for (ptrdiff_t t = 0; t < T; t++) {
                    const float *total = task->sums + 3 * t * size + i * AVERAGE_COLUMNS, *weight = total + size;
                    float *to = task->out + (top + i) * task->row_step + left * task->pixel_step;
                    for (ptrdiff_t j = 0; j < n; j++, to += task->pixel_step) {
                        /* The divisor is not 0, as the pixel itself has weight 1. */
                        to[t * task->channel_step] = total[j] / weight[j] + task->level;
                        to[(T + t) * task->channel_step] = total[2 * size + j] / (weight[j] * weight[j]);
                    }
                }
        }
}

/* Process rows start to stop of the image, without padding. */
static void average_rows(const average_task *task, ptrdiff_t start, ptrdiff_t stop)
{
    crf::call_at_level([&] { average_body(task, start, stop); });
}

#endif
