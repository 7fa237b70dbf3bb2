#include "charts/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "charts/pages.h"

namespace lockstep::charts {
namespace {

constexpr double kLeft = 62, kTop = 30, kRight = 22, kBottom = 40;
constexpr int kLegendHeight = 28;

// Maps values to the plot area.
struct Scale {
  const Axis &x_axis, &y_axis;
  PlotArea area;

  double x(double value) const { return area.left + std::clamp(x_axis.position(value), 0.0, 1.0) * area.width; }
  double y(double value) const {
    const bool below = y_axis.logarithmic && value <= 0;
    return area.top + (1 - (below ? 0 : std::clamp(y_axis.position(value), 0.0, 1.0))) * area.height;
  }
};

void add_axes(std::string& out, const Chart& chart, const Scale& scale) {
  const PlotArea& area = scale.area;
  for (const Tick& tick : ticks_of(scale.y_axis, 6)) {
    const double y = scale.y(tick.value);
    out += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", area.left,
                       area.left + area.width, y, y);
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)", area.left - 6, y + 4,
                       escaped(tick.label));
  }
  for (const Tick& tick : chart.x_ticks(scale.x_axis, 8)) {
    const double x = scale.x(tick.value);
    out += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", x, x, area.top,
                       area.top + area.height);
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x, area.top + area.height + 16,
                       escaped(tick.label));
  }
  out += fmt::format(R"(<rect class="frame" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", area.left,
                     area.top, area.width, area.height);
  out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", area.left + area.width / 2,
                     area.top + area.height + 33, x_name(chart.x));
}

void add_curve(std::string& out, const Curve& curve, size_t index, const Scale& scale) {
  const size_t color = index % kSeriesColors;
  const auto shown = [&](const CurvePoint& point) { return !scale.y_axis.logarithmic || point.y > 0; };
  std::string path, upper, lower;
  bool has_band = false, pen_is_down = false;
  size_t drawn = 0;
  const CurvePoint* last = nullptr;
  for (const CurvePoint& point : curve.points) {
    if (!shown(point)) {
      pen_is_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_is_down ? "L" : "M", scale.x(point.x), scale.y(point.y));
    upper += fmt::format("{}{:.1f} {:.1f}", upper.empty() ? "M" : "L", scale.x(point.x), scale.y(point.high));
    lower = fmt::format("L{:.1f} {:.1f}", scale.x(point.x), scale.y(point.low)) + lower;
    has_band |= point.low < point.high;
    pen_is_down = true;
    last = &point;
    ++drawn;
  }
  if (drawn == 0) return;
  if (has_band) out += fmt::format(R"(<path class="band fill-{}" d="{}{}Z"/>)", color, upper, lower);
  out += fmt::format(R"(<path class="curve stroke-{}" d="{}"/>)", color, path);
  if (drawn == 1)
    out += fmt::format(R"(<circle class="fill-{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", color, scale.x(last->x),
                       scale.y(last->y));
}

// What is inside of the <svg> element of a chart.
std::string content(const Chart& chart, SvgSize size) {
  const Axis x_axis = chart.x_axis(), y_axis = chart.y_axis();
  const Scale scale{x_axis, y_axis, plot_area(size)};
  std::string out = fmt::format(R"(<text class="title" x="{:.1f}" y="19">{}{}</text>)", kLeft, escaped(chart.metric),
                                chart.logarithmic ? " (log scale)" : "");
  add_axes(out, chart, scale);
  for (size_t i = 0; i < chart.curves.size(); ++i) add_curve(out, chart.curves[i], i, scale);
  out += fmt::format(R"(<line class="cursor" visibility="hidden" y1="{:.1f}" y2="{:.1f}"/>)", scale.area.top,
                     scale.area.top + scale.area.height);
  return out;
}

std::string legend(const Chart& chart, double y) {
  std::string out;
  double x = kLeft;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const std::string name = escaped(chart.curves[i].name);
    out += fmt::format(R"(<line class="curve stroke-{}" x1="{:.0f}" x2="{:.0f}" y1="{:.0f}" y2="{:.0f}"/>)",
                       i % kSeriesColors, x, x + 20, y - 4, y - 4);
    out += fmt::format(R"(<text x="{:.0f}" y="{:.0f}">{}</text>)", x + 26, y, name);
    x += 46 + 7 * static_cast<double>(chart.curves[i].name.size());
  }
  return out;
}

}  // namespace

std::string_view chart_styles() { return page_text("chart.css"); }

PlotArea plot_area(SvgSize size) {
  return {.left = kLeft, .top = kTop, .width = size.width - kLeft - kRight, .height = size.height - kTop - kBottom};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text, 4000)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

std::string svg_element(const Chart& chart, SvgSize size) {
  return fmt::format(R"(<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{} by {}">{}</svg>)", size.width,
                     size.height, escaped(chart.metric), x_name(chart.x), content(chart, size));
}

std::string svg_file(const std::vector<Chart>& charts, SvgSize size) {
  const int count = static_cast<int>(charts.size());
  const int height = count * size.height + kLegendHeight;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\"><style>{2}</style><rect width=\"{0}\" height=\"{1}\" style=\"fill: var(--background)\"/>",
      size.width, height, chart_styles());
  for (int i = 0; i < count; ++i)
    out += fmt::format("<g transform=\"translate(0 {})\">{}</g>", i * size.height,
                       content(charts[static_cast<size_t>(i)], size));
  if (!charts.empty()) out += legend(charts.front(), count * size.height + 14);
  return out + "</svg>\n";
}

}  // namespace lockstep::charts
