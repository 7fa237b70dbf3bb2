// Functions that create arrays. Safe to call from any thread.
//
//   Array w = zeros({784, 10});
//   Array i = arange(10);                           // i32[10]
//   Array a = array({{1.5, 2.0}, {3.0, 4.0}});      // f32[2,2]
#pragma once

#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/math.h"
#include "lockstep/operand.h"

namespace lockstep {

Array zeros(const Shape& shape, DType dtype = f32, SourceLine at = SourceLine::here());
Array ones(const Shape& shape, DType dtype = f32, SourceLine at = SourceLine::here());
// An array filled with `value`, a number or an array that broadcasts to `shape`. Keeps the element type of
// `value` unless `dtype` is given.
Array full(const Shape& shape, const Operand& value, std::optional<DType> dtype = {});

// Arrays with the shape of x, and with its element type unless `dtype` is given.
Array zeros_like(const Operand& x, std::optional<DType> dtype = {});
Array ones_like(const Operand& x, std::optional<DType> dtype = {});
Array full_like(const Operand& x, const Operand& value, std::optional<DType> dtype = {});

// Ones on the main diagonal, zeros elsewhere.
Array eye(int64_t n, DType dtype = f32, SourceLine at = SourceLine::here());
Array eye(int64_t rows, int64_t columns, DType dtype = f32, SourceLine at = SourceLine::here());
Array eye(int64_t rows, int64_t columns, int64_t k, DType dtype = f32,
          SourceLine at = SourceLine::here());  // ones on the k-th diagonal

namespace detail {
Array arange_integers(int64_t start, int64_t stop, int64_t step);
Array arange_reals(double start, double stop, double step);
Array from_list(const void* values, DType stored, const Shape& shape, std::optional<DType> wanted);
// The element type of the buffers below: vector<bool> stores bits, arrays store bytes.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
[[noreturn]] void throw_uneven(size_t wanted, size_t got);

// A number of any type, for lists of several types.
struct AnyNumber {
  template <class T>
  requires std::is_arithmetic_v<T> AnyNumber(T number)  // NOLINT: {1.0, 2}
      : value(static_cast<double>(number)), is_real(std::is_floating_point_v<T>) {}
  double value;
  bool is_real;
};
using AnyNumbers = std::initializer_list<AnyNumber>;
Array from_numbers(std::initializer_list<AnyNumbers> rows, bool is_matrix, std::optional<DType> wanted);
}  // namespace detail

// The numbers start, start + step, ... up to but excluding stop. i32 when all three are integers (i64 where
// one needs it), else f32. Throws Error when the step is 0.
template <class A, class B, class S = int>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>&& std::is_arithmetic_v<S>) Array
    arange(A start, B stop, S step = 1, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && std::is_integral_v<S>)
    return detail::arange_integers(static_cast<int64_t>(start), static_cast<int64_t>(stop), static_cast<int64_t>(step));
  else
    return detail::arange_reals(static_cast<double>(start), static_cast<double>(stop), static_cast<double>(step));
}
// The numbers 0, 1, ... up to but excluding stop.
template <class T>
requires std::is_arithmetic_v<T> Array arange(T stop, SourceLine at = SourceLine::here()) {
  return arange(T{0}, stop, 1, at);
}
template <class T>
requires std::is_arithmetic_v<T> Array arange(T stop, DType dtype, SourceLine at = SourceLine::here()) {
  return astype(arange(stop, at), dtype);
}

// n evenly spaced numbers from start to stop, both included.
Array linspace(double start, double stop, int64_t n, DType dtype = f32, SourceLine at = SourceLine::here());

// An array from nested lists: array({1, 2, 3}), array({{1.5, 2.0}, {3.0, 4.0}}), array<float>({}) (f32[0]).
// int gives i32; float and double both give f32 unless `dtype` is given. Throws Error when lists of one level
// differ in length.
template <class T>
Array array(std::initializer_list<T> values, std::optional<DType> dtype = {}, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::from_list(values.begin(), dtype_of<T>, {static_cast<int64_t>(values.size())}, dtype);
}
template <class T>
Array array(std::initializer_list<std::initializer_list<T>> rows, std::optional<DType> dtype = {},
            SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
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
            std::optional<DType> dtype = {}, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
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

// Lists of numbers of several types: array({1.0, 2, 3}), array({{1, 2.5}, {3, 4}}). Integers with a real number among them
// become f32, else they are i32.
inline Array array(detail::AnyNumbers values, std::optional<DType> dtype = {}, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::from_numbers({values}, false, dtype);
}
inline Array array(std::initializer_list<detail::AnyNumbers> rows, std::optional<DType> dtype = {},
                   SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::from_numbers(rows, true, dtype);
}

// The elements of a vector, with the element types of lists: double gives f32 unless `dtype` is given.
template <class T>
requires std::is_arithmetic_v<T> Array array(const std::vector<T>& values, std::optional<DType> dtype = {},
                                             SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  const std::vector<detail::Stored<T>> stored(values.begin(), values.end());
  return detail::from_list(stored.data(), dtype_of<T>, {static_cast<int64_t>(values.size())}, dtype);
}

}  // namespace lockstep
