// Filters of points that are few, and the updates of their mean field and its derivatives, each in one call.
//
// Between short calls threads wait for the lock of the interpreter, longer than what is done here takes. Operations are
// those that threads share on large lattices, and so are the bits of marginals.
#pragma once

#include <algorithm>
#include <vector>

#include "channel_rows.hpp"
#include "mean_field.hpp"

namespace crf {

// A lattice with the memory that a filtering needs.
template <class T>
struct SmallLattice {
    const i32* vertex_of;  // (n_points, n_corners)
    const T* weight_of;
    i64 n_corners, width;
    const i64* bounds;  // (n_parts + 1,) first point of each part, and n_points
    i64 n_parts, n_vertices;
    double* parts;         // (n_parts, n_vertices, width), 0 before and after
    const i32* neighbors;  // (n_axes, n_vertices, 2)
    const i64* axes;       // (n_passes,) in the order of the blur
    i64 n_passes;
    T center, side;
    T* vertices;  // (n_vertices + 1, width), the last row 0
    T* other;     // the same

    // Sums at all vertices, blurred along axis after axis, in the opposite order for the adjoint: one of the two arrays.
    T* blurred(const T* points, bool is_adjoint) const {
        T *source = vertices, *target = other;
        Scatter<T> sums;
        sums.vertex_of = vertex_of, sums.weight_of = weight_of, sums.n_corners = n_corners;
        sums.points = points, sums.width = width;
        for (i64 k = 0; k < n_parts; k++) {
            sums.start = bounds[k], sums.stop = bounds[k + 1], sums.totals = parts + k * n_vertices * width;
            apply(sums);
        }
        add_parts(parts, n_parts, n_vertices * width, 0, n_vertices * width, source);
        Blur<T> step;
        step.center = center, step.side = side, step.width = width, step.start = 0, step.stop = n_vertices;
        for (i64 k = 0; k < n_passes; k++) {
            step.neighbors = neighbors + axes[is_adjoint ? n_passes - 1 - k : k] * n_vertices * 2;
            step.vertices = source, step.blurred = target;
            apply(step);
            std::swap(source, target);
        }
        return source;
    }

    Reading<T> reading(const T* values) const { return {vertex_of, weight_of, n_corners, values}; }

    // The filter's values of all points.
    void filter(const T* points, bool is_adjoint, T* filtered) const {
        Slice<T> slice;
        slice.vertex_of = vertex_of, slice.weight_of = weight_of, slice.n_corners = n_corners;
        slice.vertices = blurred(points, is_adjoint), slice.points = filtered;
        slice.width = width, slice.start = 0, slice.stop = bounds[n_parts];
        apply(slice);
    }
};

// A field whose lattices are small and whose compatibilities join equal states alone.
template <class T>
struct SmallField {
    std::vector<SmallLattice<T>> lattices;
    std::vector<const T*> factors;  // of each lattice the compatibility of each state, (width,)
    i64 n_points, width;

    // Marginals at the start and after each update, (n_updates + 1, n_points, width); the number of updates made, fewer
    // where none changed a marginal by more than the tolerance.
    i64 update(const T* unary, i64 n_updates, double tol, T* trajectory) const {
        MeanFieldUpdate<T> step;
        step.unary = unary, step.width = width, step.inertia = 0, step.marginals = trajectory;
        const i64 size = n_points * width;
        std::fill(trajectory, trajectory + size, T(0));
        step.run({}, 0, n_points);
        std::vector<Reading<T>> readings(lattices.size());
        for (i64 t = 1; t <= n_updates; t++) {
            const T* former = trajectory + (t - 1) * size;
            for (std::size_t m = 0; m < lattices.size(); m++) {
                T* values = lattices[m].blurred(former, false);
                scale_rows(values, factors[m], lattices[m].n_vertices);
                readings[m] = lattices[m].reading(values);
            }
            step.marginals = trajectory + t * size;
            std::copy(former, former + size, step.marginals);
            if (step.run(readings, 0, n_points) <= tol)
                return t;
        }
        return n_updates;
    }

    // Derivatives by unary scores, (n_points, width), and by the tables of all lattices, (n_lattices, width, width), of
    // which both are added to; `slope` is the derivative by the last logits, and is replaced.
    void pull_back(const T* trajectory, i64 n_updates, T* slope, T* by_unary, double* by_tables) const {
        const i64 size = n_points * width;
        std::vector<T> adjoint(size), by_marginals(size);
        for (i64 t = n_updates - 1; t >= 0; t--) {
            const T* q = trajectory + t * size;
            std::fill(by_marginals.begin(), by_marginals.end(), T(0));
            for (std::size_t m = 0; m < lattices.size(); m++) {
                lattices[m].filter(slope, true, adjoint.data());
                add_products(q, adjoint.data(), by_tables + m * width * width);
                scale_rows(adjoint.data(), factors[m], n_points);
                for (i64 k = 0; k < size; k++)
                    by_marginals[k] += adjoint[k];
            }
            through_softmax(q, by_marginals.data(), slope);
            for (i64 k = 0; k < size; k++)
                by_unary[k] += slope[k];
        }
    }

    void scale_rows(T* rows, const T* factor, i64 n_rows) const {
        for (i64 row = 0; row < n_rows; row++)
            for (i64 k = 0; k < width; k++)
                rows[row * width + k] *= factor[k];
    }

    // total += sum over points of the products of a state of a and one of b
    void add_products(const T* a, const T* b, double* total) const {
        for (i64 point = 0; point < n_points; point++)
            for (i64 k = 0; k < width; k++)
                for (i64 l = 0; l < width; l++)
                    total[k * width + l] += static_cast<double>(a[point * width + k]) * b[point * width + l];
    }

    // Derivative by logits, given that by their softmax q.
    void through_softmax(const T* q, const T* by_q, T* by_logits) const {
        for (i64 point = 0; point < n_points; point++) {
            const i64 first = point * width;
            T mean = 0;
            for (i64 k = first; k < first + width; k++)
                mean += q[k] * by_q[k];
            for (i64 k = first; k < first + width; k++)
                by_logits[k] = q[k] * (by_q[k] - mean);
        }
    }
};

}  // namespace crf
