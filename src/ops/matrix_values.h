// Matrices as Values, for the gradients of factorizations: matrices are the last two dimensions, the leading ones are a
// batch. Strict: no broadcasting. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// The extents of a matrix and the leading dimensions.
struct MatrixDims {
  Shape batch;
  int64_t rows = 0, columns = 0;

  explicit MatrixDims(const Shape& shape)
      : batch(shape.begin(), shape.end() - 2), rows(shape[shape.size() - 2]), columns(shape.back()) {}
  Shape with(int64_t m, int64_t n) const {
    Shape out = batch;
    out.insert(out.end(), {m, n});
    return out;
  }
  Shape with(int64_t n) const {
    Shape out = batch;
    out.push_back(n);
    return out;
  }
};

Value matrix_product(Value a, Value b);
Value matrix_transposed(Value x);

// The elements of x on diagonal k and below, or above; zero elsewhere, also instead of NaN.
Value lower_triangle(Value x, int64_t k = 0);
Value upper_triangle(Value x, int64_t k = 0);
// ones[i, i] = 1 of x's type.
Value identity_like(Value x);
// The diagonal of a square matrix, and the matrix with this diagonal.
Value diagonal_of(Value x);
Value diagonal_matrix(Value d);

// x[..., i, j] times d[..., j], or d[..., i].
Value scale_columns(Value x, Value d);
Value scale_rows(Value x, Value d);
// d[..., n] as [..., n, n] matrices whose element (i, j) is d[i], or d[j].
Value as_columns(Value d, int64_t columns);
Value as_rows(Value d, int64_t rows);

// The first rows or columns; zero rows and columns added at the end.
Value leading_rows(Value x, int64_t rows);
Value leading_columns(Value x, int64_t columns);
Value extend_matrix(Value x, int64_t rows, int64_t columns);

// 1 / x, and 0 for x = 0.
Value reciprocal_or_zero(Value x);

// The gradient with respect to the lower triangle of a symmetric matrix, given the gradient with respect to all elements.
Value symmetric_gradient(Value g);

}  // namespace lockstep
