// Gaussian process regression. The hyperparameters maximize the marginal likelihood, whose gradient flows through a
// Cholesky factorization. Prints the error of the predictions and the noise that was found.
//
//   build/examples/gaussian_process
#include <cstdio>

#include "lockstep/lockstep.h"

using namespace lockstep;

// All positive; stored as logarithms.
struct Parameters {
  Array length, scale, noise;
};

// scale^2 e^(-(a - b)^2 / (2 length^2)) for all pairs of points.
Array kernel(const Parameters& p, const Array& a, const Array& b) {
  const Array distance = (expand_dims(a, 1) - expand_dims(b, 0)) / exp(p.length);
  return exp(2.0 * p.scale - 0.5 * square(distance));
}

linalg::CholeskyFactor covariance(const Parameters& p, const Array& x) {
  const Array noise = exp(2.0 * p.noise) * eye(x.size(), f64);
  return linalg::cho_factor(kernel(p, x, x) + noise, true);
}

// The negative logarithm of the likelihood of y, for each point.
Array loss(const Parameters& p, const Array& x, const Array& y) {
  const auto factor = covariance(p, x);
  const Array fit = 0.5 * dot(y, linalg::cho_solve(factor, y));
  const Array log_determinant = sum(log(einsum("ii->i", factor.c)));
  return (fit + log_determinant) / static_cast<double>(x.size());
}

struct Prediction {
  Array mean, deviation;
};
Prediction predict(const Parameters& p, const Array& x, const Array& y, const Array& at) {
  const auto factor = covariance(p, x);
  const Array across = kernel(p, x, at);
  const Array explained = sum(across * linalg::cho_solve(factor, across), 0);
  return {matmul(transpose(across), linalg::cho_solve(factor, y)), sqrt(exp(2.0 * p.scale) - explained)};
}

int main() {
  const auto [key_x, key_noise] = random::split<2>(random::key(3));
  const auto truth = [](const Array& x) { return sin(2.0 * x) + 0.5 * x; };
  const Array x = random::uniform(key_x, {60}, -3, 3, f64);
  const Array y = truth(x) + 0.1 * random::normal(key_noise, {60}, f64);

  const Array zero = zeros({}, f64);
  Parameters p{zero, zero, zero};
  const auto step = jit([](Parameters now, Array at, Array value) {
    const auto [l, g] = value_and_grad(loss)(now, at, value);
    const auto move = [](const Array& a, const Array& slope) { return a - 0.1 * slope / (1.0 + abs(slope)); };
    return std::pair{Parameters{move(now.length, g.length), move(now.scale, g.scale), move(now.noise, g.noise)}, l};
  });
  Array now;
  for (int i = 0; i < 400; ++i) std::tie(p, now) = step(p, x, y);

  const Array grid = linspace(-2.5, 2.5, 50, f64);
  const auto [mean, deviation] = jit(predict)(p, x, y, grid);
  const Array error = mean - truth(grid);
  std::printf("loss %.3f, noise %.3f, error %.3f, largest deviation %.3f\n", now.item<double>(),
              exp(p.noise).item<double>(), sqrt(lockstep::mean(square(error))).item<double>(),
              max(deviation).item<double>());
}
