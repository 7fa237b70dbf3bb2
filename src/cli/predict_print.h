// Prints predictions as text, JSON or CSV. Used by the main thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/model_info.h"

namespace lockstep::cli {

struct Prediction {
  std::string input;
  std::string label = {};             // what the data says; empty: unknown
  std::string error = {};             // why there is no prediction; else empty
  std::vector<int64_t> classes = {};  // the most probable ones, best first
  std::vector<float> probabilities = {};
  float number = 0;  // of a model without classes
};

class PredictionPrinter {
 public:
  virtual ~PredictionPrinter() = default;
  virtual void print(const Prediction& prediction) = 0;
  // Called once, after the last prediction.
  virtual void finish() {}
};

struct PrintOptions {
  size_t name_width = 0;  // of the longest input, for text
  int64_t top = 1;        // classes per input
  bool labels = false;    // whether inputs have labels
};
// `format` is text, json or csv. REQUIRES: info outlives the printer.
std::unique_ptr<PredictionPrinter> make_printer(const std::string& format, const ModelInfo& info,
                                                const PrintOptions& options);

// The `top` most probable classes, best first. Equal probabilities are ordered by class.
void set_classes(Prediction& prediction, std::span<const float> probabilities, int64_t top);

}  // namespace lockstep::cli
