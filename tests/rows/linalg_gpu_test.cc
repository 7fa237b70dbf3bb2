// Factorizations on the GPU for sizes that the samples of linalg_rows.cc do not reach: their defining equations, the
// conventions of the CPU (signs, pivots, NaN for what cannot be factored), and the same bits from run to run.
#ifdef LOCKSTEP_WITH_CUDA
#include <cmath>
#include <limits>

#include "rows/matrix.h"
#include "rows/on_gpu.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

class LinalgOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }
};

// One matrix of a batch, in double.
using Matrix = DenseMatrix<double>;

Matrix matrix_of(const HostArray& x, int64_t index) {
  Matrix out(x.type.shape[x.type.shape.size() - 2], x.type.shape.back());
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] = x.get(index * out.rows * out.columns + static_cast<int64_t>(i));
  return out;
}

Matrix columns_scaled(Matrix a, const HostArray& s, int64_t index) {
  const int64_t k = s.type.shape.back();
  Matrix out(a.rows, k);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < k; ++j) out(i, j) = a(i, j) * s.get(index * k + j);
  return out;
}
// The first columns, or rows.
Matrix first_columns(const Matrix& a, int64_t n) {
  Matrix out(a.rows, n);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < n; ++j) out(i, j) = a(i, j);
  return out;
}

double unit(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::epsilon() : double{std::numeric_limits<float>::epsilon()};
}
void expect_near(const Matrix& got, const Matrix& wanted, DType dtype, const char* what) {
  ASSERT_EQ(got.data.size(), wanted.data.size()) << what;
  const auto n = static_cast<double>(std::max(got.rows, got.columns));
  const double tolerance = unit(dtype) * (100 + 10 * n) * std::max(1.0, wanted.largest());
  double worst = 0;
  for (size_t i = 0; i < got.data.size(); ++i) {
    const double error = std::abs(got.data[i] - wanted.data[i]);
    if (!(error <= worst)) worst = error;
  }
  EXPECT_LE(worst, tolerance) << what;
}

struct Size {
  int64_t n, batch;
};
const std::vector<Size> kSizes = {{0, 3},  {1, 1},  {1, 3},  {2, 0},   {2, 30},  {5, 1},   {5, 3},
                                  {32, 1}, {32, 3}, {33, 1}, {33, 30}, {100, 1}, {100, 3}, {513, 1}};

// Calls f(dtype, rows, columns, batch) for square matrices, and for tall and wide ones if `all`.
template <class F>
void for_all_sizes(bool all, F f) {
  for (const DType dtype : {f32, f64})
    for (const Size& size : kSizes)
      for (const int64_t less : {int64_t{0}, size.n / 3}) {
        if (less == 0 || all) {
          SCOPED_TRACE(fmt::format("{} {} x [{}, {}]", name(dtype), size.batch, size.n, size.n - less));
          f(dtype, size.n, size.n - less, size.batch);
        }
        if (less == 0 || !all) continue;
        SCOPED_TRACE(fmt::format("{} {} x [{}, {}]", name(dtype), size.batch, size.n - less, size.n));
        f(dtype, size.n - less, size.n, size.batch);
      }
}

HostArray random_matrices(DType dtype, int64_t m, int64_t n, int64_t batch) {
  return make_inputs({{{{dtype, {batch, m, n}}}}}, static_cast<uint32_t>(m + 3 * n))[0];
}
// Symmetric and positive definite.
HostArray dominant_matrices(DType dtype, int64_t n, int64_t batch) {
  HostArray a = random_matrices(dtype, n, n, batch);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        const int64_t at = b * n * n + i * n + j;
        a.set(at, a.get(at) / static_cast<double>(n) + (i == j ? 4 : 0));
        a.set(b * n * n + j * n + i, a.get(at));
      }
  return a;
}

