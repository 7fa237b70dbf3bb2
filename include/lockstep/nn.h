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
#include "lockstep/state.h"

namespace lockstep::nn {

struct Dense {
  Array w, b;  // [in, out], [out]
};
// As Dense, but the bias is optional. The result has the type of x; weights are converted to it.
struct Linear {
  Array w;                 // [in, out]
  std::optional<Array> b;  // [out]
};
struct Conv2d {
  Array w, b;  // [kh, kw, in, out], [out]
};
struct LayerNorm {
  Array scale, bias;  // [features]
};

// He-normal weights, zero biases.
Dense dense(const Array& key, int64_t in, int64_t out);
Conv2d conv2d(const Array& key, Extent2d kernel, int64_t in, int64_t out);
LayerNorm layer_norm(int64_t features);

// x [..., in] -> [..., out].
Array apply(const Dense&, const Array& x);
// x [n, h, w, in] -> [n, oh, ow, out].
Array apply(const Conv2d&, const Array& x, const Conv2dOptions& options = {});
// Normalizes the last dimension to mean 0 and variance 1, computed in f32, then applies scale and bias.
Array apply(const LayerNorm&, const Array& x, double epsilon = 1e-5);

// [n, ...] -> [n, rest].
Array flatten(const Array& x);

// The next values of the nn::State arrays that a model was called with. Not thread-safe.
class StateUpdates {
 public:
  // The last update of a state; the state itself if there was none.
  Array value(const Array& state) const;

 private:
  friend struct Mode;
  std::vector<std::pair<Array, Array>> updates_;  // state, next value
};

// How a model is called: to train or to predict.
struct Mode {
  bool training = false;
  Array key = {};                   // the random key for dropout; defined when training
  DType compute = f32;              // the type of activations
  StateUpdates* updates = nullptr;  // receives the next values of states; null: they are dropped

  // Assigns the next value of a state, from the next step on. `state` must be the array that the loss was called with.
  void update(const State& state, const Array& value) const;
};
// Each element becomes 0 with probability `rate` and is divided by 1 - rate otherwise. Returns x when not training.
// `site` must be different for each dropout of a model. Throws Error unless 0 <= rate < 1.
Array dropout(const Mode& mode, int64_t site, const Array& x, double rate);

}  // namespace lockstep::nn
