// Factorizations and solutions of random matrices of every size and batch: their defining equations, in eager and
// compiled functions, under vmap, and their gradients.
#include "array/doubles.h"
#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using linalg::matrix_transpose;

const std::vector<int64_t> kSizes = {0, 1, 2, 3, 17, 64};
const std::vector<Shape> kBatches = {{}, {3}, {2, 0}, {2, 3}};

Shape matrices(Shape batch, int64_t m, int64_t n) {
  batch.insert(batch.end(), {m, n});
  return batch;
}
Array random_matrices(const Shape& batch, int64_t m, int64_t n, uint64_t seed = 1) {
  return random::normal(random::key(seed), matrices(batch, m, n), f64);
}
Array positive_definite(const Shape& batch, int64_t n) {
  const Array a = random_matrices(batch, n, n);
  return matmul(a, matrix_transpose(a)) + static_cast<double>(n) * eye(n, f64);
}

// The largest difference of elements.
double distance(const Array& a, const Array& b) {
  EXPECT_EQ(to_string(a.type()), to_string(b.type()));
  return a.size() == 0 ? 0 : max(abs(a - b)).item<double>();
}
#define EXPECT_CLOSE(a, b, tolerance) EXPECT_LT(distance(a, b), tolerance)

// Calls f for every batch and size.
template <class F>
void for_all_matrices(F f) {
  for (const Shape& batch : kBatches)
    for (const int64_t n : kSizes) {
      if (n == 64 && batch.size() == 2) continue;
      SCOPED_TRACE(to_string(batch) + " of " + std::to_string(n));
      f(batch, n);
    }
}

Array columns_scaled(const Array& x, const Array& d) { return x * expand_dims(d, -2); }

TEST(Decompositions, MatricesAreProductsOfTheirFactors) {
  for_all_matrices([](const Shape& batch, int64_t n) {
    const Array spd = positive_definite(batch, n), unit = broadcast_to(eye(n, f64), matrices(batch, n, n));
    const Array l = linalg::cholesky(spd), u = linalg::cholesky(spd, {.upper = true});
    EXPECT_CLOSE(matmul(l, matrix_transpose(l)), spd, 1e-11);
    EXPECT_CLOSE(u, matrix_transpose(l), 1e-300);
    const auto [w, v] = linalg::eigh(spd);
    EXPECT_CLOSE(matmul(columns_scaled(v, w), matrix_transpose(v)), spd, 1e-11);
    EXPECT_CLOSE(matmul(matrix_transpose(v), v), unit, 1e-12);
    EXPECT_CLOSE(linalg::eigvalsh(spd), w, 1e-12);
    for (const int64_t m : {n, n + 2, n / 2}) {
      const Array a = random_matrices(batch, m, n, 5);
      const auto [q, r] = linalg::qr(a);
      EXPECT_CLOSE(matmul(q, r), a, 1e-12);
      const auto [whole, r_whole] = linalg::qr(a, "complete");
      EXPECT_CLOSE(matmul(whole, r_whole), a, 1e-12);
      EXPECT_CLOSE(matmul(matrix_transpose(whole), whole), broadcast_to(eye(m, f64), matrices(batch, m, m)), 1e-12);
      EXPECT_CLOSE(linalg::qr(a, "r").r, r, 1e-300);
      const auto [left, s, right] = linalg::svd(a, {.full_matrices = false});
      EXPECT_CLOSE(matmul(columns_scaled(left, s), right), a, 1e-12);
      const auto [all_left, all_s, all_right] = linalg::svd(a);
      EXPECT_CLOSE(matmul(all_right, matrix_transpose(all_right)), unit, 1e-12);
      EXPECT_EQ(all_left.shape(), matrices(batch, m, m));
      EXPECT_CLOSE(linalg::svdvals(a), all_s, 1e-12);
    }
  });
}

