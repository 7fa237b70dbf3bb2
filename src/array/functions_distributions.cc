// Distributions whose numbers are functions of uniform or normal numbers.
#include <cmath>
#include <limits>
#include <numbers>

#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/distributions.h"
#include "lockstep/indexing.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/matrices.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/search.h"

namespace lockstep::random {
namespace {

// The smallest positive normal number; the distance from 1 to the next number, and to the one before.
struct FloatingLimits {
  double tiny, eps, epsneg;
};
FloatingLimits floating_limits(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {0x1p-126, 0x1p-7, 0x1p-8};
    case DType::f16:
      return {0x1p-14, 0x1p-10, 0x1p-11};
    case DType::f64:
      return {0x1p-1022, 0x1p-52, 0x1p-53};
    default:
      return {0x1p-126, 0x1p-23, 0x1p-24};
  }
}

Array parameter(const char* what, const Array& x, const Shape& shape, DType dtype) {
  if (!is_floating(dtype)) throw_error("random::{}: dtype {} is not floating; use a floating type", what, name(dtype));
  return broadcast_to(astype(x, dtype), shape);
}

// Q of the QR decomposition of a that gives R a positive diagonal. Types of 16 bits are computed in f32.
Array orthonormal_columns(const Array& a) {
  const auto [q, r] = linalg::qr(astype(a, a.dtype() == f64 ? f64 : f32));
  const Array signs = where(diagonal(r, 0, -2, -1) < 0, -1.f, 1.f);
  return astype(q * expand_dims(signs, -2), a.dtype());
}

}  // namespace

Array exponential(const Operand& key, const Shape& shape, DType dtype) {
  return -log1p(-uniform(key, shape, 0, 1, dtype));
}

Array laplace(const Operand& key, const Shape& shape, DType dtype) {
  const Array u = uniform(key, shape, -1 + floating_limits(dtype).epsneg, 1, dtype);
  return sign(u) * log1p(-abs(u));
}

Array cauchy(const Operand& key, const Shape& shape, DType dtype) {
  const Array angle = (uniform(key, shape, floating_limits(dtype).eps, 1, dtype) - 0.5) * std::numbers::pi;
  return sin(angle) / cos(angle);
}

Array logistic(const Operand& key, const Shape& shape, DType dtype) {
  const Array u = uniform(key, shape, floating_limits(dtype).tiny, 1, dtype);
  return log(u) - log1p(-u);
}

Array pareto(const Operand& key, const Operand& b, const Shape& shape, DType dtype) {
  return exp(exponential(key, shape, dtype) / parameter("pareto", b, shape, dtype));
}

Array rayleigh(const Operand& key, const Operand& scale, const Shape& shape, DType dtype) {
  return parameter("rayleigh", scale, shape, dtype) * sqrt(log(uniform(key, shape, 0, 1, dtype)) * -2);
}

Array weibull_min(const Operand& key, const Operand& scale, const Operand& concentration, const Shape& shape,
                  DType dtype) {
  const Array power = 1 / parameter("weibull_min", concentration, shape, dtype);
  return pow(-log1p(-uniform(key, shape, 0, 1, dtype)), power) * parameter("weibull_min", scale, shape, dtype);
}

Array triangular(const Operand& key, const Operand& left, const Operand& mode, const Operand& right, const Shape& shape,
                 DType dtype) {
  const Array lo = parameter("triangular", left, shape, dtype), top = parameter("triangular", mode, shape, dtype);
  const Array hi = parameter("triangular", right, shape, dtype), u = uniform(key, shape, 0, 1, dtype);
  const Array rising = lo + sqrt(u * (hi - lo) * (top - lo)), falling = hi - sqrt((1 - u) * (hi - lo) * (hi - top));
  return where(u < (top - lo) / (hi - lo), rising, falling);
}

Array rademacher(const Operand& key, const Shape& shape, DType dtype) {
  // JAX draws as many bits as its widest types have.
  const Array half = full({}, 0.5, dtype == f64 || dtype == i64 ? f64 : f32);
  return astype(2 * astype(bernoulli(key, half, shape), dtype) - 1, dtype);
}

Array geometric(const Operand& key, const Operand& p, const Shape& shape, DType dtype) {
  if (!is_integer(dtype))
    throw_error("random::geometric: dtype {} is not an integer; use an integer type", name(dtype));
  const DType wide = detail::floating_of(p.dtype());
  const Array u = uniform(key, shape, 0, 1, wide), safe = where(u == 0, 1, u);
  return astype(floor(log(safe) / log1p(-parameter("geometric", p, shape, wide))) + 1, dtype);
}

Array lognormal(const Operand& key, const Operand& sigma, const Shape& shape, DType dtype) {
  return exp(normal(key, shape, dtype) * parameter("lognormal", sigma, shape, dtype));
}

