// Distributions are compared with their distribution functions (Kolmogorov and Smirnov) or by moments, for fixed keys.
#include "lockstep/distributions.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/matrices.h"
#include "lockstep/reduce.h"
#include "lockstep/statistics.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

constexpr int64_t kDraws = 4000;
Array a_key() { return random::key(17); }

// sqrt(n) times the largest distance exceeds 1.95 with probability 0.001.
void expect_distribution(const Array& x, const std::function<double(double)>& cdf) {
  std::vector<double> sorted = x.to_vector<double>();
  std::ranges::sort(sorted);
  const auto n = static_cast<double>(sorted.size());
  double distance = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double p = cdf(sorted[i]), rank = static_cast<double>(i);
    distance = std::max({distance, std::abs(p - rank / n), std::abs(p - (rank + 1) / n)});
  }
  EXPECT_LT(distance * std::sqrt(n), 1.95);
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Six standard errors of the mean, and the variance within 15 %.
void expect_moments(const Array& x, double mean_of, double variance) {
  const Array wide = astype(x, f64);
  const double n = static_cast<double>(x.size());
  EXPECT_NEAR(mean(wide).item<double>(), mean_of, 6 * std::sqrt(variance / n));
  EXPECT_NEAR(var(wide).item<double>() / variance, 1, 0.15);
}

TEST(Distributions, OfTransformedUniformNumbers) {
  const Shape n{kDraws};
  expect_distribution(random::exponential(a_key(), n), [](double x) { return -std::expm1(-x); });
  expect_distribution(random::laplace(a_key(), n),
                      [](double x) { return x < 0 ? 0.5 * std::exp(x) : 1 - 0.5 * std::exp(-x); });
  expect_distribution(random::cauchy(a_key(), n), [](double x) { return 0.5 + std::atan(x) / M_PI; });
  expect_distribution(random::logistic(a_key(), n), [](double x) { return 1 / (1 + std::exp(-x)); });
  expect_distribution(random::pareto(a_key(), 3.0f, n), [](double x) { return 1 - std::pow(x, -3); });
  expect_distribution(random::rayleigh(a_key(), 2.0f, n), [](double x) { return -std::expm1(-x * x / 8); });
  expect_distribution(random::weibull_min(a_key(), 2.0f, 1.5f, n),
                      [](double x) { return -std::expm1(-std::pow(x / 2, 1.5)); });
  expect_distribution(random::triangular(a_key(), 0.0f, 1.0f, 4.0f, n),
                      [](double x) { return x < 1 ? x * x / 4 : 1 - (4 - x) * (4 - x) / 12; });
  expect_distribution(random::gumbel(a_key(), n), [](double x) { return std::exp(-std::exp(-x)); });
}

TEST(Distributions, OfTransformedNormalNumbers) {
  const Shape n{kDraws};
  expect_distribution(random::lognormal(a_key(), 0.5f, n), [](double x) { return normal_cdf(2 * std::log(x)); });
  expect_distribution(random::maxwell(a_key(), n), [](double x) {
    return std::erf(x / std::sqrt(2.0)) - std::sqrt(2 / M_PI) * x * std::exp(-x * x / 2);
  });
  expect_moments(random::double_sided_maxwell(a_key(), 1.0f, 2.0f, n), 1, 12);
  expect_distribution(random::wald(a_key(), 1.0f, n), [](double x) {
    const double r = 1 / std::sqrt(x);
    return normal_cdf(r * (x - 1)) + std::exp(2.0) * normal_cdf(-r * (x + 1));
  });
  expect_distribution(random::truncated_normal(a_key(), array({-1.0f}), array({2.0f}), n),
                      [](double x) { return (normal_cdf(x) - normal_cdf(-1)) / (normal_cdf(2) - normal_cdf(-1)); });
}

