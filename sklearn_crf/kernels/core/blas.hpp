// Products of float64 matrices and vectors by BLAS.
#pragma once

#include "core/types.hpp"

namespace crf {

// Addresses of the products of BLAS.
struct Blas {
    void *dgemm, *dgemv;

    // C = A B + factor C, of matrices in the order of Fortran; A and B are transposed first if their flags are 'T'.
    void multiply(char turn_a, char turn_b, i64 m, i64 n, i64 k, const double* a, i64 step_a, const double* b,
                  i64 step_b, double factor, double* c, i64 step_c) const {
        using Gemm = void (*)(char*, char*, int*, int*, int*, double*, double*, int*, double*, int*, double*, double*,
                              int*);
        int M = int(m), N = int(n), K = int(k), A = int(step_a), B = int(step_b), C = int(step_c);
        double one = 1;
        reinterpret_cast<Gemm>(dgemm)(&turn_a, &turn_b, &M, &N, &K, &one, const_cast<double*>(a), &A,
                                      const_cast<double*>(b), &B, &factor, c, &C);
    }

    // c = A b + factor c, for the matrix A (m, n) in the order of Fortran.
    void multiply_vector(i64 m, i64 n, const double* a, const double* b, i64 step_b, double factor, double* c) const {
        using Gemv = void (*)(char*, int*, int*, double*, double*, int*, double*, int*, double*, double*, int*);
        int M = int(m), N = int(n), B = int(step_b), next = 1;
        char turn = 'N';
        double one = 1;
        reinterpret_cast<Gemv>(dgemv)(&turn, &M, &N, &one, const_cast<double*>(a), &M, const_cast<double*>(b), &B,
                                      &factor, c, &next);
    }
};

}  // namespace crf
