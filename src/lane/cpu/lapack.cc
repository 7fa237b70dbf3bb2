#include "lane/cpu/lapack.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "lane/cpu/blas.h"

// LAPACK's Fortran interface, which every OpenBLAS has. The lengths of character arguments come last.
#define LOCKSTEP_LAPACK(p, T)                                                                                      \
  extern "C" {                                                                                                     \
  void p##potrf_(const char*, const blasint*, T*, const blasint*, blasint*, size_t);                               \
  void p##getrf_(const blasint*, const blasint*, T*, const blasint*, blasint*, blasint*);                          \
  void p##gelqf_(const blasint*, const blasint*, T*, const blasint*, T*, T*, const blasint*, blasint*);            \
  void p##orglq_(const blasint*, const blasint*, const blasint*, T*, const blasint*, const T*, T*, const blasint*, \
                 blasint*);                                                                                        \
  void p##syevd_(const char*, const char*, const blasint*, T*, const blasint*, T*, T*, const blasint*, blasint*,   \
                 const blasint*, blasint*, size_t, size_t);                                                        \
  void p##gesdd_(const char*, const blasint*, const blasint*, T*, const blasint*, T*, T*, const blasint*, T*,      \
                 const blasint*, T*, const blasint*, blasint*, blasint*, size_t);                                  \
  }                                                                                                                \
  namespace lockstep {                                                                                             \
  template <>                                                                                                      \
  struct Lapack<T> {                                                                                               \
    static constexpr auto potrf = p##potrf_;                                                                       \
    static constexpr auto getrf = p##getrf_;                                                                       \
    static constexpr auto gelqf = p##gelqf_;                                                                       \
    static constexpr auto orglq = p##orglq_;                                                                       \
    static constexpr auto syevd = p##syevd_;                                                                       \
    static constexpr auto gesdd = p##gesdd_;                                                                       \
    static constexpr auto trsm = cblas_##p##trsm;                                                                  \
  };                                                                                                               \
  }

namespace lockstep {
template <class T>
struct Lapack;
}
LOCKSTEP_LAPACK(s, float)
LOCKSTEP_LAPACK(d, double)
#undef LOCKSTEP_LAPACK

