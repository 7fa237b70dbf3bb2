// The tasks of `lockstep train`. Safe from any thread.
#pragma once

#include "lockstep/augment.h"
#include "lockstep/gpt.h"
#include "lockstep/models.h"
#include "lockstep/task.h"

namespace lockstep {

// Classification of images: fields "images" u8 [rows, cols] or [rows, cols, channels] and "labels", integers.
struct ImageTaskOptions {
  double label_smoothing = 0;  // in training
  // Pixels become (value / 255 - mean) / sd.
  double pixel_mean = 0, pixel_sd = 1;
  nn::AugmentOptions augment = {};  // in training; an example is augmented anew in every step
};
// The cross-entropy of the model's logits; metric "accuracy". An evaluation counts examples by class: "labels",
// "predictions" (predicted as the class) and "hits" (correct predictions). Throws Error when an option is out of range.
Task image_task(const Model& model, const ImageTaskOptions& options = {});

// A table: fields "features" [k], and "labels", integers, or "targets", numbers.
struct TableTaskOptions {
  int64_t classes = 0;                             // 0: the target is a number
  std::vector<float> means = {}, deviations = {};  // of the features
  float target_mean = 0, target_deviation = 1;
  std::vector<int64_t> hidden = {256, 128};  // units of the hidden layers
  double label_smoothing = 0;                // with classes, in training
  double dropout = 0;                        // before the last layer
};
// A network of dense layers with relu on normalized features. With classes: the cross-entropy; metric "accuracy" and the
// counts of image_task(). Otherwise: the mean squared error of the normalized target; metric "abs_error", the mean
// absolute error in the unit of the target. Throws Error when the means do not fit.
Task table_task(const std::string& name, const TableTaskOptions& options);

// Prediction of the next token: fields "inputs" and "targets", integers [t], t <= context. Targets that are negative do
// not count in an evaluation.
struct LanguageTaskOptions {
  double bytes_per_token = 0;  // bytes of text per target, for bits per byte; 0: not known
};
// The cross-entropy of gpt's logits; metrics "perplexity" and, if the bytes are known, "bits_per_byte".
Task language_task(const GptConfig& config, const LanguageTaskOptions& options = {});

}  // namespace lockstep
