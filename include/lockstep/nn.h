// Layers: plain structs of arrays, and functions that apply them. A model is a struct of layers. Such a struct is a
// tree, so jit, grad, checkpoints and optimizers accept it directly.
//
//   struct Net { nn::Dense hidden, out; };
//   Array logits(const Net& net, const Array& x) { return nn::apply(net.out, relu(nn::apply(net.hidden, x))); }
//
// Activations (relu, gelu, silu, tanh) are in lockstep/math.h, pools in lockstep/convolution.h. Safe from any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/convolution.h"
#include "lockstep/detail/tree_visitor.h"
#include "lockstep/operand.h"
#include "lockstep/state.h"

namespace lockstep::nn {

struct Mode;
class Float8Products;

// All layers compute in the type of x, f32 or wider inside norms: weights are converted to it, and it is the type of the
// result. For integers x it is the type of the weights; norms give f32.
struct Dense {
  Array w, b;  // [in, out], [out]
};
// As Dense, but the bias is optional.
struct Linear {
  Array w;                 // [in, out]
  std::optional<Array> b;  // [out]
};
struct Conv2d {
  Array w, b;  // [kh, kw, in, out], [out]
};
struct Embedding {
  Array table;  // [count, features]
};
struct LayerNorm {
  Array scale, bias;  // [features]
};
struct RmsNorm {
  Array scale;  // [features]
};
struct GroupNorm {
  Array scale, bias;  // [features]
  int64_t groups;     // divides the number of features
};
struct BatchNorm {
  Array scale, bias;     // [features]
  State mean, variance;  // [features], f32: running values
};

// He-normal weights, zero biases.
Dense dense(const Operand& key, int64_t in, int64_t out);
Linear linear(const Operand& key, int64_t in, int64_t out, bool bias = true);
Conv2d conv2d(const Operand& key, Extent2d kernel, int64_t in, int64_t out);
// Normal with deviation 0.02.
Embedding embedding(const Operand& key, int64_t count, int64_t features);
// Scales and running variances 1; biases and running means 0.
LayerNorm layer_norm(int64_t features, SourceLine at = SourceLine::here());
RmsNorm rms_norm(int64_t features, SourceLine at = SourceLine::here());
GroupNorm group_norm(int64_t features, int64_t groups, SourceLine at = SourceLine::here());
BatchNorm batch_norm(int64_t features, SourceLine at = SourceLine::here());

// x [..., in] -> [..., out].
Array apply(const Dense&, const Operand& x);
Array apply(const Linear&, const Operand& x);
// The same, as a product in 8-bit floats if mode.float8 is set.
Array apply(const Linear&, const Operand& x, const Mode& mode);
// x [n, h, w, in] -> [n, oh, ow, out].
Array apply(const Conv2d&, const Operand& x, const Conv2dOptions& options = {});
// Row numbers (integers [...]) -> [..., features]. Numbers outside the table are clamped to it.
Array apply(const Embedding&, const Operand& rows);
// Normalizes the last dimension to mean 0 and variance 1, computed in f32, then applies scale and bias.
Array apply(const LayerNorm&, const Operand& x, double epsilon = 1e-5);
// x / sqrt(mean(x^2) + epsilon) * scale along the last dimension, computed in f32.
Array apply(const RmsNorm&, const Operand& x, double epsilon = 1e-5);
// x [n, ..., features]: normalizes each group of consecutive features over all places of an example to mean 0 and
// variance 1, computed in f32, then applies scale and bias.
Array apply(const GroupNorm&, const Operand& x, double epsilon = 1e-5);

// [n, ...] -> [n, rest].
Array flatten(const Operand& x);

// The next values of the nn::State arrays that a model was called with: Mode::updates receives them, with_updates()
// returns them with the model. Not thread-safe.
class StateUpdates {
 public:
  // The last update of a state; the state itself if there was none.
  Array value(const Array& state) const;
  // Assigns the next values of all states of a tree, which must not be const. Throws Error where with_updates() does.
  void assign(detail::TreeRef model) const;

