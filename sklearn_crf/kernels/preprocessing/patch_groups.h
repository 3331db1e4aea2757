/* Joint shrinkage of groups of similar 8 x 8 patches: a cosine transform of each patch, a Hadamard transform over the
   patches of a group, Wiener shrinkage of each coefficient by the signal of a pilot image, and the inverse transforms.

   With the sum s_b of a patch b and its squared norm v_b after subtracting the mean, the distance of patches is

       |a - b|^2 = v_a + v_b + (s_a - s_b)^2 / 64 - 2 sum (a - s_a / 64) b.

   Sums and norms are computed once for all groups, and the last sum for many patches b at once. */

#ifndef SKLEARN_CRF_PATCH_GROUPS_H
#define SKLEARN_CRF_PATCH_GROUPS_H

#include "cosine_lanes.h"

#define GROUP_SIDE COSINE_SIDE
#define GROUP_PIXELS 64
#define GROUP_SIZE 16

/* Number of vectors of patches that are compared at once. */
#define GROUP_VECTORS 4
#define GROUP_BLOCK (GROUP_VECTORS * LANES)

/* Added to the noise left in a group, so that groups without signal do not get all the weight. */
#define GROUP_LEAST 0.1f

typedef struct {
    /* Rows of length stride, padded by margin = search + 7 pixels on every side, and GROUP_BLOCK more on the right. */
    const float *image, *pilot;
    ptrdiff_t stride, height, width, search, step;
    /* Rows of the transform, and its transpose. */
    const float *basis, *turned;
    float noise;
    /* s_b / 8 and v_b of all patches of the pilot with first rows first_row to first_row + n_rows. */
    ptrdiff_t first_row, n_rows;
    float *eighth, *norm;
    /* (2, stride) */
    double *column;
    /* Rows start to stop of the image, padded in width. */
    ptrdiff_t start, stop;
    float *numerator, *denominator;
} group_task;

LANES_INLINE void group_norms(const group_task *task)
{
    const ptrdiff_t stride = task->stride, n = stride - GROUP_SIDE + 1;
    double *sum = task->column, *square = sum + stride;
    for (ptrdiff_t row = 0; row < task->n_rows; row++) {
        const float *from = task->pilot + (task->first_row + row) * stride;
        float *eighth = task->eighth + row * stride, *norm = task->norm + row * stride;
        for (ptrdiff_t j = 0; j < stride; j++) {
            double total = 0.0, squares = 0.0;
            for (int i = 0; i < GROUP_SIDE; i++) {
                double x = from[i * stride + j];
                total += x;
                squares += x * x;
            }
            sum[j] = total;
            square[j] = squares;
        }
        for (ptrdiff_t j = 0; j < n; j++) {
            double total = 0.0, squares = 0.0;
            for (int i = 0; i < GROUP_SIDE; i++) {
                total += sum[j + i];
                squares += square[j + i];
            }
            eighth[j] = (float)(total / GROUP_SIDE);
            norm[j] = (float)(squares - total * total / GROUP_PIXELS);
        }
    }
}

/* Distances, up to a constant, from a patch to the patches that begin at some neighbouring pixels. */
LANES_INLINE void group_distances(const float *twice, float own, const float *from, const float *eighth,
                                  const float *norm, ptrdiff_t stride, const int n_vectors, float *out)
{
    /* Two sums for each patch, since a single sum would wait for each addition. */
    lanes even[GROUP_VECTORS], odd[GROUP_VECTORS], seen, tap;
    for (int v = 0; v < n_vectors; v++)
        even[v] = odd[v] = LANES_ALL(0.0f);
    for (int i = 0; i < GROUP_SIDE; i++)
        for (int j = 0; j < GROUP_SIDE; j += 2) {
            tap = LANES_ALL(twice[i * GROUP_SIDE + j]);
            for (int v = 0; v < n_vectors; v++) {
                LANES_LOAD(seen, from + i * stride + j + v * LANES);
                even[v] = LANES_ADD_PRODUCT(even[v], tap, seen);
            }
            tap = LANES_ALL(twice[i * GROUP_SIDE + j + 1]);
            for (int v = 0; v < n_vectors; v++) {
                LANES_LOAD(seen, from + i * stride + j + 1 + v * LANES);
                odd[v] = LANES_ADD_PRODUCT(odd[v], tap, seen);
            }
        }
    for (int v = 0; v < n_vectors; v++) {
        LANES_LOAD(tap, eighth + v * LANES);
        tap = LANES_SUB(tap, LANES_ALL(own));
        LANES_LOAD(seen, norm + v * LANES);
        seen = LANES_ADD_PRODUCT(seen, tap, tap);
        odd[v] = LANES_ADD(even[v], odd[v]);
        seen = LANES_SUB(seen, odd[v]);
        LANES_STORE(out + v * LANES, seen);
    }
}

