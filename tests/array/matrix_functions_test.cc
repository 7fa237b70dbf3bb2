// Norms, powers, exponentials, products and constructions of matrices.
#include "array/doubles.h"
#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

Array m22() { return doubles({{1.0, 2.0}, {3.0, 4.0}}); }

double number(const Array& x) { return x.item<double>(); }

TEST(MatrixFunctions, NormsOfVectors) {
  const Array v = doubles({3.0, -4.0, 0.0});
  EXPECT_NEAR(number(linalg::norm(v)), 5, 1e-14);
  EXPECT_NEAR(number(linalg::norm(v, 2)), 5, 1e-14);
  EXPECT_EQ(number(linalg::norm(v, 1)), 7);
  EXPECT_EQ(number(linalg::norm(v, kUnbounded)), 4);
  EXPECT_EQ(number(linalg::norm(v, -kUnbounded)), 0);
  EXPECT_EQ(number(linalg::norm(v, 0)), 2);
  EXPECT_NEAR(number(linalg::norm(v, 3)), std::cbrt(91), 1e-13);
  EXPECT_TEXT(linalg::norm(array({{3, 4}, {6, 8}}), {}, {.axis = 1}), "f32[2] [5, 10]");
  EXPECT_TEXT(linalg::norm(array({{3, 4}, {6, 8}}), 1, {.axis = 0, .keepdims = true}), "f32[1,2] [[9, 12]]");
  EXPECT_THROWS(linalg::norm(v, "fro"), Error, "linalg::norm: order \"fro\" is not defined for vectors");
}

TEST(MatrixFunctions, NormsOfMatrices) {
  const Array a = m22();
  EXPECT_NEAR(number(linalg::norm(a)), std::sqrt(30), 1e-14);
  EXPECT_NEAR(number(linalg::norm(a, "fro")), std::sqrt(30), 1e-14);
  EXPECT_NEAR(number(linalg::norm(a, 2)), 5.464985704219043, 1e-13);
  EXPECT_NEAR(number(linalg::norm(a, -2)), 0.365966190626258, 1e-13);
  EXPECT_NEAR(number(linalg::norm(a, "nuc")), 5.464985704219043 + 0.365966190626258, 1e-13);
  EXPECT_EQ(number(linalg::norm(a, 1)), 6);
  EXPECT_EQ(number(linalg::norm(a, -1)), 4);
  EXPECT_EQ(number(linalg::norm(a, kUnbounded)), 7);
  EXPECT_EQ(number(linalg::norm(a, -kUnbounded)), 3);
  EXPECT_EQ(number(linalg::norm(a, 1, {.axis = Axes(1, 0)})), 7);
  EXPECT_EQ(linalg::norm(zeros({2, 3, 4}), "fro", {.axis = Axes(0, -1), .keepdims = true}).shape(), (Shape{1, 3, 1}));
  EXPECT_THROWS(linalg::norm(a, 3), Error, "linalg::norm: order 3 is not defined for matrices");
  EXPECT_THROWS(linalg::norm(zeros({2, 2, 2}), 1), Error, "linalg::norm: 3 axes of f32[2,2,2]");
  EXPECT_NEAR(number(linalg::cond(a)), 5.464985704219043 / 0.365966190626258, 1e-11);
  EXPECT_NEAR(number(linalg::cond(a, -2)), 0.365966190626258 / 5.464985704219043, 1e-13);
  EXPECT_NEAR(number(linalg::cond(a, 1)), 21, 1e-12);
}

TEST(MatrixFunctions, PowersAndExponentials) {
  EXPECT_ELEMENTS(linalg::matrix_power(m22(), 3), {37, 54, 81, 118}, 1e-12);
  EXPECT_ELEMENTS(linalg::matrix_power(m22(), 0), {1, 0, 0, 1}, 0);
  EXPECT_ELEMENTS(linalg::matrix_power(m22(), -1), {-2, 1, 1.5, -0.5}, 1e-13);
  // A rotation, a nilpotent matrix, and a matrix that takes squarings.
  EXPECT_ELEMENTS(linalg::expm(doubles({{0.0, -1.0}, {1.0, 0.0}})),
                  {std::cos(1.0), -std::sin(1.0), std::sin(1.0), std::cos(1.0)}, 1e-15);
  EXPECT_ELEMENTS(linalg::expm(doubles({{0.0, 5.0}, {0.0, 0.0}})), {1, 5, 0, 1}, 1e-14);
  EXPECT_NEAR(linalg::expm(doubles({{30.0, 0.0}, {0.0, -30.0}})).to_vector<double>()[0] / std::exp(30.0), 1, 1e-12);
}