namespace lockstep {
namespace {

constexpr int64_t kPanel = 64;  // columns that blocked routines process together

// An extent or a number of elements of work memory.
blasint as_blas(int64_t n) {
  constexpr int64_t kMost = std::numeric_limits<blasint>::max();
  if (n > kMost)
    throw_error(
        "linear algebra: a matrix is too large for LAPACK, which would count {} elements in {} bits (at most {}); use "
        "smaller matrices",
        n, 8 * sizeof(blasint), kMost);
  return static_cast<blasint>(n);
}
// Leading dimensions must not be 0.
blasint as_stride(int64_t n) { return as_blas(std::max<int64_t>(n, 1)); }

// Elements of float that hold `n` integers.
int64_t as_floats(int64_t n) { return n * static_cast<int64_t>(sizeof(blasint) / sizeof(float)); }
int64_t eigh_floats(int64_t n) { return 1 + 6 * n + 2 * n * n; }
int64_t eigh_integers(int64_t n) { return 3 + 5 * n; }
int64_t svd_floats(int64_t m, int64_t n) {
  const int64_t k = std::min(m, n), longer = std::max(m, n);
  return 5 * k * k + 10 * k + longer * (k + 3) + kPanel * (4 * k + longer);
}
int64_t svd_integers(int64_t m, int64_t n) { return 8 * std::min(m, n); }

template <class T>
void transpose_tiles(int64_t rows, int64_t columns, const T* from, T* to) {
  constexpr int64_t kTile = 16;
  for (int64_t r = 0; r < rows; r += kTile)
    for (int64_t c = 0; c < columns; c += kTile)
      for (int64_t i = r; i < std::min(rows, r + kTile); ++i)
        for (int64_t j = c; j < std::min(columns, c + kTile); ++j) to[j * rows + i] = from[i * columns + j];
}

}  // namespace

int64_t lapack_lu_work(int64_t m, int64_t n) {
  as_blas(std::max(m, n));
  return m * n + as_floats(std::min(m, n));
}
int64_t lapack_qr_work(int64_t m, int64_t n) { return std::min(m, n) + as_blas(kPanel * std::max(m, n)); }
int64_t lapack_eigh_work(int64_t n) { return as_blas(eigh_floats(n)) + as_floats(eigh_integers(n)); }
int64_t lapack_svd_work(int64_t m, int64_t n) { return as_blas(svd_floats(m, n)) + as_floats(svd_integers(m, n)); }

template <class T>
bool lapack_cholesky(int64_t n, T* a) {
  const blasint size = as_blas(n);
  blasint info = 0;
  Lapack<T>::potrf("U", &size, a, &size, &info, 1);
  return info == 0;
}

template <class T>
void blas_triangular_solve(const TriangularSystem& system, int64_t m, int64_t n, const T* a, int64_t lda, T* b,
                           int64_t ldb) {
  Lapack<T>::trsm(CblasRowMajor, system.left ? CblasLeft : CblasRight, system.lower ? CblasLower : CblasUpper,
                  system.transpose ? CblasTrans : CblasNoTrans, system.unit_diagonal ? CblasUnit : CblasNonUnit,
                  as_blas(m), as_blas(n), T{1}, a, as_blas(lda), b, as_blas(ldb));
}

template <class T>
void lapack_lu(int64_t m, int64_t n, T* a, int32_t* pivots, T* work) {
  const blasint rows = as_blas(m), columns = as_blas(n);
  T* const by_columns = work;
  auto* const exchanged = reinterpret_cast<blasint*>(work + m * n);
  blasint info = 0;
  transpose_tiles(m, n, a, by_columns);
  Lapack<T>::getrf(&rows, &columns, by_columns, &rows, exchanged, &info);
  transpose_tiles(n, m, by_columns, a);
  for (int64_t i = 0; i < std::min(m, n); ++i) pivots[i] = static_cast<int32_t>(exchanged[i] - 1);
}

// A^T = L Q' gives A = Q'^T L^T.
template <class T>
void lapack_qr(int64_t m, int64_t n, int64_t columns, T* a, T* q, T* r, T* work) {
  const int64_t k = std::min(m, n);
  const blasint rows = as_blas(n), width = as_blas(m), reflectors = as_blas(k), q_rows = as_blas(columns);
  const blasint stride = as_stride(n), q_stride = as_stride(columns), size = as_blas(lapack_qr_work(m, n) - k);
  T *const tau = work, *const rest = work + k;
  blasint info = 0;
  if (k > 0) Lapack<T>::gelqf(&rows, &width, a, &stride, tau, rest, &size, &info);
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = 0; j < n; ++j) r[i * n + j] = j < i ? T{0} : a[i * n + j];
  for (int64_t i = 0; i < m; ++i) std::copy(a + i * n, a + i * n + k, q + i * columns);
  if (columns > 0) Lapack<T>::orglq(&q_rows, &width, &reflectors, q, &q_stride, tau, rest, &size, &info);
}

template <class T>
bool lapack_eigh(int64_t n, T* a, T* w, T* work) {
  const blasint size = as_blas(n), floats = as_blas(eigh_floats(n)), integers = as_blas(eigh_integers(n));
  auto* const integer_work = reinterpret_cast<blasint*>(work + eigh_floats(n));
  blasint info = 0;
  Lapack<T>::syevd("V", "U", &size, a, &size, w, work, &floats, integer_work, &integers, &info, 1, 1);
  return info == 0;
}

// A^T = V S U^T: the parts change places.
template <class T>
bool lapack_svd(int64_t m, int64_t n, bool full, T* a, T* u, T* s, T* vh, T* work) {
  const blasint rows = as_blas(n), columns = as_blas(m), floats = as_blas(svd_floats(m, n));
  const blasint u_stride = as_blas(full ? m : std::min(m, n));
  auto* const integer_work = reinterpret_cast<blasint*>(work + svd_floats(m, n));
  const char* const job = u == nullptr ? "N" : full ? "A" : "S";
  blasint info = 0;
  Lapack<T>::gesdd(job, &rows, &columns, a, &rows, s, vh, &rows, u, &u_stride, work, &floats, integer_work, &info, 1);
  return info == 0;
}

#define LOCKSTEP_LAPACK(T)                                                                                        \
  template bool lapack_cholesky(int64_t, T*);                                                                     \
  template void blas_triangular_solve(const TriangularSystem&, int64_t, int64_t, const T*, int64_t, T*, int64_t); \
  template void lapack_lu(int64_t, int64_t, T*, int32_t*, T*);                                                    \
  template void lapack_qr(int64_t, int64_t, int64_t, T*, T*, T*, T*);                                             \
  template bool lapack_eigh(int64_t, T*, T*, T*);                                                                 \
  template bool lapack_svd(int64_t, int64_t, bool, T*, T*, T*, T*, T*);
LOCKSTEP_LAPACK(float)
LOCKSTEP_LAPACK(double)
#undef LOCKSTEP_LAPACK

}  // namespace lockstep