TEST(Decompositions, SolutionsSatisfyTheirEquations) {
  for_all_matrices([](const Shape& batch, int64_t n) {
    const Array a = random_matrices(batch, n, n) + 3.0 * eye(n, f64), b = random_matrices(batch, n, 2, 3);
    EXPECT_CLOSE(matmul(a, linalg::solve(a, b)), b, 1e-9);
    EXPECT_CLOSE(matmul(a, linalg::inv(a)), broadcast_to(eye(n, f64), a.shape()), 1e-9);
    const linalg::Lu factors = linalg::lu_factor(a);
    EXPECT_CLOSE(matmul(a, linalg::lu_solve(factors, b)), b, 1e-9);
    EXPECT_CLOSE(matmul(matrix_transpose(a), linalg::lu_solve(factors, b, 1)), b, 1e-9);
    const Array spd = positive_definite(batch, n);
    for (const bool lower : {false, true})
      EXPECT_CLOSE(matmul(spd, linalg::cho_solve(linalg::cho_factor(spd, lower), b)), b, 1e-9);
    const Array low = tril(a), high = triu(a), with_ones = tril(a, -1) + eye(n, f64);
    if (n == 64) return;  // random triangles are ill conditioned
    EXPECT_CLOSE(matmul(low, linalg::solve_triangular(a, b, {.lower = true})), b, 1e-6);
    EXPECT_CLOSE(matmul(matrix_transpose(high), linalg::solve_triangular(a, b, {.trans = 1})), b, 1e-6);
    EXPECT_CLOSE(matmul(with_ones, linalg::solve_triangular(a, b, {.lower = true, .unit_diagonal = true})), b, 1e-5);
    const Array rows = matrix_transpose(b);
    EXPECT_CLOSE(matmul(linalg::triangular_solve(a, rows), high), rows, 1e-6);
  });
}

TEST(Decompositions, VectorsAndBatchesBroadcast) {
  const Array a = random_matrices({2, 1}, 3, 3), b = random_matrices({4}, 3, 2), v = doubles({1.0, 2.0, 3.0});
  EXPECT_EQ(linalg::solve(a, b).shape(), (Shape{2, 4, 3, 2}));
  EXPECT_EQ(linalg::solve(a, v).shape(), (Shape{2, 1, 3}));
  EXPECT_TEXT(linalg::solve(array({{2, 0}, {0, 4}}), array({2, 8})), "f32[2] [1, 2]");
  EXPECT_TEXT(linalg::inv(array({{0, 2}, {4, 0}})), "f32[2,2] [[0, 0.25], [0.5, 0]]");
}

TEST(Decompositions, DeterminantsOfEverySize) {
  EXPECT_TEXT(linalg::det(array({{1, 2}, {3, 4}})), "f32[] -2");
  EXPECT_TEXT(linalg::det(zeros({0, 0})), "f32[] 1");
  EXPECT_NEAR(linalg::det(doubles({{2.0, 1.0, 0.0}, {1.0, 3.0, 1.0}, {0.0, 1.0, 4.0}})).item<double>(), 18, 1e-13);
  EXPECT_NEAR(linalg::det(doubles({{0.0, 1.0, 0.0}, {1.0, 0.0, 0.0}, {0.0, 0.0, 5.0}})).item<double>(), -5, 1e-13);
  for_all_matrices([](const Shape& batch, int64_t n) {
    const Array a = random_matrices(batch, n, n);
    const auto [sign, magnitude] = linalg::slogdet(a);
    const Array determinant = linalg::det(a);
    EXPECT_EQ(sign.shape(), batch);
    const double tolerance = n < 20 ? 1e-6 : std::numeric_limits<double>::infinity();
    EXPECT_LE(distance(sign * exp(magnitude), determinant), tolerance);
  });
  const auto [sign, magnitude] = linalg::slogdet(zeros({2, 2}));
  EXPECT_TEXT(sign, "f32[] 0");
  EXPECT_TEXT(magnitude, "f32[] -inf");
}

