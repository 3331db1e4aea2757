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

#if defined(__GNUC__) || defined(__clang__)
#define PERMUTOHEDRAL_INLINE inline __attribute__((always_inline))
#else
#define PERMUTOHEDRAL_INLINE inline
#endif

namespace crf {

using i32 = std::int32_t;
using i64 = std::int64_t;

constexpr int kMaxAxes = 31;
constexpr i64 kFree = -1;

struct Digits {
    int n_axes;          // d
    const double* scale;  // (d,) from features to the hyperplane
    const i64* low;       // (d,) least quotient, less one
    const i64* stride;    // (d,) weight of each quotient in a key
};

// Keys and weights of the d+1 vertices around points start to stop, by the remainder of the vertex. D is the number of
// axes where it is known to the compiler, else 0.
template <class T, int D>
PERMUTOHEDRAL_INLINE void embed_points(const T* features, const Digits& digits, i64 start, i64 stop, i64* keys,
                                       T* weights) {
    const int d = D ? D : digits.n_axes;
    constexpr int kSize = D ? D + 1 : kMaxAxes + 1;
    double height[kSize], share[kSize + 1];
    i64 base[kSize];
    int rank[kSize];
    const double per = 1.0 / (d + 1);
    for (i64 point = start; point < stop; point++) {
        const T* f = features + point * d;
        double above = 0;
        for (int i = d; i > 0; i--) {
            const double part = f[i - 1] * digits.scale[i - 1];
            height[i] = above - i * part;
            above += part;
        }
        height[0] = above;

        // The nearest point with remainder 0 whose coordinates need not sum to 0 yet.
        i64 excess = 0;
        for (int i = 0; i <= d; i++) {
            const double nearest = std::floor(height[i] * per + 0.5);
            base[i] = static_cast<i64>(nearest);
            height[i] -= nearest * (d + 1);
            excess += base[i];
            rank[i] = 0;
        }
        for (int i = 0; i < d; i++)
            for (int j = i + 1; j <= d; j++) {
                const int later = height[i] < height[j];
                rank[i] += later;
                rank[j] += 1 - later;
            }
        // Walk back to the hyperplane: the coordinates that were rounded furthest go first.
        for (int i = 0; i <= d; i++) {
            rank[i] += static_cast<int>(excess);
            if (rank[i] < 0) {
                rank[i] += d + 1;
                base[i] += 1;
                height[i] -= d + 1;
            } else if (rank[i] > d) {
                rank[i] -= d + 1;
                base[i] -= 1;
                height[i] += d + 1;
            }
        }

        for (int i = 0; i <= d + 1; i++)
            share[i] = 0;
        for (int i = 0; i <= d; i++) {
            const double part = height[i] * per;
            share[d - rank[i]] += part;
            share[d + 1 - rank[i]] -= part;
        }
        share[0] += 1 + share[d + 1];

        i64 origin = 0;
        i64 lowered[kSize];  // by rank: what the key loses once the coordinate of that rank has wrapped around
        for (int i = 0; i < d; i++)
            origin += (base[i] - digits.low[i]) * digits.stride[i];
        for (int i = 0; i <= d; i++)
            lowered[rank[i]] = i < d ? digits.stride[i] : 0;
        for (int remainder = 0; remainder <= d; remainder++) {
            keys[point * (d + 1) + remainder] = origin + remainder;
            weights[point * (d + 1) + remainder] = static_cast<T>(share[remainder]);
            origin -= lowered[d - remainder];
        }
    }
}

template <class T>
void embed(const T* features, const Digits& digits, i64 start, i64 stop, i64* keys, T* weights) {
    switch (digits.n_axes) {
        case 1: return embed_points<T, 1>(features, digits, start, stop, keys, weights);
        case 2: return embed_points<T, 2>(features, digits, start, stop, keys, weights);
        case 3: return embed_points<T, 3>(features, digits, start, stop, keys, weights);
        case 4: return embed_points<T, 4>(features, digits, start, stop, keys, weights);
        case 5: return embed_points<T, 5>(features, digits, start, stop, keys, weights);
        case 6: return embed_points<T, 6>(features, digits, start, stop, keys, weights);
        default: return embed_points<T, 0>(features, digits, start, stop, keys, weights);
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

// Both neighbours of vertices start to stop along an axis; `missing` stands for those to which no point was splat.
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

// Adds to the number of points of each vertex and to the sum of their weights.
template <class T>
void count_points(const i32* vertex, const T* weights, i64 n_entries, i64* counts, double* sums) {
    for (i64 at = 0; at < n_entries; at++) {
        counts[vertex[at]]++;
        sums[vertex[at]] += weights[at];
    }
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
