// Differentially private training: each example's gradient is clipped, and noise hides what one example adds.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

struct Model {
  Array w, b;
};

Array loss(const Model& m, const Array& x, const Array& y) {  // logistic regression; one example
  const Array z = dot(x, m.w) + m.b;
  return softplus(z) - y * z;
}

// The gradient of every example, each of norm at most `bound`, summed; with noise in proportion to the bound.
Model private_gradient(const Model& m, const Array& x, const Array& y, const Array& key, float bound, float noise) {
  Model each = vmap(grad(loss), {.in_axes = {std::nullopt, 0, 0}})(m, x, y);  // w: (batch, features), b: (batch)
  const Array norm = sqrt(sum(square(each.w), 1) + square(each.b));
  const Array scale = minimum(1, bound / norm);
  const auto [key_w, key_b] = random::split<2>(key);
  const Array batch = static_cast<float>(x.shape(0));
  return {(dot(scale, each.w) + noise * bound * random::normal(key_w, m.w.shape())) / batch,
          (sum(scale * each.b) + noise * bound * random::normal(key_b, {})) / batch};
}

float accuracy(const Model& m, const Array& x, const Array& y) {
  return mean((dot(x, m.w) + m.b > 0) == (y > 0.5f)).item<float>();
}

int main() {
  const auto keys = unstack(random::split(random::key(0), 3));
  const Array truth = random::normal(keys[0], {20}), x = random::normal(keys[1], {4096, 20});
  const Array y = astype(dot(x, truth) > 0, f32);

  const auto step = jit([](Model m, Array inputs, Array labels, Array key, float noise) {
    const Array rows = random::randint(key, {256}, 0, inputs.shape(0));
    const Model g = private_gradient(m, take(inputs, rows), take(labels, rows), random::fold_in(key, 1), 1.f, noise);
    return tree_map([](Array p, Array d) { return p - 0.5f * d; }, m, g);
  });
  for (const float noise : {0.f, 1.f, 8.f}) {
    Model m = {zeros({20}), zeros({})};
    for (int i = 0; i < 300; ++i) m = step(m, x, y, random::fold_in(keys[2], i), noise);
    std::printf("noise %.0f: accuracy %.3f\n", noise, accuracy(m, x, y));
  }
}
