// Products of matrices and vectors by BLAS.
#pragma once

#include <type_traits>

#include "core/types.hpp"

namespace crf {

template <class Real>
using Gemm = void (*)(char*, char*, int*, int*, int*, Real*, Real*, int*, Real*, int*, Real*, Real*, int*);
template <class Real>
using Gemv = void (*)(char*, int*, int*, Real*, Real*, int*, Real*, int*, Real*, Real*, int*);

// Addresses of the products of BLAS.
struct Blas {
    void *sgemm, *dgemm, *sgemv, *dgemv;

    // C = A B + factor C, of matrices in the order of Fortran; A and B are transposed first if their flags are 'T'.
    template <class Real>
    void multiply(char turn_a, char turn_b, i64 m, i64 n, i64 k, const Real* a, i64 step_a, const Real* b, i64 step_b,
                  Real factor, Real* c, i64 step_c) const {
        int M = int(m), N = int(n), K = int(k), A = int(step_a), B = int(step_b), C = int(step_c);
        Real one = 1;
        reinterpret_cast<Gemm<Real>>(choose<Real>(sgemm, dgemm))(&turn_a, &turn_b, &M, &N, &K, &one,
                                                                 const_cast<Real*>(a), &A, const_cast<Real*>(b), &B,
                                                                 &factor, c, &C);
    }

    // c = A b + factor c, for the matrix A (m, n) in the order of Fortran or, if its flag is 'T', its transpose.
    template <class Real>
    void multiply_vector(char turn_a, i64 m, i64 n, const Real* a, const Real* b, i64 step_b, Real factor, Real* c,
                         i64 step_c) const {
        int M = int(m), N = int(n), B = int(step_b), C = int(step_c);
        Real one = 1;
        reinterpret_cast<Gemv<Real>>(choose<Real>(sgemv, dgemv))(&turn_a, &M, &N, &one, const_cast<Real*>(a), &M,
                                                                 const_cast<Real*>(b), &B, &factor, c, &C);
    }

private:
    template <class Real>
    static void* choose(void* single, void* wide) {
        return std::is_same<Real, double>::value ? wide : single;
    }
};

}  // namespace crf
