// Dense features of nodes: products with weights, and with derivatives by BLAS.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/blas.hpp"
#include "core/scored_rows.hpp"

namespace crf {

// Approximate size of the blocks of float32 features that are converted to float64 at once.
constexpr i64 kNumbersAtOnce = 1 << 15;

template <class Real>
struct DenseFeatures {
    i64 n_features;
    const Real* weights;  // (C, F)
    const Blas* blas;

    // columns = features weights', stored in rows of length `stride`.
    void scores(const Real* features, i64 n_nodes, i64 n_columns, i64 stride, Real* columns) const {
        score_rows<Real>(features, n_nodes, n_features, weights, n_columns, stride, columns);
    }

    // gradient = columns' features, or gradient += columns' features.
    void pull(const Real* features, i64 n_nodes, i64 n_columns, i64 stride, const double* columns, double* gradient,
              bool adds = false) const {
        constexpr bool is_double = std::is_same<Real, double>::value;
        const i64 C = n_columns, F = n_features;
        const i64 most = is_double ? n_nodes : std::max<i64>(1, kNumbersAtOnce / std::max<i64>(1, n_features));
        const auto copy = workspace<double>(is_double ? 0 : std::min(most, n_nodes) * n_features);
        for (i64 start = 0; start < n_nodes; start += most) {
            const i64 n_rows = std::min(most, n_nodes - start);
            const Real* rows = features + start * n_features;
            if (!is_double) std::copy(rows, rows + n_rows * n_features, copy.get());
            const auto* wide = static_cast<const double*>(is_double ? static_cast<const void*>(rows) : copy.get());
            const double *own = columns + start * stride, factor = start || adds ? 1 : 0;
            // A matrix product with one column takes about three times as long as the product with a vector.
            if (C == 1) blas->multiply_vector(F, n_rows, wide, own, stride, factor, gradient);
            else blas->multiply('N', 'T', F, C, n_rows, wide, F, own, stride, factor, gradient, F);
        }
    }
};

}  // namespace crf
