// Prints an evaluation as text. Used by the main thread only.
#pragma once

#include <string>

#include "train/evaluation_json.h"

namespace lockstep::cli {

// The metrics, named test_loss or validation_loss for example. Of a classifier: classes, averages, the confusion matrix
// (up to 20 classes) or the most frequent confusions, top-k accuracies and calibration.
std::string evaluation_text(const EvaluationReport& evaluation);

}  // namespace lockstep::cli