 private:
  friend struct Mode;
  std::vector<std::pair<Array, Array>> updates_;  // state, next value
};

// The model with the next values of its states. A loss returns it as aux, and update() moves its parameters:
//
//   const auto loss = [&](const Net& net) {
//     nn::StateUpdates updates;
//     const Array value = mean(loss_of(net, x, {.training = true, .updates = &updates}));
//     return std::pair{value, nn::with_updates(net, updates)};
//   };
//   const auto [value, grads] = value_and_grad(loss)(net);  // value is {loss, net with the next states}
//   std::tie(net, state) = update(adam, value.second, grads, state);
//
// Throws Error when an update belongs to no state of the model.
template <class Model>
Model with_updates(Model model, const StateUpdates& updates, SourceLine at = SourceLine::here()) {
  const lockstep::detail::CallerLine line(at);
  updates.assign(model);
  return model;
}

// How a model is called: to train or to predict.
struct Mode {
  bool training = false;
  Array key = {};                   // the random key for dropout; defined when training
  DType compute = f32;              // the type of activations
  StateUpdates* updates = nullptr;  // receives the next values of states; needed in training
  // Blocks of transformers store only their input in training; the backward pass computes the rest again. The results
  // are the same.
  bool remat = false;
  // The scales of products in 8-bit floats, see float8_products.h; null: products are in the type of x.
  Float8Products* float8 = nullptr;

  // Assigns the next value of a state, from the next step on. `state` must be the array that the loss was called with.
  // Throws Error in training without `updates`, so that a state is not forgotten.
  void update(const State& state, const Array& value) const;
};

struct BatchNormOptions {
  double momentum = 0.1;  // weight of a batch in the running values
  double epsilon = 1e-5;  // is added to variances
};
// (x - mean) / sqrt(variance + epsilon) * scale + bias, per feature (the last dimension), computed in f32, as PyTorch
// does. In training, mean and variance are those of the batch, over all devices that share it, and mode.update() gets
// the next running values, the variance unbiased. Otherwise they are the running values. Throws Error in training with
// a single value per feature.
Array apply(const BatchNorm&, const Operand& x, const Mode& mode, const BatchNormOptions& options = {});

// Each element becomes 0 with probability `rate` and is divided by 1 - rate otherwise. Returns x when not training.
// `site` must be different for each dropout of a model. Throws Error unless 0 <= rate < 1.
Array dropout(const Mode& mode, int64_t site, const Operand& x, double rate);

// Recurrent layers with PyTorch's equations. The outputs of both weights are the gates, h features each.
struct Gru {
  Linear input, hidden;  // [in, 3 h], [h, 3 h]: gates r, z, n
};
struct Lstm {
  Linear input, hidden;  // [in, 4 h], [h, 4 h]: gates i, f, g, o
};
struct LstmState {
  Array hidden, cell;  // [b, h]
};

// Uniform between -1 / sqrt(features) and 1 / sqrt(features), biases included.
Gru gru(const Operand& key, int64_t in, int64_t features);
Lstm lstm(const Operand& key, int64_t in, int64_t features);

// x [b, t, in] and the first state (default: zeros) -> {outputs [b, t, h], last state}. The result has the type of x.
//   r = sigmoid(input_r(x) + hidden_r(h)), z = sigmoid(input_z(x) + hidden_z(h))
//   n = tanh(input_n(x) + r * hidden_n(h)), h = (1 - z) * n + z * h
std::pair<Array, Array> apply(const Gru&, const Operand& x, const std::optional<Array>& first = {});
//   c = sigmoid(f) * c + sigmoid(i) * tanh(g), h = sigmoid(o) * tanh(c), each gate input(x) + hidden(h)
std::pair<Array, LstmState> apply(const Lstm&, const Operand& x, const std::optional<LstmState>& first = {});

}  // namespace lockstep::nn
