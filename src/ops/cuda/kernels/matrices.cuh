// What surrounds the routines of cuSOLVER and cuBLAS, which take column-major matrices: transposes, triangles, signs of
// vectors, and NaN for what could not be factored. Matrices are row-major unless stated otherwise: a column-major matrix
// is the row-major transpose. Thread blocks have kMatrixThreads threads.
#pragma once
#include "elements.cuh"

namespace lockstep {

inline constexpr uint32_t kMatrixThreads = 256;

inline uint64_t matrix_thread() { return uint64_t(blockIdx.x) * kMatrixThreads + threadIdx.x; }

// Whether a matrix could not be factored. Either array may be null.
inline bool is_failed(const int32_t* not_finite, const int32_t* info, uint64_t matrix) {
  return (not_finite && not_finite[matrix] != 0) || (info && info[matrix] != 0);
}

// Copies matrices. Adjacent rows are `lead` elements apart, matrices `stride`. The members are those of MatrixMove in
// matrix_kernels.h.
template <class T>
struct MatrixMove {
  const T* in;
  uint64_t in_lead, in_stride;
  T* out;
  uint64_t out_lead, out_stride;
  uint64_t rows, columns, count;  // of `in`
  // If not null: factors [count, vectors] of rows, or of columns if `by_column`.
  const T* factors;
  uint64_t vectors, by_column;
  // If not null: matrices that are zero instead.
  const int32_t* zero;
  uint64_t upper;  // writes zeros below the diagonal of the result

