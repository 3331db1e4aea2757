// Weighted sums of rows of channels: splat, blur and slice on a lattice.
//
// Sums are gathered: at a vertex over its points in order, and at a point over its vertices in order. Results do not
// depend on the division of the work. A row is padded to whole vectors, or to a power of two if it is shorter.
#pragma once

#include "core/types.hpp"
#include "core/vectors.hpp"

namespace crf {

// Calls operation.run<lanes, vectors>(column) for groups of columns that fit into registers.
template <class Operation>
VECTORS_INLINE void each_group(const Operation& operation) {
    constexpr int L = kLanes<typename Operation::Value>;
    const i64 width = operation.width;
    if (width == 1)
        return operation.template run<1, 1>(0);
    if (width == 2)
        return operation.template run<2, 1>(0);
    if (width < L)
        return operation.template run<L / 2, 1>(0);
    for (i64 column = 0; column < width;) {
        const i64 left = (width - column) / L;
        if (left >= 4) {
            operation.template run<L, 4>(column);
            column += 4 * L;
            continue;
        }
        if (left == 3)
            operation.template run<L, 3>(column);
        else if (left == 2)
            operation.template run<L, 2>(column);
        else
            operation.template run<L, 1>(column);
        break;
    }
}

// Long sums are split into blocks, so that the error of float32 grows with the number of blocks instead of terms.
constexpr i64 kBlock = 256;
constexpr i64 kAhead = 8;

// vertices[v] = sum of weight * points[point] over the points of v, for v from start to stop.
template <class T>
struct Splat {
    using Value = T;
    const i64* ptr;
    const i32* point_of;
    const T* weight_of;
    const T* points;
    i64 width, start, stop;
    T* vertices;

    VECTORS_INLINE void all() const { each_group(*this); }

    template <int L, int V>
    VECTORS_INLINE void run(i64 column) const {
        using Row = Vector<T, L>;
        const T* from = points + column;
        for (i64 vertex = start; vertex < stop; vertex++) {
            Row total[V] = {};
            for (i64 first = ptr[vertex]; first < ptr[vertex + 1]; first += kBlock) {
                const i64 last = first + kBlock < ptr[vertex + 1] ? first + kBlock : ptr[vertex + 1];
                Row block[V] = {};
                for (i64 entry = first; entry < last; entry++) {
                    // Do not prefetch past the end of the block, which may be the end of the array.
                    const i64 ahead = entry + kAhead < last ? entry + kAhead : last - 1;
                    VECTORS_PREFETCH(from + point_of[ahead] * width);
                    const Row* x = reinterpret_cast<const Row*>(from + point_of[entry] * width);
                    const T factor = weight_of[entry];
                    for (int v = 0; v < V; v++)
                        block[v] += factor * x[v];
                }
                for (int v = 0; v < V; v++)
                    total[v] += block[v];
            }
            Row* y = reinterpret_cast<Row*>(vertices + column + vertex * width);
            for (int v = 0; v < V; v++)
                y[v] = total[v];
        }
    }
};

// totals[v] += weight * points[p] for the corners v of p, for p from start to stop. For short rows, whose sums in
// double precision stay in the cache, this is faster than using lists of points.
template <class T>
struct Scatter {
    using Value = T;
    const i32* vertex_of;  // (n_points, n_corners)
    const T* weight_of;
    i64 n_corners;
    const T* points;
    i64 width, start, stop;
    double* totals;

    VECTORS_INLINE void all() const {
        switch (width) {
            case 1: return run<1>();
            case 2: return run<2>();
            default: return run<4>();
        }
    }

    template <int W>
    VECTORS_INLINE void run() const {
        for (i64 point = start; point < stop; point++) {
            const T* x = points + point * W;
            for (i64 at = point * n_corners; at < (point + 1) * n_corners; at++) {
                const double factor = weight_of[at];
                double* y = totals + static_cast<i64>(vertex_of[at]) * W;
                for (int k = 0; k < W; k++)
                    y[k] += factor * x[k];
            }
        }
    }
};

// vertices[at] = sum over the parts, for values from start to stop; resets the parts to 0 for the next call.
template <class T>
void add_parts(double* parts, i64 n_parts, i64 n_values, i64 start, i64 stop, T* vertices) {
    for (i64 at = start; at < stop; at++) {
        double total = 0;
        for (i64 part = 0; part < n_parts; part++) {
            total += parts[part * n_values + at];
            parts[part * n_values + at] = 0;
        }
        vertices[at] = static_cast<T>(total);
    }
}

// blurred[v] = center * vertices[v] + side * (both neighbours), for v from start to stop.
template <class T>
struct Blur {
    using Value = T;
    const i32* neighbors;  // (n_vertices, 2)
    T center, side;
    const T* vertices;
    i64 width, start, stop;
    T* blurred;

    VECTORS_INLINE void all() const { each_group(*this); }

    template <int L, int V>
    VECTORS_INLINE void run(i64 column) const {
        using Row = Vector<T, L>;
        const T* from = vertices + column;
        for (i64 vertex = start; vertex < stop; vertex++) {
            const Row* x = reinterpret_cast<const Row*>(from + vertex * width);
            const Row* before = reinterpret_cast<const Row*>(from + neighbors[2 * vertex] * width);
            const Row* behind = reinterpret_cast<const Row*>(from + neighbors[2 * vertex + 1] * width);
            Row* y = reinterpret_cast<Row*>(blurred + column + vertex * width);
            for (int v = 0; v < V; v++)
                y[v] = center * x[v] + side * (before[v] + behind[v]);
        }
    }
};

// points[p - start] = base[p - start] + sum of weight * vertices[v] over the corners of p, for p from start to stop.
template <class T>
struct Slice {
    using Value = T;
    const i32* vertex_of;  // (n_points, n_corners)
    const T* weight_of;
    i64 n_corners;
    const T* vertices;
    const T* base = nullptr;
    i64 width, start, stop;
    T* points;

    VECTORS_INLINE void all() const { each_group(*this); }

    template <int L, int V>
    VECTORS_INLINE void run(i64 column) const {
        using Row = Vector<T, L>;
        const T* from = vertices + column;
        for (i64 point = start; point < stop; point++) {
            const i64 to = (point - start) * width + column;
            Row total[V] = {};
            if (base)
                for (int v = 0; v < V; v++)
                    total[v] = reinterpret_cast<const Row*>(base + to)[v];
            for (i64 at = point * n_corners; at < (point + 1) * n_corners; at++) {
                const Row* x = reinterpret_cast<const Row*>(from + vertex_of[at] * width);
                const T factor = weight_of[at];
                for (int v = 0; v < V; v++)
                    total[v] += factor * x[v];
            }
            Row* y = reinterpret_cast<Row*>(points + to);
            for (int v = 0; v < V; v++)
                y[v] = total[v];
        }
    }
};

}  // namespace crf