// The results of a row; a second run gives the same bits.
HostArrays run(const Op& op, const HostArrays& in, const Attrs& attrs = {}) {
  Sample sample;
  for (const HostArray& x : in) sample.in.push_back({x.type});
  sample.attrs = attrs;
  const Program p = program_of(op, sample);
  HostArrays out = planned_on_gpu(p, in), again = planned_on_gpu(p, in);
  for (size_t k = 0; k < out.size(); ++k) EXPECT_TRUE(same_bits(out[k], again[k])) << "result " << k;
  return out;
}

// Eigenvectors and singular vectors: the first element near the largest magnitude is positive.
void expect_signs(const Matrix& columns) {
  for (int64_t j = 0; j < columns.columns; ++j) {
    double largest = 0;
    for (int64_t i = 0; i < columns.rows; ++i) largest = std::max(largest, std::abs(columns(i, j)));
    for (int64_t i = 0; i < columns.rows; ++i) {
      const double size = std::abs(columns(i, j)) / largest;
      if (size < 0.8999) continue;
      EXPECT_TRUE(columns(i, j) > 0 || size < 0.9001) << "vector " << j;  // near 0.9 either sign may be chosen
      break;
    }
  }
}
void expect_orthonormal_columns(const Matrix& q, DType dtype) {
  expect_near(product(turned(q), q), Matrix::identity(q.columns), dtype, "Q^T Q");
}

TEST_F(LinalgOnGpu, CholeskyMatches) {
  for_all_sizes(false, [](DType dtype, int64_t n, int64_t, int64_t batch) {
    const HostArray a = dominant_matrices(dtype, n, batch), l = run(cholesky_op, {a})[0];
    for (int64_t b = 0; b < batch; ++b) {
      const Matrix factor = matrix_of(l, b);
      expect_near(product(factor, turned(factor)), matrix_of(a, b), dtype, "L L^T");
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = i + 1; j < n; ++j) ASSERT_EQ(factor(i, j), 0);
    }
  });
}

TEST_F(LinalgOnGpu, TriangularSolveMatchesInAllForms) {
  int bits = 0;
  for_all_sizes(true, [&](DType dtype, int64_t m, int64_t n, int64_t batch) {
    for (int form = 0; form < 3; ++form, ++bits) {
      const bool left = (bits & 1) != 0;
      const HostArray a = dominant_matrices(dtype, left ? m : n, batch), b = random_matrices(dtype, m, n, batch);
      const Attrs attrs = {{"left", left},
                           {"lower", (bits & 2) != 0},
                           {"transpose", (bits & 4) != 0},
                           {"unit_diagonal", (bits & 8) != 0}};
      const HostArray got = run(triangular_solve_op, {a, b}, attrs)[0];
      const HostArray wanted = eager_op(triangular_solve_op, attrs, {a, b})[0];
      for (int64_t i = 0; i < batch; ++i) expect_near(matrix_of(got, i), matrix_of(wanted, i), dtype, "X");
    }
  });
}

TEST_F(LinalgOnGpu, LuMatches) {
  for_all_sizes(true, [](DType dtype, int64_t m, int64_t n, int64_t batch) {
    const HostArray a = random_matrices(dtype, m, n, batch);
    const HostArrays out = run(lu_op, {a});
    const int64_t k = std::min(m, n);
    for (int64_t b = 0; b < batch; ++b) {
      const Matrix packed = matrix_of(out[0], b), whole = matrix_of(a, b);
      Matrix l(m, k), u(k, n), permuted(m, n);
      std::vector<int64_t> rows = counting(0, m);
      for (int64_t i = 0; i < k; ++i) {
        const auto pivot = static_cast<size_t>(out[1].get(b * k + i));
        ASSERT_GE(static_cast<int64_t>(pivot), i);
        ASSERT_LT(static_cast<int64_t>(pivot), m);
        std::swap(rows[static_cast<size_t>(i)], rows[pivot]);
      }
      for (int64_t i = 0; i < m; ++i) {
        ASSERT_EQ(out[2].get(b * m + i), static_cast<double>(rows[static_cast<size_t>(i)]));
        for (int64_t j = 0; j < n; ++j) {
          permuted(i, j) = whole(rows[static_cast<size_t>(i)], j);
          if (j < i && j < k) l(i, j) = packed(i, j);
          if (i < k && j >= i) u(i, j) = packed(i, j);
        }
        if (i < k) l(i, i) = 1;
      }
      EXPECT_LE(l.largest(), 1.0001);
      expect_near(product(l, u), permuted, dtype, "L U");
    }
  });
}

