#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/tasks.h"
#include "train/classification.h"

namespace lockstep {
namespace {

Array normalized_pixels(const Array& images, const ImageTaskOptions& options, DType compute) {
  // One multiplication and one addition instead of three operations.
  const double scale = 1 / (255 * options.pixel_sd), offset = -options.pixel_mean / options.pixel_sd;
  Array x = astype(images, f32) * scale;
  if (offset != 0) x = x + offset;
  return astype(x, compute);
}

bool augments(const nn::AugmentOptions& options) { return options.crop > 0 || options.flip || options.cutout > 0; }

// Separates the random numbers of augmentation from those of dropout, whose sites count from 0.
constexpr int64_t kAugmentSite = 1 << 30;

Array augmented(const Array& images, const ImageTaskOptions& options, const nn::Mode& mode) {
  if (!mode.training || !augments(options.augment)) return images;
  return nn::augment(images, random::fold_in(mode.key, kAugmentSite), arange(images.shape(0)), options.augment);
}

}  // namespace

Task image_task(const Model& model, const ImageTaskOptions& options) {
  if (!(options.pixel_sd > 0)) throw_error("image_task: pixel_sd is {}; give a positive number", options.pixel_sd);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    throw_error("image_task: label_smoothing is {}; give a number of at least 0 and below 1", options.label_smoothing);
  Task task{.name = model.name, .paths = model.paths, .types = model.types, .trained = model.trained};
  task.init = model.init;
  task.outputs = [model, options](const std::vector<Array>& params, const BatchArrays& batch, const nn::Mode& mode) {
    const Array images = detail::batch_field(batch, "images", model.name);
    return model.logits(params, normalized_pixels(images, options, mode.compute), mode);
  };
  task.images = [name = model.name, options](const BatchArrays& batch, const nn::Mode& mode) {
    return augmented(detail::batch_field(batch, "images", name), options, mode);
  };
  task.loss = [model, options](const std::vector<Array>& params, const BatchArrays& batch,
                               const nn::Mode& mode) -> TaskResult {
    const Array images = augmented(detail::batch_field(batch, "images", model.name), options, mode);
    const Array logits = model.logits(params, normalized_pixels(images, options, mode.compute), mode);
    const Array labels = detail::batch_field(batch, "labels", model.name);
    return detail::classification_result(logits, labels, options.label_smoothing, mode);
  };
  return task;
}

}  // namespace lockstep
