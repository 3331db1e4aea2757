// Filters for the points of dense fields: splat, blur and slice on a lattice, in several threads.
//
// Sums are gathered, so that results do not depend on the division of the work. Short rows are scattered to a fixed
// number of partial sums instead, which are added in order.
#pragma once

#include <algorithm>
#include <vector>

#include "channel_rows.hpp"
#include "core/pool.hpp"

namespace crf {

// Number of values in a block of rows. Its work takes some microseconds, more than passing it to a thread.
constexpr i64 kNumbersOfBlock = 1 << 14;

inline i64 rows_of_block(i64 width) { return std::max<i64>(64, kNumbersOfBlock / width); }

inline i64 n_row_blocks(i64 n_rows, i64 width) {
    return (n_rows + rows_of_block(width) - 1) / rows_of_block(width);
}

// Calls function(block, start, stop) for blocks of rows, distributed over threads.
template <class Function>
void share_rows(const Threads& threads, i64 n_rows, i64 width, const Function& function) {
    const i64 size = rows_of_block(width);
    threads.share(n_row_blocks(n_rows, width),
                  [&](i64 k) { function(k, k * size, std::min((k + 1) * size, n_rows)); });
}

// Arrays of a lattice around points.
template <class T>
struct Lattice {
    const i32* vertex_of;  // (n_points, n_corners)
    const T* weight_of;
    i64 n_points, n_corners;
    const i32* neighbors;  // (n_axes, n_vertices, 2)
    i64 n_vertices;
    const i64* axes;  // (n_passes,) axes in the order of the blur
    i64 n_passes;
    T center, side;
    i64 n_parts;  // number of partial sums if rows are scattered; else 0, and the points of each vertex are listed
    const i64* ptr;  // (n_vertices + 1,)
    const i32* point_of;
    const T* weight_by_vertex;
};

// Lattice with workspace for filtering rows of a given width.
template <class T>
class Filter {
public:
    Filter(const Lattice<T>& lattice, i64 width)
        : of(lattice), width(width), parts(of.n_parts * of.n_vertices * width), values((of.n_vertices + 1) * width),
          other(values.size()) {}

    // Returns the sums at all vertices, blurred along one axis after another (in reverse order for the adjoint). The
    // last row, for missing vertices, is 0.
    T* blurred(const T* points, bool is_adjoint, const Threads& threads) {
        T *source = values.data(), *target = other.data();
        if (of.n_parts)
            scatter(points, source, threads);
        else
            gather(points, source, threads);
        Blur<T> step;
        step.center = of.center, step.side = of.side, step.width = width;
        for (i64 k = 0; k < of.n_passes; k++) {
            step.neighbors = of.neighbors + of.axes[is_adjoint ? of.n_passes - 1 - k : k] * of.n_vertices * 2;
            step.vertices = source, step.blurred = target;
            share_rows(threads, of.n_vertices, width, [&](i64, i64 start, i64 stop) {
                Blur<T> range = step;
                range.start = start, range.stop = stop;
                apply(range);
            });
            std::swap(source, target);
        }
        return source;
    }

    // Filters the values of all points.
    void filter(const T* points, bool is_adjoint, T* filtered, const Threads& threads) {
        const T* vertices = blurred(points, is_adjoint, threads);
        share_rows(threads, of.n_points, width, [&](i64, i64 start, i64 stop) {
            read(vertices, nullptr, start, stop, filtered + start * width);
        });
    }

    // points[p - start] = base[p - start] + the interpolated value of p; a null base is 0.
    void read(const T* vertices, const T* base, i64 start, i64 stop, T* points) const {
        Slice<T> slice;
        slice.vertex_of = of.vertex_of, slice.weight_of = of.weight_of, slice.n_corners = of.n_corners;
        slice.vertices = vertices, slice.base = base, slice.points = points;
        slice.width = width, slice.start = start, slice.stop = stop;
        apply(slice);
    }

    i64 n_vertices() const { return of.n_vertices; }

private:
    Lattice<T> of;
    i64 width;
    std::vector<double> parts;  // (n_parts, n_vertices, width), 0 between calls
    std::vector<T> values, other;  // (n_vertices + 1, width), the last row 0

    void scatter(const T* points, T* sums, const Threads& threads) {
        const i64 n_values = of.n_vertices * width;
        threads.share(of.n_parts, [&](i64 k) {
            Scatter<T> part;
            part.vertex_of = of.vertex_of, part.weight_of = of.weight_of, part.n_corners = of.n_corners;
            part.points = points, part.width = width, part.totals = parts.data() + k * n_values;
            part.start = of.n_points * k / of.n_parts, part.stop = of.n_points * (k + 1) / of.n_parts;
            apply(part);
        });
        share_rows(threads, of.n_vertices, width, [&](i64, i64 start, i64 stop) {
            add_parts(parts.data(), of.n_parts, n_values, start * width, stop * width, sums);
        });
    }

    // Work is divided by entries, not by vertices, since a single vertex may have as many points as all others
    // together.
    void gather(const T* points, T* sums, const Threads& threads) const {
        const i64* end = of.ptr + of.n_vertices;
        share_rows(threads, of.n_points * of.n_corners, width, [&](i64, i64 start, i64 stop) {
            Splat<T> range;
            range.ptr = of.ptr, range.point_of = of.point_of, range.weight_of = of.weight_by_vertex;
            range.points = points, range.vertices = sums, range.width = width;
            range.start = std::lower_bound(of.ptr, end, start) - of.ptr;
            range.stop = std::lower_bound(of.ptr, end, stop) - of.ptr;
            apply(range);
        });
    }
};

}  // namespace crf