TEST_F(LinalgOnGpu, QrMatches) {
  for_all_sizes(true, [](DType dtype, int64_t m, int64_t n, int64_t batch) {
    for (const bool full : {false, true}) {
      const Attrs attrs = {{"full_matrices", full}};
      const HostArray a = random_matrices(dtype, m, n, batch);
      const HostArrays out = run(qr_op, {a}, attrs), wanted = eager_op(qr_op, attrs, {a});
      for (int64_t b = 0; b < batch; ++b) {
        const Matrix q = matrix_of(out[0], b), r = matrix_of(out[1], b), on_cpu = matrix_of(wanted[1], b);
        expect_orthonormal_columns(q, dtype);
        expect_near(product(q, r), matrix_of(a, b), dtype, "Q R");
        for (int64_t i = 0; i < r.rows; ++i)
          for (int64_t j = 0; j < std::min(i, n); ++j) ASSERT_EQ(r(i, j), 0);
        for (int64_t i = 0; i < std::min(m, n) && std::max(m, n) <= 32; ++i)
          ASSERT_EQ(r(i, i) < 0, on_cpu(i, i) < 0) << "own kernels have the signs of LAPACK; row " << i;
      }
    }
  });
}

TEST_F(LinalgOnGpu, EighMatches) {
  for_all_sizes(false, [](DType dtype, int64_t n, int64_t, int64_t batch) {
    HostArray a = random_matrices(dtype, n, n, batch);
    const HostArrays out = run(eigh_op, {a}), wanted = eager_op(eigh_op, {}, {a});
    for (int64_t b = 0; b < batch; ++b) {
      Matrix symmetric = matrix_of(a, b), w(1, n), on_cpu(1, n);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < i; ++j) symmetric(j, i) = symmetric(i, j);
      for (int64_t i = 0; i < n; ++i) w(0, i) = out[0].get(b * n + i), on_cpu(0, i) = wanted[0].get(b * n + i);
      expect_near(w, on_cpu, dtype, "eigenvalues");
      const Matrix v = matrix_of(out[1], b);
      expect_orthonormal_columns(v, dtype);
      expect_near(product(columns_scaled(v, out[0], b), turned(v)), symmetric, dtype, "V W V^T");
      expect_signs(v);
    }
  });
}

TEST_F(LinalgOnGpu, SvdMatches) {
  for_all_sizes(true, [](DType dtype, int64_t m, int64_t n, int64_t batch) {
    const int64_t k = std::min(m, n);
    const HostArray a = random_matrices(dtype, m, n, batch);
    const HostArray wanted = eager_op(svd_op, {{"full_matrices", false}, {"compute_uv", false}}, {a})[0];
    const auto expect_values = [&](const HostArray& s, int64_t b) {
      Matrix got(1, k), on_cpu(1, k);
      for (int64_t i = 0; i < k; ++i) got(0, i) = s.get(b * k + i), on_cpu(0, i) = wanted.get(b * k + i);
      expect_near(got, on_cpu, dtype, "singular values");
    };
    const HostArray values = run(svd_op, {a}, {{"full_matrices", false}, {"compute_uv", false}})[0];
    for (int64_t b = 0; b < batch; ++b) expect_values(values, b);
    for (const bool full : {false, true}) {
      const HostArrays out = run(svd_op, {a}, {{"full_matrices", full}, {"compute_uv", true}});
      for (int64_t b = 0; b < batch; ++b) {
        const Matrix u = matrix_of(out[0], b), v = turned(matrix_of(out[2], b));
        expect_values(out[1], b);
        expect_orthonormal_columns(u, dtype);
        expect_orthonormal_columns(v, dtype);
        expect_near(product(columns_scaled(u, out[1], b), turned(first_columns(v, k))), matrix_of(a, b), dtype,
                    "U S Vh");
        expect_signs(u);
      }
    }
  });
}

