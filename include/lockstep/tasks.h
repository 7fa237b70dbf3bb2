// The tasks of `lockstep train`. Safe from any thread.
#pragma once

#include "lockstep/gpt.h"
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

// Prediction of the next token: fields "inputs" and "targets", integers [t], t <= context. Targets that are negative do
// not count in an evaluation.
struct LanguageTaskOptions {
  double bytes_per_token = 0;  // bytes of text per target, for bits per byte; 0: not known
};
// The cross-entropy of gpt's logits; metrics "perplexity" and, if the bytes are known, "bits_per_byte".
Task language_task(const GptConfig& config, const LanguageTaskOptions& options = {});

}  // namespace lockstep
