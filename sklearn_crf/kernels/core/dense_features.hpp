// Dense features of nodes: matrix products with weights and with derivatives, by BLAS.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/types.hpp"

namespace crf {

template <class Real>
using Gemm = void (*)(char*, char*, int*, int*, int*, Real*, Real*, int*, Real*, int*, Real*, Real*, int*);

// Approximate size of the blocks of float32 features that are converted to float64 at once.
constexpr i64 kNumbersAtOnce = 1 << 15;

template <class Number>
std::unique_ptr<Number[]> workspace(i64 n) {
    return std::unique_ptr<Number[]>(new Number[std::max<i64>(n, 1)]);
}

template <class Real>
struct DenseFeatures {
    i64 n_features;
    const Real* weights;  // (C, F)
    void *gemm, *sum;  // matrix products in Real and in double precision

    // columns = features weights', stored in rows of length `stride`.
    void scores(const Real* features, i64 n_nodes, i64 n_columns, i64 stride, Real* columns) const {
        char turned = 'T', plain = 'N';
        int C = int(n_columns), n = int(n_nodes), F = int(n_features), S = int(stride);
        Real one = 1, zero = 0;
        reinterpret_cast<Gemm<Real>>(gemm)(&turned, &plain, &C, &n, &F, &one, const_cast<Real*>(weights), &F,
                                           const_cast<Real*>(features), &F, &zero, columns, &S);
    }

    // gradient = columns' features, or gradient += columns' features.
    void pull(const Real* features, i64 n_nodes, i64 n_columns, i64 stride, const double* columns, double* gradient,
              bool adds = false) const {
        constexpr bool is_double = std::is_same<Real, double>::value;
        const i64 most = is_double ? n_nodes : std::max<i64>(1, kNumbersAtOnce / std::max<i64>(1, n_features));
        const auto copy = workspace<double>(is_double ? 0 : std::min(most, n_nodes) * n_features);
        for (i64 start = 0; start < n_nodes; start += most) {
            const i64 n_rows = std::min(most, n_nodes - start);
            const Real* rows = features + start * n_features;
            if (!is_double) std::copy(rows, rows + n_rows * n_features, copy.get());
            const void* wide = is_double ? static_cast<const void*>(rows) : copy.get();
            char turned = 'T', plain = 'N';
            int C = int(n_columns), n = int(n_rows), F = int(n_features), S = int(stride);
            double one = 1, factor = start || adds ? 1 : 0;
            reinterpret_cast<Gemm<double>>(sum)(&plain, &turned, &F, &C, &n, &one,
                                                static_cast<double*>(const_cast<void*>(wide)), &F,
                                                const_cast<double*>(columns + start * stride), &S, &factor, gradient,
                                                &F);
        }
    }
};

}  // namespace crf
