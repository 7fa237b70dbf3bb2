#include "base/check.h"
#include "lockstep/indexing.h"
#include "lockstep/losses.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/tasks.h"

namespace lockstep {
namespace {

Array normalized_pixels(const Array& images, const ImageTaskOptions& options, DType compute) {
  // One multiplication and one addition instead of three operations.
  const double scale = 1 / (255 * options.pixel_sd), offset = -options.pixel_mean / options.pixel_sd;
  Array x = astype(images, f32) * scale;
  if (offset != 0) x = x + offset;
  return astype(x, compute);
}

}  // namespace

Task image_task(const Model& model, const ImageTaskOptions& options) {
  if (!(options.pixel_sd > 0)) throw_error("image_task: pixel_sd is {}; give a positive number", options.pixel_sd);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    throw_error("image_task: label_smoothing is {}; give a number of at least 0 and below 1", options.label_smoothing);
  Task task{.name = model.name, .paths = model.paths, .types = model.types, .trained = model.trained};
  task.init = model.init;
  task.loss = [model, options](const std::vector<Array>& params, const BatchArrays& batch,
                               const nn::Mode& mode) -> TaskResult {
    const Array& labels = detail::batch_field(batch, "labels", model.name);
    const Array pixels =
        normalized_pixels(detail::batch_field(batch, "images", model.name), options, mode.compute);
    const Array logits = model.logits(params, pixels, mode);
    const double smoothing = mode.training ? options.label_smoothing : 0;
    TaskResult out;
    out.loss = softmax_cross_entropy(logits, labels, {.label_smoothing = smoothing});
    const Array correct = astype(is_correct(logits, labels), i32);
    out.metrics = {{"accuracy", correct}};
    if (mode.training) return out;
    const int64_t classes = logits.shape(-1);
    const Array predictions = astype(one_hot(argmax(logits, -1), classes), i32);
    out.counts = {{"hits", predictions * expand_dims(correct, 1)},
                  {"labels", astype(one_hot(labels, classes), i32)},
                  {"predictions", predictions}};
    return out;
  };
  return task;
}

}  // namespace lockstep
