// Lines of metrics.jsonl, as `lockstep plot` and `lockstep board` read them: both parsers agree, and curves of what they
// read can be drawn.
#include <cmath>

#include "charts/chart.h"
#include "charts/html_report.h"
#include "charts/svg_chart.h"
#include "charts/terminal_chart.h"
#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

namespace {

void compare_parsers(std::string_view text) {
  charts::MetricLine fast, general;
  const bool read = charts::parse_metric_line(text, fast);
  fuzz::require(read == charts::parse_metric_line_as_json(text, general), "both parsers accept a line",
                std::string(text));
  if (!read) return;
  fuzz::require(fast.kind == general.kind && fast.step == general.step, "both parsers agree", std::string(text));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  for (const std::string& line : fuzz::parts_of(text, '\n', 64)) compare_parsers(line);
  fuzz::MemoryFile file({data, size});
  charts::RunMetrics run("metrics.jsonl", file, {.buckets = 64, .tags = 8, .messages = 4});
  run.update();
  for (const auto& [tag, series] : run.series()) {
    int64_t points = 0;
    for (const charts::Bucket& each : charts::buckets_between(series.buckets(), INT64_MIN, INT64_MAX, 7))
      points += each.points();
    fuzz::require(points == series.points(), "no point is lost", tag);
    for (const bool logarithmic : {false, true}) {
      charts::Chart chart{.metric = tag, .x = charts::XAxis::time, .logarithmic = logarithmic, .curves = {}};
      chart.curves.push_back(charts::curve_of(run, tag, tag, {.x = chart.x, .smooth = 0.5, .points = 50}));
      charts::draw(chart, {.width = 40, .height = 10});
      charts::html_report({charts::summary_of(run, tag)}, {chart}, {});
    }
  }
  return 0;
}
