// One line of metrics.jsonl, as the JSON lines logger writes it. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::charts {

// The most bytes of a line. A longer line is skipped.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;
// Steps beyond this are rejected: a double would not hold them exactly.
inline constexpr int64_t kMaxStep = int64_t{1} << 53;

struct MetricLine {
  enum class Kind { start, step, evaluation, message, end };

  Kind kind = Kind::step;
  int64_t step = 0;
  double time = 0;  // seconds since 1970
  // Of a step, evaluation or end. The names are views of the line or of `names`; null is NaN.
  std::vector<std::pair<std::string_view, double>> scalars = {};
  // Of a start.
  std::string title = {}, date = {};
  int64_t total_steps = 0, steps_per_epoch = 0;
  std::vector<std::pair<std::string, std::string>> config = {};
  // Of a message.
  bool alarm = false;
  std::string text = {};

  std::vector<std::string> names = {};  // with escapes; the storage of some of `scalars`
};

// Parses a line without its newline into `out` and reuses its memory. Returns false for a line that is damaged or of
// another kind. REQUIRES: the line outlives the views in `out`.
bool parse_metric_line(std::string_view line, MetricLine& out);

// The same without the fast path for lines of numbers. For tests.
bool parse_metric_line_as_json(std::string_view line, MetricLine& out);

}  // namespace lockstep::charts
