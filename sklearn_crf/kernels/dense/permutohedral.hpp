// Gaussian filtering of many channels on the permutohedral lattice.
//
// After "Fast high-dimensional filtering using the permutohedral lattice" (Adams, Baek & Davis, 2010). Points with d
// features are embedded in the hyperplane of R^(d+1) whose coordinates sum to zero. The lattice there consists of the
// integer points whose coordinates are all congruent modulo d+1; its simplices have d+1 vertices. Values are splat to
// the vertices of the simplex around each point by barycentric weights, blurred along the d+1 axes of the lattice, and
// sliced at the points by the same weights.
//
// A vertex is named by one 64-bit number: its common remainder modulo d+1 is the lowest digit, the quotients of its
// first d coordinates are the others. A step along an axis then adds a constant, with a carry from the remainder.
//
// Here the lattice is built; the sums over it are in channel_rows.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "channel_rows.hpp"

namespace crf {

constexpr int kMaxAxes = 31;
constexpr i64 kFree = -1;

struct Digits {
    int n_axes;          // d
    const double* scale;  // (d,) from features to the hyperplane
    const i64* low;       // (d,) least quotient, less one
    const i64* stride;    // (d,) weight of each quotient in a key
};

// Keys and weights of the d+1 vertices around points start to stop, by the remainder of the vertex. D is the number of
// axes where it is known to the compiler, else 0. Points are embedded in groups of the same size, the last one filled
// up, so that every point goes through the same vector instructions wherever a range of points begins.
template <class T, int D>
struct Embedding {
    static constexpr int kSize = D ? D + 1 : kMaxAxes + 1;
    static constexpr int kGroup = 16;

    const T* features;
    const Digits& digits;
    i64 start, stop;
    i64* keys;
    T* weights;

    CHANNELS_INLINE void all() const {
        for (i64 point = start; point < stop; point += kGroup)
            group(point, point + kGroup < stop ? kGroup : static_cast<int>(stop - point));
    }

    CHANNELS_INLINE void group(i64 first, int n_points) const {
        const int d = D ? D : digits.n_axes;
        // Integers are kept in double as well: all lanes of a vector then have the same width.
        double height[kSize][kGroup], base[kSize][kGroup], rank[kSize][kGroup], above[kGroup] = {}, excess[kGroup] = {};
        for (int lane = 0; lane < kGroup; lane++) {
            const T* f = features + (first + (lane < n_points ? lane : n_points - 1)) * d;
            for (int i = 1; i <= d; i++)
                height[i][lane] = f[i - 1];
        }
        for (int i = d; i > 0; i--) {
            const double scale = digits.scale[i - 1];
            for (int lane = 0; lane < kGroup; lane++) {
                const double part = height[i][lane] * scale;
                height[i][lane] = above[lane] - i * part;
                above[lane] += part;
            }
        }
        for (int lane = 0; lane < kGroup; lane++)
            height[0][lane] = above[lane];

        // The nearest point with remainder 0 whose coordinates need not sum to 0 yet.
        const double per = 1.0 / (d + 1);
        for (int i = 0; i <= d; i++)
            for (int lane = 0; lane < kGroup; lane++) {
                const double nearest = std::floor(height[i][lane] * per + 0.5);
                base[i][lane] = nearest;
                height[i][lane] -= nearest * (d + 1);
                excess[lane] += nearest;
                rank[i][lane] = 0;
            }
        for (int i = 0; i < d; i++)
            for (int j = i + 1; j <= d; j++)
                for (int lane = 0; lane < kGroup; lane++) {
                    const double later = height[i][lane] < height[j][lane] ? 1.0 : 0.0;
                    rank[i][lane] += later;
                    rank[j][lane] += 1.0 - later;
                }
        // Walk back to the hyperplane: the coordinates that were rounded furthest go first.
        for (int i = 0; i <= d; i++)
            for (int lane = 0; lane < kGroup; lane++) {
                const double moved = rank[i][lane] + excess[lane];
                const double turns = (moved < 0 ? 1.0 : 0.0) - (moved > d ? 1.0 : 0.0);
                rank[i][lane] = moved + turns * (d + 1);
                base[i][lane] += turns;
                height[i][lane] -= turns * (d + 1);
            }
        for (int lane = 0; lane < n_points; lane++)
            write_corners(first + lane, lane, height, base, rank);
    }