/* Positions, relative to a patch, of the patch itself and the most similar patches, nearest first. The patch is always
   included, even if many patches are equal, so that every pixel has a group. */
LANES_INLINE void group_matches(const group_task *task, ptrdiff_t own, ptrdiff_t *place)
{
    const ptrdiff_t stride = task->stride, search = task->search, n_across = 2 * search + 1;
    const float *pilot = task->pilot + own, *eighth = task->eighth + own - task->first_row * stride;
    const float *norm = task->norm + own - task->first_row * stride;
    const float mean = eighth[0] / GROUP_SIDE;
    float least[GROUP_SIZE], twice[GROUP_PIXELS], distance[GROUP_BLOCK];
    ptrdiff_t n = 1;
    least[0] = 0.0f;
    place[0] = 0;
    for (int i = 0; i < GROUP_SIDE; i++)
        for (int j = 0; j < GROUP_SIDE; j++)
            twice[i * GROUP_SIDE + j] = 2.0f * (pilot[i * stride + j] - mean);
    for (ptrdiff_t down = -search; down <= search; down++)
        for (ptrdiff_t k = 0; k < n_across; k += GROUP_BLOCK) {
            const ptrdiff_t first = down * stride - search + k;
            const ptrdiff_t n_here = n_across - k < GROUP_BLOCK ? n_across - k : GROUP_BLOCK;
            const float *from = pilot + first, *sum = eighth + first, *square = norm + first;
            if (n_here > 2 * LANES)
                group_distances(twice, eighth[0], from, sum, square, stride, GROUP_VECTORS, distance);
            else
                group_distances(twice, eighth[0], from, sum, square, stride, 2, distance);
            for (ptrdiff_t j = 0; j < n_here; j++) {
                const float d = distance[j];
                if (n == GROUP_SIZE && !(d < least[GROUP_SIZE - 1]))
                    continue;
                if (first + j == 0)
                    continue;
                ptrdiff_t rank = n < GROUP_SIZE ? n++ : n - 1;
                for (; rank > 1 && d < least[rank - 1]; rank--) {
                    least[rank] = least[rank - 1];
                    place[rank] = place[rank - 1];
                }
                least[rank] = d;
                place[rank] = first + j;
            }
        }
    /* If the window has too few pixels, repeat the patch itself. */
    for (ptrdiff_t k = n; k < GROUP_SIZE; k++)
        place[k] = place[0];
}

/* out = in times right, for 8 x 8 matrices. */
LANES_INLINE void group_times(const float *in, const float *right, lanes *out)
{
    lanes rows[GROUP_SIDE];
    cosine_load(rows, right, GROUP_SIDE);
    for (int k = 0; k < GROUP_SIDE; k++) {
        out[k] = LANES_MUL(LANES_ALL(in[k * GROUP_SIDE]), rows[0]);
        for (int a = 1; a < GROUP_SIDE; a++)
            out[k] = LANES_ADD_PRODUCT(out[k], LANES_ALL(in[k * GROUP_SIDE + a]), rows[a]);
    }
}

/* Transform a patch along its columns and its rows. */
LANES_INLINE void group_transform(const float *in, ptrdiff_t stride, const float *turned, float *out)
{
    float half[GROUP_PIXELS];
    lanes x[GROUP_SIDE];
    cosine_load(x, in, stride);
    cosine_transform(x);
    for (int k = 0; k < GROUP_SIDE; k++)
        LANES_STORE(half + k * GROUP_SIDE, x[k]);
    group_times(half, turned, x);
    for (int k = 0; k < GROUP_SIDE; k++)
        LANES_STORE(out + k * GROUP_SIDE, x[k]);
}

