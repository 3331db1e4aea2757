// Names of types that all kernels in C++ use.
#pragma once

#include <cstdint>

#ifndef restrict
#define restrict __restrict
#endif

namespace crf {

using i32 = std::int32_t;
using i64 = std::int64_t;

}  // namespace crf
