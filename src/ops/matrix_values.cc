#include "ops/matrix_values.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// Whether column - row has this relation to k, for all elements of x.
Value within_band(Value x, int64_t k, bool at_most) {
  const int64_t rank = x.rank();
  const int64_t rows = x.shape()[x.shape().size() - 2], columns = x.shape().back();
  const Type type{index_dtype(rows + columns), x.shape()};
  k = std::clamp(k, -rows, columns);  // diagonals beyond these have no elements
  const Value row = iota(x.builder(), type, rank - 2);
  const Value column = iota(x.builder(), type, rank - 1);
  const Value limit = row + full(x.builder(), type, k);
  return at_most ? le(column, limit) : ge(column, limit);
}

Value zero_outside(Value x, Value mask) { return select(mask, x, zeros_like(x)); }

Value on_diagonal(Value x) {
  const Value below = within_band(x, 0, true);
  return bit_and(below, within_band(x, 0, false));
}

Value leading_block(Value x, int64_t rows, int64_t columns) {
  Shape limits = x.shape();
  const size_t rank = limits.size();
  limits[rank - 2] = rows;
  limits[rank - 1] = columns;
  return limits == x.shape() ? x : slice(x, Dims(rank, 0), limits, Dims(rank, 1));
}

}  // namespace

Value matrix_product(Value a, Value b) {
  Factors factors;
  const std::string batch = factors.next(a.rank() - 2), i = factors.next(1), j = factors.next(1), k = factors.next(1);
  return einsum(batch + i + k + "," + batch + k + j + "->" + batch + i + j, a, b);
}

Value matrix_transposed(Value x) {
  Dims order = counting(0, x.rank());
  std::swap(order[order.size() - 2], order[order.size() - 1]);
  return transpose(x, order);
}

Value lower_triangle(Value x, int64_t k) { return zero_outside(x, within_band(x, k, true)); }
Value upper_triangle(Value x, int64_t k) { return zero_outside(x, within_band(x, k, false)); }
Value identity_like(Value x) {
  const Value ones = ones_like(x);
  return zero_outside(ones, on_diagonal(x));
}

Value diagonal_of(Value x) { return reduce_sum(zero_outside(x, on_diagonal(x)), {x.rank() - 1}); }
Value diagonal_matrix(Value d) {
  const Value all = as_rows(d, d.shape().back());
  return zero_outside(all, on_diagonal(all));
}

Value as_rows(Value d, int64_t rows) {
  const int64_t rank = d.rank();
  Shape shape = d.shape();
  shape.insert(shape.end() - 1, rows);
  Dims dims = counting(0, rank);
  ++dims.back();
  return broadcast(d, shape, dims);
}
Value as_columns(Value d, int64_t columns) {
  Shape shape = d.shape();
  shape.push_back(columns);
  return broadcast(d, shape, counting(0, d.rank()));
}
Value scale_columns(Value x, Value d) { return x * as_rows(d, x.shape()[static_cast<size_t>(x.rank()) - 2]); }
Value scale_rows(Value x, Value d) { return x * as_columns(d, x.shape().back()); }

Value leading_rows(Value x, int64_t rows) { return leading_block(x, rows, x.shape().back()); }
Value leading_columns(Value x, int64_t columns) {
  return leading_block(x, x.shape()[static_cast<size_t>(x.rank()) - 2], columns);
}
Value extend_matrix(Value x, int64_t rows, int64_t columns) {
  const size_t rank = x.shape().size();
  Dims more(rank, 0);
  more[rank - 2] = rows - x.shape()[rank - 2];
  more[rank - 1] = columns - x.shape()[rank - 1];
  if (more == Dims(rank, 0)) return x;
  const Value zero = full(x.builder(), {x.dtype(), {}}, 0.0);
  return pad(x, zero, Dims(rank, 0), more, Dims(rank, 0));
}

Value reciprocal_or_zero(Value x) {
  const Value zero = eq(x, zeros_like(x));
  const Value safe = select(zero, ones_like(x), x);
  return select(zero, zeros_like(x), 1.0 / safe);
}

Value symmetric_gradient(Value g) {
  const Value both = g + matrix_transposed(g);
  const Value below = lower_triangle(both, -1);
  return below + zero_outside(g, on_diagonal(g));
}

}  // namespace lockstep