// All matrices of a large batch are factored, as on the CPU.
TEST_F(LinalgOnGpu, BatchesOfAThousandMatrices) {
  const auto expect = [](const Op& op, const HostArrays& in, const Attrs& attrs = {}) {
    const HostArrays got = run(op, in, attrs), wanted = eager_op(op, attrs, in);
    SCOPED_TRACE(fmt::format("{} of {}", op.name, to_string(in[0].type)));
    for (size_t k = 0; k < got.size(); ++k) {
      if (is_inexact(got[k].type.dtype))
        expect_close(got[k], wanted[k]);
      else
        EXPECT_TRUE(same_bits(got[k], wanted[k]));
    }
  };
  for (const int64_t n : {2, 5, 32, 33}) {
    const HostArray spd = dominant_matrices(f64, n, 1000), a = random_matrices(f64, n, n, 1000);
    expect(cholesky_op, {spd});
    expect(triangular_solve_op, {spd, a},
           {{"left", true}, {"lower", true}, {"transpose", false}, {"unit_diagonal", false}});
    expect(lu_op, {spd});
    expect(qr_op, {spd}, {{"full_matrices", false}});
    expect(svd_op, {spd}, {{"full_matrices", false}, {"compute_uv", false}});
    const HostArrays vectors = run(eigh_op, {spd}), wanted = eager_op(eigh_op, {}, {spd});
    expect_close(vectors[0], wanted[0]);
  }
}

// Matrix 1 of three cannot be factored. The others are not affected.
TEST_F(LinalgOnGpu, FailuresAreThoseOfTheCpu) {
  const auto expect_same_nan = [](const Op& op, const HostArray& a, const Attrs& attrs) {
    const HostArrays got = run(op, {a}, attrs), wanted = eager_op(op, attrs, {a});
    for (size_t k = 0; k < got.size(); ++k)
      for (int64_t i = 0; i < got[k].size(); ++i)
        ASSERT_EQ(std::isnan(got[k].get(i)), std::isnan(wanted[k].get(i)))
            << op.name << " of " << to_string(a.type) << ", result " << k << ", element " << i;
  };
  for (const DType dtype : {f32, f64})
    for (const int64_t n : {1, 4, 33, 300})
      for (const double wrong : {-100.0, std::numeric_limits<double>::quiet_NaN()}) {
        HostArray a = dominant_matrices(dtype, n, 3);
        a.set(n * n + n * n / 2, wrong);
        a.set(2 * n * n - 1, wrong);
        expect_same_nan(cholesky_op, a, {});
        expect_same_nan(eigh_op, a, {});
        expect_same_nan(svd_op, a, {{"full_matrices", true}, {"compute_uv", true}});
        expect_same_nan(svd_op, a, {{"full_matrices", false}, {"compute_uv", false}});
      }
}

// A column of zeros gives a pivot of zero, and no NaN.
TEST_F(LinalgOnGpu, LuOfSingularMatricesIsFinite) {
  for (const int64_t n : {2, 5, 40, 300}) {
    HostArray a = random_matrices(f32, n, n, 2);
    for (int64_t i = 0; i < n; ++i) a.set(n * n + i * n, 0);
    const HostArray packed = run(lu_op, {a})[0];
    for (int64_t i = 0; i < packed.size(); ++i) ASSERT_TRUE(std::isfinite(packed.get(i))) << n << ", element " << i;
  }
}

}  // namespace
}  // namespace lockstep
#endif
