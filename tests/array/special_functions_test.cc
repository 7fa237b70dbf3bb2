// special::* and the elementary functions on arrays: values at special points, gradients there, promotion and errors.
#include "array/doubles.h"
#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

constexpr double kEndlessly = std::numeric_limits<double>::infinity();

double slope(Array (*f)(const Operand&), double x) {
  return grad([f](Array v) { return f(v); })(full({}, x, f64)).item<double>();
}

TEST(SpecialFunctions, IntegersAreComputedInF32) {
  EXPECT_TEXT(log2(array({1, 2, 8})), "f32[3] [0, 1, 3]");
  EXPECT_TEXT(log10(array({1, 10, 1000})), "f32[3] [0, 1, 3]");
  EXPECT_TEXT(exp2(array({-1, 0, 10})), "f32[3] [0.5, 1, 1024]");
  EXPECT_TEXT(cbrt(array({-8, 0, 27})), "f32[3] [-2, 0, 3]");
  EXPECT_TEXT(hypot(3, array({4, -4})), "f32[2] [5, 5]");
  EXPECT_TEXT(logaddexp2(array({3.f}), 3), "f32[1] [4]");
  EXPECT_TEXT(special::factorial(array({0, 5, -1})), "f32[3] [1, 120, 0]");
  EXPECT_EQ(atan2(zeros({2, 1}, bf16), ones({3}, bf16)).type(), (Type{bf16, {2, 3}}));
  EXPECT_TEXT(arctan2(0.0, array({-1.f})), "f32[1] [3.141593]");
}

TEST(SpecialFunctions, ValuesAtSpecialPoints) {
  const double inf = kEndlessly;
  EXPECT_TEXT(special::xlogy(doubles({0.0, 0.0, 2.0, 0.0}), doubles({0.0, -1.0, 1.0, inf})), "f64[4] [0, 0, 0, 0]");
  EXPECT_TEXT(special::xlog1py(doubles({0.0, 1.0}), doubles({-1.0, 0.0})), "f64[2] [0, 0]");
  EXPECT_TEXT(special::entr(doubles({0.0, 1.0, -1.0})), "f64[3] [-0, -0, -inf]");
  EXPECT_TEXT(special::rel_entr(doubles({0.0, 1.0, 1.0, -1.0}), doubles({0.0, 1.0, 0.0, 1.0})),
              "f64[4] [0, 0, inf, inf]");
  EXPECT_TEXT(special::kl_div(doubles({0.0, 2.0}), doubles({3.0, 2.0})), "f64[2] [3, 0]");
  EXPECT_TEXT(special::logit(doubles({0.0, 0.5, 1.0})), "f64[3] [-inf, 0, inf]");
  EXPECT_TEXT(special::gammasgn(doubles({2.0, -0.5, -1.5})), "f64[3] [1, -1, 1]");
  EXPECT_NEAR(special::gamma(full({}, -0.5, f64)).item<double>(), -2 * std::sqrt(std::acos(-1.0)), 1e-14);
  EXPECT_NEAR(special::beta(doubles({2.0}), doubles({3.0})).to_vector<double>()[0], 1.0 / 12, 1e-15);
  EXPECT_NEAR(special::polygamma(1, full({}, 1.0, f64)).item<double>(), std::acos(-1.0) * std::acos(-1.0) / 6, 1e-14);
  EXPECT_NEAR(special::polygamma(2, full({}, 1.0, f64)).item<double>(), -2 * 1.2020569031595942, 1e-14);
  EXPECT_NEAR(special::polygamma(0, full({}, 1.0, f64)).item<double>(), -0.5772156649015329, 1e-14);
  EXPECT_NEAR(special::multigammaln(full({}, 3.0, f64), 2).item<double>(),
              0.5 * std::log(std::acos(-1.0)) + std::lgamma(3.0) + std::lgamma(2.5), 1e-13);
  EXPECT_NEAR(special::i0(full({}, 2.0, f64)).item<double>(), 2.2795853023360673, 1e-13);
  EXPECT_NEAR(special::i1(full({}, -2.0, f64)).item<double>(), -1.5906368546373291, 1e-13);
  EXPECT_THROWS(special::multigammaln(ones({1}), 0), Error, "special::multigammaln: d is 0; it must be at least 1");
}

