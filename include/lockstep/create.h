// Functions that make arrays from nothing or from numbers. Safe from any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/math.h"

namespace lockstep {

Array zeros(const Shape& shape, DType dtype = f32);
Array ones(const Shape& shape, DType dtype = f32);
// `value`, a number or an array that broadcasts to `shape`, in its own element type unless another is asked for.
Array full(const Shape& shape, const Array& value, std::optional<DType> dtype = {});

// With the shape and, unless another is asked for, the element type of x.
Array zeros_like(const Array& x, std::optional<DType> dtype = {});
Array ones_like(const Array& x, std::optional<DType> dtype = {});
Array full_like(const Array& x, const Array& value, std::optional<DType> dtype = {});

// Ones on the diagonal.
Array eye(int64_t n, DType dtype = f32);
Array eye(int64_t rows, int64_t columns, DType dtype = f32);

namespace detail {
Array arange_integers(int64_t start, int64_t stop, int64_t step);
Array arange_reals(double start, double stop, double step);
Array from_list(const void* values, DType stored, const Shape& shape, std::optional<DType> wanted);
// vector<bool> holds bits; arrays hold bytes.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
[[noreturn]] void throw_uneven(size_t wanted, size_t got);
}  // namespace detail

// start, start + step, ... below stop (above it when step is negative). i32 when all are integers (i64 when they need
// to be), else f32.
template <class A, class B, class S = int>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>&& std::is_arithmetic_v<S>) Array
    arange(A start, B stop, S step = 1) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && std::is_integral_v<S>)
    return detail::arange_integers(static_cast<int64_t>(start), static_cast<int64_t>(stop), static_cast<int64_t>(step));
  else
    return detail::arange_reals(static_cast<double>(start), static_cast<double>(stop), static_cast<double>(step));
}
// 0, 1, ... below stop.
template <class T>
requires std::is_arithmetic_v<T> Array arange(T stop) { return arange(T{0}, stop); }
template <class T>
requires std::is_arithmetic_v<T> Array arange(T stop, DType dtype) { return astype(arange(stop), dtype); }

// n numbers evenly from start to stop, both included.
Array linspace(double start, double stop, int64_t n, DType dtype = f32);

// An array written out: array({1, 2, 3}), array({{1.5, 2.0}, {3.0, 4.0}}), array<float>({}), which is f32[0]. int gives
// i32; float and double both give f32 unless another element type is asked for.
template <class T>
Array array(std::initializer_list<T> values, std::optional<DType> dtype = {}) {
  return detail::from_list(values.begin(), dtype_of<T>, {static_cast<int64_t>(values.size())}, dtype);
}
template <class T>
Array array(std::initializer_list<std::initializer_list<T>> rows, std::optional<DType> dtype = {}) {
  const size_t columns = rows.size() ? rows.begin()->size() : 0;
  std::vector<detail::Stored<T>> values;
  for (const auto& row : rows) {
    if (row.size() != columns) detail::throw_uneven(columns, row.size());
    values.insert(values.end(), row.begin(), row.end());
  }
  const Shape shape = rows.size() ? Shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)} : Shape{0};
  return detail::from_list(values.data(), dtype_of<T>, shape, dtype);
}
template <class T>
Array array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks,
            std::optional<DType> dtype = {}) {
  const size_t rows = blocks.size() ? blocks.begin()->size() : 0;
  const size_t columns = rows ? blocks.begin()->begin()->size() : 0;
  std::vector<detail::Stored<T>> values;
  for (const auto& block : blocks) {
    if (block.size() != rows) detail::throw_uneven(rows, block.size());
    for (const auto& row : block) {
      if (row.size() != columns) detail::throw_uneven(columns, row.size());
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  Shape shape{0};
  if (blocks.size())
    shape = {static_cast<int64_t>(blocks.size()), static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
  return detail::from_list(values.data(), dtype_of<T>, shape, dtype);
}

}  // namespace lockstep