  T factor(uint64_t matrix, uint64_t row, uint64_t column) const {
    return factors ? factors[matrix * vectors + (by_column ? column : row)] : T(1);
  }
  T value(T x, uint64_t matrix, uint64_t row, uint64_t column) const {
    return zero && zero[matrix] != 0 ? T(0) : x * factor(matrix, row, column);
  }
};

// A thread copies an element.
template <class T>
inline void copy_matrices(const MatrixMove<T>& m) {
  const uint64_t at = matrix_thread();
  if (at >= m.rows * m.columns * m.count) return;
  const uint64_t column = at % m.columns, row = at / m.columns % m.rows, matrix = at / m.columns / m.rows;
  const T x = m.in[matrix * m.in_stride + row * m.in_lead + column];
  m.out[matrix * m.out_stride + row * m.out_lead + column] =
      m.upper && column < row ? T(0) : m.value(x, matrix, row, column);
}

// A thread block transposes a tile of 32 x 32 elements.
template <class T>
inline void transpose_matrices(const MatrixMove<T>& m) {
  constexpr uint32_t kTile = 32, kDown = kMatrixThreads / kTile;
  __shared__ T tile[kTile][kTile + 1];
  const uint64_t across = (m.columns + kTile - 1) / kTile, tiles = (m.rows + kTile - 1) / kTile * across;
  const uint64_t matrix = blockIdx.x / tiles, first_row = blockIdx.x % tiles / across * kTile,
                 first_column = blockIdx.x % tiles % across * kTile;
  const uint32_t x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  for (uint32_t i = y; i < kTile; i += kDown)
    if (first_row + i < m.rows && first_column + x < m.columns)
      tile[i][x] = m.in[matrix * m.in_stride + (first_row + i) * m.in_lead + first_column + x];
  __syncthreads();
  for (uint32_t i = y; i < kTile; i += kDown) {
    const uint64_t row = first_row + x, column = first_column + i;
    if (row >= m.rows || column >= m.columns) continue;
    m.out[matrix * m.out_stride + column * m.out_lead + row] =
        m.upper && row < column ? T(0) : m.value(tile[x][i], matrix, row, column);
  }
}

// Sets not_finite[matrix] if an element of the matrix, or of its lower triangle, is not finite. It was 0.
template <class T>
inline void find_not_finite(const T* in, uint64_t rows, uint64_t columns, uint64_t count, uint64_t lower,
                            int32_t* not_finite) {
  const uint64_t at = matrix_thread();
  if (at >= rows * columns * count) return;
  const uint64_t column = at % columns, row = at / columns % rows;
  if (lower && column > row) return;
  const T x = in[at];
  if (!(x - x == T(0))) not_finite[at / columns / rows] = 1;
}

// Fills the `each` elements of failed matrices with NaN.
template <class T>
inline void fill_failed(T* x, uint64_t each, uint64_t count, const int32_t* not_finite, const int32_t* info) {
  const uint64_t at = matrix_thread();
  if (at < each * count && is_failed(not_finite, info, at / each)) x[at] = T(math::kNan);
}

// Vectors of n elements. Elements are `step` apart, vectors `lead`, matrices `stride`. The members are those of
// VectorSigns in matrix_kernels.h.
template <class T>
struct VectorSigns {
  const T* x;
  uint64_t n, step, lead, stride;
  uint64_t vectors, count;
  // The first `given_vectors` factors are copied from `given` [count, given_lead].
  const T* given;
  uint64_t given_vectors, given_lead;
  const int32_t *not_finite, *info;
  T* factors;  // [count, vectors]
};

// Chooses the factor of each vector: -1 if its sign must change (has_wrong_sign() in linalg_cpu.h), else 1; NaN for failed
// matrices. A warp computes a factor.
template <class T>
inline void choose_signs(const VectorSigns<T>& s) {
  const uint64_t at = matrix_thread() / 32;
  if (at >= s.vectors * s.count) return;
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t matrix = at / s.vectors, vector = at % s.vectors;
  const T* const x = s.x + matrix * s.stride + vector * s.lead;
  T factor = T(1);
  if (is_failed(s.not_finite, s.info, matrix)) {
    factor = T(math::kNan);
  } else if (vector < s.given_vectors) {
    factor = s.given[matrix * s.given_lead + vector];
  } else {
    T largest = 0;
    for (uint64_t i = lane; i < s.n; i += 32) {
      const T size = math::abs(x[i * s.step]);
      if (size > largest) largest = size;
    }
    for (int by = 16; by > 0; by /= 2) {
      const T other = __shfl_xor_sync(~0u, largest, by);
      if (other > largest) largest = other;
    }
    uint64_t first = s.n;
    for (uint64_t i = lane; i < s.n && first == s.n; i += 32)
      if (math::abs(x[i * s.step]) >= largest * T(0.9)) first = i;
    for (int by = 16; by > 0; by /= 2) {
      const uint64_t other = __shfl_xor_sync(~0u, first, by);
      if (other < first) first = other;
    }
    if (first < s.n && x[first * s.step] < T(0)) factor = T(-1);
  }
  if (lane == 0) s.factors[at] = factor;
}

// Sets info[matrix] if the diagonal of a factor has a NaN. A thread reads an element.
template <class T>
inline void check_cholesky(const T* l, uint64_t n, uint64_t count, int32_t* info) {
  const uint64_t matrix = matrix_thread() / n, i = matrix_thread() % n;
  if (matrix >= count) return;
  if (const T x = l[matrix * n * n + i * (n + 1)]; x != x) info[matrix] = 1;
}

// Zeros above the diagonal, and NaN elsewhere if the matrix was not positive definite.
template <class T>
inline void finish_cholesky(T* l, uint64_t n, uint64_t count, const int32_t* info) {
  const uint64_t at = matrix_thread();
  if (at >= n * n * count) return;
  if (at % n > at / n % n)
    l[at] = T(0);
  else if (info[at / n / n] != 0)
    l[at] = T(math::kNan);
}

// From the exchanges of LAPACK [count, k], which begin at 1: pivots [count, k], and the permutation of the rows
// [count, m]. A thread block has a matrix.
inline void permute_rows(const int32_t* exchanges, uint64_t m, uint64_t k, int32_t* pivots, int32_t* permutation) {
  exchanges += blockIdx.x * k, pivots += blockIdx.x * k, permutation += blockIdx.x * m;
  for (uint64_t i = threadIdx.x; i < m; i += kMatrixThreads) permutation[i] = int32_t(i);
  for (uint64_t i = threadIdx.x; i < k; i += kMatrixThreads) {
    // Matrices with NaN may have any.
    const int64_t row = int64_t(exchanges[i]) - 1;
    pivots[i] = int32_t(row < int64_t(i) || row >= int64_t(m) ? int64_t(i) : row);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (uint64_t i = 0; i < k; ++i) {
    const int32_t row = permutation[i];
    permutation[i] = permutation[pivots[i]];
    permutation[pivots[i]] = row;
  }
}

// The addresses of matrices.
template <class T>
inline void write_pointers(T* first, uint64_t stride, uint64_t count, T** pointers) {
  const uint64_t at = matrix_thread();
  if (at < count) pointers[at] = first + at * stride;
}

}  // namespace lockstep
