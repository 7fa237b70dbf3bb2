// References and samples of the factorizations: textbook algorithms in extended precision.
#include <cmath>
#include <limits>
#include <numeric>

#include "rows/matrix.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

using Matrix = DenseMatrix<Real>;

Matrix matrix_of(const RefArray& x, int64_t index) {
  const size_t rank = x.shape().size();
  Matrix out(x.shape()[rank - 2], x.shape()[rank - 1]);
  const auto begin = x.data.begin() + index * out.rows * out.columns;
  std::copy(begin, begin + out.rows * out.columns, out.data.begin());
  return out;
}
void store(const std::vector<Real>& data, RefArray& x, int64_t index) {
  std::copy(data.begin(), data.end(), x.data.begin() + index * static_cast<int64_t>(data.size()));
}

// A reference that treats each matrix of a batch alone.
using OneMatrix = std::function<void(const RefArrays& in, const Attrs&, RefArrays& out, int64_t index)>;
Reference each_matrix(OneMatrix f) {
  return [f](const RefArrays& in, const Attrs& attrs, RefArrays& out) {
    const Shape& shape = in[0].shape();
    const int64_t n = count(Shape(shape.begin(), shape.end() - 2));
    for (int64_t i = 0; i < n; ++i) f(in, attrs, out, i);
  };
}

void cholesky_of(const RefArrays& in, const Attrs&, RefArrays& out, int64_t index) {
  const Matrix a = matrix_of(in[0], index);
  Matrix l(a.rows, a.rows);
  for (int64_t j = 0; j < a.rows; ++j)
    for (int64_t i = j; i < a.rows; ++i) {
      Real sum = a(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l(i, k) * l(j, k);
      l(i, j) = i == j ? std::sqrt(sum) : sum / l(j, j);
    }
  const bool failed = std::any_of(l.data.begin(), l.data.end(), [](Real x) { return std::isnan(x); });
  for (int64_t i = 0; i < a.rows && failed; ++i)
    for (int64_t j = 0; j <= i; ++j) l(i, j) = std::nanl("");
  store(l.data, out[0], index);
}

void triangular_solve_of(const RefArrays& in, const Attrs& attrs, RefArrays& out, int64_t index) {
  const bool left = attrs.get<bool>("left"), transpose = attrs.get<bool>("transpose");
  const bool unit = attrs.get<bool>("unit_diagonal");
  Matrix a = matrix_of(in[0], index), x = matrix_of(in[1], index);
  bool lower = attrs.get<bool>("lower");
  // x op(a) = b is op(a)^T x^T = b^T.
  if (transpose == left) a = turned(a), lower = !lower;
  if (!left) x = turned(x);
  const int64_t n = a.rows;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = lower ? step : n - 1 - step;
    for (int64_t c = 0; c < x.columns; ++c) {
      for (int64_t k = lower ? 0 : i + 1; k < (lower ? i : n); ++k) x(i, c) -= a(i, k) * x(k, c);
      if (!unit) x(i, c) /= a(i, i);
    }
  }
  store(left ? x.data : turned(x).data, out[0], index);
}

void lu_of(const RefArrays& in, const Attrs&, RefArrays& out, int64_t index) {
  Matrix a = matrix_of(in[0], index);
  const int64_t k = std::min(a.rows, a.columns);
  std::vector<Real> pivots, rows(static_cast<size_t>(a.rows));
  std::iota(rows.begin(), rows.end(), Real{0});
  for (int64_t p = 0; p < k; ++p) {
    int64_t best = p;
    for (int64_t i = p; i < a.rows; ++i)
      if (std::abs(a(i, p)) > std::abs(a(best, p))) best = i;
    pivots.push_back(static_cast<Real>(best));
    std::swap(rows[static_cast<size_t>(p)], rows[static_cast<size_t>(best)]);
    for (int64_t j = 0; j < a.columns; ++j) std::swap(a(p, j), a(best, j));
    for (int64_t i = p + 1; i < a.rows; ++i) {
      a(i, p) /= a(p, p);
      for (int64_t j = p + 1; j < a.columns; ++j) a(i, j) -= a(i, p) * a(p, j);
    }
  }
  store(a.data, out[0], index);
  store(pivots, out[1], index);
  store(rows, out[2], index);
}

