#include "lockstep/matrices.h"

#include <algorithm>
#include <cmath>

#include "array/promote.h"
#include "base/check.h"
#include "lockstep/arrange.h"
#include "lockstep/create.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

using detail::axis_of;

// Row numbers as a column, and column numbers as a row.
Array row_numbers(int64_t rows) { return expand_dims(arange(rows), 1); }
Array column_numbers(int64_t columns) { return expand_dims(arange(columns), 0); }

// Which elements of a matrix lie on the k-th diagonal.
Array on_diagonal(int64_t rows, int64_t columns, int64_t k) { return column_numbers(columns) - row_numbers(rows) == k; }

void check_count(const char* what, int64_t n) {
  if (n < 0) throw_error("{}: {} elements requested; the number must not be negative", what, n);
}

}  // namespace

Array diag(const Operand& v, int64_t k) {
  if (v.rank() == 2) return diagonal(v, k);
  if (v.rank() != 1)
    throw_error("diag: {} has {} dimensions; pass a vector or a matrix", to_string(v.shape()), v.rank());
  const int64_t n = v.size() + std::abs(k), gap = std::abs(k);
  // Element i is in row i if k >= 0, else in column i.
  const Array line = pad(v, {{0, gap}});
  return where(on_diagonal(n, n, k), expand_dims(line, k >= 0 ? 1 : 0), zeros({}, v.dtype()));
}

Array diagflat(const Operand& v, int64_t k) { return diag(ravel(v), k); }

Array diagonal(const Operand& x, int64_t offset, int64_t axis1, int64_t axis2) {
  if (x.rank() < 2)
    throw_error("diagonal: {} has fewer than two dimensions; use diag to make a matrix", to_string(x.shape()));
  const int64_t first = axis_of("diagonal", axis1, x.shape()), second = axis_of("diagonal", axis2, x.shape());
  if (first == second) throw_error("diagonal: axis {} is given twice; give two different axes", first);
  const int64_t rows = x.shape(first), columns = x.shape(second);
  const int64_t n =
      std::max<int64_t>(0, std::min(rows + std::min<int64_t>(offset, 0), columns - std::max<int64_t>(offset, 0)));
  const Array matrices = moveaxis(x, {first, second}, {-2, -1});
  Shape flat(matrices.shape().begin(), matrices.shape().end() - 2);
  flat.push_back(rows * columns);
  const size_t last = flat.size() - 1;
  // The elements of a diagonal are equally far apart in memory.
  std::vector<int64_t> starts(flat.size(), 0), limits = flat, strides(flat.size(), 1);
  starts[last] = n == 0 ? 0 : offset >= 0 ? offset : -offset * columns;
  strides[last] = columns + 1;
  limits[last] = n == 0 ? 0 : starts[last] + (n - 1) * strides[last] + 1;
  return slice(reshape(matrices, flat), starts, limits, strides);
}

Array trace(const Operand& x, int64_t offset, int64_t axis1, int64_t axis2) {
  return sum(diagonal(x, offset, axis1, axis2), -1);
}

Array fill_diagonal(const Operand& x, const Operand& value) {
  if (x.rank() < 2) throw_error("fill_diagonal: {} has fewer than two dimensions; pass a matrix", to_string(x.shape()));
  const Array inside = on_diagonal(x.shape(-2), x.shape(-1), 0);
  const Array filling = astype(value, x.dtype());
  return where(inside, filling.rank() == 1 ? expand_dims(resize(filling, {x.shape(-2)}), 1) : filling, x);
}

Array identity(int64_t n, DType dtype, SourceLine at) {
  const detail::CallerLine line(at);
  return eye(n, dtype);
}

Array tri(int64_t rows, std::optional<int64_t> columns, int64_t k, DType dtype) {
  check_count("tri", rows);
  check_count("tri", columns.value_or(rows));
  return astype(column_numbers(columns.value_or(rows)) - row_numbers(rows) <= k, dtype);
}

Array vander(const Operand& x, std::optional<int64_t> columns, bool increasing) {
  if (x.rank() != 1) throw_error("vander: {} is not a vector; pass one dimension", to_string(x.shape()));
  const int64_t n = columns.value_or(x.size());
  check_count("vander", n);
  if (n == 0) return zeros({x.size(), 0}, x.dtype());
  const Array ones_column = ones({x.size(), 1}, x.dtype());
  const Array rest = broadcast_to(expand_dims(x, 1), {x.size(), n - 1});
  const Array powers = astype(cumprod(concatenate({ones_column, rest}, 1), 1), x.dtype());
  return increasing ? powers : flip(powers, 1);
}

