// The functions of rows.h as templates over the precision, such as row_sum<Real>(row, width).
#pragma once

#include "core/types.hpp"
#include "rows.h"

#include <type_traits>

namespace crf {

#define ROWS_OF_BOTH(name)                                                           \
    template <class Real, class... Arguments>                                        \
    inline auto name(Arguments... arguments) {                                       \
        if constexpr (std::is_same<Real, float>::value) return name##_float(arguments...); \
        else return name##_double(arguments...);                                     \
    }

ROWS_OF_BOTH(add_outer)
ROWS_OF_BOTH(exponentiate)
ROWS_OF_BOTH(exponentiate_all)
ROWS_OF_BOTH(logarithms)
ROWS_OF_BOTH(max_sum)
ROWS_OF_BOTH(max_sum_across)
ROWS_OF_BOTH(potts_max_sum)
ROWS_OF_BOTH(potts_sum_product)
ROWS_OF_BOTH(product_of_rows)
ROWS_OF_BOTH(replace_probabilities)
ROWS_OF_BOTH(replace_scores)
ROWS_OF_BOTH(row_below_best)
ROWS_OF_BOTH(row_dot)
ROWS_OF_BOTH(row_max)
ROWS_OF_BOTH(row_power)
ROWS_OF_BOTH(row_quotient)
ROWS_OF_BOTH(row_scale)
ROWS_OF_BOTH(row_sum)
ROWS_OF_BOTH(send_odds)
ROWS_OF_BOTH(send_short)
ROWS_OF_BOTH(sum_of_rows)
ROWS_OF_BOTH(sum_product)
ROWS_OF_BOTH(sum_product_across)
#undef ROWS_OF_BOTH

}  // namespace crf
