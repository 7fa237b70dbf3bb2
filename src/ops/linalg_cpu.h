// What the rows of factorizations share: checks of their types, their rules, and the loop over a batch of matrices.
// Pure functions, safe from any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "lane/pool.h"
#include "ops/dims.h"
#include "ops/matrix_values.h"
#include "program/op.h"

namespace lockstep {

// Throw Error unless the operand is a batch of matrices of f32 or f64; unless they are square.
void expect_matrices(std::string_view op, const Type& a);
void expect_square(std::string_view op, const Type& a);

// The rule of an op on a batch of matrices: the batch may be sharded, the rest must not. `results` has the letters m, n
// of the operand's matrices and others, "mk" for [..., m, k], per result.
Rule matrix_rule(const Type& a, std::initializer_list<std::string_view> results);

// Calls f.operator()<float>() or <double>().
template <class F>
Kernel with_real(DType t, F f) {
  return t == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

// Runs f(matrix, thread) for each of `matrices`, each of which takes about `work` steps, in tasks of at least kMatrixTask
// steps.
constexpr int64_t kMatrixTask = 20000;
template <class F>
void for_matrices(Pool& pool, int64_t matrices, int64_t work, const F& f) {
  pool.parallel_range(matrices, kMatrixTask / std::max<int64_t>(work, 1), [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) f(i, thread);
  });
}

// Scratch memory of the pool for `n` elements.
template <class T>
T* scratch_of(Pool& pool, int thread, int slot, int64_t n) {
  return static_cast<T*>(pool.scratch(thread, slot, n * static_cast<int64_t>(sizeof(T))));
}

template <class T>
bool all_finite(const T* x, int64_t n) {
  return std::all_of(x, x + n, [](T element) { return std::isfinite(element); });
}
template <class T>
void fill_nan(T* x, int64_t n) {
  std::fill(x, x + n, std::numeric_limits<T>::quiet_NaN());
}

// Whether the sign of a vector of n elements, `stride` apart, must be changed: the first element with at least 9/10 of
// the largest magnitude is negative. Vectors whose elements have equal magnitudes get the same sign in spite of rounding.
template <class T>
bool has_wrong_sign(const T* x, int64_t n, int64_t stride) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i * stride]));
  for (int64_t i = 0; i < n; ++i)
    if (std::abs(x[i * stride]) >= largest * T(0.9)) return x[i * stride] < 0;
  return false;
}
template <class T>
void change_sign(T* x, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) x[i * stride] = -x[i * stride];
}

}  // namespace lockstep
