// OpenBLAS's matrix product for float and double under one name, on the calling thread only. Safe from any thread.
#pragma once

#include <cblas.h>

#include <cstdint>

namespace lockstep {

// Makes OpenBLAS use one thread per call (the Pool is parallel) and maps its work areas, once per process. Call it
// before the first blas_gemm.
void prepare_blas();

// Whether the bits of an element of C depend only on its row of A, its column of B and k, and not on its position or on
// the size of C. Tested once, by comparing a product with the same product computed in four parts. Does not cover
// products below 10^6 multiplications, for which OpenBLAS may use other kernels. For double or float.
bool blas_is_position_independent(bool for_double);

// C[m, n] = op(A) op(B), plus C if `accumulate`; row-major. REQUIRES: m, n, k > 0 and all numbers fit 31 bits.
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
