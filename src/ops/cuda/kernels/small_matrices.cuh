// Factorizations of row-major matrices of at most 32 rows and columns, and solutions of triangular systems of that size.
// A warp has a matrix in shared memory, and a lane has a row or a column of it. The order of all sums is fixed.
#pragma once
#include "elements.cuh"

namespace lockstep {

inline constexpr uint32_t kSmallMatrix = 32, kSmallThreads = 64, kSmallWarps = kSmallThreads / 32;

// The matrix of a warp. Columns and rows of it are read without bank conflicts.
template <class T>
using SmallMatrix = T[kSmallMatrix][kSmallMatrix + 1];

inline uint64_t small_matrix_index() { return uint64_t(blockIdx.x) * kSmallWarps + threadIdx.x / 32; }

// Copies a matrix by a warp.
template <class T>
inline void load_small(const T* in, uint32_t rows, uint32_t columns, SmallMatrix<T>& a) {
  for (uint32_t e = threadIdx.x % 32; e < rows * columns; e += 32) a[e / columns][e % columns] = in[e];
  __syncwarp();
}
template <class T>
inline void store_small(const SmallMatrix<T>& a, uint32_t rows, uint32_t columns, T* out) {
  __syncwarp();
  for (uint32_t e = threadIdx.x % 32; e < rows * columns; e += 32) out[e] = a[e / columns][e % columns];
}

// The sum, and the largest number, of the lanes of a warp.
template <class T>
inline T warp_sum(T x) {
  for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(~0u, x, by);
  return x;
}
template <class T>
inline T warp_largest(T x) {
  for (int by = 16; by > 0; by /= 2) {
    const T other = __shfl_xor_sync(~0u, x, by);
    if (other > x) x = other;
  }
  return x;
}

// L of [count, n, n] matrices; NaN on and below the diagonal if a matrix is not positive definite. A lane has a row.
template <class T>
inline void small_cholesky(const T* in, uint64_t size, uint64_t count, T* out) {
  __shared__ SmallMatrix<T> all[kSmallWarps];
  const uint64_t matrix = small_matrix_index();
  if (matrix >= count) return;
  const uint32_t n = uint32_t(size), row = threadIdx.x % 32;
  SmallMatrix<T>& l = all[threadIdx.x / 32];
  load_small(in + matrix * n * n, n, n, l);
  bool positive = true;
  for (uint32_t j = 0; j < n; ++j) {
    T rest = 0;
    if (row >= j && row < n) {
      rest = l[row][j];
      for (uint32_t k = 0; k < j; ++k) rest -= l[row][k] * l[j][k];
    }
    const T square = __shfl_sync(~0u, rest, int(j));
    positive = positive && square > T(0);
    const T root = math::sqrt(square);
    if (row >= j && row < n) l[row][j] = row == j ? root : rest / root;
    __syncwarp();
  }
  for (uint32_t j = 0; j < n; ++j)
    if (row < n && (row < j || !positive)) l[row][j] = row < j ? T(0) : T(math::kNan);
  store_small(l, n, n, out + matrix * n * n);
}

// Solves triangular systems of a [count, n, n] for vectors of b: its columns if `left`, else its rows. A thread block has
// kSmallThreads vectors of a matrix, one per thread.
template <class T>
inline void small_triangular_solve(const T* a, const T* b, T* x, uint64_t size, uint64_t sides, uint64_t left,
                                   uint64_t lower, uint64_t transpose, uint64_t unit_diagonal) {
  __shared__ SmallMatrix<T> m;
  __shared__ T vectors[kSmallMatrix][kSmallThreads + 1];
  const uint32_t n = uint32_t(size), t = threadIdx.x;
  const uint64_t shares = (sides + kSmallThreads - 1) / kSmallThreads, matrix = blockIdx.x / shares,
                 side = blockIdx.x % shares * kSmallThreads + t;
  a += matrix * n * n, b += matrix * n * sides, x += matrix * n * sides;
  // x op(a) = b is op(a)^T x^T = b^T: `m` is what a vector is multiplied by from the left.
  const bool turned = (transpose != 0) == (left != 0), from_first = (lower != 0) != turned;
  for (uint32_t e = t; e < n * n; e += kSmallThreads) {
    const uint32_t row = e / n, column = e % n;
    m[turned ? column : row][turned ? row : column] = a[e];
  }
  __syncthreads();
  if (side >= sides) return;
  const uint64_t step = left ? sides : 1, first = left ? side : side * n;
  for (uint32_t i = 0; i < n; ++i) vectors[i][t] = b[first + i * step];
  for (uint32_t at = 0; at < n; ++at) {
    const uint32_t i = from_first ? at : n - 1 - at;
    T rest = vectors[i][t];
    for (uint32_t k = from_first ? 0 : i + 1; k < (from_first ? i : n); ++k) rest -= m[i][k] * vectors[k][t];
    vectors[i][t] = unit_diagonal ? rest : rest / m[i][i];
  }
  for (uint32_t i = 0; i < n; ++i) x[first + i * step] = vectors[i][t];
}

// The LU factorization of [count, rows, columns] matrices. A lane has a row. Of equal pivots the first one is chosen.
template <class T>
inline void small_lu(const T* in, uint64_t rows, uint64_t columns, uint64_t count, T* out, int32_t* pivots,
                     int32_t* permutation) {
  __shared__ SmallMatrix<T> all[kSmallWarps];
  const uint64_t matrix = small_matrix_index();
  if (matrix >= count) return;
  const uint32_t m = uint32_t(rows), n = uint32_t(columns), k = m < n ? m : n, row = threadIdx.x % 32;
  SmallMatrix<T>& a = all[threadIdx.x / 32];
  load_small(in + matrix * m * n, m, n, a);
  uint32_t own = row;  // the row of the operand that is now here
  for (uint32_t p = 0; p < k; ++p) {
    T largest = row >= p && row < m ? math::abs(a[row][p]) : T(-1);
    uint32_t best = row >= p && row < m ? row : p;
    for (int by = 16; by > 0; by /= 2) {
      const T other = __shfl_xor_sync(~0u, largest, by);
      const uint32_t place = __shfl_xor_sync(~0u, best, by);
      if (other > largest || (other == largest && place < best)) largest = other, best = place;
    }
    best = __shfl_sync(~0u, best, 0);  // lanes may disagree if there is NaN
    if (row == 0) pivots[matrix * k + p] = int32_t(best);
    const uint32_t here = __shfl_sync(~0u, own, int(p)), there = __shfl_sync(~0u, own, int(best));
    own = row == p ? there : row == best ? here : own;
    if (row < n) {  // a lane exchanges the elements of a column
      const T x = a[p][row];
      a[p][row] = a[best][row];
      a[best][row] = x;
    }
    __syncwarp();
    const T pivot = a[p][p];
    if (row > p && row < m) {
      const T factor = pivot == T(0) ? a[row][p] : a[row][p] / pivot;
      a[row][p] = factor;
      for (uint32_t c = p + 1; c < n; ++c) a[row][c] -= factor * a[p][c];
    }
    __syncwarp();
  }
  if (row < m) permutation[matrix * m + row] = int32_t(own);
  store_small(a, m, n, out + matrix * m * n);
}

// The reflection that makes column p of the matrix zero below the diagonal, with LAPACK's sign. Writes its vector
// in place of the zeros, without the first element, which is 1. Returns its scale. A lane has a row.
template <class T>
inline T small_reflection(SmallMatrix<T>& a, uint32_t m, uint32_t p) {
  const uint32_t row = threadIdx.x % 32;
  const T x = row >= p && row < m ? a[row][p] : T(0), first = __shfl_sync(~0u, x, int(p));
  if (!__any_sync(~0u, row != p && x != T(0))) return T(0);
  const T scale = warp_largest(math::abs(x)), scaled = x / scale;
  const T size = scale * math::sqrt(warp_sum(scaled * scaled));
  const T end = first < T(0) ? size : -size;
  __syncwarp();
  if (row == p) a[row][p] = end;
  if (row > p && row < m) a[row][p] = x / (first - end);
  __syncwarp();
  return (end - first) / end;
}

// Q [count, rows, q_columns] and R [count, q_columns, columns]. A lane has a column.
template <class T>
inline void small_qr(const T* in, uint64_t rows, uint64_t columns, uint64_t q_columns, uint64_t count, T* q_out,
                     T* r_out) {
  __shared__ SmallMatrix<T> all[2 * kSmallWarps];
  const uint64_t matrix = small_matrix_index();
  if (matrix >= count) return;
  const uint32_t m = uint32_t(rows), n = uint32_t(columns), w = uint32_t(q_columns), k = m < n ? m : n,
                 lane = threadIdx.x % 32;
  SmallMatrix<T>&a = all[threadIdx.x / 32 * 2], &q = all[threadIdx.x / 32 * 2 + 1];
  load_small(in + matrix * m * n, m, n, a);
  T own_scale = 0;  // of reflection `lane`
  for (uint32_t p = 0; p < k; ++p) {
    const T scale = small_reflection(a, m, p);
    if (lane == p) own_scale = scale;
    if (lane > p && lane < n) {
      T sum = a[p][lane];
      for (uint32_t i = p + 1; i < m; ++i) sum += a[i][p] * a[i][lane];
      sum *= scale;
      a[p][lane] -= sum;
      for (uint32_t i = p + 1; i < m; ++i) a[i][lane] -= a[i][p] * sum;
    }
    __syncwarp();
  }
  for (uint32_t i = 0; i < m && lane < w; ++i) q[i][lane] = i == lane ? T(1) : T(0);
  for (uint32_t p = k; p-- > 0;) {
    const T scale = __shfl_sync(~0u, own_scale, int(p));
    if (lane < w) {
      T sum = q[p][lane];
      for (uint32_t i = p + 1; i < m; ++i) sum += a[i][p] * q[i][lane];
      sum *= scale;
      q[p][lane] -= sum;
      for (uint32_t i = p + 1; i < m; ++i) q[i][lane] -= a[i][p] * sum;
    }
  }
  store_small(q, m, w, q_out + matrix * m * w);
  for (uint32_t i = 0; i < w && lane < n; ++i) r_out[(matrix * w + i) * n + lane] = i <= lane ? a[i][lane] : T(0);
}

}  // namespace lockstep
