// A model as the trainer sees it, and the models of the command `lockstep train`. Safe from any thread.
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

// Parameters as leaves with paths, and the two functions every model has. Made from a struct by make_model().
struct Model {
  std::string name;
  std::vector<std::string> paths;  // of the parameters, such as "dense/0/w"
  std::vector<Type> types;
  // A key -> the parameters.
  std::function<std::vector<Array>(const Array& key)> init;
  // The parameters and images [n, rows, cols], both in the compute type -> logits [n, classes].
  std::function<Array(const std::vector<Array>& params, const Array& images, const nn::Mode&)> logits;
};

// A model of any tree: init(key) returns its parameters, logits(params, images, mode) applies them.
template <class Init, class Logits>
Model make_model(std::string name, Init init, Logits logits) {
  Model model;
  model.name = std::move(name);
  // Traced, not run: only the tree's form and the types are wanted here.
  auto form = detail::trace_call("make_model", init, random::key(0)).result;
  detail::for_each_path(form, [&](const std::string& path, Array& leaf) {
    model.paths.push_back(path);
    model.types.push_back(leaf.type());
    leaf = Array();
  });
  model.init = [init](const Array& key) { return tree_leaves(init(key)); };
  model.logits = [logits, form](const std::vector<Array>& params, const Array& images, const nn::Mode& mode) {
    return logits(tree_unflatten(form, params), images, mode);
  };
  return model;
}

// What a model is built for.
struct ImageShape {
  int64_t rows = 28, cols = 28, classes = 10;
};

// "mlp": 784-256-128-10 relu; "mlp1024": 784-1024-1024-10 tanh (as in the SPMD examples); "cnn": two 5x5 convolutions
// (32 and 64 channels, SAME) with relu and 2x2 max pools, dense 3136-128 relu, dense 128-10. The first and last sizes
// follow from `shape`. Layer i is drawn with fold_in(key, i): He-normal weights (Glorot-normal for tanh), zero biases.
// `dropout` acts before the last layer. Throws Error with the list for another name, and when the images are too small
// for the cnn's pools.
Model find_model(std::string_view name, const ImageShape& shape = {}, double dropout = 0);
std::vector<std::string> model_names();

}  // namespace lockstep