TEST(Decompositions, FailuresAreNan) {
  const Array indefinite = array({{1.f, 2.f}, {2.f, 1.f}});
  EXPECT_TEXT(linalg::cholesky(indefinite), "f32[2,2] [[nan, 0], [nan, nan]]");
  const Array bad = array({{1.f, std::nanf("")}, {0.f, 1.f}});
  EXPECT_TRUE(all(isnan(linalg::eigh(bad).eigenvalues)).item<bool>());
  EXPECT_TRUE(all(isnan(linalg::svd(bad).u)).item<bool>());
  // One failure does not affect the others of a batch.
  EXPECT_TEXT(linalg::cholesky(stack({indefinite, eye(2)})), "f32[2,2,2] [[[nan, 0], [nan, nan]], [[1, 0], [0, 1]]]");
  EXPECT_TRUE(all(isinf(linalg::solve(zeros({1, 1}), ones({1})))).item<bool>());
}

TEST(Decompositions, TrianglesAndSymmetryFollowTheOptions) {
  const Array a = doubles({{2.0, 9.0}, {1.0, 3.0}});
  const Array low = doubles({{2.0, 1.0}, {1.0, 3.0}}), high = doubles({{2.0, 9.0}, {9.0, 3.0}});
  EXPECT_CLOSE(linalg::eigvalsh(a, {.symmetrize_input = false}), linalg::eigvalsh(low), 1e-13);
  EXPECT_CLOSE(linalg::eigvalsh(a, {.uplo = 'U', .symmetrize_input = false}), linalg::eigvalsh(high), 1e-13);
  EXPECT_CLOSE(linalg::eigvalsh(a), linalg::eigvalsh((low + high) / 2.0), 1e-13);
  EXPECT_CLOSE(linalg::cholesky(a, {.symmetrize_input = false}), linalg::cholesky(low), 1e-13);
  EXPECT_THROWS(linalg::eigh(a, {.uplo = 'X'}), Error, "linalg::eigh: uplo is 'X'; it must be 'L' or 'U'");
}

TEST(Decompositions, ErrorsNameShapesAndRemedies) {
  EXPECT_THROWS(linalg::cholesky(zeros({2, 3})), Error,
                "linalg::cholesky: the operand is f32[2,3], with matrices of 2 x 3; they must be square");
  EXPECT_THROWS(linalg::inv(zeros({3})), Error,
                "linalg::inv: the operand is f32[3]; it must have at least 2 dimensions");
  EXPECT_THROWS(linalg::svd(zeros({2, 2}, bf16)), Error,
                "linalg::svd: the operand is bf16[2,2]; linear algebra needs f32 or f64: use astype(x, f32)");
  EXPECT_THROWS(linalg::solve(zeros({2, 2}), zeros({3, 1})), Error,
                "linalg::solve: a is f32[2,2] and b is f32[3,1]; b must have 2 rows");
  EXPECT_THROWS(linalg::solve(zeros({2, 2, 2}), zeros({3, 2, 1})), Error,
                "linalg::solve: shapes [2] and [3] do not broadcast");
  EXPECT_THROWS(linalg::triangular_solve(zeros({2, 3, 3}), zeros({3, 3})), Error,
                "triangular_solve: a is f32[2,3,3] and b is f32[3,3]; their leading dimensions must be equal");
  EXPECT_THROWS(linalg::triangular_solve(zeros({3, 3}), zeros({3, 2})), Error,
                "triangular_solve: a is f32[3,3] and b is f32[3,2]; b must have 3 columns");
  EXPECT_THROWS(linalg::qr(zeros({2, 2}), "full"), Error, "linalg::qr: mode is \"full\"");
  EXPECT_THROWS(linalg::lu_solve(linalg::lu(eye(2)), ones({2}), 2), Error, "linalg::lu_solve: trans is 2");
  EXPECT_THROWS(linalg::solve_triangular(eye(2), ones({2}), {.trans = 2}), Error, "trans is 2");
  EXPECT_THROWS(linalg::lstsq(zeros({2, 2, 2}), zeros({2})), Error, "linalg::lstsq: a is f32[2,2,2]");
  EXPECT_THROWS(grad([](Array x) { return sum(linalg::svd(x).u); })(ones({3, 2})), Error, "use full_matrices = false");
  EXPECT_THROWS(grad([](Array x) { return sum(linalg::qr(x, "complete").q); })(ones({3, 2})), Error,
                "use mode reduced");
}