    CHANNELS_INLINE void write_corners(i64 point, int lane, const double (*height)[kGroup],
                                       const double (*base)[kGroup], const double (*rank)[kGroup]) const {
        const int d = D ? D : digits.n_axes;
        const double per = 1.0 / (d + 1);
        double sorted[kSize] = {};
        i64 lowered[kSize] = {};  // by rank: what the key loses once the coordinate of that rank has wrapped around
        i64 key = 0;
        for (int i = 0; i <= d; i++) {
            const int place = static_cast<int>(rank[i][lane]);
            sorted[place] = height[i][lane] * per;
            lowered[place] = i < d ? digits.stride[i] : 0;
            if (i < d)
                key += (static_cast<i64>(base[i][lane]) - digits.low[i]) * digits.stride[i];
        }
        i64* own_keys = keys + point * (d + 1);
        T* own_weights = weights + point * (d + 1);
        own_keys[0] = key;
        own_weights[0] = static_cast<T>(1 + sorted[d] - sorted[0]);
        for (int remainder = 1; remainder <= d; remainder++) {
            key -= lowered[d + 1 - remainder];
            own_keys[remainder] = key + remainder;
            own_weights[remainder] = static_cast<T>(sorted[d - remainder] - sorted[d + 1 - remainder]);
        }
    }
};

template <class T>
void embed(const T* features, const Digits& digits, i64 start, i64 stop, i64* keys, T* weights) {
    switch (digits.n_axes) {
        case 1: return apply(Embedding<T, 1>{features, digits, start, stop, keys, weights});
        case 2: return apply(Embedding<T, 2>{features, digits, start, stop, keys, weights});
        case 3: return apply(Embedding<T, 3>{features, digits, start, stop, keys, weights});
        case 4: return apply(Embedding<T, 4>{features, digits, start, stop, keys, weights});
        case 5: return apply(Embedding<T, 5>{features, digits, start, stop, keys, weights});
        case 6: return apply(Embedding<T, 6>{features, digits, start, stop, keys, weights});
        default: return apply(Embedding<T, 0>{features, digits, start, stop, keys, weights});
    }
}

// Open addressing in arrays of the caller, whose number of slots is a power of two.
struct Table {
    i64* key;   // kFree where empty
    i32* vertex;
    i64 mask;

    i64 slot_of(i64 wanted) const {
        const std::uint64_t mixed = static_cast<std::uint64_t>(wanted) * 0x9E3779B97F4A7C15u;
        i64 slot = static_cast<i64>(mixed ^ (mixed >> 32)) & mask;
        while (key[slot] != wanted && key[slot] != kFree)
            slot = (slot + 1) & mask;
        return slot;
    }

    i32 find(i64 wanted, i32 missing) const {
        const i64 slot = slot_of(wanted);
        return key[slot] == kFree ? missing : vertex[slot];
    }
};

inline void insert_vertices(const i64* vertex_key, i64 n_vertices, const Table& table) {
    for (i64 v = 0; v < n_vertices; v++) {
        const i64 slot = table.slot_of(vertex_key[v]);
        table.key[slot] = vertex_key[v];
        table.vertex[slot] = static_cast<i32>(v);
    }
}

// Numbers vertices in the order in which points touch them; the first point that was not done as the table is half full.
inline i64 number_vertices(const i64* keys, i64 first, i64 n_points, int n_corners, const Table& table, i64* vertex_key,
                           i64* n_vertices, i32* vertex) {
    i64 count = *n_vertices;
    const i64 most = (table.mask + 1) / 2 - n_corners;
    i64 point = first;
    for (; point < n_points && count <= most; point++) {
        const i64 at = point * n_corners;
        for (int corner = 0; corner < n_corners; corner++) {
            const i64 key = keys[at + corner];
            // Neighbouring points are mostly in the same simplex.
            if (point > 0 && keys[at + corner - n_corners] == key) {
                vertex[at + corner] = vertex[at + corner - n_corners];
                continue;
            }
            const i64 slot = table.slot_of(key);
            if (table.key[slot] == kFree) {
                table.key[slot] = key;
                table.vertex[slot] = static_cast<i32>(count);
                vertex_key[count++] = key;
            }
            vertex[at + corner] = table.vertex[slot];
        }
    }
    *n_vertices = count;
    return point;
}

// Both neighbours of vertices start to stop along an axis; `missing` is the number of those to which no point was splat.
inline void find_neighbors(const i64* vertex_key, i64 start, i64 stop, const Digits& digits, int axis,
                           const Table& table, i32 missing, i32* neighbors) {
    const int d = digits.n_axes;
    i64 carry = -d, turn = axis < d ? digits.stride[axis] : 0;
    for (int i = 0; i < d; i++)
        carry += digits.stride[i];
    for (i64 v = start; v < stop; v++) {
        const i64 key = vertex_key[v];
        const i64 remainder = key % (d + 1);
        neighbors[2 * v] = table.find(key + (remainder == d ? carry : 1) - turn, missing);
        neighbors[2 * v + 1] = table.find(key - (remainder == 0 ? carry : 1) + turn, missing);
    }
}

inline void count_points(const i32* vertex, i64 n_entries, i64* counts) {
    for (i64 at = 0; at < n_entries; at++)
        counts[vertex[at]]++;
}

// Points of each vertex, in their order, and their weights; `next` holds where each vertex's list begins, then ends.
template <class T>
void list_points(const i32* vertex, const T* weights, i64 n_points, int n_corners, i64* next, i32* point_of,
                 T* weight_of) {
    for (i64 point = 0; point < n_points; point++)
        for (int corner = 0; corner < n_corners; corner++) {
            const i64 at = point * n_corners + corner;
            const i64 place = next[vertex[at]]++;
            point_of[place] = static_cast<i32>(point);
            weight_of[place] = weights[at];
        }
}

}  // namespace crf
