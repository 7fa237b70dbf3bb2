// Task: what a user trains. A function that initializes parameters, and a loss over a batch. The trainer (Engine) adds
// everything else: gradients, precision, sharding, accumulation, checkpoints, alarms, logging.
//
//   struct Params { nn::Dense hidden, out; };
//   struct Points { Array x, y; };  // the fields of the data set that the loss reads
//   Task task = make_task<Points>(
//       "regression", [](const Array& key) { return Params{...}; },
//       [](const Params& p, const Points& batch, const nn::Mode& mode) -> TaskResult {
//         const Array error = predict(p, batch.x) - batch.y;
//         return {.loss = square(error), .metrics = {{"abs_error", abs(error)}}};
//       });
//
// Safe from any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/jit.h"
#include "lockstep/loggers.h"
#include "lockstep/nn.h"
#include "lockstep/random.h"
#include "lockstep/source.h"
#include "lockstep/tree.h"

namespace lockstep {

// A mean over the examples of all batches of a step or an evaluation. Sums and counts are combined, so batches of
// different sizes count exactly.
struct Mean {
  Array values;        // [n, ...]: one row per example. A scalar is already the mean of its batch.
  Array weights = {};  // one weight per value; undefined: all 1

  Mean() = default;
  Mean(Array v, Array w = {}) : values(std::move(v)), weights(std::move(w)) {}  // NOLINT: values convert
};

struct TaskResult {
  Mean loss;  // what training minimizes
  std::vector<std::pair<std::string, Mean>> metrics = {};
  // In an evaluation: integers [n, k], one row per example, that are added up; "predictions" counts predicted classes.
  std::vector<std::pair<std::string, Array>> counts = {};
};

struct Task {
  std::string name = {};                // "mlp"
  std::vector<std::string> paths = {};  // of the parameters, such as "dense/0/w"
  std::vector<Type> types = {};         // of the parameters, in the same order
  std::vector<bool> trained = {};       // false: an nn::State
  // Random key -> initial parameters.
  std::function<std::vector<Array>(const Array& key)> init = {};
  // Parameters, trained ones in the compute type, and a batch -> loss and metrics.
  std::function<TaskResult(const std::vector<Array>& params, const BatchArrays& batch, const nn::Mode&)> loss = {};
  // Parameters and a batch without labels -> what the model predicts: logits [n, classes] of a classifier, numbers [n] in
  // the unit of the target, or logits [n, t, vocabulary]. `lockstep predict` and `export` need it. May be empty.
  std::function<Array(const std::vector<Array>& params, const BatchArrays& batch, const nn::Mode&)> outputs = {};
  // A batch -> the images that a training step reads, u8 [n, rows, cols] or [n, rows, cols, channels], for loggers that
  // show examples. Empty: there are none.
  std::function<Array(const BatchArrays& batch, const nn::Mode&)> images = {};
  // Adds metrics that follow from the means of a step or an evaluation, such as a perplexity. May be empty.
  std::function<void(Scalars& means)> derive = {};
  // What rates count besides examples: "tokens", and how many an example has. Empty: nothing.
  std::string unit = {};
  int64_t units_per_example = 0;
};

namespace detail {
// The leaf of a batch with this path. Throws Error, listing the fields, when the data set has no such field.
Array batch_field(const BatchArrays& batch, const std::string& path, const std::string& task);
}  // namespace detail

// Sets the parameters of a task: their paths, types and initial values. init(key) returns them as any tree.
template <class Init>
auto set_parameters(Task& task, Init init) {
  // Traced, not run: only the tree's structure and the types are needed here.
  auto form = detail::trace_call("make_task", init, random::key(0)).result;
  detail::for_each_leaf(form, [&](const std::string& path, Array& leaf, bool is_state) {
    task.paths.push_back(path);
    task.types.push_back(leaf.type());
    task.trained.push_back(!is_state);
    leaf = Array();
  });
  task.init = [init](const Array& key) { return tree_leaves(init(key)); };
  return form;
}

// Makes a task from any tree types: init(key) returns the parameters, loss(params, batch, mode) a TaskResult. The paths
// of Fields, a tree, are the fields of the data set that the loss reads. Pass BatchArrays to get all of them.
template <class Fields, class Init, class Loss>
Task make_task(std::string name, Init init, Loss loss) {
  Task task;
  task.name = std::move(name);
  const auto form = set_parameters(task, std::move(init));
  task.loss = [form, loss, title = task.name](const std::vector<Array>& params, const BatchArrays& batch,
                                              const nn::Mode& mode) -> TaskResult {
    if constexpr (std::is_same_v<Fields, BatchArrays>) {
      return loss(tree_unflatten(form, params), batch, mode);
    } else {
      Fields fields;
      detail::for_each_path(
          fields, [&](const std::string& path, Array& leaf) { leaf = detail::batch_field(batch, path, title); });
      return loss(tree_unflatten(form, params), fields, mode);
    }
  };
  return task;
}

// A task with its data: what train_main() and `lockstep train` run.
struct Problem {
  Task task;
  SourcePtr train;
  SourcePtr validation = nullptr;  // selects the best checkpoint and stops a run early; null: none
  SourcePtr test = nullptr;        // null: none
  // Files by name, such as a tokenizer, that are stored beside the checkpoints.
  std::map<std::string, std::string> files = {};
};

}  // namespace lockstep
