// The models and optimizers of the reference runs, written with the public API alone: MLPs, the CNN, and sgd, momentum
// and Adam. For tests and benchmarks.
#pragma once

#include <lockstep/lockstep.h>

#include <cmath>
#include <string>
#include <vector>

namespace lockstep::models {

struct Layer {
  Array w, b;
};
using Params = std::vector<Layer>;

// Shapes of the weights, in order.
inline std::vector<Shape> weight_shapes(const std::string& model) {
  if (model == "mlp1024") return {{784, 1024}, {1024, 1024}, {1024, 10}};
  if (model == "mlp") return {{784, 256}, {256, 128}, {128, 10}};
  if (model == "cnn") return {{5, 5, 1, 32}, {5, 5, 32, 64}, {3136, 128}, {128, 10}};
  throw Error("models: there is no model " + model);
}

// Layer i: normal(fold_in(key(seed), i), shape) * sqrt(2 / fan_in), biases 0.
inline Params init(const std::string& model, uint64_t seed) {
  Params params;
  const std::vector<Shape> shapes = weight_shapes(model);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shape& s = shapes[i];
    const int64_t fan_in = count(Shape(s.begin(), s.end() - 1));
    const auto scale = static_cast<float>(std::sqrt(2.0 / static_cast<double>(fan_in)));
    params.push_back({random::normal(random::fold_in(random::key(seed), i), s) * scale, zeros({s.back()})});
  }
  return params;
}

// Images [n, 784] in, logits [n, 10] out.
inline Array logits(const Params& params, Array x) {
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& [w, b] = params[i];
    if (w.rank() == 4) {
      if (x.rank() == 2) x = reshape(x, {-1, 28, 28, 1});
      x = max_pool(relu(conv2d(x, w, {.padding = "SAME"}) + b), {2, 2});
    } else {
      if (x.rank() == 4) x = reshape(x, {x.shape(0), -1});
      x = dot(x, w) + b;
      if (i + 1 < params.size()) x = relu(x);
    }
  }
  return x;
}

struct Batch {
  Array image;  // f32 [n, 784]
  Array label;  // u8 or i32 [n]
};

inline Array loss(const Params& params, const Batch& batch) {
  return -mean(sum(log_softmax(logits(params, batch.image)) * one_hot(batch.label, 10), 1));
}

struct State {
  Params params, m, v;  // m: momentum or Adam's mean; v: Adam's square
  Array step;
};

inline Params zeros_like_tree(const Params& p) {
  return tree_map([](const Array& a) { return zeros_like(a); }, p);
}

inline State create_state(const Params& p) { return {p, zeros_like_tree(p), zeros_like_tree(p), zeros({})}; }

struct Result {
  State state;
  Array loss, grad_norm;
};

// One step of "sgd", "momentum" (0.9) or "adam" (0.9, 0.999, 1e-8) on loss_of(params, batch).
template <class Loss>
Result train_step(State s, Batch batch, const std::string& optimizer, float rate, const Loss& loss_of) {
  auto [value, g] = value_and_grad(loss_of)(s.params, batch);
  Array squares = 0.f;
  for (const Array& leaf : tree_leaves(g)) squares = squares + sum(square(leaf));
  if (optimizer == "sgd") {
    s.params = tree_map([&](const Array& p, const Array& d) { return p - rate * d; }, s.params, g);
  } else if (optimizer == "momentum") {
    s.m = tree_map([](const Array& m, const Array& d) { return 0.9f * m + d; }, s.m, g);
    s.params = tree_map([&](const Array& p, const Array& m) { return p - rate * m; }, s.params, s.m);
  } else {
    s.step = s.step + 1.f;
    s.m = tree_map([](const Array& m, const Array& d) { return 0.9f * m + 0.1f * d; }, s.m, g);
    s.v = tree_map([](const Array& v, const Array& d) { return 0.999f * v + 0.001f * square(d); }, s.v, g);
    // 1 - b^t without the cancellation that 1 - 0.999f has in float.
    auto correction = [&](double b) { return -1.f / expm1(s.step * static_cast<float>(std::log(b))); };
    const Array m_scale = correction(0.9), v_scale = correction(0.999);
    s.params = tree_map([&](const Array& p, const Array& m,
                            const Array& v) { return p - rate * (m * m_scale) / (sqrt(v * v_scale) + 1e-8f); },
                        s.params, s.m, s.v);
  }
  return {std::move(s), value, sqrt(squares)};
}

inline Result train_step(State s, Batch batch, const std::string& optimizer, float rate) {
  return train_step(std::move(s), std::move(batch), optimizer, rate, loss);
}

}  // namespace lockstep::models