// Householder's reflections, with LAPACK's signs.
void qr_of(const RefArrays& in, const Attrs&, RefArrays& out, int64_t index) {
  Matrix r = matrix_of(in[0], index);
  const int64_t m = r.rows, columns = out[0].shape().back();
  Matrix q = Matrix::identity(m);
  for (int64_t p = 0; p < std::min(m, r.columns); ++p) {
    Real below = 0;
    for (int64_t i = p + 1; i < m; ++i) below += r(i, p) * r(i, p);
    if (below == 0) continue;
    const Real first = r(p, p), size = std::sqrt(first * first + below);
    std::vector<Real> v(static_cast<size_t>(m));
    v[static_cast<size_t>(p)] = first + (first < 0 ? -size : size);
    Real square = v[static_cast<size_t>(p)] * v[static_cast<size_t>(p)] + below;
    for (int64_t i = p + 1; i < m; ++i) v[static_cast<size_t>(i)] = r(i, p);
    Matrix reflection = Matrix::identity(m);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < m; ++j)
        reflection(i, j) -= 2 * v[static_cast<size_t>(i)] * v[static_cast<size_t>(j)] / square;
    r = product(reflection, r);
    q = product(q, reflection);
  }
  Matrix first_columns(m, columns), upper(columns, r.columns);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < columns; ++j) first_columns(i, j) = q(i, j);
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = i; j < r.columns; ++j) upper(i, j) = r(i, j);
  store(first_columns.data, out[0], index);
  store(upper.data, out[1], index);
}

Real sign_of_vector(const Matrix& a, int64_t column) {
  Real largest = 0;
  for (int64_t i = 0; i < a.rows; ++i) largest = std::max(largest, std::abs(a(i, column)));
  for (int64_t i = 0; i < a.rows; ++i)
    if (std::abs(a(i, column)) >= Real{0.9L} * largest) return a(i, column) < 0 ? -1 : 1;
  return 1;
}

// Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations, in ascending order.
std::pair<std::vector<Real>, Matrix> symmetric_eigenvectors(Matrix a) {
  const int64_t n = a.rows;
  Matrix v = Matrix::identity(n);
  for (int sweep = 0; sweep < 30; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (std::abs(a(p, q)) < 1e-30L) continue;
        const Real theta = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const Real t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const Real c = 1 / std::sqrt(t * t + 1), s = t * c;
        Matrix rotation = Matrix::identity(n);
        rotation(p, p) = rotation(q, q) = c;
        rotation(p, q) = s;
        rotation(q, p) = -s;
        a = product(turned(rotation), product(a, rotation));
        v = product(v, rotation);
      }
  std::vector<int64_t> order = counting(0, n);
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return a(i, i) < a(j, j); });
  std::vector<Real> w;
  Matrix sorted(n, n);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    const Real sign = sign_of_vector(v, from);
    w.push_back(a(from, from));
    for (int64_t i = 0; i < n; ++i) sorted(i, j) = sign * v(i, from);
  }
  return {w, sorted};
}

void eigh_of(const RefArrays& in, const Attrs&, RefArrays& out, int64_t index) {
  Matrix a = matrix_of(in[0], index);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = i + 1; j < a.rows; ++j) a(i, j) = a(j, i);
  const auto [w, v] = symmetric_eigenvectors(a);
  store(w, out[0], index);
  store(v.data, out[1], index);
}

// The columns of `from` and, after them, a unit vector that is orthogonal to them if there is room for one.
Matrix completed(const Matrix& from, int64_t columns) {
  Matrix out(from.rows, columns);
  for (int64_t i = 0; i < from.rows; ++i)
    for (int64_t j = 0; j < std::min(from.columns, columns); ++j) out(i, j) = from(i, j);
  if (columns <= from.columns) return out;
  const Matrix outside = product(from, turned(from));
  int64_t best = 0;
  for (int64_t e = 0; e < from.rows; ++e)
    if (outside(e, e) < outside(best, best)) best = e;
  Real size = 0;
  for (int64_t i = 0; i < from.rows; ++i) {
    out(i, from.columns) = (i == best) - outside(i, best);
    size += out(i, from.columns) * out(i, from.columns);
  }
  const Real factor = sign_of_vector(out, from.columns) / std::sqrt(size);
  for (int64_t i = 0; i < from.rows; ++i) out(i, from.columns) *= factor;
  return out;
}

// From the eigenvectors of A^T A or A A^T, whichever is smaller.
void svd_of(const RefArrays& in, const Attrs& attrs, RefArrays& out, int64_t index) {
  const Matrix a = matrix_of(in[0], index);
  const bool wide = a.rows < a.columns;
  const int64_t k = std::min(a.rows, a.columns);
  const auto [w, vectors] = symmetric_eigenvectors(wide ? product(a, turned(a)) : product(turned(a), a));
  std::vector<Real> s;
  Matrix small(k, k);
  for (int64_t j = 0; j < k; ++j) {
    s.push_back(std::sqrt(w[static_cast<size_t>(k - 1 - j)]));
    for (int64_t i = 0; i < k; ++i) small(i, j) = vectors(i, k - 1 - j);
  }
  if (!attrs.get<bool>("compute_uv")) return store(s, out[0], index);
  Matrix other = product(wide ? turned(a) : a, small);
  Matrix& u = wide ? small : other;
  for (int64_t j = 0; j < k; ++j) {
    for (int64_t i = 0; i < other.rows; ++i) other(i, j) /= s[static_cast<size_t>(j)];
    const Real sign = sign_of_vector(u, j);
    for (int64_t i = 0; i < other.rows; ++i) other(i, j) *= sign;
    for (int64_t i = 0; i < k; ++i) small(i, j) *= sign;
  }
  const Matrix& v = wide ? other : small;
  store(completed(u, out[0].shape().back()).data, out[0], index);
  store(s, out[1], index);
  store(turned(completed(v, out[2].shape()[out[2].shape().size() - 2])).data, out[2], index);
}

