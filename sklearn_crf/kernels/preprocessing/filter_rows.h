/* Responses of rows of an image to separable kernels, products of a column and a row.

   A row of the image is first correlated with every column profile, then each result with its row profiles. Sums over
   the taps of a profile stay in registers for several vectors of pixels. */

#ifndef SKLEARN_CRF_FILTER_ROWS_H
#define SKLEARN_CRF_FILTER_ROWS_H

#include "lanes.h"

#define FILTER_VECTORS 4
#define FILTER_BLOCK (FILTER_VECTORS * LANES)

typedef struct {
    /* Padded by margin pixels on every side; rows are further padded to stride, a multiple of FILTER_BLOCK. */
    const float *image;
    ptrdiff_t stride, margin, width;
    /* Profile p has taps first[p] to first[p + 1], of which before[p] precede its origin. */
    const float *taps;
    const int64_t *first, *before;
    /* Profiles of each filter, with equal columns consecutive; its output channel, and a constant added to it. */
    const int64_t *column, *row, *channel;
    const float *constant;
    ptrdiff_t n_filters;
    /* Workspaces of length stride, and of n_filters times the width in whole blocks. */
    float *line, *responses;
    float *out;
    ptrdiff_t row_step, pixel_step, channel_step;
} filter_task;

/* out[j] = sum over t of taps[t] * in[j + t * step] for j < n, a multiple of FILTER_BLOCK. */
LANES_INLINE void filter_line(const float *in, ptrdiff_t step, const float *taps, ptrdiff_t n_taps, ptrdiff_t n,
                              float *out)
{
    for (ptrdiff_t j = 0; j < n; j += FILTER_BLOCK) {
        lanes total[FILTER_VECTORS], seen;
        for (int v = 0; v < FILTER_VECTORS; v++)
            total[v] = LANES_ALL(0.0f);
        for (ptrdiff_t t = 0; t < n_taps; t++) {
            lanes tap = LANES_ALL(taps[t]);
            for (int v = 0; v < FILTER_VECTORS; v++) {
                LANES_LOAD(seen, in + t * step + j + v * LANES);
                total[v] = LANES_ADD_PRODUCT(total[v], tap, seen);
            }
        }
        for (int v = 0; v < FILTER_VECTORS; v++)
            LANES_STORE(out + j + v * LANES, total[v]);
    }
}

LANES_INLINE void filter_body(const filter_task *task, ptrdiff_t start, ptrdiff_t stop)
{
    const ptrdiff_t stride = task->stride, width = task->width, K = task->n_filters;
    const ptrdiff_t n = (width + FILTER_BLOCK - 1) / FILTER_BLOCK * FILTER_BLOCK;
    const int64_t *first = task->first;
    for (ptrdiff_t i = start; i < stop; i++) {
        for (ptrdiff_t f = 0; f < K; f++) {
            const int64_t c = task->column[f], r = task->row[f];
            if (f == 0 || c != task->column[f - 1])
                filter_line(task->image + (i + task->margin - task->before[c]) * stride, stride, task->taps + first[c],
                            first[c + 1] - first[c], stride, task->line);
            filter_line(task->line + task->margin - task->before[r], 1, task->taps + first[r], first[r + 1] - first[r],
                        n, task->responses + f * n);
        }
        float *to = task->out + i * task->row_step;
        for (ptrdiff_t j = 0; j < width; j++, to += task->pixel_step)
            for (ptrdiff_t f = 0; f < K; f++)
                to[task->channel[f] * task->channel_step] = task->responses[f * n + j] + task->constant[f];
    }
}

/* Filter rows start to stop of the image, without padding. */
static void filter_rows(const filter_task *task, ptrdiff_t start, ptrdiff_t stop)
{
    crf::call_at_level([&] { filter_body(task, start, stop); });
}

#endif
