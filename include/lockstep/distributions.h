// Random numbers of more distributions, with JAX's algorithms: those that transform uniform bits element by element
// equal JAX's up to rounding of elementary functions. Parameters broadcast to `shape`. Safe to call from any thread.
//
//   Array waits = random::exponential(key, {1000}) / rate;
//   Array p = random::dirichlet(key, ones({5}), {100});      // [100, 5]
//
// No gradient flows to the shape parameters of gamma and of what is made of it (beta, dirichlet, chisquare, f, t).
#pragma once

#include <string_view>

#include "lockstep/operand.h"
#include "lockstep/random.h"

namespace lockstep::random {

// ---- Transformed uniform numbers.

// Density e^-x, x > 0; e^-|x| / 2; 1 / (pi (1 + x^2)); the derivative of 1 / (1 + e^-x).
Array exponential(const Operand& key, const Shape& shape = {}, DType dtype = f32);
Array laplace(const Operand& key, const Shape& shape = {}, DType dtype = f32);
Array cauchy(const Operand& key, const Shape& shape = {}, DType dtype = f32);
Array logistic(const Operand& key, const Shape& shape = {}, DType dtype = f32);
// b / x^(b + 1), x >= 1.
Array pareto(const Operand& key, const Operand& b, const Shape& shape, DType dtype = f32);
// x / scale^2 * e^(-(x / scale)^2 / 2), x > 0.
Array rayleigh(const Operand& key, const Operand& scale, const Shape& shape, DType dtype = f32);
// Distribution function 1 - e^-(x / scale)^concentration, x > 0.
Array weibull_min(const Operand& key, const Operand& scale, const Operand& concentration, const Shape& shape,
                  DType dtype = f32);
// Rises from left to mode and falls to right.
Array triangular(const Operand& key, const Operand& left, const Operand& mode, const Operand& right, const Shape& shape,
                 DType dtype = f32);
// -1 or 1 with equal probability.
Array rademacher(const Operand& key, const Shape& shape = {}, DType dtype = i32);
// The number of trials up to the first success of probability p, from 1.
Array geometric(const Operand& key, const Operand& p, const Shape& shape, DType dtype = i32);

// ---- Transformed normal numbers.

// e^(sigma * normal).
Array lognormal(const Operand& key, const Operand& sigma, const Shape& shape, DType dtype = f32);
// The length of a normal vector of three elements; the same with a random sign, scaled and moved.
Array maxwell(const Operand& key, const Shape& shape = {}, DType dtype = f32);
Array double_sided_maxwell(const Operand& key, const Operand& loc, const Operand& scale, const Shape& shape,
                           DType dtype = f32);
// Inverse Gaussian with this mean and scale 1.
Array wald(const Operand& key, const Operand& mean, const Shape& shape, DType dtype = f32);
// Normal vectors with this mean [..., n] and covariance [..., n, n], of shape [shape..., n]. `shape` must broadcast
// with the leading dimensions of both. NaN where the covariance is not positive definite.
Array multivariate_normal(const Operand& key, const Operand& mean, const Operand& cov, const Shape& shape = {});
// A uniformly distributed matrix of n x m (default: n) with orthonormal columns, or rows if n < m.
Array orthogonal(const Operand& key, int64_t n, const Shape& shape = {}, DType dtype = f32, int64_t m = 0);

// ---- By rejection, with a key for each element; without limit in JAX, here at most 64 rounds, which are never used
// up.

// Density x^(a - 1) e^-x / gamma(a), x > 0, and the logarithm of such a number, which does not underflow for small a.
Array gamma(const Operand& key, const Operand& a, const Shape& shape, DType dtype = f32);
Array loggamma(const Operand& key, const Operand& a, const Shape& shape, DType dtype = f32);
// x^(a - 1) (1 - x)^(b - 1), 0 < x < 1.
Array beta(const Operand& key, const Operand& a, const Operand& b, const Shape& shape, DType dtype = f32);
// Points [shape..., k] of the simplex with density prod(x^(alpha - 1)); alpha is [..., k].
Array dirichlet(const Operand& key, const Operand& alpha, const Shape& shape = {}, DType dtype = f32);
// With df degrees of freedom; F with two of them; Student's t.
Array chisquare(const Operand& key, const Operand& df, const Shape& shape, DType dtype = f32);
Array f(const Operand& key, const Operand& dfnum, const Operand& dfden, const Shape& shape, DType dtype = f32);
Array t(const Operand& key, const Operand& df, const Shape& shape, DType dtype = f32);
// Density proportional to e^-|x|^p.
Array generalized_normal(const Operand& key, double p, const Shape& shape = {}, DType dtype = f32);
// Uniform in the ball of dimension d of the p-norm: [shape..., d].
Array ball(const Operand& key, int64_t d, double p = 2, const Shape& shape = {}, DType dtype = f32);
// The number of events at rate lam: integers.
Array poisson(const Operand& key, const Operand& lam, const Shape& shape, DType dtype = i32);
// The number of successes of n trials of probability p: whole floating numbers. NaN for invalid n and p.
Array binomial(const Operand& key, const Operand& n, const Operand& p, const Shape& shape, DType dtype = f32);
// The numbers of each of k outcomes of n trials with probabilities p [..., k].
Array multinomial(const Operand& key, const Operand& n, const Operand& p, DType dtype = f32);

// ---- Choice.

struct ChoiceOptions {
  bool replace = true;
  Array p = {};  // the probability of each element; undefined: equal
  int64_t axis = 0;
};
// Elements of 0 .. n - 1, or slices of x along an axis, whose dimension is replaced by `shape`. Throws Error for more
// elements without replacement than there are.
Array choice(const Operand& key, int64_t n, const Shape& shape, const ChoiceOptions& options = {});
Array choice(const Operand& key, const Operand& x, const Shape& shape, const ChoiceOptions& options = {});

}  // namespace lockstep::random