LANES_INLINE void group_hadamard(float *group)
{
    for (int i = 0; i < GROUP_PIXELS; i += LANES) {
        lanes x[GROUP_SIZE], sum;
        for (int k = 0; k < GROUP_SIZE; k++)
            LANES_LOAD(x[k], group + k * GROUP_PIXELS + i);
        for (int step = 1; step < GROUP_SIZE; step *= 2)
            for (int k = 0; k < GROUP_SIZE; k++) {
                if (k & step)
                    continue;
                sum = LANES_ADD(x[k], x[k + step]);
                x[k + step] = LANES_SUB(x[k], x[k + step]);
                x[k] = sum;
            }
        for (int k = 0; k < GROUP_SIZE; k++)
            LANES_STORE(group + k * GROUP_PIXELS + i, x[k]);
    }
}

/* Add the shrunk pixels of one patch of a group, and their weight. */
LANES_INLINE void group_add(const group_task *task, const float *shrunk, ptrdiff_t corner, float weight)
{
    const ptrdiff_t stride = task->stride, margin = task->search + GROUP_SIDE - 1, row = corner / stride - margin;
    const lanes scale = LANES_ALL(weight / GROUP_SIZE), of_group = LANES_ALL(weight);
    lanes x[GROUP_SIDE], total;
    group_times(shrunk, task->basis, x);
    cosine_inverse(x);
    for (ptrdiff_t a = 0; a < GROUP_SIDE; a++) {
        if (row + a < task->start || row + a >= task->stop)
            continue;
        const ptrdiff_t at = (row + a - task->start) * stride + corner % stride;
        LANES_LOAD(total, task->numerator + at);
        total = LANES_ADD_PRODUCT(total, scale, x[a]);
        LANES_STORE(task->numerator + at, total);
        LANES_LOAD(total, task->denominator + at);
        total = LANES_ADD(total, of_group);
        LANES_STORE(task->denominator + at, total);
    }
}

LANES_INLINE void group_body(const group_task *task)
{
    const ptrdiff_t stride = task->stride, search = task->search, step = task->step;
    const ptrdiff_t beyond = GROUP_SIDE - 1, margin = search + beyond, first = -(beyond / step) * step;
    /* The transform over the group is four times an orthonormal transform. */
    const lanes variance = LANES_ALL(GROUP_SIZE * task->noise * task->noise);
    float group[GROUP_SIZE * GROUP_PIXELS], signal[GROUP_SIZE * GROUP_PIXELS];
    ptrdiff_t place[GROUP_SIZE];
    group_norms(task);
    for (ptrdiff_t i = first; i < task->height; i += step) {
        if (i + search + beyond < task->start || i - search >= task->stop)
            continue;
        for (ptrdiff_t j = first; j < task->width; j += step) {
            const ptrdiff_t own = (i + margin) * stride + j + margin;
            float spread[LANES], total = 0.0f;
            lanes gains = LANES_ALL(0.0f), gain, x;
            group_matches(task, own, place);
            for (int k = 0; k < GROUP_SIZE; k++) {
                group_transform(task->image + own + place[k], stride, task->turned, group + k * GROUP_PIXELS);
                group_transform(task->pilot + own + place[k], stride, task->turned, signal + k * GROUP_PIXELS);
            }
            group_hadamard(group);
            group_hadamard(signal);
            /* The mean of the group is not shrunk. */
            float mean = group[0];
            for (int k = 0; k < GROUP_SIZE * GROUP_PIXELS; k += LANES) {
                LANES_LOAD(gain, signal + k);
                gain = LANES_MUL(gain, gain);
                x = LANES_ADD(gain, variance);
                gain = LANES_DIV(gain, x);
                LANES_LOAD(x, group + k);
                x = LANES_MUL(x, gain);
                LANES_STORE(group + k, x);
                gains = LANES_ADD_PRODUCT(gains, gain, gain);
            }
            group[0] = mean;
            LANES_STORE(spread, gains);
            for (int b = 0; b < LANES; b++)
                total += spread[b];
            group_hadamard(group);
            /* Groups that keep little of the noise have the largest weight. */
            for (int k = 0; k < GROUP_SIZE; k++)
                group_add(task, group + k * GROUP_PIXELS, own + place[k], 1.0f / (total + GROUP_LEAST));
        }
    }
}

static void group_rows(const group_task *task)
{
    crf::call_at_level([&] { group_body(task); });
}

#endif
