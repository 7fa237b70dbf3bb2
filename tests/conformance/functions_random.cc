// Random numbers and initial values.
#include "conformance/suite.h"
#include "lockstep/initializers.h"

namespace lockstep::conformance {

// clang-format off
Functions random_functions() {
  return {
      FUNCTION("random.uniform", random::uniform(key, shape, 0, 1, dtype)),
      FUNCTION("random.normal", random::normal(key, shape, dtype)),
      FUNCTION("random.truncated_normal", random::truncated_normal(key, -1.5, 2.0, shape, dtype)),
      FUNCTION("random.exponential", random::exponential(key, shape, dtype)),
      FUNCTION("random.laplace", random::laplace(key, shape, dtype)),
      FUNCTION("random.gumbel", random::gumbel(key, shape, dtype)),
      FUNCTION("random.cauchy", random::cauchy(key, shape, dtype)),
      FUNCTION("random.logistic", random::logistic(key, shape, dtype)),
      FUNCTION("random.rayleigh", random::rayleigh(key, 1.5, shape, dtype)),
      FUNCTION("random.maxwell", random::maxwell(key, shape, dtype)),
      FUNCTION("random.double_sided_maxwell", random::double_sided_maxwell(key, 0.5, 2.0, shape, dtype)),
      FUNCTION("random.pareto", random::pareto(key, 2.5, shape, dtype)),
      FUNCTION("random.weibull_min", random::weibull_min(key, 2.0, 1.5, shape, dtype)),
      FUNCTION("random.bernoulli", random::bernoulli(key, 0.3, shape)),
      FUNCTION("random.rademacher", random::rademacher(key, shape, dtype)),
      FUNCTION("random.randint", random::randint(key, shape, low, high, dtype)),
      FUNCTION("random.bits", random::bits(key, shape, dtype)),
      FUNCTION("random.permutation", random::permutation(key, n)),
      FUNCTION("random.choice", random::choice(key, n, shape)),
      FUNCTION("random.choice without replacement", random::choice(key, n, shape, {.replace = false})),
      FUNCTION("random.choice weights", random::choice(key, 5, {7}, {.p = x})),
      FUNCTION("random.categorical", random::categorical(key, x, axis)),
      FUNCTION("random.split", random::split(key, n)),
      FUNCTION("random.fold_in", random::fold_in(key, n)),
      FUNCTION("random.multivariate_normal", random::multivariate_normal(key, x, y, {4})),
      FUNCTION("random.gamma", random::gamma(key, 2.5, shape, dtype)),
      FUNCTION("random.beta", random::beta(key, 0.7, 2.0, shape, dtype)),
      FUNCTION("random.chisquare", random::chisquare(key, 3.0, shape, dtype)),
      FUNCTION("random.t", random::t(key, 4.0, shape, dtype)),
      FUNCTION("random.poisson", random::poisson(key, 4.5, shape)),
      FUNCTION("random.dirichlet", random::dirichlet(key, x, {4}, x.dtype())),
      FUNCTION("random.ball", random::ball(key, 3, 2.0, shape, dtype)),
      FUNCTION("|random.orthogonal|", abs(random::orthogonal(key, 3, shape, dtype))),
      FUNCTION("random.glorot_normal", initializers::glorot_normal(key, shape, dtype)),
      FUNCTION("random.glorot_uniform", initializers::glorot_uniform(key, shape, dtype)),
      FUNCTION("random.he_normal", initializers::he_normal(key, shape, dtype)),
      FUNCTION("random.he_uniform", initializers::he_uniform(key, shape, dtype)),
      FUNCTION("random.lecun_normal", initializers::lecun_normal(key, shape, dtype)),
      FUNCTION("random.lecun_uniform", initializers::lecun_uniform(key, shape, dtype)),
      FUNCTION("random.orthogonal initializer", abs(initializers::orthogonal(key, shape, 1, -1, dtype))),
  };
}
// clang-format on

}  // namespace lockstep::conformance
