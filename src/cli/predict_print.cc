#include "cli/predict_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/printable.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kWidestName = 60;

// Prints a line for each input: its name, then classes and their probabilities.
class TextPredictions final : public PredictionPrinter {
 public:
  TextPredictions(const ModelInfo& info, const PrintOptions& options)
      : info_(info), options_(options), class_width_(1), name_width_(std::min(options.name_width, kWidestName)) {
    for (int64_t i = 0; i < info.classes; ++i) class_width_ = std::max(class_width_, shown_class(i).size());
  }

  void print(const Prediction& prediction) override {
    if (!prediction.error.empty()) return;  // on standard error
    std::string line = fmt::format("{:<{}}", printable(prediction.input), name_width_);
    if (info_.classes == 0) line += fmt::format("  {:.6g}", prediction.number);
    for (size_t i = 0; i < prediction.classes.size(); ++i)
      line += fmt::format("  {:<{}}  {:.4f}", shown_class(prediction.classes[i]), class_width_,
                          prediction.probabilities[i]);
    if (options_.labels) line += label_text(prediction);
    fmt::print("{}\n", line);
  }

 private:
  std::string shown_class(int64_t number) const { return printable(class_name(info_, number), 60); }
  std::string label_text(const Prediction& prediction) const {
    const bool wrong = info_.classes > 0 && prediction.label != class_name(info_, prediction.classes[0]);
    return fmt::format("  label {}{}", printable(prediction.label, 60), wrong ? "  wrong" : "");
  }

  const ModelInfo& info_;
  const PrintOptions options_;
  size_t class_width_, name_width_;
};

class JsonPredictions final : public PredictionPrinter {
 public:
  explicit JsonPredictions(const ModelInfo& info) : info_(info) {}

  void print(const Prediction& prediction) override {
    ordered_json out{{"input", prediction.input}};
    if (!prediction.error.empty()) {
      out["error"] = prediction.error;
    } else if (info_.classes == 0) {
      out["value"] = prediction.number;
    } else {
      out["class"] = class_name(info_, prediction.classes[0]);
      out["probability"] = prediction.probabilities[0];
      for (size_t i = 0; i < prediction.classes.size(); ++i)
        out["top"].push_back({{"class", class_name(info_, prediction.classes[i])},
                              {"index", prediction.classes[i]},
                              {"probability", prediction.probabilities[i]}});
    }
    if (!prediction.label.empty()) out["label"] = prediction.label;
    fmt::print("{}\n  {}", first_ ? "[" : ",", out.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    first_ = false;
  }
  void finish() override { fmt::print("{}\n", first_ ? "[]" : "\n]"); }

 private:
  const ModelInfo& info_;
  bool first_ = true;
};

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

class CsvPredictions final : public PredictionPrinter {
 public:
  CsvPredictions(const ModelInfo& info, const PrintOptions& options) : info_(info), options_(options) {
    std::string line = "input";
    if (info.classes == 0) line += ",value";
    for (int64_t i = 1; i <= (info.classes == 0 ? 0 : options.top); ++i) {
      const std::string suffix = i == 1 ? "" : fmt::format("_{}", i);
      line += fmt::format(",class{0},probability{0}", suffix);
    }
    fmt::print("{}{}\n", line, options.labels ? ",label" : "");
  }

  void print(const Prediction& prediction) override {
    if (!prediction.error.empty()) return;  // on standard error
    std::string line = csv_cell(prediction.input);
    if (info_.classes == 0) line += fmt::format(",{}", prediction.number);
    for (size_t i = 0; i < prediction.classes.size(); ++i)
      line += fmt::format(",{},{}", csv_cell(class_name(info_, prediction.classes[i])), prediction.probabilities[i]);
    if (options_.labels) line += "," + csv_cell(prediction.label);
    fmt::print("{}\n", line);
  }

 private:
  const ModelInfo& info_;
  const PrintOptions options_;
};

}  // namespace

std::unique_ptr<PredictionPrinter> make_printer(const std::string& format, const ModelInfo& info,
                                                const PrintOptions& options) {
  if (format == "json") return std::make_unique<JsonPredictions>(info);
  if (format == "csv") return std::make_unique<CsvPredictions>(info, options);
  return std::make_unique<TextPredictions>(info, options);
}

void set_classes(Prediction& prediction, std::span<const float> probabilities, int64_t top) {
  std::vector<int64_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + std::min<int64_t>(top, std::ssize(order));
  std::partial_sort(order.begin(), middle, order.end(), [&](int64_t a, int64_t b) {
    const float pa = probabilities[static_cast<size_t>(a)], pb = probabilities[static_cast<size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  });
  for (auto at = order.begin(); at != middle; ++at) {
    prediction.classes.push_back(*at);
    prediction.probabilities.push_back(probabilities[static_cast<size_t>(*at)]);
  }
}

}  // namespace lockstep::cli
