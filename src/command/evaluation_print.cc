#include "command/evaluation_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMostInMatrix = 20, kConfusions = 10, kWidestClass = 24;
constexpr std::array<size_t, 2> kTopK = {3, 5};

// The last bytes are cut off without splitting a character.
std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::vector<std::string> shown_classes(const EvaluationReport& evaluation) {
  std::vector<std::string> out;
  for (size_t i = 0; i < evaluation.report.classes().size(); ++i)
    out.push_back(shortened(printable(shown_class(evaluation.class_names, static_cast<int64_t>(i))), kWidestClass));
  return out;
}

size_t widest(const std::vector<std::string>& texts, size_t least) {
  for (const std::string& each : texts) least = std::max(least, each.size());
  return least;
}

std::string class_table(const ClassificationReport& report, const std::vector<std::string>& names) {
  const size_t width = widest(names, std::string_view("weighted mean").size());
  std::string out = fmt::format("{:<{}}  examples  predicted  correct  precision  recall      f1\n", "class", width);
  for (size_t i = 0; i < names.size(); ++i) {
    const ClassificationReport::Class& each = report.classes()[i];
    out += fmt::format("{:<{}}  {:>8}  {:>9}  {:>7}  {:>9.4f}  {:>6.4f}  {:>6.4f}\n", names[i], width, each.examples,
                       each.predicted, each.correct, each.precision(), each.recall(), each.f1());
  }
  const auto add_means = [&](const char* title, const ClassificationReport::Averages& means) {
    out += fmt::format("{:<{}}  {:>8}  {:>9}  {:>7}  {:>9.4f}  {:>6.4f}  {:>6.4f}\n", title, width, "", "", "",
                       means.precision, means.recall, means.f1);
  };
  add_means("mean", report.macro());
  add_means("weighted mean", report.weighted());
  return out;
}

// A row for each label and a column for each prediction. Columns have the numbers of classes, since names are too wide.
std::string confusion_matrix(const ClassificationReport& report, const std::vector<std::string>& names) {
  const auto n = static_cast<int64_t>(names.size());
  size_t width = std::to_string(n - 1).size();
  for (int64_t row = 0; row < n; ++row)
    for (int64_t col = 0; col < n; ++col) width = std::max(width, std::to_string(report.confusion(row, col)).size());
  const bool named = names[0] != "0" || names.back() != std::to_string(n - 1);
  std::vector<std::string> titles;
  for (int64_t row = 0; row < n; ++row) {
    const std::string& name = names[static_cast<size_t>(row)];
    titles.push_back(named ? fmt::format("{:>2} {}", row, name) : name);
  }
  const size_t first = widest(titles, 5);
  std::string out = fmt::format("confusion matrix (rows: labels, columns: predictions)\n{:<{}}", "", first);
  for (int64_t col = 0; col < n; ++col) out += fmt::format(" {:>{}}", col, width);
  out += "\n";
  for (int64_t row = 0; row < n; ++row) {
    out += fmt::format("{:<{}}", titles[static_cast<size_t>(row)], first);
    for (int64_t col = 0; col < n; ++col) {
      const int64_t count = report.confusion(row, col);
      out += fmt::format(" {:>{}}", count == 0 ? "." : std::to_string(count), width);
    }
    out += "\n";
  }
  return out;
}

std::string confusion_list(const ClassificationReport& report, const std::vector<std::string>& names) {
  const size_t width = widest(names, 5);
  std::string out = fmt::format("most frequent confusions\n{:<{}}  {:<{}}  examples\n", "label", width, "predicted",
                                std::max<size_t>(width, 9));
  for (const ClassificationReport::Confusion& each : report.top_confusions(kConfusions))
    out += fmt::format("{:<{}}  {:<{}}  {:>8}\n", names[static_cast<size_t>(each.label)], width,
                       names[static_cast<size_t>(each.predicted)], std::max<size_t>(width, 9), each.examples);
  return out;
}

std::string calibration_table(const ClassificationReport& report) {
  std::string out = fmt::format("calibration: expected error {:.4f}\nconfidence   examples    mean  accuracy\n",
                                report.calibration_error());
  for (size_t i = 0; i < report.bins().size(); ++i) {
    const ClassificationReport::Bin& bin = report.bins()[i];
    if (bin.examples == 0) continue;
    const auto n = static_cast<double>(bin.examples), bins = static_cast<double>(ClassificationReport::kBins);
    out += fmt::format("{:.2f} - {:.2f}  {:>8}  {:>6.4f}  {:>8.4f}\n", static_cast<double>(i) / bins,
                       static_cast<double>(i + 1) / bins, bin.examples, bin.confidence / n,
                       static_cast<double>(bin.correct) / n);
  }
  return out;
}

}  // namespace

std::string evaluation_text(const EvaluationReport& evaluation) {
  const EvalResult& result = evaluation.result;
  std::string out;
  for (const auto& [name, value] : result.metrics)
    out += fmt::format("{}_{} {:.{}f} ", evaluation.set, name, value, name == "accuracy" ? 4 : 6);
  out += fmt::format("examples {}\n", result.examples);
  const ClassificationReport& report = evaluation.report;
  if (report.empty()) return out;
  const std::vector<std::string> names = shown_classes(evaluation);
  out += "\n" + class_table(report, names) + "\n";
  out += names.size() <= kMostInMatrix ? confusion_matrix(report, names) : confusion_list(report, names);
  std::string top;
  for (const size_t k : kTopK)
    if (k < names.size()) top += fmt::format("top-{} accuracy {:.4f}  ", k, report.top_k(k));
  if (!top.empty()) out += "\n" + top.substr(0, top.size() - 2) + "\n";
  return out + "\n" + calibration_table(report);
}

}  // namespace lockstep::cli
