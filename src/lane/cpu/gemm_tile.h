// One tile of a matrix product on the calling thread, for every dtype: the inner part of Gemm. Safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/dispatch.h"
#include "lane/cpu/blas.h"
#include "lane/cpu/gemm_operand.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep::detail {

// The type of sums of a dtype: float for 16-bit floats; unsigned for integers, whose overflow is defined.
template <class T, bool half = is_half<T>>
struct SumOf {
  using type = T;
};
template <class T>
struct SumOf<T, true> {
  using type = float;
};
template <>
struct SumOf<int32_t, false> {
  using type = uint32_t;
};
template <>
struct SumOf<int64_t, false> {
  using type = uint64_t;
};
template <class T>
using Sum = typename SumOf<T>::type;

template <class To, class From>
void convert(const From* from, int64_t from_ld, int64_t rows, int64_t cols, To* to, int64_t to_ld) {
  for (int64_t r = 0; r < rows; ++r) {
    const From* const source = from + r * from_ld;
    To* const target = to + r * to_ld;
    for (int64_t c = 0; c < cols; ++c) target[c] = static_cast<To>(source[c]);
  }
}

// Copies rows x cols of an operand into dense float memory, in storage order.
template <class T>
GemmOperand<float> widen(const GemmOperand<T>& from, int64_t rows, int64_t cols, float* to) {
  if (from.transposed) std::swap(rows, cols);
  convert(from.data, from.ld, rows, cols, to, cols);
  return {to, cols, from.transposed};
}

// sums[rows, cols] = a[rows, k] b[k, cols].
template <class T>
void multiply_floats(Pool&, int, const GemmOperand<T>& a, const GemmOperand<T>& b, int64_t rows, int64_t cols,
                     int64_t k, T* sums, int64_t ld) {
  blas_gemm(a.transposed, b.transposed, rows, cols, k, a.data, a.ld, b.data, b.ld, false, sums, ld);
}

// The depth of the panels in which 16-bit floats are converted: equal shares of k.
inline int64_t half_panel(int64_t k) {
  constexpr int64_t kMax = 512;
  const int64_t panels = std::max<int64_t>(1, (k + kMax - 1) / kMax);
  return (k + panels - 1) / panels;
}

template <class T>
void multiply_halves(Pool& pool, int thread, const GemmOperand<T>& a, const GemmOperand<T>& b, int64_t rows,
                     int64_t cols, int64_t k, float* sums, int64_t ld) {
  const int64_t panel = half_panel(k);
  auto* const wide_a = static_cast<float*>(pool.scratch(thread, kASlot, rows * panel * 4));
  auto* const wide_b = static_cast<float*>(pool.scratch(thread, kBSlot, cols * panel * 4));
  for (int64_t p = 0; p < k; p += panel) {
    const int64_t depth = std::min(panel, k - p);
    const GemmOperand<float> wa = widen(a.at(0, p), rows, depth, wide_a);
    const GemmOperand<float> wb = widen(b.at(p, 0), depth, cols, wide_b);
    blas_gemm(wa.transposed, wb.transposed, rows, cols, depth, wa.data, wa.ld, wb.data, wb.ld, p > 0, sums, ld);
  }
}

template <class T>
void multiply_integers(Pool& pool, int thread, const GemmOperand<T>& a, const GemmOperand<T>& b, int64_t rows,
                       int64_t cols, int64_t k, Sum<T>* sums, int64_t ld) {
  using U = Sum<T>;
  constexpr int64_t kPanel = 256;
  auto* const panel = static_cast<U*>(pool.scratch(thread, kBSlot, cols * std::min(k, kPanel) * sizeof(U)));
  for (int64_t r = 0; r < rows; ++r) std::fill_n(sums + r * ld, cols, U{0});
  for (int64_t p0 = 0; p0 < k; p0 += kPanel) {
    const int64_t depth = std::min(kPanel, k - p0);
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t c = 0; c < cols; ++c) panel[p * cols + c] = static_cast<U>(*b.at(p0 + p, c).data);
    for (int64_t r = 0; r < rows; ++r) {
      U* const row = sums + r * ld;
      for (int64_t p = 0; p < depth; ++p) {
        const U factor = static_cast<U>(*a.at(r, p0 + p).data);
        const U* const line = panel + p * cols;
        for (int64_t c = 0; c < cols; ++c) row[c] = static_cast<U>(row[c] + factor * line[c]);
      }
    }
  }
}

// Uses the scratch slots A and B only.
template <class T>
void multiply(Pool& pool, int thread, const GemmOperand<T>& a, const GemmOperand<T>& b, int64_t rows, int64_t cols,
              int64_t k, Sum<T>* sums, int64_t ld) {
  if (k == 0) {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(sums + r * ld, cols, Sum<T>{0});
  } else if constexpr (is_half<T>) {
    multiply_halves(pool, thread, a, b, rows, cols, k, sums, ld);
  } else if constexpr (std::is_floating_point_v<T>) {
    multiply_floats(pool, thread, a, b, rows, cols, k, sums, ld);
  } else {
    multiply_integers(pool, thread, a, b, rows, cols, k, sums, ld);
  }
}

}  // namespace lockstep::detail
