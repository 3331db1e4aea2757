// Weights of a sparse model: one for each stored pair of a feature and a column of scores.
#pragma once

#include "core/types.hpp"

namespace crf {

// Real: the precision of the features.
template <class Real>
struct PairWeights {
    i64 n_columns;
    const i64* ptr;  // (F + 1,) first pair of each feature
    const i32* column;  // (P,) column of each pair, ascending for each feature
    const double* weights;  // (P,)

    // Adds the weights of the features of a node to its scores.
    void add_scores(const i32* feature, const Real* value, i64 n, double* row) const {
        for (i64 q = 0; q < n; ++q) {
            const i64 first = ptr[feature[q]], last = ptr[feature[q] + 1];
            const double x = double(value[q]);
            if (last - first == n_columns)
                for (i64 k = 0; k < n_columns; ++k) row[k] += x * weights[first + k];
            else
                for (i64 p = first; p < last; ++p) row[column[p]] += x * weights[p];
        }
    }
};

}  // namespace crf