Array maxwell(const Operand& key, const Shape& shape, DType dtype) {
  Shape vectors = shape;
  vectors.push_back(3);
  const Array v = normal(key, vectors, dtype);
  return sqrt(sum(v * v, -1));
}

Array double_sided_maxwell(const Operand& key, const Operand& loc, const Operand& scale, const Shape& shape,
                           DType dtype) {
  const auto [a, b] = split<2>(key);
  const Array size = rademacher(b, shape, dtype) * maxwell(a, shape, dtype);
  return size * parameter("double_sided_maxwell", scale, shape, dtype) +
         parameter("double_sided_maxwell", loc, shape, dtype);
}

Array wald(const Operand& key, const Operand& mean, const Shape& shape, DType dtype) {
  const auto [a, b] = split<2>(key);
  const Array m = parameter("wald", mean, shape, dtype), v = normal(a, shape, dtype),
              u = uniform(b, shape, 0, 1, dtype);
  const Array y = v * v, squared = m * m;
  const Array x = m + squared * y / 2 - m / 2 * sqrt(4 * m * y + squared * (y * y));
  return where(u <= m / (m + x), x, squared / x);
}

Array multivariate_normal(const Operand& key, const Operand& mean, const Operand& cov, const Shape& shape) {
  if (mean.rank() < 1 || cov.rank() < 2 || cov.shape(-1) != mean.shape(-1) || cov.shape(-2) != mean.shape(-1))
    throw_error("random::multivariate_normal: mean {} and covariance {}; pass [..., n] and [..., n, n]",
                to_string(mean.shape()), to_string(cov.shape()));
  const DType dtype = detail::floating_of(promote(mean.dtype(), cov.dtype()));
  const Shape shapes[] = {Shape(mean.shape().begin(), mean.shape().end() - 1),
                          Shape(cov.shape().begin(), cov.shape().end() - 2), shape};
  Shape vectors = detail::broadcast_shape("random::multivariate_normal", shapes);
  vectors.push_back(mean.shape(-1));
  const Array factor = astype(linalg::cholesky(astype(cov, dtype == f64 ? f64 : f32)), dtype);
  return astype(mean, dtype) + einsum("...ij,...j->...i", factor, normal(key, vectors, dtype));
}

Array orthogonal(const Operand& key, int64_t n, const Shape& shape, DType dtype, int64_t m) {
  const int64_t columns = m > 0 ? m : n;
  if (n < 1 || m < 0) throw_error("random::orthogonal: {} rows and {} columns; they must be positive", n, columns);
  Shape matrices = shape;
  matrices.insert(matrices.end(), {std::max(n, columns), std::min(n, columns)});
  const Array q = orthonormal_columns(normal(key, matrices, dtype));
  return n < columns ? swapaxes(q, -1, -2) : q;
}

namespace {

// The places chosen among n: `shape` of them.
Array chosen(const Array& key, int64_t n, const Shape& shape, const ChoiceOptions& options) {
  const int64_t draws = count(shape);
  if (n < 1 && draws > 0) throw_error("random::choice: {} elements to choose from; there must be at least one", n);
  if (!options.replace && draws > n)
    throw_error("random::choice: {} elements of {} without replacement; choose at most {}", draws, n, n);
  if (!options.p.defined()) {
    if (options.replace) return randint(key, shape, 0, std::max<int64_t>(n, 1));
    return reshape(slice(permutation(key, n), {0}, {draws}), shape);
  }
  if (options.p.shape() != Shape{n})
    throw_error("random::choice: probabilities {} of {} elements; pass one for each", to_string(options.p.type()), n);
  const Array p = astype(options.p, detail::floating_of(options.p.dtype()));
  if (draws == 0) return zeros(shape, i32);
  if (!options.replace) return reshape(top_k(gumbel(key, {n}, p.dtype()) + log(p), draws).second, shape);
  const Array sums = cumsum(p, 0);
  return searchsorted(sums, at(sums, -1) * (1 - uniform(key, shape, 0, 1, p.dtype())));
}

}  // namespace

Array choice(const Operand& key, int64_t n, const Shape& shape, const ChoiceOptions& options) {
  return chosen(key, n, shape, options);
}

Array choice(const Operand& key, const Operand& x, const Shape& shape, const ChoiceOptions& options) {
  if (x.rank() == 0)
    throw_error("random::choice: {} is a scalar; pass an array, or a plain number n for 0 to n - 1",
                to_string(x.type()));
  const int64_t along = detail::axis_of("random::choice", options.axis, x.shape());
  return take(x, chosen(key, x.shape(along), shape, options), along);
}

}  // namespace lockstep::random
