// Newton's method for a logistic regression: hessian() and a solver of linear systems by conjugate gradients,
// compiled into one step. Seven steps reach the minimum to within rounding; gradient descent takes hundreds.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

struct Examples {
  Array features;  // [n, d]
  Array labels;    // [n], 0 or 1
};

Examples make_examples(int64_t n, int64_t d) {
  const auto [features, weights, noise] = random::split<3>(random::key(0));
  const Array x = random::normal(features, {n, d}), truth = random::normal(weights, {d});
  const Array margin = matmul(x, truth) + random::normal(noise, {n});
  return {x, astype(margin > 0, f32)};
}

// The mean of -log p(label), with a small penalty.
Array loss(const Array& w, const Examples& e) {
  const Array margin = matmul(e.features, w);
  return mean(softplus(margin) - e.labels * margin) + 0.5e-3f * sum(w * w);
}

struct Iterate {
  Array x, residual, direction;
};

// The solution of a x = b for a positive definite matrix, which conjugate gradients find in as many rounds as b is
// long. A round without a residual changes nothing.
Array solve_positive(const Array& a, const Array& b) {
  const auto quotient = [](const Array& p, const Array& q) { return where(q > 0, p / where(q > 0, q, 1), 0); };
  const auto round = [&](const Array&, const Iterate& at) {
    const Array mapped = matmul(a, at.direction), size = sum(at.residual * at.residual);
    const Array step = quotient(size, sum(at.direction * mapped));
    const Array residual = at.residual - step * mapped;
    return Iterate{at.x + step * at.direction, residual,
                   residual + quotient(sum(residual * residual), size) * at.direction};
  };
  return fori_loop(0, 2 * b.shape()[0], round, Iterate{zeros_like(b), b, b}).x;
}

Array newton(const Array& w, const Examples& e) {
  return w - solve_positive(hessian(loss)(w, e), grad(loss)(w, e));
}

int main() {
  const Examples examples = make_examples(2000, 8);
  const auto step = jit(newton);
  const auto slope = jit([](const Array& w, const Examples& e) { return max(abs(grad(loss)(w, e))); });
  Array w = zeros({8});
  for (int i = 0; i <= 7; ++i) {
    std::printf("step %d: loss %.6f, largest slope %.1e\n", i, static_cast<double>(loss(w, examples).item<float>()),
                static_cast<double>(slope(w, examples).item<float>()));
    w = step(w, examples);
  }
}