// Values of JAX for elementwise functions of the uniform numbers that random.json checks.
TEST(Distributions, FollowJaxElementByElement) {
  const Array key = random::key(3), u = random::uniform(key, {100});
  EXPECT_EQ(random::exponential(key, {100}).to_vector<float>(), (-log1p(-u)).to_vector<float>());
  EXPECT_EQ(random::pareto(key, 2.0f, {100}).to_vector<float>(),
            exp(random::exponential(key, {100}) / 2).to_vector<float>());
  EXPECT_EQ(random::rademacher(key, {100}).to_vector<int>(), (2 * astype(u < 0.5f, i32) - 1).to_vector<int>());
  EXPECT_EQ(random::geometric(key, 0.3f, {100}).to_vector<int>(),
            astype(floor(log(u) / std::log1p(-0.3f)) + 1, i32).to_vector<int>());
}

TEST(Gamma, HasItsDistribution) {
  const Shape n{kDraws};
  expect_distribution(random::gamma(a_key(), 1.0f, n), [](double x) { return -std::expm1(-x); });
  expect_distribution(random::gamma(a_key(), 3.0f, n), [](double x) { return 1 - std::exp(-x) * (1 + x + x * x / 2); });
  expect_distribution(random::gamma(a_key(), 0.5f, n), [](double x) { return std::erf(std::sqrt(x)); });
  expect_distribution(exp(random::loggamma(a_key(), 0.5f, n)), [](double x) { return std::erf(std::sqrt(x)); });
  const Array tiny = random::loggamma(a_key(), 1e-4f, {100});
  EXPECT_TRUE(static_cast<bool>(all(isfinite(tiny))));
  EXPECT_LT(min(tiny).item<float>(), -1000);
  expect_moments(random::gamma(a_key(), full({2, 1}, 7.0f), {2, 1000}, f64), 7, 7);
  EXPECT_EQ(random::gamma(a_key(), 2.0f, {0}).shape(), (Shape{0}));
  EXPECT_THROWS(random::gamma(a_key(), 2.0f, {2}, i32), Error, "random::gamma: dtype i32 is not floating");
}

TEST(Gamma, IsTheSameUnderJitAndVmap) {
  const Array keys = random::split(a_key(), 3);
  const auto draw = [](const Array& key) { return random::gamma(key, array({0.3f, 1.0f, 9.0f}), {3}); };
  const Array batched = vmap(draw)(keys);
  for (int i = 0; i < 3; ++i) {
    const auto one = draw(at(keys, i)).to_vector<double>();
    EXPECT_ELEMENTS(at(batched, i), one, 1e-4);
    EXPECT_ELEMENTS(jit(draw)(at(keys, i)), one, 1e-4);
  }
}

TEST(Distributions, MadeOfGamma) {
  const Shape n{kDraws};
  expect_distribution(random::beta(a_key(), 2.0f, 1.0f, n), [](double x) { return x * x; });
  expect_distribution(random::chisquare(a_key(), 2.0f, n), [](double x) { return -std::expm1(-x / 2); });
  expect_distribution(random::t(a_key(), 1.0f, n), [](double x) { return 0.5 + std::atan(x) / M_PI; });
  expect_distribution(random::f(a_key(), 2.0f, 2.0f, n), [](double x) { return x / (1 + x); });
  expect_distribution(random::generalized_normal(a_key(), 2, n), [](double x) { return normal_cdf(x * std::sqrt(2)); });
  const Array p = random::dirichlet(a_key(), array({1.0f, 2.0f, 5.0f}), {2000});
  EXPECT_EQ(p.shape(), (Shape{2000, 3}));
  EXPECT_ELEMENTS(mean(p, 0), {1.0 / 8, 2.0 / 8, 5.0 / 8}, 0.02);
  EXPECT_NEAR(max(abs(sum(p, 1) - 1)).item<float>(), 0, 1e-5);
  const Array points = random::ball(a_key(), 2, 2, n);
  expect_distribution(sum(points * points, 1), [](double x) { return x; });
}

