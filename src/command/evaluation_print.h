// Prints an evaluation as text or JSON. Used by the main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine.h"
#include "train/classification_report.h"

namespace lockstep::cli {

struct PrintedEvaluation {
  const EvalResult& result;
  std::string set;                            // "test"
  const ClassificationReport& report;         // empty if the model is no classifier
  std::vector<std::string> class_names = {};  // empty: the classes have only numbers
};

// The metrics, named test_loss or validation_loss for example. Of a classifier: classes, averages, the confusion matrix
// (up to 20 classes) or the most frequent confusions, top-k accuracies and calibration.
std::string evaluation_text(const PrintedEvaluation& evaluation);

// The same as one JSON object.
std::string evaluation_json(const PrintedEvaluation& evaluation);

// The name of a class, or its number.
std::string shown_class(const std::vector<std::string>& names, int64_t number);

}  // namespace lockstep::cli
