#include "charts/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "charts/pages.h"
#include "charts/svg_chart.h"

namespace lockstep::charts {
namespace {

using nlohmann::json;

constexpr size_t kMaxResultRows = 200;

// JSON for a <script> element: without "<", which could end the element.
std::string script_json(const json& value) {
  std::string out;
  for (const char c : value.dump(-1, ' ', false, json::error_handler_t::replace))
    out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

// What page/report.js needs to show the values under the pointer.
json hover_data(const Chart& chart, SvgSize size) {
  const Axis axis = chart.x_axis();
  const PlotArea area = plot_area(size);
  json runs = json::array();
  for (const Curve& curve : chart.curves) {
    json x = json::array(), y = json::array();
    for (const CurvePoint& point : curve.points) {
      x.push_back(point.x);
      y.push_back(point.y);
    }
    runs.push_back({{"name", curve.name}, {"x", std::move(x)}, {"y", std::move(y)}});
  }
  return {{"width", size.width}, {"left", area.left},    {"plot", area.width},     {"low", axis.low},
          {"high", axis.high},   {"x", x_name(chart.x)}, {"runs", std::move(runs)}};
}

std::string charts_html(const std::vector<Chart>& charts) {
  const SvgSize size;
  std::string out = "<div class=\"charts\">\n";
  for (const Chart& chart : charts)
    out += fmt::format("<figure>{}<output hidden></output><script type=\"application/json\">{}</script></figure>\n",
                       svg_element(chart, size), script_json(hover_data(chart, size)));
  return out + "</div>\n";
}

std::string legend_html(const std::vector<RunSummary>& runs) {
  std::string out = "<ul class=\"legend\">";
  for (size_t i = 0; i < runs.size(); ++i)
    out += fmt::format(
        "<li><svg class=\"chart\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><line class=\"curve stroke-{}\" x1=\"0\" "
        "x2=\"22\" y1=\"5\" y2=\"5\"/></svg> {}</li>",
        i % kSeriesColors, escaped(runs[i].name));
  return out + "</ul>\n";
}

std::string header_row(const std::vector<RunSummary>& runs) {
  std::string out = "<tr><th></th>";
  for (const RunSummary& run : runs) out += fmt::format("<th scope=\"col\">{}</th>", escaped(run.name));
  return out + "</tr>\n";
}

template <class Text>
std::string table_row(const std::string& name, const std::vector<RunSummary>& runs, const Text& text) {
  std::string out = fmt::format("<tr><th scope=\"row\">{}</th>", escaped(name));
  for (const RunSummary& run : runs) out += fmt::format("<td>{}</td>", escaped(text(run)));
  return out + "</tr>\n";
}

std::string results_html(const std::vector<RunSummary>& runs) {
  std::string out = "<h2>Results</h2>\n<div class=\"wide\"><table>\n" + header_row(runs);
  out += table_row("run", runs, [](const RunSummary& run) { return run.title; });
  out += table_row("state", runs, [](const RunSummary& run) { return run.state; });
  out += table_row("step", runs, [](const RunSummary& run) {
    return run.total_steps > 0 ? fmt::format("{} of {}", run.step, run.total_steps) : fmt::format("{}", run.step);
  });
  out += table_row("time", runs, [](const RunSummary& run) { return short_duration(run.seconds); });
  std::vector<std::string> names;
  for (const RunSummary& run : runs)
    for (const auto& [name, value] : run.results)
      if (std::find(names.begin(), names.end(), name) == names.end() && names.size() < kMaxResultRows)
        names.push_back(name);
  for (const std::string& name : names)
    out += table_row(name, runs, [&](const RunSummary& run) {
      const auto found =
          std::find_if(run.results.begin(), run.results.end(), [&](const auto& each) { return each.first == name; });
      return found == run.results.end() ? std::string() : fmt::format("{:.6g}", found->second);
    });
  return out + "</table></div>\n";
}

std::string settings_html(const std::vector<RunSummary>& runs) {
  const std::vector<SettingRow> rows = compare_settings(runs);
  const auto table = [&](bool differing) {
    std::string out;
    for (const SettingRow& row : rows) {
      if (row.differs != differing) continue;
      out += fmt::format("<tr{}><th scope=\"row\">{}</th>", row.differs ? " class=\"differs\"" : "", escaped(row.key));
      for (const std::string& value : row.values) out += fmt::format("<td>{}</td>", escaped(value));
      out += "</tr>\n";
    }
    return out;
  };
  const std::string differing = table(true), equal = table(false);
  std::string out = "<h2>Settings</h2>\n";
  if (!differing.empty())
    out += "<div class=\"wide\"><table>\n" + header_row(runs) + differing + "</table></div>\n";
  else if (runs.size() > 1)
    out += "<p class=\"note\">The settings of all runs are equal.</p>\n";
  if (!equal.empty())
    out += fmt::format("<details{}><summary>{}</summary><div class=\"wide\"><table>\n{}{}</table></div></details>\n",
                       runs.size() == 1 ? " open" : "", runs.size() == 1 ? "All settings" : "Settings that are equal",
                       header_row(runs), equal);
  return out;
}

}  // namespace

RunSummary summary_of(const RunMetrics& run, const std::string& name) {
  RunSummary out{.name = name,
                 .title = run.title(),
                 .state = run.has_ended() ? "ended" : "not ended",
                 .step = run.last_step(),
                 .total_steps = run.total_steps(),
                 .seconds = run.last_time() - run.first_time(),
                 .results = {},
                 .config = run.config()};
  for (const auto& [tag, series] : run.series()) out.results.emplace_back(tag, series.last_value());
  if (run.has_ended())
    for (const auto& [tag, value] : run.result()) {
      const auto found =
          std::find_if(out.results.begin(), out.results.end(), [&](const auto& each) { return each.first == tag; });
      if (found != out.results.end()) found->second = value;
    }
  return out;
}

std::vector<SettingRow> compare_settings(const std::vector<RunSummary>& runs) {
  std::map<std::string, std::vector<std::string>> by_key;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const auto& [key, value] : runs[i].config) {
      std::vector<std::string>& values = by_key[key];
      values.resize(runs.size());
      values[i] = value;
    }
  std::vector<SettingRow> out;
  for (auto& [key, values] : by_key) {
    const bool differs = std::any_of(values.begin(), values.end(), [&](const auto& each) { return each != values[0]; });
    out.push_back({key, std::move(values), differs});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const SettingRow& a, const SettingRow& b) { return a.differs > b.differs; });
  return out;
}

std::string html_report(const std::vector<RunSummary>& runs, const std::vector<Chart>& charts,
                        const std::vector<std::string>& notes) {
  std::string title;
  for (const RunSummary& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  title = escaped(title.size() > 120 ? title.substr(0, 117) + "..." : title);
  std::string body = fmt::format("<h1>{}</h1>\n", title) + legend_html(runs);
  for (const std::string& note : notes) body += fmt::format("<p class=\"note\">{}</p>\n", escaped(note));
  body += charts_html(charts) + results_html(runs) + settings_html(runs);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>\n{}{}</style>\n</head>\n<body>\n{}<script>\n{}</script>\n</body>\n</html>\n",
      title, chart_styles(), page_text("report.css"), body, page_text("report.js"));
}

}  // namespace lockstep::charts