TEST(Counts, HaveTheirMoments) {
  for (const float lam : {0.5f, 4.0f, 30.0f, 1000.0f})
    expect_moments(random::poisson(a_key(), lam, {kDraws}), lam, lam);
  EXPECT_TEXT(random::poisson(a_key(), 0.0f, {3}), "i32[3] [0, 0, 0]");
  expect_moments(random::poisson(a_key(), array({{3.0f}}), {1, 2000}, i64), 3, 3);
  for (const auto& [n, p] : std::vector<std::pair<float, float>>{{10, 0.3f}, {10, 0.8f}, {1000, 0.2f}, {100, 0.9f}})
    expect_moments(random::binomial(a_key(), n, p, {kDraws}), n * p, n * p * (1 - p));
  EXPECT_TEXT(random::binomial(a_key(), 5, array({0.0f, 1.0f}), {2}), "f32[2] [0, 5]");
  EXPECT_TEXT(isnan(random::binomial(a_key(), array({-1.0f, 3.0f}), 0.5f, {2})), "bool[2] [true, false]");
  expect_moments(random::geometric(a_key(), 0.25f, {kDraws}), 4, 12);
  const Array counts = random::multinomial(a_key(), full({500}, 20.0f), array({0.5f, 0.3f, 0.2f}));
  EXPECT_EQ(counts.shape(), (Shape{500, 3}));
  EXPECT_TRUE(static_cast<bool>(all(sum(counts, 1) == 20)));
  EXPECT_ELEMENTS(mean(counts, 0), {10, 6, 4}, 0.5);
  EXPECT_THROWS(random::poisson(a_key(), 1.0f, {2}, f32), Error, "random::poisson: dtype f32 is not an integer");
}

TEST(MultivariateNormal, HasItsCovariance) {
  const Array covariance = array({{2.0f, 0.5f}, {0.5f, 1.0f}}), at_mean = array({1.0f, -1.0f});
  const Array x = random::multivariate_normal(a_key(), at_mean, covariance, {20000});
  EXPECT_EQ(x.shape(), (Shape{20000, 2}));
  EXPECT_ELEMENTS(mean(x, 0), {1, -1}, 0.05);
  EXPECT_ELEMENTS(cov(x, CovarianceOptions{.rowvar = false}), {2, 0.5, 0.5, 1}, 0.08);
  EXPECT_EQ(random::multivariate_normal(a_key(), zeros({3, 2}), covariance).shape(), (Shape{3, 2}));
  EXPECT_THROWS(random::multivariate_normal(a_key(), zeros({3}), covariance), Error,
                "random::multivariate_normal: mean [3] and covariance [2, 2]");
}

TEST(Orthogonal, MatricesAreOrthogonal) {
  const Array q = random::orthogonal(a_key(), 5, {2});
  EXPECT_ELEMENTS(matmul(swapaxes(q, -1, -2), q), broadcast_to(eye(5), {2, 5, 5}).to_vector<double>(), 1e-5);
  const Array wide = random::orthogonal(a_key(), 2, {}, f32, 6);
  EXPECT_ELEMENTS(matmul(wide, transpose(wide)), {1, 0, 0, 1}, 1e-5);
}

TEST(Choice, DrawsWithAndWithoutReplacement) {
  const Array key = a_key(), p = array({0.1f, 0.0f, 0.6f, 0.3f});
  EXPECT_EQ(random::choice(key, 10, {2, 3}).to_vector<int>(), random::randint(key, {2, 3}, 0, 10).to_vector<int>());
  EXPECT_EQ(random::choice(key, 10, {4}, {.replace = false}).to_vector<int>(),
            slice(random::permutation(key, 10), {0}, {4}).to_vector<int>());
  const Array weighted = random::choice(key, 4, {kDraws}, {.p = p});
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(mean(weighted == i).item<float>(), p.to_vector<float>()[static_cast<size_t>(i)], 0.04);
  auto drawn = random::choice(key, 4, {3}, {.replace = false, .p = p}).to_vector<int>();
  std::ranges::sort(drawn);
  EXPECT_EQ(drawn, (std::vector<int>{0, 2, 3}));
  const Array columns = random::choice(key, array({{1, 2, 3}, {4, 5, 6}}), {5}, {.axis = 1});
  EXPECT_EQ(columns.shape(), (Shape{2, 5}));
  EXPECT_TRUE(static_cast<bool>(all(at(columns, 1) - at(columns, 0) == 3)));
  EXPECT_THROWS(random::choice(key, 3, {4}, {.replace = false}), Error,
                "random::choice: 4 elements of 3 without replacement; choose at most 3");
  EXPECT_THROWS(random::choice(key, 3, {4}, {.p = p}), Error, "random::choice: probabilities f32[4] of 3 elements");
}