TEST(SpecialFunctions, TheNormalDistributionKeepsItsTails) {
  const Array x = doubles({-40.0, -30.0, -21.0, -19.0, -5.0, 0.0, 3.0, 10.0});
  const std::vector<double> wanted{
      -804.608442013754,      -454.3212439563432,    -224.46586, -184.36811, -15.064998393988725, -0.6931471805599453,
      -0.0013508099647481938, -7.619853024160527e-24};
  const std::vector<double> got = special::log_ndtr(x).to_vector<double>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == 2 || i == 3) {
      // The logarithm of erfc, which has not vanished here.
      const double exact = std::log(0.5 * std::erfc(-x.to_vector<double>()[i] / std::sqrt(2.0)));
      EXPECT_NEAR(got[i], exact, 1e-11);
    } else {
      EXPECT_NEAR(got[i] / wanted[i], 1, 1e-12) << i;
    }
  }
  EXPECT_NEAR(special::ndtr(array({-5.0f})).to_vector<double>()[0] / 2.866515718791939e-7, 1, 1e-6);
  EXPECT_NEAR(special::log_ndtr(array({-20.0f})).to_vector<double>()[0], -203.91715537109727, 1e-4);
  const Array p = doubles({1e-20, 0.3, 0.999});
  EXPECT_ELEMENTS(special::ndtr(special::ndtri(p)) / p, {1, 1, 1}, 1e-12);
  // d log Phi = phi / Phi, which is near -x in the lower tail.
  EXPECT_NEAR(slope(special::log_ndtr, -40), 40.02496884720726, 1e-9);
  EXPECT_NEAR(slope(special::log_ndtr, 0), std::sqrt(2 / std::acos(-1.0)), 1e-14);
}

TEST(SpecialFunctions, GradientsAtSpecialPoints) {
  EXPECT_EQ(slope(special::i1e, 0), 0.5);
  EXPECT_EQ(slope(special::i0e, 0), 0);
  EXPECT_EQ(slope(asinh, 0), 1);
  EXPECT_EQ(slope(tan, 0), 1);
  EXPECT_EQ(slope(acos, 0), -1);
  EXPECT_NEAR(slope(exp2, 0), std::log(2.0), 1e-16);
  EXPECT_NEAR(slope(log2, 4), 0.25 / std::log(2.0), 1e-16);
  EXPECT_NEAR(slope(special::digamma, 1), std::acos(-1.0) * std::acos(-1.0) / 6, 1e-14);
  EXPECT_NEAR(slope(special::ndtri, 0.5), std::sqrt(2 * std::acos(-1.0)), 1e-12);
  const auto xlogy_slope = grad([](Array x) { return special::xlogy(x, 3.0); });
  EXPECT_NEAR(xlogy_slope(full({}, 0.0, f64)).item<double>(), std::log(3.0), 1e-15);
  const auto length = grad([](Array x) { return hypot(x, 0.0); });
  EXPECT_EQ(length(full({}, 0.0, f64)).item<double>(), 0);
  // The second derivatives that are lost where a function is written with abs and maximum.
  const auto second = [](auto f) { return grad(grad(f))(full({}, 0.0, f64)).template item<double>(); };
  EXPECT_NEAR(second([](Array x) { return softplus(x); }), 0.25, 1e-15);
  EXPECT_NEAR(second([](Array x) { return logaddexp(x, 0.0); }), 0.25, 1e-15);
  EXPECT_NEAR(second([](Array x) { return logaddexp2(x, 0.0); }), 0.25 * std::log(2.0), 1e-15);
}

TEST(SpecialFunctions, ParametersWithoutAGradientAreErrors) {
  const auto one = full({}, 1.0, f64);
  EXPECT_THROWS(grad([](Array a) { return special::gammainc(a, 2.0); })(one), Error,
                "gammainc: there is no gradient with respect to a; use stop_gradient(a)");
  EXPECT_THROWS(grad([](Array s) { return special::zeta(s + 1, 2.0); })(one), Error,
                "zeta: there is no gradient with respect to s");
  const Array density = grad([](Array x) { return special::gammainc(2.0, x); })(one);
  EXPECT_NEAR(density.item<double>(), std::exp(-1.0), 1e-14);
  EXPECT_NEAR(grad([](Array x) { return special::gammaincc(2.0, x); })(one).item<double>(), -std::exp(-1.0), 1e-14);
}

}  // namespace
}  // namespace lockstep
