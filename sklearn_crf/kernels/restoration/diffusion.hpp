// Stages of learned filters, u <- u - sum_f K_f' phi_f(K_f u) - pull (u - given), and the gradient of their loss.
//
// Filters are squares of odd size. Images are padded by reflection, wide enough for all responses that affect the
// image. Work is split into tiles; results do not depend on the tiles.
#pragma once

#include <algorithm>
#include <vector>

#include "core/pool.hpp"
#include "core/types.hpp"
#include "filter_sums.hpp"

namespace crf {

constexpr i64 kTile = 64;  // rows and columns of a tile: the responses of 24 filters fit into the L2 cache

// Layout of the parameters of all stages, and of their derivatives.
struct StageLayout {
    i64 n_stages, n_filters, side, n_knots;

    i64 radius() const { return side / 2; }
    i64 n_taps() const { return side * side; }
    i64 n_planes() const { return in_whole(n_filters, kFilters); }
    // Filters (n_filters, side * side), values of phi at its knots (n_filters, n_knots), pull.
    i64 of_stage() const { return n_filters * (n_taps() + n_knots) + 1; }
    i64 n_params() const { return n_stages * of_stage(); }
};

template <class T>
struct Stage {
    std::vector<T> taps;   // (groups, n_taps, kFilters)
    std::vector<T> knots;  // (n_filters, n_knots, 2): value of phi at a knot, and difference to the next knot
    T pull;
};

// Offsets of the pixels of a tile in planes with padding on every side.
template <class T>
struct TilePlanes {
    i64 height, width, radius, stride;
    std::vector<i64> offset;  // of taps, padded to whole groups

    TilePlanes(i64 height, i64 width, const StageLayout& layout)
        : height(height), width(width), radius(layout.radius()),
          stride(in_whole(width + 4 * layout.radius(), kLanes<T>)), offset(in_whole(layout.n_taps(), kTaps)) {
        for (i64 tap = 0; tap < layout.n_taps(); tap++)
            offset[tap] = tap / layout.side * stride + tap % layout.side;
    }

    i64 front() const { return 2 * radius * (stride + 1); }  // the last offset
    i64 n_seen() const { return in_whole((height + 4 * radius) * stride, kRun<T>); }
    i64 n_responses() const { return in_whole((height + 2 * radius) * stride, kRun<T>); }
    i64 n_pixels() const { return in_whole(height * stride, kRun<T>); }
    // Size of a plane that is read at all offsets, forwards or backwards.
    i64 size() const { return n_seen() + 2 * front() + kRun<T>; }
};

inline i64 mirrored(i64 place, i64 n) {
    place %= 2 * n;
    if (place < 0) place += 2 * n;
    return place < n ? place : 2 * n - 1 - place;
}

template <class T>
struct Diffusion {
    StageLayout layout;
    T first, step;  // first knot and spacing of the knots of phi, which is constant beyond them
    std::vector<Stage<T>> stages;

    Diffusion(const StageLayout& layout, T first, T step, const T* params) : layout(layout), first(first), step(step) {
        for (i64 t = 0; t < layout.n_stages; t++, params += layout.of_stage()) stages.push_back(stage_of(params));
    }

    // Restores an image (height, width) in place.
    void restore(T* image, i64 height, i64 width, const Threads& threads) const {
        const std::vector<T> given(image, image + height * width);
        std::vector<T> before(given);
        const i64 columns = (width + kTile - 1) / kTile, rows = (height + kTile - 1) / kTile;
        for (const Stage<T>& stage : stages) {
            threads.share(rows * columns, [&](i64 tile) {
                const i64 top = tile / columns * kTile, left = tile % columns * kTile;
                restore_tile(stage, before.data(), given.data(), height, width, top, left, image);
            });
            std::copy_n(image, height * width, before.data());
        }
    }

    // Sums the squared errors over n images (height, width), and their derivatives with respect to all parameters.
    // Pixels within a margin of the border are ignored.
    void lose(const T* given, const T* target, i64 n, i64 height, i64 width, i64 margin, double* losses,
              double* gradient, const Threads& threads) const {
        const i64 n_params = gradient ? layout.n_params() : 0, size = height * width;
        std::vector<T> by_params(n * n_params);
        threads.share(n, [&](i64 i) {
            T* own = gradient ? by_params.data() + i * n_params : nullptr;
            losses[i] = lose_on(given + i * size, target + i * size, height, width, margin, own);
        });
        for (i64 i = 0; i < n; i++)
            for (i64 k = 0; k < n_params; k++) gradient[k] += by_params[i * n_params + k];
    }

private:
    // Places of the responses of a run: the knot below a response, the relative position between this knot and the next
    // knot, and the derivative of the position with respect to the response.
    struct Places {
        i32 knot[kRun<T>];
        T share[kRun<T>], slope[kRun<T>];
    };

