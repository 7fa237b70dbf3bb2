// Predictor: the outputs of a trained model. Not thread-safe.
#pragma once

#include <vector>

#include "lockstep/jit.h"
#include "lockstep/task.h"

namespace lockstep {

class Predictor {
 public:
  // `params` in the order of task.paths. `compute`: the element type in which the model computes. Throws Error when the
  // task has no outputs.
  Predictor(const Task& task, std::vector<Array> params, DType compute = f32);

  // The outputs for a batch, f32: logits [n, classes] of a classifier, or numbers [n]. Compiles once for each batch size.
  Array outputs(const BatchArrays& batch) const { return outputs_(params_, batch); }

 private:
  using Function = std::function<Array(std::vector<Array>, BatchArrays)>;

  std::vector<Array> params_;
  Jit<Function> outputs_;
};

// The outputs as a function to trace: parameters and a batch -> f32.
Array model_outputs(const Task& task, const std::vector<Array>& params, const BatchArrays& batch, DType compute);

}  // namespace lockstep
