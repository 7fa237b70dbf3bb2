#include "train/evaluation_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json averages_json(const ClassificationReport::Averages& means) {
  return {{"precision", means.precision}, {"recall", means.recall}, {"f1", means.f1}};
}

void add_classes(ordered_json& out, const EvaluationReport& evaluation) {
  const ClassificationReport& report = evaluation.report;
  const auto n = std::ssize(report.classes());
  out["classes"] = ordered_json::array();
  for (int64_t i = 0; i < n; ++i) {
    const ClassificationReport::Class& each = report.classes()[static_cast<size_t>(i)];
    ordered_json row{{"name", shown_class(evaluation.class_names, i)},
                     {"examples", each.examples},
                     {"predicted", each.predicted},
                     {"correct", each.correct}};
    row.update(averages_json({each.precision(), each.recall(), each.f1()}));
    out["classes"].push_back(std::move(row));
  }
  out["mean"] = averages_json(report.macro());
  out["weighted_mean"] = averages_json(report.weighted());
  for (size_t k = 1; k <= std::min<size_t>(static_cast<size_t>(n), ClassificationReport::kMostRanks); ++k)
    out["top_k"][std::to_string(k)] = report.top_k(k);
  out["confusion"] = ordered_json::array();
  for (int64_t row = 0; row < n; ++row) {
    std::vector<int64_t> counts;
    for (int64_t col = 0; col < n; ++col) counts.push_back(report.confusion(row, col));
    out["confusion"].push_back(counts);
  }
  ordered_json bins = ordered_json::array();
  for (const ClassificationReport::Bin& bin : report.bins()) {
    const double scale = bin.examples == 0 ? 0 : 1 / static_cast<double>(bin.examples);
    bins.push_back({{"examples", bin.examples},
                    {"confidence", bin.confidence * scale},
                    {"accuracy", static_cast<double>(bin.correct) * scale}});
  }
  out["calibration"] = {{"expected_error", report.calibration_error()}, {"bins", std::move(bins)}};
}

}  // namespace

std::string shown_class(const std::vector<std::string>& names, int64_t number) {
  const auto at = static_cast<size_t>(number);
  return at < names.size() ? names[at] : std::to_string(number);
}

ordered_json evaluation_object(const EvaluationReport& evaluation) {
  ordered_json out{{"set", evaluation.set}, {"examples", evaluation.result.examples}};
  for (const auto& [name, value] : evaluation.result.metrics) out["metrics"][name] = value;
  if (!evaluation.report.empty()) add_classes(out, evaluation);
  return out;
}

}  // namespace lockstep
