// Dense matrices and their products, for references and checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep {

template <class T>
struct DenseMatrix {
  int64_t rows, columns;
  std::vector<T> data;

  DenseMatrix(int64_t m, int64_t n) : rows(m), columns(n), data(static_cast<size_t>(m * n)) {}
  T& operator()(int64_t i, int64_t j) { return data[static_cast<size_t>(i * columns + j)]; }
  T operator()(int64_t i, int64_t j) const { return data[static_cast<size_t>(i * columns + j)]; }
  T largest() const {
    T out = 0;
    for (const T x : data) out = std::max(out, std::abs(x));
    return out;
  }

  static DenseMatrix identity(int64_t n) {
    DenseMatrix out(n, n);
    for (int64_t i = 0; i < n; ++i) out(i, i) = 1;
    return out;
  }
};

template <class T>
DenseMatrix<T> turned(const DenseMatrix<T>& a) {
  DenseMatrix<T> out(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
  return out;
}

template <class T>
DenseMatrix<T> product(const DenseMatrix<T>& a, const DenseMatrix<T>& b) {
  DenseMatrix<T> out(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j) out(i, j) += a(i, k) * b(k, j);
  return out;
}

}  // namespace lockstep