    Stage<T> stage_of(const T* params) const {
        const i64 n_taps = layout.n_taps(), K = layout.n_knots;
        Stage<T> made{std::vector<T>(layout.n_planes() * n_taps), std::vector<T>(layout.n_filters * K * 2), 0};
        for (i64 f = 0; f < layout.n_filters; f++)
            for (i64 tap = 0; tap < n_taps; tap++)
                made.taps[(f / kFilters * n_taps + tap) * kFilters + f % kFilters] = params[f * n_taps + tap];
        params += layout.n_filters * n_taps;
        for (i64 f = 0; f < layout.n_filters; f++)
            for (i64 k = 0; k < K; k++) {
                T* knot = made.knots.data() + (f * K + k) * 2;
                knot[0] = params[f * K + k];
                knot[1] = k + 1 < K ? params[f * K + k + 1] - params[f * K + k] : 0;
            }
        made.pull = params[layout.n_filters * K];
        return made;
    }

    void find_places(const T* responses, Places& places) const {
        const T last = T(layout.n_knots - 1), unit = 1 / step, start = first;
        for (i64 q = 0; q < kRun<T>; q++) {
            const T at = (responses[q] - start) * unit;
            const T inside = std::min(last, std::max(T(0), at));  // 0 for NaN
            places.knot[q] = i32(inside);
            places.share[q] = inside - T(places.knot[q]);
            places.slope[q] = inside == at ? unit : T(0);
        }
    }

    void influence(const T* knots, i64 n, T* responses) const {
        Places places;
        for (i64 first = 0; first < n; first += kRun<T>) {
            find_places(responses + first, places);
            for (i64 q = 0; q < kRun<T>; q++) {
                const T* knot = knots + 2 * places.knot[q];
                responses[first + q] = knot[0] + places.share[q] * knot[1];
            }
        }
    }

    const T* taps_of(const Stage<T>& stage, i64 f) const {
        return stage.taps.data() + f / kFilters * layout.n_taps() * kFilters + f % kFilters;
    }

    // Computes the responses of all filters to a plane that is padded by twice the radius.
    void respond(const Stage<T>& stage, const TilePlanes<T>& at, const T* plane, i64 step, T* responses) const {
        for (i64 f = 0; f < layout.n_filters; f += kFilters)
            add_up(Responses<T>{plane, taps_of(stage, f), at.offset.data(), layout.n_taps(), at.n_responses(),
                                responses + f * step, step});
    }

    // Copies a tile of an image with padding of twice the radius.
    void read_tile(const TilePlanes<T>& at, const T* image, i64 height, i64 width, i64 top, i64 left, T* plane) const {
        const i64 around = 2 * at.radius;
        for (i64 i = 0; i < at.height + 2 * around; i++) {
            const T* row = image + mirrored(top - around + i, height) * width;
            for (i64 j = 0; j < at.width + 2 * around; j++)
                plane[i * at.stride + j] = row[mirrored(left - around + j, width)];
        }
    }

    void restore_tile(const Stage<T>& stage, const T* before, const T* given, i64 height, i64 width, i64 top, i64 left,
                      T* image) const {
        const TilePlanes<T> at(std::min(kTile, height - top), std::min(kTile, width - left), layout);
        std::vector<T> plane(at.size()), responses(layout.n_planes() * at.size()), sums(at.n_pixels());
        read_tile(at, before, height, width, top, left, plane.data());
        respond(stage, at, plane.data(), at.size(), responses.data());
        add_influences(stage, at, responses.data(), sums.data());
        for (i64 i = 0; i < at.height; i++)
            for (i64 j = 0; j < at.width; j++) {
                const i64 pixel = (top + i) * width + left + j;
                image[pixel] = before[pixel] - sums[i * at.stride + j] - stage.pull * (before[pixel] - given[pixel]);
            }
    }

    // Replaces responses by their influences, and adds the adjoint filters of the influences to the sums.
    void add_influences(const Stage<T>& stage, const TilePlanes<T>& at, T* responses, T* sums) const {
        for (i64 f = 0; f < layout.n_filters; f++) {
            T* own = responses + f * at.size();
            influence(stage.knots.data() + f * layout.n_knots * 2, at.n_responses(), own);
            add_up(Spread<T>{own + at.front(), taps_of(stage, f), kFilters, at.offset.data(), layout.n_taps(),
                             at.n_pixels(), sums});
        }
    }