TEST(MatrixFunctions, LeastSquaresAndRanks) {
  const Array a = doubles({{1.0, 0.0}, {1.0, 1.0}, {1.0, 2.0}}), b = doubles({1.0, 3.0, 5.5});
  const auto [x, residuals, rank, s] = linalg::lstsq(a, b);
  EXPECT_ELEMENTS(x, {2.75 / 3, 2.25}, 1e-13);
  EXPECT_NEAR(residuals.to_vector<double>()[0], 1.0 / 24, 1e-13);
  EXPECT_EQ(rank.item<int>(), 2);
  EXPECT_EQ(s.size(), 2);
  const Array singular = doubles({{1.0, 2.0}, {2.0, 4.0}});
  EXPECT_EQ(linalg::matrix_rank(singular).item<int>(), 1);
  EXPECT_EQ(linalg::matrix_rank(doubles({0.0, 1.0})).item<int>(), 1);
  EXPECT_ELEMENTS(linalg::pinv(singular), {0.04, 0.08, 0.08, 0.16}, 1e-14);
  EXPECT_ELEMENTS(linalg::lstsq(singular, doubles({5.0, 10.0})).x, {1, 2}, 1e-13);
  EXPECT_TEXT(linalg::matrix_rank(zeros({2, 3, 0})), "i32[2] [0, 0]");
}

TEST(MatrixFunctions, ProductsOfChains) {
  const Array a = random::normal(random::key(1), {2, 30}), b = random::normal(random::key(2), {30, 3});
  const Array c = random::normal(random::key(3), {3, 40}), v = random::normal(random::key(4), {40});
  const Array wanted = matmul(matmul(matmul(a, b), c), v), got = linalg::multi_dot({a, b, c, v});
  EXPECT_ELEMENTS(got, wanted.to_vector<double>(), 1e-3);
  EXPECT_EQ(linalg::multi_dot({array({1, 2}), array({3, 4})}).item<int>(), 11);
  EXPECT_THROWS(linalg::multi_dot({a}), Error, "linalg::multi_dot: got 1 arrays");
  EXPECT_THROWS(linalg::multi_dot({a, v, b}), Error, "linalg::multi_dot: array 1 is f32[40]");
  EXPECT_TEXT(linalg::vecdot(array({{1, 2}, {3, 4}}), array({1, 10})), "i32[2] [21, 43]");
  EXPECT_TEXT(linalg::outer(array({1, 2}), array({3, 4})), "i32[2,2] [[3, 4], [6, 8]]");
  EXPECT_THROWS(linalg::outer(a, a), Error, "they must be vectors");
}

TEST(MatrixFunctions, Constructions) {
  EXPECT_TEXT(linalg::block_diag({array({{1, 2}}), 3, array({4, 5})}),
              "i32[3,5] [[1, 2, 0, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 4, 5]]");
  EXPECT_TEXT(linalg::toeplitz(array({1, 2, 3}), array({9, 4, 5, 6})),
              "i32[3,4] [[1, 4, 5, 6], [2, 1, 4, 5], [3, 2, 1, 4]]");
  EXPECT_TEXT(linalg::toeplitz(array({1, 2})), "i32[2,2] [[1, 2], [2, 1]]");
  const Array a = reshape(random::normal(random::key(5), {6, 6}, f64), {2, 3, 6});
  const Array inverse = linalg::tensorinv(a);
  EXPECT_EQ(inverse.shape(), (Shape{6, 2, 3}));
  EXPECT_ELEMENTS(tensordot(inverse, a, 2), eye(6, f64).to_vector<double>(), 1e-11);
  const Array b = random::normal(random::key(6), {2, 3}, f64);
  EXPECT_ELEMENTS(tensordot(a, linalg::tensorsolve(a, b), 1), b.to_vector<double>(), 1e-12);
  EXPECT_THROWS(linalg::tensorinv(zeros({2, 3}), 1), Error, "is a map from 3 to 2 elements");
  EXPECT_THROWS(linalg::tensorsolve(zeros({2, 3}), zeros({2})), Error, "linalg::tensorsolve: a is f32[2,3]");
  EXPECT_THROWS(linalg::matrix_transpose(zeros({3})), Error, "it must have at least 2 dimensions");
}

}  // namespace
}  // namespace lockstep
