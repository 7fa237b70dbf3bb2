// OpenBLAS's matrix product for float and double under one name, on the calling thread only.
#pragma once

#include <cblas.h>

#include <cstdint>

namespace lockstep {

// Makes OpenBLAS use one thread per call (the parallelism is the Pool's) and its work areas ready, once per process.
// Call it before the first blas_gemm.
void prepare_blas();

// Whether the bits of a product's element depend on its row of A, its column of B and k alone, and not on where in C it
// is and how large C is: found out once, by comparing a product with the same cut in four. Products and pieces below
// 10^6 multiplications, for which OpenBLAS may have other kernels, are not covered. For double, else for float.
bool blas_sums_by_depth_alone(bool of_doubles);

// C[m, n] = op(A) op(B), plus C when `accumulate`; row-major. REQUIRES: m, n, k > 0 and all numbers fit 31 bits.
inline void blas_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                      const float* b, int64_t ldb, bool accumulate, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0f, a,
              static_cast<blasint>(lda), b, static_cast<blasint>(ldb), accumulate ? 1.0f : 0.0f, c,
              static_cast<blasint>(ldc));
}
inline void blas_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
                      const double* b, int64_t ldb, bool accumulate, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0, a,
              static_cast<blasint>(lda), b, static_cast<blasint>(ldb), accumulate ? 1.0 : 0.0, c,
              static_cast<blasint>(ldc));
}

}  // namespace lockstep
