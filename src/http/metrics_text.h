// MetricsText: writes metrics in the text format of Prometheus, version 0.0.4. A value, used by one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::http {

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

using Labels = std::vector<std::pair<std::string, std::string>>;

class MetricsText {
 public:
  // `labels`: of every sample.
  explicit MetricsText(Labels labels = {}) : labels_(std::move(labels)) {}

  // Begins a metric. `type`: counter, gauge, summary or histogram. REQUIRES: a name that was not begun before, of letters,
  // digits and '_'.
  void begin(std::string_view name, std::string_view type, std::string_view help);
  // A sample of this metric. `suffix`: such as "_sum" of a summary.
  void add(double value, const Labels& labels = {}, std::string_view suffix = {});
  // A metric of one sample.
  void gauge(std::string_view name, std::string_view help, double value);
  void counter(std::string_view name, std::string_view help, double value);

  const std::string& text() const { return text_; }

 private:
  Labels labels_;
  std::string name_, text_;
};

// The name as a part of a metric's name: other characters than letters, digits and '_' become '_'.
std::string metric_name(std::string_view name);

}  // namespace lockstep::http
