// The interface between a model and the trainer, and the built-in models of `lockstep train`. Safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/jit.h"
#include "lockstep/nn.h"
#include "lockstep/random.h"
#include "lockstep/tree.h"

namespace lockstep {

struct MlpParams {
  std::vector<nn::Dense> dense;
};
struct CnnParams {
  std::vector<nn::Conv2d> conv;
  std::vector<nn::Dense> dense;
};

// A model with its parameters flattened to a list of leaves. Use make_model() to make one from a parameter struct.
struct Model {
  std::string name;
  std::vector<std::string> paths;  // parameter paths, such as "dense/0/w"
  std::vector<Type> types;         // parameter types, in the same order
  std::vector<bool> trained;       // false: an nn::State
  // Random key -> initial parameters.
  std::function<std::vector<Array>(const Array& key)> init;
  // Parameters and images [n, rows, cols] or [n, rows, cols, channels], both in the compute type -> logits
  // [n, classes].
  std::function<Array(const std::vector<Array>& params, const Array& images, const nn::Mode&)> logits;
};

// Makes a Model from any tree type: init(key) returns the parameters, logits(params, images, mode) applies them.
template <class Init, class Logits>
Model make_model(std::string name, Init init, Logits logits) {
  Model model;
  model.name = std::move(name);
  // Traced, not run: only the tree's structure and the types are needed here.
  auto form = detail::trace_call("make_model", init, random::key(0)).result;
  detail::for_each_leaf(form, [&](const std::string& path, Array& leaf, bool is_state) {
    model.paths.push_back(path);
    model.types.push_back(leaf.type());
    model.trained.push_back(!is_state);
    leaf = Array();
  });
  model.init = [init](const Array& key) { return tree_leaves(init(key)); };
  model.logits = [logits, form](const std::vector<Array>& params, const Array& images, const nn::Mode& mode) {
    return logits(tree_unflatten(form, params), images, mode);
  };
  return model;
}

// The input size and the number of classes of a model.
struct ImageShape {
  int64_t rows = 28, cols = 28, classes = 10;
  int64_t channels = 1;
};

// Settings of built-in models; 0: the model's own value.
struct ModelOptions {
  double dropout = 0;
  int64_t layers = 0, heads = 0, width = 0;  // vit; see VitConfig
};

// A built-in model:
//   "mlp"      784-256-128-10, relu
//   "mlp1024"  784-1024-1024-10, tanh (as in the SPMD examples)
//   "cnn"      two 5x5 convolutions (32 and 64 channels, SAME) with relu and 2x2 max pools, dense 3136-128 relu,
//              dense 128-10
//   "vit"      a vision transformer, see VitConfig: patches of 4 x 4 pixels, or the largest divisor of rows and columns
//              up to 8 if 4 does not divide them
//   "resnet18" a residual network for small images, see ResnetConfig
// The first and last sizes follow from `shape`. Layer i of the first three is initialized from fold_in(key, i):
// He-normal weights (Glorot-normal for tanh), zero biases; dropout is applied before the last layer. "resnet18" has no
// dropout. Throws Error for an unknown name, listing the known ones, for options that the model does not have, and when
// the images are too small for the pools of "cnn".
Model find_model(std::string_view name, const ImageShape& shape = {}, const ModelOptions& options = {});
std::vector<std::string> model_names();

}  // namespace lockstep
