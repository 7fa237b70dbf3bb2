// LAPACK's factorizations of matrices of float or double, on the calling thread only. OpenBLAS has LAPACK. Safe from
// any thread.
//
// Matrices are row-major and dense. A row-major matrix is the transpose of what LAPACK sees, so each function calls the
// routine for the transposed problem: only lapack_lu() copies for the layout. `work` is memory for at least as many
// elements as the function of the same name with `_work` returns, which throws Error if LAPACK's integers cannot count
// the matrix or its work. REQUIRES: prepare_blas() was called, and no dimension is 0 unless stated otherwise.
#pragma once

#include <cstdint>

namespace lockstep {

// Overwrites the lower triangle of a [n, n], of which only this is read, with L, where A = L L^T. Returns whether A is
// positive definite.
template <class T>
bool lapack_cholesky(int64_t n, T* a);

struct TriangularSystem {
  bool left = true;  // op(A) X = B, else X op(A) = B
  bool lower = true, transpose = false, unit_diagonal = false;
};
// Overwrites b [m, n], whose rows are `ldb` apart, with X. The rows of a are `lda` apart.
template <class T>
void blas_triangular_solve(const TriangularSystem&, int64_t m, int64_t n, const T* a, int64_t lda, T* b, int64_t ldb);

// Overwrites a [m, n] with L below the diagonal and U. Row i was exchanged with row pivots[i], i < min(m, n).
template <class T>
void lapack_lu(int64_t m, int64_t n, T* a, int32_t* pivots, T* work);
int64_t lapack_lu_work(int64_t m, int64_t n);

// Computes Q [m, columns] and R [columns, n] of a [m, n], which it overwrites. `columns` is min(m, n) or m. Only n may
// be 0.
template <class T>
void lapack_qr(int64_t m, int64_t n, int64_t columns, T* a, T* q, T* r, T* work);
int64_t lapack_qr_work(int64_t m, int64_t n);

// Overwrites a [n, n], of which the lower triangle is read, with the eigenvectors as rows, and writes the eigenvalues in
// ascending order. Returns whether the iteration converged. REQUIRES: all elements are finite.
template <class T>
bool lapack_eigh(int64_t n, T* a, T* w, T* work);
int64_t lapack_eigh_work(int64_t n);

// A = U diag(S) Vh for a [m, n], which it overwrites: U [m, k], S [k], Vh [k, n] with k = min(m, n); if `full`, U [m, m]
// and Vh [n, n]. If `u` is null, only S is computed. Returns whether the iteration converged. REQUIRES: all elements are
// finite.
template <class T>
bool lapack_svd(int64_t m, int64_t n, bool full, T* a, T* u, T* s, T* vh, T* work);
int64_t lapack_svd_work(int64_t m, int64_t n);

}  // namespace lockstep
