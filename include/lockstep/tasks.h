// The tasks of `lockstep train`. Safe from any thread.
#pragma once

#include "lockstep/models.h"
#include "lockstep/task.h"

namespace lockstep {

// Classification of images: fields "images" u8 [rows, cols] or [rows, cols, channels] and "labels", integers.
struct ImageTaskOptions {
  double label_smoothing = 0;  // in training
  // Pixels become (value / 255 - mean) / sd.
  double pixel_mean = 0, pixel_sd = 1;
};
// The cross-entropy of the model's logits; metric "accuracy". An evaluation counts examples by class: "labels",
// "predictions" (predicted as the class) and "hits" (correct predictions). Throws Error when an option is out of range.
Task image_task(const Model& model, const ImageTaskOptions& options = {});

}  // namespace lockstep