const Domain kMatrix{Domain::matrix, -0.6, 0.6};

std::vector<Sample> matrix_samples(const std::vector<Type>& types, const Attrs& attrs = {}) {
  std::vector<Sample> out;
  for (const Type& type : types) out.push_back({{{type, kMatrix}}, attrs});
  return out;
}

void add_triangular_solve(std::vector<Row>& out) {
  Row row{&triangular_solve_op, each_matrix(triangular_solve_of), {}};
  const auto add = [&](DType t, const Shape& batch, int64_t n, int64_t sides, int bits) {
    const bool left = (bits & 1) != 0;
    Shape a = batch, b = batch;
    a.insert(a.end(), {n, n});
    b.insert(b.end(), {left ? n : sides, left ? sides : n});
    row.samples.push_back({{{{t, a}, kMatrix}, {{t, b}}},
                           {{"left", left},
                            {"lower", (bits & 2) != 0},
                            {"transpose", (bits & 4) != 0},
                            {"unit_diagonal", (bits & 8) != 0}}});
  };
  for (int bits = 0; bits < 16; ++bits) add(bits % 3 == 0 ? f64 : f32, {}, 3, 2, bits);
  add(f32, {2, 3}, 4, 1, 3);
  add(f32, {12, 4}, 2, 12, 3);
  add(f64, {2}, 1, 4, 6);
  add(f32, {}, 3, 0, 3);
  add(f32, {2, 0}, 3, 2, 1);
  add(f32, {}, 24, 150, 3);
  add(f64, {}, 17, 140, 2);
  out.push_back(std::move(row));
}

}  // namespace

void add_linalg_rows(std::vector<Row>& out) {
  const std::vector<Type> square = {{f32, {4, 4}}, {f64, {3, 3}},       {f32, {2, 3, 3}},
                                    {f64, {1, 1}}, {f32, {2, 0, 3, 3}}, {f32, {12, 4, 2, 2}},
                                    {f32, {0, 0}}, {f64, {2, 2, 2, 2}}, {f32, {17, 17}}};
  std::vector<Type> all = square;
  for (const Type& type : {Type{f32, {4, 3}}, Type{f64, {3, 4}}, Type{f32, {2, 5, 2}}, Type{f64, {2, 2, 5}},
                           Type{f32, {3, 1}}, Type{f64, {1, 3}}})
    all.push_back(type);
  out.push_back({&cholesky_op, each_matrix(cholesky_of), matrix_samples(square)});
  add_triangular_solve(out);
  out.push_back({&lu_op, each_matrix(lu_of), matrix_samples(all)});
  Row qr{&qr_op, each_matrix(qr_of), matrix_samples(all, {{"full_matrices", false}})};
  for (Sample& sample : matrix_samples({{f32, {4, 3}}, {f64, {3, 4}}, {f64, {2, 3, 3}}}, {{"full_matrices", true}})) {
    const Shape& shape = sample.in[0].type.shape;
    sample.smooth = shape[shape.size() - 2] <= shape.back();
    qr.samples.push_back(sample);
  }
  out.push_back(std::move(qr));
  out.push_back({&eigh_op, each_matrix(eigh_of), matrix_samples(square)});
  Row svd{&svd_op, each_matrix(svd_of), matrix_samples(all, {{"full_matrices", false}, {"compute_uv", true}})};
  for (const Sample& sample : matrix_samples({{f32, {4, 3}}, {f64, {2, 3, 3}}, {f32, {2, 4}}},
                                             {{"full_matrices", false}, {"compute_uv", false}}))
    svd.samples.push_back(sample);
  for (Sample& sample : matrix_samples({{f32, {4, 3}}, {f64, {3, 4}}, {f32, {2, 3, 3}}},
                                       {{"full_matrices", true}, {"compute_uv", true}})) {
    const Shape& shape = sample.in[0].type.shape;
    sample.smooth = shape[shape.size() - 2] == shape.back();
    svd.samples.push_back(sample);
  }
  out.push_back(std::move(svd));
}

}  // namespace lockstep