    // Computes the squared error on one image and its derivatives.
    double lose_on(const T* given, const T* target, i64 height, i64 width, i64 margin, T* by_params) const {
        const TilePlanes<T> at(height, width, layout);
        const i64 n = height * width, of_stage = (1 + layout.n_planes()) * at.size();
        std::vector<T> image(given, given + n), kept(of_stage * layout.n_stages), responses, sums;
        for (i64 t = 0; t < layout.n_stages; t++) {
            T* plane = kept.data() + t * of_stage;
            read_tile(at, image.data(), height, width, 0, 0, plane);
            respond(stages[t], at, plane, at.size(), plane + at.size());
            responses.assign(plane + at.size(), plane + of_stage);
            sums.assign(at.n_pixels(), 0);
            add_influences(stages[t], at, responses.data(), sums.data());
            for (i64 p = 0; p < n; p++)
                image[p] -= sums[p / width * at.stride + p % width] + stages[t].pull * (image[p] - given[p]);
        }
        double loss = 0;
        for (i64 p = 0; p < n; p++) {
            const i64 i = p / width, j = p % width;
            const bool counts = std::min({i, j, height - 1 - i, width - 1 - j}) >= margin;
            const T error = counts ? image[p] - target[p] : 0;
            loss += double(error) * error;
            image[p] = 2 * error;
        }
        for (i64 t = layout.n_stages - 1; t >= 0 && by_params; t--)
            pull_back(stages[t], at, kept.data() + t * of_stage, given, image, by_params + t * layout.of_stage());
        return loss;
    }

    // Backpropagates through a stage: adds derivatives with respect to its parameters, and replaces the derivative with
    // respect to its output image by the derivative with respect to its input image.
    void pull_back(const Stage<T>& stage, const TilePlanes<T>& at, const T* plane, const T* given,
                   std::vector<T>& by_image, T* by_params) const {
        const i64 around = 2 * at.radius, K = layout.n_knots, n_taps = layout.n_taps();
        std::vector<T> back(at.size()), slopes(kFilters * at.size()), influences(at.size()), by_plane(at.size());
        T pulled = 0;
        for (i64 i = 0; i < at.height; i++)
            for (i64 j = 0; j < at.width; j++) {
                const T slope = by_image[i * at.width + j];
                const i64 here = (around + i) * at.stride + around + j;
                back[here] = -slope;
                pulled -= slope * (plane[here] - given[i * at.width + j]);
            }
        T* by_knots = by_params + layout.n_filters * n_taps;
        by_knots[layout.n_filters * K] = pulled;
        for (i64 f = 0; f < layout.n_filters; f++) {
            T* slope = slopes.data() + f % kFilters * at.size() + at.front();
            if (f % kFilters == 0)
                add_up(Responses<T>{back.data(), taps_of(stage, f), at.offset.data(), n_taps, at.n_responses(), slope,
                                    at.size()});
            chain(stage.knots.data() + f * K * 2, at, plane + (1 + f) * at.size(), slope, influences.data(),
                  by_knots + f * K);
            add_up(TapSums<T>{slope, plane, influences.data(), back.data(), at.offset.data(), n_taps, at.n_responses(),
                              by_params + f * n_taps});
            add_up(Spread<T>{slope, taps_of(stage, f), kFilters, at.offset.data(), n_taps, at.n_seen(),
                             by_plane.data()});
        }
        for (T& own : by_image) own *= 1 - stage.pull;
        for (i64 i = 0; i < at.height + 2 * around; i++)
            for (i64 j = 0; j < at.width + 2 * around; j++)
                by_image[mirrored(i - around, at.height) * at.width + mirrored(j - around, at.width)] +=
                    by_plane[i * at.stride + j];
    }

    // Computes influences of responses. Converts derivatives with respect to influences to derivatives with respect to
    // responses, in place, and to knots. Results are zero outside of the pixels.
    void chain(const T* knots, const TilePlanes<T>& at, const T* responses, T* slopes, T* influences,
               T* by_knots) const {
        constexpr i64 kCopies = 4;  // copies of sums, since additions to a single number would wait
        const i64 K = layout.n_knots, n = at.n_responses();
        std::vector<T> sums(kCopies * K * 2);
        clear_between(at, slopes);
        Places places;
        for (i64 first = 0; first < n; first += kRun<T>) {
            find_places(responses + first, places);
            for (i64 q = 0; q < kRun<T>; q++) {
                const T *knot = knots + 2 * places.knot[q], slope = slopes[first + q], share = places.share[q];
                influences[first + q] = knot[0] + share * knot[1];
                T* own = sums.data() + (q % kCopies * K + places.knot[q]) * 2;
                own[0] += slope;
                own[1] += slope * share;
                slopes[first + q] = slope * knot[1] * places.slope[q];
            }
        }
        clear_between(at, influences);
        std::fill_n(by_knots, K, T(0));
        for (i64 copy = 0; copy < kCopies; copy++)
            for (i64 k = 0; k < K; k++) {
                const T* own = sums.data() + (copy * K + k) * 2;
                by_knots[k] += own[0] - own[1];
                if (k + 1 < K) by_knots[k + 1] += own[1];
            }
    }

    // Sets the padding between the responses of a plane to zero.
    void clear_between(const TilePlanes<T>& at, T* plane) const {
        const i64 height = at.height + 2 * at.radius, width = at.width + 2 * at.radius;
        for (i64 i = 0; i < height; i++) std::fill(plane + i * at.stride + width, plane + (i + 1) * at.stride, T(0));
        std::fill(plane + height * at.stride, plane + at.n_responses(), T(0));
    }
};

}  // namespace crf
