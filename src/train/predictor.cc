#include "train/predictor.h"

#include "base/check.h"
#include "lockstep/math.h"

namespace lockstep {

Array model_outputs(const Task& task, const std::vector<Array>& params, const BatchArrays& batch, DType compute) {
  std::vector<Array> cast = params;
  for (size_t i = 0; i < cast.size(); ++i)
    if (task.trained[i] && is_floating(cast[i].dtype())) cast[i] = astype(cast[i], compute);
  return astype(task.outputs(cast, batch, {.compute = compute}), f32);
}

Predictor::Predictor(const Task& task, std::vector<Array> params, DType compute)
    : params_(std::move(params)),
      outputs_(jit(Function([task, compute](const std::vector<Array>& all, const BatchArrays& batch) {
        return model_outputs(task, all, batch, compute);
      }))) {
  if (!task.outputs)
    throw_error("predict: the task {} has no outputs; set Task::outputs in the program that makes it", task.name);
}

}  // namespace lockstep
