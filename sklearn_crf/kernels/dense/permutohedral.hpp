// Gaussian filtering of many channels on the permutohedral lattice.
//
// After "Fast high-dimensional filtering using the permutohedral lattice" (Adams, Baek & Davis, 2010). Points with d
// features are embedded in the hyperplane of R^(d+1) whose coordinates sum to zero. The lattice there consists of the
// integer points whose coordinates are all congruent modulo d+1; its simplices have d+1 vertices. Values are splat to
// the vertices of the simplex around each point with barycentric weights, blurred along the d+1 axes of the lattice,
// and sliced at the points with the same weights.
//
// A 64-bit key identifies a vertex: the lowest digit is the common remainder of its coordinates modulo d+1, the other
// digits are the quotients of its first d coordinates. A step along an axis adds a constant, with a carry from the
// remainder.
//
// This header builds the lattice; filters.hpp computes sums over it.
#pragma once

#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "filters.hpp"

namespace crf {

constexpr int kMaxAxes = 31;
constexpr i64 kFree = -1;

struct Digits {
    int n_axes;          // d
    const double* scale;  // (d,) scale of features in the hyperplane
    const i64* low;       // (d,) smallest quotient minus 1
    const i64* stride;    // (d,) weight of each quotient in a key
};

// Keys and weights of the d+1 vertices around points start to stop, by the remainder of the vertex. D is the number of
// axes if known at compile time, else 0. Points are embedded in groups of equal size, of which the last is padded:
// every point then uses the same vector instructions, wherever a range of points begins.
template <class T, int D>
struct Embedding {
    static constexpr int kSize = D ? D + 1 : kMaxAxes + 1;
    static constexpr int kGroup = 16;

    const T* features;
    const Digits& digits;
    i64 start, stop;
    i64* keys;
    T* weights;

    VECTORS_INLINE void all() const {
        for (i64 point = start; point < stop; point += kGroup)
            group(point, point + kGroup < stop ? kGroup : static_cast<int>(stop - point));
    }

    VECTORS_INLINE void group(i64 first, int n_points) const {
        const int d = D ? D : digits.n_axes;
        // Integers are stored as double too, so that all lanes of a vector have equal width.
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

        // The nearest point with remainder 0, whose coordinates need not sum to 0 yet.
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
        // Return to the hyperplane by changing the coordinates with the largest rounding first.
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

    VECTORS_INLINE void write_corners(i64 point, int lane, const double (*height)[kGroup],
                                       const double (*base)[kGroup], const double (*rank)[kGroup]) const {
        const int d = D ? D : digits.n_axes;
        const double per = 1.0 / (d + 1);
        double sorted[kSize] = {};
        i64 lowered[kSize] = {};  // by rank: decrease of the key when the coordinate of this rank wraps around
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

struct TooManyVertices : std::bad_alloc {
    const char* what() const noexcept override {
        return "The lattice has more than 2**30 vertices: use larger bandwidths or split the image.";
    }
};

// Hash table with open addressing from keys to indices of vertices, in the order in which points touch them.
class VertexTable {
public:
    i64 n_vertices() const { return static_cast<i64>(vertex_key.size()); }

    // Numbers the vertices around all points, (n_points, n_axes + 1), and writes their weights.
    template <class T>
    void number_corners(const T* features, i64 n_points, const Digits& digits, i32* vertex, T* weight,
                        const Threads& threads) {
        const i64 n_corners = digits.n_axes + 1;
        // Process points in portions whose keys stay in the cache until their vertices are numbered.
        const i64 at_once = std::min<i64>(n_points, 16384);
        std::vector<i64> keys(at_once * n_corners);
        for (i64 first = 0; first < n_points; first += at_once) {
            const i64 n = std::min(at_once, n_points - first);
            share_rows(threads, n, 16 * n_corners, [&](i64, i64 start, i64 stop) {
                embed(features + first * digits.n_axes, digits, start, stop, keys.data(), weight + first * n_corners);
            });
            number(keys.data(), n, n_corners, vertex + first * n_corners);
        }
    }

    // Both neighbours of all vertices along all axes, (n_axes + 1, n_vertices, 2). The index n_vertices represents a
    // vertex to which no point was splat.
    void find_neighbors(const Digits& digits, i32* neighbors, const Threads& threads) const {
        const i64 n = n_vertices();
        share_rows(threads, n * (digits.n_axes + 1), 16, [&](i64, i64 start, i64 stop) {
            for (i64 at = start; at < stop; at++)
                find_both(digits, static_cast<int>(at / n), at % n, neighbors + 2 * at);
        });
    }

private:
    std::vector<i64> key = std::vector<i64>(1 << 14, kFree), vertex_key;
    std::vector<i32> vertex_of_slot = std::vector<i32>(key.size());

    i64 slot_of(i64 wanted) const {
        const i64 mask = static_cast<i64>(key.size()) - 1;
        const std::uint64_t mixed = static_cast<std::uint64_t>(wanted) * 0x9E3779B97F4A7C15u;
        i64 slot = static_cast<i64>(mixed ^ (mixed >> 32)) & mask;
        while (key[slot] != wanted && key[slot] != kFree)
            slot = (slot + 1) & mask;
        return slot;
    }

    i32 find(i64 wanted) const {
        const i64 slot = slot_of(wanted);
        return key[slot] == kFree ? static_cast<i32>(n_vertices()) : vertex_of_slot[slot];
    }

    void put(i64 slot, i64 vertex) {
        key[slot] = vertex_key[vertex];
        vertex_of_slot[slot] = static_cast<i32>(vertex);
    }

    void grow() {
        const std::size_t n_slots = 2 * key.size();
        if (n_slots > std::size_t(1) << 31)
            throw TooManyVertices();
        key.assign(n_slots, kFree);
        vertex_of_slot.resize(n_slots);
        for (i64 vertex = 0; vertex < n_vertices(); vertex++)
            put(slot_of(vertex_key[vertex]), vertex);
    }

    void number(const i64* keys, i64 n_points, i64 n_corners, i32* vertex) {
        for (i64 at = 0; at < n_points * n_corners; at++) {
            // Consecutive points mostly lie in the same simplex.
            if (at >= n_corners && keys[at - n_corners] == keys[at]) {
                vertex[at] = vertex[at - n_corners];
                continue;
            }
            i64 slot = slot_of(keys[at]);
            if (key[slot] == kFree) {
                if (2 * vertex_key.size() >= key.size()) {
                    grow();
                    slot = slot_of(keys[at]);
                }
                vertex_key.push_back(keys[at]);
                put(slot, n_vertices() - 1);
            }
            vertex[at] = vertex_of_slot[slot];
        }
    }

    void find_both(const Digits& digits, int axis, i64 vertex, i32* neighbors) const {
        const int d = digits.n_axes;
        i64 carry = -d, turn = axis < d ? digits.stride[axis] : 0;
        for (int i = 0; i < d; i++)
            carry += digits.stride[i];
        const i64 own = vertex_key[vertex], remainder = own % (d + 1);
        neighbors[0] = find(own + (remainder == d ? carry : 1) - turn);
        neighbors[1] = find(own - (remainder == 0 ? carry : 1) + turn);
    }
};

inline void count_points(const i32* vertex, i64 n_entries, i64* counts) {
    for (i64 at = 0; at < n_entries; at++)
        counts[vertex[at]]++;
}

// Lists the points of each vertex in order, with their weights; `next` holds the start of each list, and then its end.
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
