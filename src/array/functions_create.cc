#include <algorithm>
#include <cmath>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/collectives.h"
#include "lockstep/create.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::CallerLine;

Array constant(const char* what, const Shape& shape, DType dtype, int64_t value) {
  return apply1(what, {}, [&](Builder& b, const Values&) { return full(b, {dtype, shape}, value); });
}

void check_extent(const char* what, int64_t n) {
  if (n < 0) throw_error("{}: {} elements requested; the number must not be negative", what, n);
}

// start + step * i, computed in double so that it is rounded once.
Array ramp(const char* what, double start, double step, int64_t n, DType dtype) {
  return apply1(what, {}, [&](Builder& b, const Values&) {
    return detail::convert(iota(b, {f64, {n}}, 0) * step + start, dtype);
  });
}

}  // namespace

Array zeros(const Shape& shape, DType dtype, SourceLine at) {
  const CallerLine line(at);
  return constant("zeros", shape, dtype, 0);
}
Array ones(const Shape& shape, DType dtype, SourceLine at) {
  const CallerLine line(at);
  return constant("ones", shape, dtype, 1);
}

Array full(const Shape& shape, const Operand& value, std::optional<DType> dtype) {
  // A number is converted to its type directly, not via f32 or i32.
  const auto literal = dtype && *dtype != boolean ? dtype : std::nullopt;
  return apply1(
      "full", {value},
      [&](Builder&, const Values& v) {
        return detail::broadcast_value("full", detail::convert(v[0], dtype.value_or(v[0].dtype())), shape);
      },
      literal);
}

namespace {

// Makes `made` vary over the axes over which x varies.
Array vary_like(const Array& x, const Array& made) {
  std::vector<std::string> axes;
  for (const std::string& axis : x.type().varying)
    if (std::ranges::find(made.type().varying, axis) == made.type().varying.end()) axes.push_back(axis);
  return axes.empty() ? made : pvary(made, axes);
}

}  // namespace

Array zeros_like(const Operand& x, std::optional<DType> dtype) {
  return vary_like(x, zeros(x.shape(), dtype.value_or(x.dtype())));
}
Array ones_like(const Operand& x, std::optional<DType> dtype) {
  return vary_like(x, ones(x.shape(), dtype.value_or(x.dtype())));
}
Array full_like(const Operand& x, const Operand& value, std::optional<DType> dtype) {
  return vary_like(x, full(x.shape(), value, dtype.value_or(x.dtype())));
}

Array eye(int64_t n, DType dtype, SourceLine at) { return eye(n, n, 0, dtype, at); }

Array eye(int64_t rows, int64_t columns, DType dtype, SourceLine at) { return eye(rows, columns, 0, dtype, at); }

Array eye(int64_t rows, int64_t columns, int64_t k, DType dtype, SourceLine at) {
  const CallerLine line(at);
  check_extent("eye", rows);
  check_extent("eye", columns);
  k = std::clamp(k, -rows, columns);  // diagonals beyond these have no elements
  return apply1("eye", {}, [&](Builder& b, const Values&) {
    const Type index{index_dtype(rows + columns), {rows, columns}};
    return detail::convert(eq(iota(b, index, 0) + full(b, index, k), iota(b, index, 1)), dtype);
  });
}

namespace detail {

Array arange_integers(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) throw_error("arange: the step is 0; use a nonzero step");
  const int64_t distance = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
  const int64_t n = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  auto narrow = [](int64_t i) { return i == static_cast<int32_t>(i); };
  const DType dtype = narrow(start) && narrow(stop) && narrow(step) ? DType::i32 : DType::i64;
  return apply1("arange", {}, [&](Builder& b, const Values&) {
    const Type type{dtype, {n}};
    return iota(b, type, 0) * full(b, type, step) + full(b, type, start);
  });
}

Array arange_reals(double start, double stop, double step) {
  const double n = std::ceil((stop - start) / step);
  if (step == 0 || !(n < 0x1p40))
    throw_error("arange: {} to {} in steps of {} has no finite number of elements; use another step", start, stop,
                step);
  return ramp("arange", start, step, n > 0 ? static_cast<int64_t>(n) : 0, f32);
}

Array from_list(const void* values, DType stored, const Shape& shape, std::optional<DType> wanted) {
  const DType dtype = wanted.value_or(stored == f64 ? f32 : stored == c128 ? c64 : stored);
  const Array array = from_bytes(values, {stored, shape});
  if (dtype == stored) return array;
  if (is_integer(dtype) && is_floating(stored))
    for (double x : array.to_vector<double>()) checked_integer("array", x, dtype);
  else if (is_integer(dtype))
    for (int64_t x : array.to_vector<int64_t>()) checked_integer("array", x, dtype);
  // Converted on the host: in a trace the result is a constant.
  return dtype == f32 ? Array::from(array.to_vector<float>(), shape) : astype(array, dtype);
}

Array from_numbers(std::initializer_list<AnyNumbers> rows, bool is_matrix, std::optional<DType> wanted) {
  const size_t columns = rows.begin()->size();
  bool real = false;
  std::vector<double> reals;
  std::vector<int64_t> integers;
  for (const AnyNumbers& row : rows) {
    if (row.size() != columns) throw_uneven(columns, row.size());
    for (const AnyNumber& number : row) {
      real |= number.is_real;
      reals.push_back(number.value);
    }
  }
  const auto n = static_cast<int64_t>(columns);
  const Shape shape = is_matrix ? Shape{static_cast<int64_t>(rows.size()), n} : Shape{n};
  if (real) return from_list(reals.data(), f64, shape, wanted);
  integers.assign(reals.begin(), reals.end());
  const bool small =
      std::all_of(integers.begin(), integers.end(), [](int64_t x) { return x == static_cast<int32_t>(x); });
  return from_list(integers.data(), i64, shape, wanted ? wanted : small ? i32 : i64);
}

void throw_uneven(size_t wanted, size_t got) {
  throw_error("array: ragged lists: one has {} elements, another {}; lists of one level must have equal lengths", got,
              wanted);
}

}  // namespace detail

Array linspace(double start, double stop, int64_t n, DType dtype, SourceLine at) {
  const CallerLine line(at);
  check_extent("linspace", n);
  return ramp("linspace", start, n > 1 ? (stop - start) / static_cast<double>(n - 1) : 0.0, n, dtype);
}

}  // namespace lockstep
