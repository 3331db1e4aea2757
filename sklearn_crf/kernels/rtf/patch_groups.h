/* Groups of similar 8 x 8 patches, shrunk together: the cosine transform of each patch, then the Hadamard transform over
   the patches of a group, each coefficient in proportion to what a pilot image says of signal and noise, and back.

   Loops are over eight numbers of a row of a patch, which compilers make one vector. */

#ifndef SKLEARN_CRF_PATCH_GROUPS_H
#define SKLEARN_CRF_PATCH_GROUPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_level.h"

#define GROUP_SIDE 8
#define GROUP_PIXELS 64
#define GROUP_SIZE 16

/* So that groups without any signal do not count for all. */
#define GROUP_LEAST 0.1f

#if defined(__GNUC__) || defined(__clang__)
#define GROUP_INLINE static inline __attribute__((always_inline))
#else
#define GROUP_INLINE static __inline
#endif

GROUP_INLINE float group_distance(const float *a, const float *b, ptrdiff_t stride)
{
    float lane[GROUP_SIDE] = {0};
    for (int i = 0; i < GROUP_SIDE; i++)
        for (int j = 0; j < GROUP_SIDE; j++) {
            float d = a[i * stride + j] - b[i * stride + j];
            lane[j] += d * d;
        }
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* Places, relative to a patch, of the patch itself and those that are most like it, the nearest first. Where many are
   equal the patch is still among them, so that every pixel has a group. */
GROUP_INLINE void group_matches(const float *patch, ptrdiff_t stride, ptrdiff_t search, ptrdiff_t *place)
{
    float least[GROUP_SIZE];
    ptrdiff_t n = 1;
    least[0] = -1.0f;
    place[0] = 0;
    for (ptrdiff_t down = -search; down <= search; down++)
        for (ptrdiff_t right = -search; right <= search; right++) {
            ptrdiff_t own = down * stride + right;
            if (own == 0)
                continue;
            float d = group_distance(patch, patch + own, stride);
            if (n == GROUP_SIZE && !(d < least[n - 1]))
                continue;
            ptrdiff_t k = n < GROUP_SIZE ? n++ : n - 1;
            for (; k > 0 && d < least[k - 1]; k--) {
                least[k] = least[k - 1];
                place[k] = place[k - 1];
            }
            least[k] = d;
            place[k] = own;
        }
    /* A window of few pixels: the nearest is there more than once. */
    for (ptrdiff_t k = n; k < GROUP_SIZE; k++)
        place[k] = place[0];
}

/* out = left times in times right, matrices of 8 x 8. */
GROUP_INLINE void group_product(const float *left, const float *in, ptrdiff_t stride, const float *right, float *out)
{
    float half[GROUP_PIXELS];
    for (int k = 0; k < GROUP_SIDE; k++) {
        float total[GROUP_SIDE] = {0};
        for (int a = 0; a < GROUP_SIDE; a++)
            for (int j = 0; j < GROUP_SIDE; j++)
                total[j] += left[k * GROUP_SIDE + a] * in[a * stride + j];
        memcpy(half + k * GROUP_SIDE, total, sizeof(total));
    }
    for (int k = 0; k < GROUP_SIDE; k++) {
        float total[GROUP_SIDE] = {0};
        for (int a = 0; a < GROUP_SIDE; a++)
            for (int j = 0; j < GROUP_SIDE; j++)
                total[j] += half[k * GROUP_SIDE + a] * right[a * GROUP_SIDE + j];
        memcpy(out + k * GROUP_SIDE, total, sizeof(total));
    }
}

GROUP_INLINE void group_hadamard(float *group)
{
    for (int step = 1; step < GROUP_SIZE; step *= 2)
        for (int k = 0; k < GROUP_SIZE; k++) {
            if (k & step)
                continue;
            float *a = group + k * GROUP_PIXELS, *b = a + step * GROUP_PIXELS;
            for (int i = 0; i < GROUP_PIXELS; i++) {
                float sum = a[i] + b[i], difference = a[i] - b[i];
                a[i] = sum;
                b[i] = difference;
            }
        }
}

/* Rows start to stop of an image that is continued by margin = search + 7 pixels; numerator and denominator have them,
   continued in width. basis: rows of the transform; turned: its transpose. */
GROUP_INLINE void group_body(const float *image, const float *pilot, ptrdiff_t stride, ptrdiff_t height, ptrdiff_t width,
                             ptrdiff_t search, ptrdiff_t step, const float *basis, const float *turned, float noise,
                             ptrdiff_t start, ptrdiff_t stop, float *numerator, float *denominator)
{
    const ptrdiff_t beyond = GROUP_SIDE - 1, margin = search + beyond, first = -(beyond / step) * step;
    /* The transform over the group is four times an orthonormal one. */
    const float variance = GROUP_SIZE * noise * noise;
    float group[GROUP_SIZE * GROUP_PIXELS], signal[GROUP_SIZE * GROUP_PIXELS], patch[GROUP_PIXELS];
    ptrdiff_t place[GROUP_SIZE];
    for (ptrdiff_t i = first; i < height; i += step) {
        if (i + search + beyond < start || i - search >= stop)
            continue;
        for (ptrdiff_t j = first; j < width; j += step) {
            const ptrdiff_t own = (i + margin) * stride + j + margin;
            float spread[GROUP_SIDE] = {0}, total = 0.0f;
            group_matches(pilot + own, stride, search, place);
            for (int k = 0; k < GROUP_SIZE; k++) {
                group_product(basis, image + own + place[k], stride, turned, group + k * GROUP_PIXELS);
                group_product(basis, pilot + own + place[k], stride, turned, signal + k * GROUP_PIXELS);
            }
            group_hadamard(group);
            group_hadamard(signal);
            /* The mean of the group is kept as it is. */
            float mean = group[0];
            for (int k = 0; k < GROUP_SIZE * GROUP_PIXELS; k += GROUP_SIDE)
                for (int b = 0; b < GROUP_SIDE; b++) {
                    float power = signal[k + b] * signal[k + b], gain = power / (power + variance);
                    group[k + b] *= gain;
                    spread[b] += gain * gain;
                }
            group[0] = mean;
            for (int b = 0; b < GROUP_SIDE; b++)
                total += spread[b];
            /* Groups that keep little of the noise count most. */
            const float weight = 1.0f / (total + GROUP_LEAST), scale = weight / GROUP_SIZE;
            group_hadamard(group);
            for (int k = 0; k < GROUP_SIZE; k++) {
                group_product(turned, group + k * GROUP_PIXELS, GROUP_SIDE, basis, patch);
                const ptrdiff_t corner = own + place[k], row = corner / stride - margin, left = corner % stride;
                for (int a = 0; a < GROUP_SIDE; a++) {
                    if (row + a < start || row + a >= stop)
                        continue;
                    float *above = numerator + (row + a - start) * stride + left;
                    float *below = denominator + (row + a - start) * stride + left;
                    for (int b = 0; b < GROUP_SIDE; b++) {
                        above[b] += scale * patch[a * GROUP_SIDE + b];
                        below[b] += weight;
                    }
                }
            }
        }
    }
}

#if VECTOR_LEVEL_DISPATCH
__attribute__((target("avx2,fma"), noinline)) static void group_wide(
    const float *image, const float *pilot, ptrdiff_t stride, ptrdiff_t height, ptrdiff_t width, ptrdiff_t search,
    ptrdiff_t step, const float *basis, const float *turned, float noise, ptrdiff_t start, ptrdiff_t stop,
    float *numerator, float *denominator)
{
    group_body(image, pilot, stride, height, width, search, step, basis, turned, noise, start, stop, numerator,
               denominator);
}
#endif

static void group_rows(const float *image, const float *pilot, ptrdiff_t stride, ptrdiff_t height, ptrdiff_t width,
                       ptrdiff_t search, ptrdiff_t step, const float *basis, const float *turned, float noise,
                       ptrdiff_t start, ptrdiff_t stop, float *numerator, float *denominator)
{
#if VECTOR_LEVEL_DISPATCH
    if (use_avx2()) {
        group_wide(image, pilot, stride, height, width, search, step, basis, turned, noise, start, stop, numerator,
                   denominator);
        return;
    }
#endif
    group_body(image, pilot, stride, height, width, search, step, basis, turned, noise, start, stop, numerator,
               denominator);
}

#endif
