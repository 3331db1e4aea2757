// Vectors of numbers for any compiler, and operations compiled for the vector units that the process has selected.
#pragma once

#include <cstdint>

#include "core/types.hpp"
#include "vector_level.h"

#if defined(__GNUC__) || defined(__clang__)
#define VECTORS_INLINE inline __attribute__((always_inline))
#define VECTORS_INLINE_LAMBDA __attribute__((always_inline))
#define VECTORS_CALL __attribute__((noinline))
#define VECTORS_PREFETCH(address) __builtin_prefetch(address)
#else
#define VECTORS_INLINE inline
#define VECTORS_INLINE_LAMBDA
#define VECTORS_CALL
#define VECTORS_PREFETCH(address) ((void)(address))
#endif

#if VECTOR_LEVEL_DISPATCH
#define VECTORS_WIDE __attribute__((target("avx2,fma")))
#endif

// Vectors are only passed to inlined functions, so calling conventions do not matter.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace crf {

inline bool has_wide_vectors() { return use_avx2(); }

template <class T>
constexpr int kLanes = 32 / static_cast<int>(sizeof(T));

#if defined(__GNUC__) || defined(__clang__)
template <class T, int L>
struct VectorOf {
    typedef T type __attribute__((vector_size(L * sizeof(T)), aligned(sizeof(T)), may_alias));
};
#else
template <class T, int L>
struct Lanes {
    T lane[L];
    Lanes& operator+=(const Lanes& other) {
        for (int k = 0; k < L; k++)
            lane[k] += other.lane[k];
        return *this;
    }
    friend Lanes operator+(Lanes x, const Lanes& y) { return x += y; }
    friend Lanes operator*(Lanes x, const Lanes& y) {
        for (int k = 0; k < L; k++)
            x.lane[k] *= y.lane[k];
        return x;
    }
    friend Lanes operator*(T factor, Lanes x) {
        for (int k = 0; k < L; k++)
            x.lane[k] *= factor;
        return x;
    }
};
template <class T, int L>
struct VectorOf {
    using type = Lanes<T, L>;
};
#endif
template <class T>
struct VectorOf<T, 1> {
    using type = T;
};
template <class T, int L>
using Vector = typename VectorOf<T, L>::type;

#if defined(__GNUC__) || defined(__clang__)
template <class Row>
VECTORS_INLINE void keep_larger(Row& x, const Row& y) {
    x = y > x ? y : x;
}
#else
template <class T>
void keep_larger(T& x, const T& y) {
    x = y > x ? y : x;
}
template <class T, int L>
void keep_larger(Lanes<T, L>& x, const Lanes<T, L>& y) {
    for (int k = 0; k < L; k++)
        keep_larger(x.lane[k], y.lane[k]);
}
#endif

// Calls operation.all(), with its inline functions compiled for wide vectors if the processor has them.
#ifdef VECTORS_WIDE
template <class Operation>
VECTORS_WIDE void apply_wide(const Operation& operation) {
    operation.all();
}

template <class Operation, class... Arguments>
VECTORS_WIDE VECTORS_CALL auto run_wide(Arguments... arguments) {
    return Operation::template run<32>(arguments...);
}
#endif

template <class Operation>
void apply(const Operation& operation) {
#ifdef VECTORS_WIDE
    if (has_wide_vectors())
        return apply_wide(operation);
#endif
    operation.all();
}

// Calls a function, with all functions that it calls compiled for wide vectors if the processor has them.
#ifdef VECTORS_WIDE
template <class Function>
VECTORS_WIDE __attribute__((flatten)) auto call_wide(const Function& function) {
    return function();
}
#endif

template <class Function>
inline auto call_at_level(const Function& function) {
#ifdef VECTORS_WIDE
    if (has_wide_vectors())
        return call_wide(function);
#endif
    return function();
}

template <class Operation, class... Arguments>
VECTORS_CALL auto run_plain(Arguments... arguments) {
    return Operation::template run<16>(arguments...);
}

// Calls the inline function Operation::run<bytes>(arguments...) with the number of bytes in a vector of the process.
template <class Operation, class... Arguments>
inline auto run_at_level(Arguments... arguments) {
#ifdef VECTORS_WIDE
    if (has_wide_vectors())
        return run_wide<Operation>(arguments...);
#endif
    return run_plain<Operation>(arguments...);
}

}  // namespace crf
