// Smooth functions: values and the first three derivatives compared with closed forms at 0, near 0, at large
// arguments and at ties, where formulas with abs, max or a division lose accuracy. Also run on a GPU
// (LOCKSTEP_PLATFORM=cuda).
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"

namespace lockstep::derivatives {
namespace {

using Real = long double;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kOrders = 4;

// A value and its first three derivatives with respect to x.
struct Jet {
  Real d[kOrders] = {};
};
Jet variable(Real x) { return {{x, 1}}; }
Jet number(Real x) { return {{x}}; }
Jet operator+(const Jet& a, const Jet& b) {
  Jet y;
  for (size_t k = 0; k < kOrders; ++k) y.d[k] = a.d[k] + b.d[k];
  return y;
}
Jet operator*(const Jet& a, const Jet& b) {
  constexpr Real kBinomial[kOrders][kOrders] = {{1}, {1, 1}, {1, 2, 1}, {1, 3, 3, 1}};
  Jet y;
  for (size_t n = 0; n < kOrders; ++n)
    for (size_t k = 0; k <= n; ++k) y.d[n] += kBinomial[n][k] * a.d[k] * b.d[n - k];
  return y;
}
// f(u) for a function with these derivatives at u.
Jet chain(const Jet& u, Real f0, Real f1, Real f2, Real f3) {
  const Real a = u.d[1], b = u.d[2], c = u.d[3];
  return {{f0, f1 * a, f2 * a * a + f1 * b, f3 * a * a * a + 3 * f2 * a * b + f1 * c}};
}

Jet exp_of(const Jet& u) {
  const Real y = std::exp(u.d[0]);
  return chain(u, y, y, y, y);
}
Jet expm1_of(const Jet& u) {
  const Real y = std::exp(u.d[0]);
  return chain(u, std::expm1(u.d[0]), y, y, y);
}
Jet power_of(const Jet& u, Real p) {
  const Real x = u.d[0];
  const auto term = [&](Real factor, Real q) { return factor == 0 ? 0 : factor * std::pow(x, q); };
  return chain(u, term(1, p), term(p, p - 1), term(p * (p - 1), p - 2), term(p * (p - 1) * (p - 2), p - 3));
}
Jet log_of(const Jet& u) {
  const Jet slope = power_of(variable(u.d[0]), -1);
  return chain(u, std::log(u.d[0]), slope.d[0], slope.d[1], slope.d[2]);
}
Jet log1p_of(const Jet& u) {
  const Jet slope = power_of(variable(u.d[0] + 1), -1);
  return chain(u, std::log1p(u.d[0]), slope.d[0], slope.d[1], slope.d[2]);
}
Jet tanh_of(const Jet& u) {
  const Real t = std::tanh(u.d[0]), s = 1 / std::cosh(u.d[0]), v = s * s;
  return chain(u, t, v, -2 * t * v, 4 * t * t * v - 2 * v * v);
}
Jet sigmoid_of(const Jet& u) {
  const Real p = 1 / (1 + std::exp(-u.d[0])), q = 1 / (1 + std::exp(u.d[0])), v = p * q;
  return chain(u, p, v, v * (q - p), v * (1 - 6 * v));
}
Jet softplus_of(const Jet& u) {
  const Real x = u.d[0];
  const Jet p = sigmoid_of(variable(x));
  return chain(u, std::max(x, Real{0}) + std::log1p(std::exp(-std::abs(x))), p.d[0], p.d[1], p.d[2]);
}
Jet erf_of(const Jet& u) {
  const Real x = u.d[0], g = 2 / std::sqrt(std::acos(Real{-1})) * std::exp(-x * x);
  return chain(u, std::erf(x), g, -2 * x * g, (4 * x * x - 2) * g);
}
Jet erf_inv_of(const Jet& u) {
  Real y = 0;
  const Real c = std::sqrt(std::acos(Real{-1})) / 2;
  for (int i = 0; i < 60; ++i) y -= (std::erf(y) - u.d[0]) * c * std::exp(y * y);
  const Real s = c * std::exp(y * y);
  return chain(u, y, s, 2 * y * s * s, (2 + 8 * y * y) * s * s * s);
}
Jet sin_of(const Jet& u) {
  const Real s = std::sin(u.d[0]), c = std::cos(u.d[0]);
  return chain(u, s, c, -s, -c);
}
Jet cos_of(const Jet& u) {
  const Real s = std::sin(u.d[0]), c = std::cos(u.d[0]);
  return chain(u, c, -s, -c, s);
}
Jet gelu_of(const Jet& x) {
  const Real c = std::sqrt(2 / std::acos(Real{-1}));
  const Jet u = number(c) * (x + number(0.044715L) * x * x * x);
  // (1 + tanh u) / 2, in a form that stays accurate for very negative u.
  return x * sigmoid_of(number(2) * u);
}
Jet gelu_exact_of(const Jet& x) {
  const Jet e = erf_of(number(std::sqrt(Real{0.5})) * x);
  Jet phi = number(0.5L) * (number(1) + e);
  phi.d[0] = 0.5L * std::erfc(-std::sqrt(Real{0.5}) * x.d[0]);
  return x * phi;
}
// log(e^x + e^-x).
Jet log_two_cosh(const Jet& x) { return x + softplus_of(number(-2) * x); }

Array numbers(const std::vector<double>& x) { return Array::from(x, {static_cast<int64_t>(x.size())}); }

using Points = std::vector<double>;
const Points kAll{0, -0.0, 1e-8, -1e-8, 1, -1, 30, -30, 100, -100};
const Points kPositive{1e-8, 0.5, 1, 30, 100};
const Points kLog1p{0, 1e-8, -1e-8, 1, -0.5, 30, 100};
const Points kInside{0, 1e-8, -1e-8, 0.5, -0.5, 0.9, -0.9};

using Function = std::function<Array(const Array&)>;
struct Smooth {
  const char* name;
  Function f;
  std::function<Jet(const Jet&)> exact;
  Points points = kAll;
  double looser = 1;  // multiple of the usual f32 tolerance
};

// Applied to x and -x, which tie at 0.
Array pair_of(const Array& x) { return stack({x, -x}, -1); }
Array first(const Array& pairs) { return at(pairs, 0, -1); }
Array labels_like(const Array& x) { return zeros(x.shape(), i32); }

std::vector<Smooth> elementary() {
  return {
      {"exp", [](const Array& x) { return exp(x); }, exp_of},
      {"expm1", [](const Array& x) { return expm1(x); }, expm1_of},
      {"log", [](const Array& x) { return log(x); }, log_of, kPositive},
      {"log1p", [](const Array& x) { return log1p(x); }, log1p_of, kLog1p},
      {"tanh", [](const Array& x) { return tanh(x); }, tanh_of},
      {"sigmoid", [](const Array& x) { return sigmoid(x); }, sigmoid_of},
      {"logistic", [](const Array& x) { return logistic(x); }, sigmoid_of},
      {"sqrt", [](const Array& x) { return sqrt(x); }, [](const Jet& x) { return power_of(x, 0.5L); }, kPositive},
      {"rsqrt", [](const Array& x) { return rsqrt(x); }, [](const Jet& x) { return power_of(x, -0.5L); }, kPositive},
      {"reciprocal", [](const Array& x) { return 1 / x; }, [](const Jet& x) { return power_of(x, -1); }, kPositive},
      {"erf", [](const Array& x) { return erf(x); }, erf_of},
      {"erf_inv", [](const Array& x) { return erf_inv(x); }, erf_inv_of, kInside, 30},
      {"sin", [](const Array& x) { return sin(x); }, sin_of},
      {"cos", [](const Array& x) { return cos(x); }, cos_of},
      {"square", [](const Array& x) { return square(x); }, [](const Jet& x) { return x * x; }},
      {"cube", [](const Array& x) { return x * x * x; }, [](const Jet& x) { return x * x * x; }},
      {"pow 2", [](const Array& x) { return pow(x, 2); }, [](const Jet& x) { return x * x; }},
      {"pow 3", [](const Array& x) { return pow(x, 3); }, [](const Jet& x) { return x * x * x; }},
      {"pow 2.5", [](const Array& x) { return pow(x, 2.5); }, [](const Jet& x) { return power_of(x, 2.5L); },
       kPositive},
      {"2 to the", [](const Array& x) { return pow(2.0, x); },
       [](const Jet& x) { return exp_of(number(std::log(Real{2})) * x); }},
      {"x to the x",
       [](const Array& x) { return pow(x, x); },
       [](const Jet& x) { return exp_of(x * log_of(x)); },
       {0.5, 1, 3}},
  };
}

std::vector<Smooth> composed() {
  const auto polynomial = [](Real factor, int power) {
    return [=](const Jet& x) { return number(factor) * (power == 2 ? x * x : x * x * x); };
  };
  const auto minus = [](const Jet& x) { return number(-1) * x; };
  const auto log_sigmoid_of = [=](const Jet& x) { return minus(softplus_of(minus(x))); };
  return {
      {"softplus", [](const Array& x) { return softplus(x); }, softplus_of},
      {"log_sigmoid", [](const Array& x) { return log_sigmoid(x); }, log_sigmoid_of},
      {"logaddexp with 0", [](const Array& x) { return logaddexp(x, 0); }, softplus_of},
      {"logaddexp of 0 and", [](const Array& x) { return logaddexp(0, x); }, softplus_of},
      {"logaddexp of x and -x", [](const Array& x) { return logaddexp(x, -x); }, log_two_cosh},
      {"logaddexp of x twice", [](const Array& x) { return logaddexp(x, x); },
       [](const Jet& x) { return x + number(std::log(Real{2})); }},
      {"silu", [](const Array& x) { return silu(x); }, [](const Jet& x) { return x * sigmoid_of(x); }},
      {"gelu", [](const Array& x) { return gelu(x); }, gelu_of},
      {"gelu_exact", [](const Array& x) { return gelu_exact(x); }, gelu_exact_of},
      {"logsumexp", [](const Array& x) { return logsumexp(pair_of(x), -1); }, log_two_cosh},
      {"softmax", [](const Array& x) { return first(softmax(pair_of(x))); },
       [](const Jet& x) { return sigmoid_of(number(2) * x); }},
      {"log_softmax", [](const Array& x) { return first(log_softmax(pair_of(x))); },
       [=](const Jet& x) { return log_sigmoid_of(number(2) * x); }},
      {"softmax_cross_entropy of classes",
       [](const Array& x) { return softmax_cross_entropy(pair_of(x), labels_like(x)); },
       [](const Jet& x) { return softplus_of(number(-2) * x); }},
      {"softmax_cross_entropy of weights",
       [](const Array& x) { return softmax_cross_entropy(pair_of(x), stop_gradient(pair_of(0 * x) + 0.5)); },
       log_two_cosh},
      {"prod",
       [](const Array& x) {
         return prod(stack({x, 2 * x, x}, -1), -1);
       },
       polynomial(2, 3)},
      {"var", [](const Array& x) { return var(pair_of(x), -1); }, polynomial(1, 2)},
      {"dot", [](const Array& x) { return einsum("...i,...i->...", pair_of(x), pair_of(x)); }, polynomial(2, 2)},
  };
}

// The elementwise derivative.
Function derivative(const Function& f) {
  return [f](const Array& x) { return grad([&](const Array& v) { return sum(f(v)); })(x); };
}
// f and its derivatives.
std::vector<Function> orders(const Function& f) {
  std::vector<Function> all{f};
  while (all.size() < kOrders) all.push_back(derivative(all.back()));
  return all;
}

void expect_exact(const Smooth& s, DType t, const std::vector<Array>& got) {
  ASSERT_EQ(got.size(), kOrders);
  const double tolerance = t == f64 ? 1e-12 : 2e-6 * s.looser;
  for (size_t order = 0; order < kOrders; ++order) {
    const std::vector<double> y = got[order].to_vector<double>();
    ASSERT_EQ(y.size(), s.points.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double x = t == f64 ? s.points[i] : static_cast<float>(s.points[i]);
      const Real wanted = s.exact(variable(x)).d[order];
      const bool too_large = t != f64 && std::abs(wanted) > std::numeric_limits<float>::max();
      const Real error = too_large ? (y[i] == std::copysign(kInf, static_cast<double>(wanted)) ? 0 : 1)
                                   : std::abs(y[i] - wanted) / (1 + std::abs(wanted));
      EXPECT_LE(error, tolerance) << s.name << ", derivative " << order << " at " << x << " in " << name(t) << ": "
                                  << y[i] << " instead of " << static_cast<double>(wanted);
    }
  }
}

void expect_all_exact(const std::vector<Smooth>& all, std::vector<Array> (*apply)(const Smooth&, const Array&)) {
  for (const Smooth& s : all)
    for (DType t : {f32, f64}) expect_exact(s, t, apply(s, astype(numbers(s.points), t)));
}

std::vector<Array> one_by_one(const Smooth& s, const Array& x) {
  std::vector<Array> out;
  for (const Function& f : orders(s.f)) out.push_back(f(x));
  return out;
}
// One program each, batched from a scalar function.
std::vector<Array> compiled_and_batched(const Smooth& s, const Array& x) {
  return jit([&](const Array& v) {
    std::vector<Array> out;
    for (const Function& f : orders(s.f)) out.push_back(vmap([&](const Array& one) { return f(one); })(v));
    return out;
  })(x);
}
std::vector<Array> compiled(const Smooth& s, const Array& x) {
  return jit([&](const Array& v) { return one_by_one(s, v); })(x);
}

TEST(Derivatives, OfElementaryFunctions) { expect_all_exact(elementary(), one_by_one); }
TEST(Derivatives, OfElementaryFunctionsCompiled) { expect_all_exact(elementary(), compiled); }
TEST(Derivatives, OfElementaryFunctionsCompiledAndBatched) { expect_all_exact(elementary(), compiled_and_batched); }
TEST(Derivatives, OfComposedFunctions) { expect_all_exact(composed(), one_by_one); }
TEST(Derivatives, OfComposedFunctionsCompiled) { expect_all_exact(composed(), compiled); }
TEST(Derivatives, OfComposedFunctionsCompiledAndBatched) { expect_all_exact(composed(), compiled_and_batched); }

TEST(Derivatives, OfSoftplusAtZeroInEveryFloatType) {
  for (DType t : {bf16, f16, f32, f64}) {
    const std::vector<Array> all =
        compiled({"softplus", [](const Array& x) { return softplus(x); }, softplus_of}, zeros({3}, t));
    EXPECT_ELEMENTS(all[1], {0.5, 0.5, 0.5}, 0);
    EXPECT_ELEMENTS(all[2], {0.25, 0.25, 0.25}, 0);
    EXPECT_ELEMENTS(all[3], {0, 0, 0}, 0);
  }
}

TEST(Derivatives, OfSoftplusAtInfinityAreItsLimits) {
  const Array x = numbers({kInf, -kInf});
  for (DType t : {f32, f64}) {
    const std::vector<Array> all =
        one_by_one({"softplus", [](const Array& v) { return softplus(v); }, softplus_of}, astype(x, t));
    EXPECT_ELEMENTS(all[1], {1, 0}, 0);
    EXPECT_ELEMENTS(all[2], {0, 0}, 0);
    EXPECT_ELEMENTS(all[3], {0, 0}, 0);
  }
}

// -inf marks a masked element: its gradient is 0, and none is NaN.
TEST(Derivatives, OfLogaddexpAtInfinities) {
  const Array a = numbers({-kInf, 1, -kInf, kInf, kInf}), b = numbers({2, -kInf, -kInf, kInf, 0});
  EXPECT_TEXT(logaddexp(a, b), "f64[5] [2, 1, -inf, inf, inf]");
  const auto [ga, gb] = grad<0, 1>([](const Array& x, const Array& y) { return sum(logaddexp(x, y)); })(a, b);
  EXPECT_ELEMENTS(ga, {0, 1, 0.5, 0.5, 1}, 0);
  EXPECT_ELEMENTS(gb, {1, 0, 0.5, 0.5, 0}, 0);
}

TEST(Derivatives, OfLogsumexpWithMaskedElements) {
  const auto f = [](const Array& x) { return logsumexp(x); };
  const Array x = numbers({0, -kInf, 0});
  EXPECT_ELEMENTS(grad(f)(x), {0.5, 0, 0.5}, 0);
  const Array hessian =
      vmap([&](const Array& v) { return grad([&](const Array& y) { return sum(grad(f)(y) * v); })(x); })(eye(3, f64));
  EXPECT_ELEMENTS(hessian, {0.25, 0, -0.25, 0, 0, 0, -0.25, 0, 0.25}, 0);
}

TEST(Derivatives, OfGeluAtLargeArgumentsInHalfPrecision) {
  for (DType t : {f16, bf16}) {
    const Array x = astype(array({300.0, -300.0, 60000.0, -60000.0}), t);
    EXPECT_ELEMENTS(grad([](const Array& v) { return sum(gelu(v)); })(x), {1, 0, 1, 0}, 0);
  }
}

// Newton's method on a logistic regression from weights of 0, where all margins are 0.
TEST(Derivatives, NewtonsMethodConvergesFromZero) {
  const int64_t examples = 64;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> features, answers;
  for (int64_t i = 0; i < examples; ++i) {
    const double u = normal(random), v = normal(random);
    features.insert(features.end(), {u, v});
    answers.push_back(u - 2 * v + 2 * normal(random) > 0 ? 1 : 0);
  }
  const Array x = reshape(numbers(features), {examples, 2}), y = numbers(answers);
  const auto loss = [&](const Array& w) {
    const Array margin = matmul(x, w);
    return mean(softplus(margin) - y * margin) + 0.005 * sum(w * w);
  };
  const auto newton = jit([&](const Array& w) {
    const Array slope = grad(loss)(w);
    const Array hessian = vmap(
        [&](const Array& v) { return grad([&](const Array& u) { return sum(grad(loss)(u) * v); })(w); })(eye(2, f64));
    const Array a = at(at(hessian, 0), 0), b = at(at(hessian, 0), 1), d = at(at(hessian, 1), 1);
    const Array step = stack({d * at(slope, 0) - b * at(slope, 1), a * at(slope, 1) - b * at(slope, 0)});
    return std::tuple(w - step / (a * d - b * b), slope, hessian);
  });
  Array w = zeros({2}, f64);
  EXPECT_ELEMENTS(std::get<2>(newton(w)) - matmul(transpose(x), x) / (4.0 * examples) - 0.01 * eye(2, f64),
                  {0, 0, 0, 0}, 1e-14);
  for (int i = 0; i < 8; ++i) w = std::get<0>(newton(w));
  EXPECT_ELEMENTS(std::get<1>(newton(w)), {0, 0}, 1e-13);
}

}  // namespace
}  // namespace lockstep::derivatives