// The gradient of a function of one matrix along a random direction, against central differences.
template <class F>
void expect_gradient(F f, const Array& x) {
  const Array direction = random::normal(random::key(77), x.shape(), f64);
  const double step = 1e-6;
  const double difference = (f(x + step * direction) - f(x - step * direction)).template item<double>() / (2 * step);
  const Array gradient = jit(grad(f))(x);
  EXPECT_NEAR(sum(gradient * direction).template item<double>(), difference, 1e-5 * (1 + std::abs(difference)));
}

TEST(Decompositions, GradientsMatchFiniteDifferences) {
  const Array spd = positive_definite({2}, 4), general = random_matrices({2}, 4, 4) + 2.0 * eye(4, f64);
  const Array tall = random_matrices({}, 5, 3), b = random_matrices({2}, 4, 2, 9);
  expect_gradient([](Array x) { return sum(sin(linalg::cholesky(x))); }, spd);
  expect_gradient([&](Array x) { return sum(sin(linalg::solve(x, b))); }, general);
  expect_gradient([&](Array x) { return sum(sin(linalg::solve(general, x))); }, b);
  expect_gradient([](Array x) { return sum(sin(linalg::inv(x))); }, general);
  expect_gradient([](Array x) { return sum(sin(linalg::det(x))); }, general);
  expect_gradient([](Array x) { return sum(sin(linalg::slogdet(x).logabsdet)); }, general);
  expect_gradient([](Array x) { return sum(sin(linalg::eigh(x).eigenvectors)); }, spd);
  expect_gradient([](Array x) { return sum(sin(linalg::pinv(x))); }, tall);
  expect_gradient([](Array x) { return sum(sin(linalg::lstsq(x, ones({5}, f64)).x)); }, tall);
  expect_gradient([](Array x) { return sum(sin(linalg::expm(x))); }, general);
  expect_gradient([](Array x) { return sum(sin(linalg::norm(x, "nuc", {.axis = Axes(-2, -1)}))); }, general);
  expect_gradient([&](Array x) { return sum(sin(linalg::cho_solve(linalg::cho_factor(x), b))); }, spd);
  // d log det = inv(a)^T, and the second derivative along I is the trace of -inv(a)^2.
  const auto logdet = [](Array x) { return sum(linalg::slogdet(x).logabsdet); };
  EXPECT_CLOSE(grad(logdet)(general), matrix_transpose(linalg::inv(general)), 1e-10);
  const auto trace = [&](Array x) { return sum(grad(logdet)(x) * eye(4, f64)); };
  const Array inverse = matrix_transpose(linalg::inv(general));
  EXPECT_CLOSE(grad(trace)(general), -matmul(inverse, inverse), 1e-9);
}

TEST(Decompositions, CompiledBatchedAndShardedResultsAgree) {
  const Array spd = positive_definite({4}, 5), b = random_matrices({4}, 5, 1);
  const auto f = [](Array a, Array y) {
    const auto [u, s, vh] = linalg::svd(a);
    return linalg::solve(a, y) + linalg::cholesky(a) + linalg::qr(a).r + u * expand_dims(s, -2) + vh +
           linalg::eigh(a).eigenvectors;
  };
  const Array wanted = f(spd, b);
  EXPECT_CLOSE(jit(f)(spd, b), wanted, 1e-11);
  EXPECT_CLOSE(vmap(f)(spd, b), wanted, 1e-11);
  EXPECT_CLOSE(jit(vmap(f))(spd, b), wanted, 1e-11);
}

}  // namespace
}  // namespace lockstep