TEST(Permutation, MovesLinesOrElements) {
  const Array x = reshape(arange(40), {4, 10});
  const Array columns = random::permutation(a_key(), x, {.axis = 1});
  EXPECT_TRUE(static_cast<bool>(all(at(columns, 1) - at(columns, 0) == 10)));
  const Array apart = random::permutation(a_key(), x, {.axis = 1, .independent = true});
  EXPECT_TEXT(sort(apart, 1), x.to_string());
  EXPECT_FALSE(static_cast<bool>(all(at(apart, 1) - at(apart, 0) == 10)));
}

TEST(Categorical, TakesAShape) {
  const Array logits = log(array({{0.1f, 0.9f}, {0.5f, 0.5f}, {0.8f, 0.2f}})), key = a_key();
  const Array draws = random::categorical(key, logits, {2000, 3});
  EXPECT_ELEMENTS(mean(draws, 0), {0.9, 0.5, 0.2}, 0.05);
  EXPECT_EQ(random::categorical(key, logits, {3}).to_vector<int>(), random::categorical(key, logits).to_vector<int>());
  EXPECT_EQ(random::categorical(key, logits, {5, 2}, {.axis = 0}).shape(), (Shape{5, 2}));
  const Array both = random::categorical(key, logits, {2, 3}, {.replace = false});
  EXPECT_ELEMENTS(sum(both, 0), {1, 1, 1}, 0);
  EXPECT_THROWS(random::categorical(key, logits, {2}), Error, "random::categorical: shape [2] for logits [3, 2]");
}

TEST(Randint, HasEveryIntegerType) {
  const Array key = a_key();
  const Array bytes = random::randint(key, {kDraws}, 0, 256, u8);
  EXPECT_EQ(bytes.dtype(), u8);
  EXPECT_EQ(max(bytes).item<int>(), 255);
  expect_moments(bytes, 127.5, (256.0 * 256 - 1) / 12);
  EXPECT_EQ(max(random::randint(key, {kDraws}, 10, 20, u8)).item<int>(), 19);
  EXPECT_GT(max(random::randint(key, {kDraws}, 0, int64_t{1} << 32, u32)).item<double>(), 4e9);
  const Array wide = astype(random::randint(key, {kDraws}, -(int64_t{1} << 40), int64_t{1} << 40, i64), f64) / 0x1p40;
  expect_distribution(wide, [](double x) { return (x + 1) / 2; });
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  expect_distribution(astype(random::randint(key, {kDraws}, least, most, i64), f64) / 0x1p63,
                      [](double x) { return (x + 1) / 2; });
  expect_moments(random::randint(key, {kDraws}, 0, 6, i64), 2.5, 35.0 / 12);
  EXPECT_EQ(random::bits(key, {3}, u8).to_vector<int>(), (random::bits(key, {3}) & 255).to_vector<int>());
  EXPECT_THROWS(random::randint(key, {2}, 0, 2, f32), Error, "random::randint: dtype f32; use a type of integers");
}

TEST(Keys, AreSplitIntoShapes) {
  const Array keys = random::split(a_key(), {2, 3});
  EXPECT_EQ(keys.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(keys.to_vector<uint32_t>(), random::split(a_key(), 6).to_vector<uint32_t>());
  EXPECT_EQ(random::wrap_key_data(random::key_data(a_key())).to_vector<uint32_t>(), a_key().to_vector<uint32_t>());
  EXPECT_THROWS(random::wrap_key_data(zeros({2})), Error, "random::wrap_key_data: the data is f32[2]");
}

}  // namespace
}  // namespace lockstep