Array kron(const Operand& a, const Operand& b) {
  const size_t rank = std::max(a.shape().size(), b.shape().size());
  Shape of_a = a.shape(), of_b = b.shape(), wide_a, wide_b, merged;
  of_a.insert(of_a.begin(), rank - of_a.size(), 1);
  of_b.insert(of_b.begin(), rank - of_b.size(), 1);
  for (size_t d = 0; d < rank; ++d) {
    wide_a.insert(wide_a.end(), {of_a[d], 1});
    wide_b.insert(wide_b.end(), {1, of_b[d]});
    merged.push_back(of_a[d] * of_b[d]);
  }
  return reshape(reshape(a, wide_a) * reshape(b, wide_b), merged);
}

Array inner(const Operand& a, const Operand& b) {
  if (a.rank() == 0 || b.rank() == 0) return a * b;
  return tensordot(a, b, {a.rank() - 1}, {b.rank() - 1});
}

Array vdot(const Operand& a, const Operand& b) {
  if (a.size() != b.size())
    throw_error("vdot: {} and {} have {} and {} elements; the numbers must be equal", to_string(a.shape()),
                to_string(b.shape()), a.size(), b.size());
  return dot(ravel(a), ravel(b));
}

Array cross(const Operand& a, const Operand& b, int64_t axis) {
  const int64_t along_a = axis_of("cross", axis, a.shape()), along_b = axis_of("cross", axis, b.shape());
  const int64_t m = a.shape(along_a), n = b.shape(along_b);
  if (m < 2 || m > 3 || n < 2 || n > 3)
    throw_error("cross: vectors of {} and {} elements along axis {}; they must have 2 or 3", m, n, axis);
  const std::vector<Array> x = unstack(a, along_a), y = unstack(b, along_b);
  const Array third = x[0] * y[1] - x[1] * y[0];
  if (m == 2 && n == 2) return third;
  const Array zero = zeros({}, third.dtype());
  const Array xz = m == 3 ? x[2] : zero, yz = n == 3 ? y[2] : zero;
  const Array first = x[1] * yz - xz * y[1], second = xz * y[0] - x[0] * yz;
  // Negative axes count from the back of the longer of the two.
  const int64_t rank = third.rank() + 1;
  return stack(broadcast_arrays({first, second, third}), axis < 0 ? axis + rank : axis);
}

Array indices(const Shape& shape, DType dtype, SourceLine at) {
  const detail::CallerLine line(at);
  std::vector<Array> out;
  for (size_t d = 0; d < shape.size(); ++d) {
    Shape apart(shape.size(), 1);
    apart[d] = shape[d];
    out.push_back(broadcast_to(reshape(arange(shape[d], dtype), apart), shape));
  }
  return out.empty() ? zeros({0}, dtype) : stack(out, 0);
}

Array fromfunction(const std::function<Array(const std::vector<Array>&)>& f, const Shape& shape, DType dtype,
                   SourceLine at) {
  const detail::CallerLine line(at);
  return f(shape.empty() ? std::vector<Array>{} : unstack(indices(shape, dtype), 0));
}

Array linspace(double start, double stop, int64_t n, const SpacedOptions& options, SourceLine at) {
  const detail::CallerLine line(at);
  if (options.endpoint || n < 1) return linspace(start, stop, n, options.dtype);
  return linspace(start, stop - (stop - start) / static_cast<double>(n), n, options.dtype);
}

Array linspace(const Operand& start, const Operand& stop, int64_t n, const SpacedOptions& options) {
  check_count("linspace", n);
  const Array both[] = {start, stop};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  const Array from = astype(start, dtype), to = astype(stop, dtype), span = to - from;
  const auto steps = static_cast<double>(options.endpoint ? std::max<int64_t>(n - 1, 1) : n);
  Shape column(span.shape().size() + 1, 1);
  column[0] = n;
  const Array weight = reshape(astype(arange(n), dtype), column) / steps;
  // As in JAX, each number is a mean of both ends, and the last one is `stop` itself.
  const Array between = from * (1 - weight) + to * weight;
  const Array exact = options.endpoint && n > 1 ? where(reshape(arange(n), column) == n - 1, to, between) : between;
  return astype(exact, options.dtype);
}

Array logspace(double start, double stop, int64_t n, double base, const SpacedOptions& options) {
  const Array exponents = linspace(start, stop, n, SpacedOptions{options.endpoint, f64});
  return astype(exp(exponents * std::log(base)), options.dtype);
}

Array geomspace(double start, double stop, int64_t n, const SpacedOptions& options) {
  if (start == 0 || stop == 0 || (start < 0) != (stop < 0))
    throw_error("geomspace: {} to {}; both must be nonzero and have one sign", start, stop);
  const double sign = start < 0 ? -1 : 1;
  const Array logs =
      linspace(std::log(std::abs(start)), std::log(std::abs(stop)), n, SpacedOptions{options.endpoint, f64});
  const Array numbers = exp(logs) * sign;
  // The ends are exact.
  const Array place = arange(n);
  const Array first = where(place == 0, start, numbers);
  return astype(options.endpoint && n > 1 ? where(place == n - 1, stop, first) : first, options.dtype);
}

}  // namespace lockstep
