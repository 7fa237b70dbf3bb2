// An evaluation as JSON. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/engine.h"
#include "train/classification_report.h"

namespace lockstep {

struct EvaluationReport {
  const EvalResult& result;
  std::string set;                            // "test"
  const ClassificationReport& report;         // empty if the model is no classifier
  std::vector<std::string> class_names = {};  // empty: the classes have only numbers
};

// The set, its metrics and, of a classifier, its classes, averages, confusion matrix, top-k accuracies and calibration.
nlohmann::ordered_json evaluation_object(const EvaluationReport& evaluation);

// The name of a class, or its number.
std::string shown_class(const std::vector<std::string>& names, int64_t number);

}  // namespace lockstep
