// Axes, curves, and what is drawn in the terminal and in files.
#include <gtest/gtest.h>

#include <cmath>

#include "base/printable.h"
#include "charts/html_report.h"
#include "charts/svg_chart.h"
#include "charts/terminal_chart.h"
#include "support/text.h"

namespace lockstep::charts {
namespace {

std::string labels(const std::vector<Tick>& ticks) {
  std::string out;
  for (const Tick& tick : ticks) out += (out.empty() ? "" : " ") + tick.label;
  return out;
}

TEST(Axes, TicksAreRound) {
  EXPECT_EQ(labels(ticks_of({0, 10}, 6)), "0 2 4 6 8 10");
  EXPECT_EQ(labels(ticks_of({0.05, 2.34}, 6)), "0.5 1.0 1.5 2.0");
  EXPECT_EQ(labels(ticks_of({0, 93800}, 6)), "0 20k 40k 60k 80k");
  EXPECT_EQ(labels(ticks_of({0, 2.5e7}, 6)), "0 5M 10M 15M 20M 25M");
  EXPECT_EQ(labels(ticks_of({-1, 1}, 5)), "-1.0 -0.5 0 0.5 1.0");
  EXPECT_EQ(labels(ticks_of({1e-7, 9e-7}, 4)), "2e-07 4e-07 6e-07 8e-07");
}

TEST(Axes, LogarithmicTicksAreDecadesOrRoundMultiples) {
  EXPECT_EQ(labels(ticks_of({0.001, 1, true}, 5)), "0.001 0.01 0.1 1");
  EXPECT_EQ(labels(ticks_of({1, 12, true}, 5)), "1 2 5 10");
  EXPECT_FALSE(ticks_of({2.31, 2.39, true}, 5).empty());
  EXPECT_FALSE(ticks_of({1e-300, 1e300, true}, 5).empty());
}

TEST(Axes, DurationsHaveRoundTicks) {
  EXPECT_EQ(labels(duration_ticks({0, 100}, 4)), "0 30s 1:00 1:30");
  EXPECT_EQ(labels(duration_ticks({0, 7200}, 5)), "0 30:00 1:00:00 1:30:00 2:00:00");
  EXPECT_EQ(short_duration(0.25), "0.25s");
  EXPECT_EQ(short_duration(3 * 86400 + 4 * 3600), "3d 4h");
}

TEST(Axes, EqualValuesGetARange) {
  for (const bool logarithmic : {false, true}) {
    const Axis axis = axis_for(5, 5, logarithmic);
    EXPECT_LT(axis.low, 5);
    EXPECT_GT(axis.high, 5);
  }
  EXPECT_LT(axis_for(0, 0, false).low, axis_for(0, 0, false).high);
}

TEST(Axes, EveryRangeHasTicksWithinIt) {
  for (const double low : {-1e300, -5.5, 0.0, 1e-300, 0.1, 3.0, 1e15})
    for (const double extent : {1e-3, 1.0, 7.3, 1e6, 1e299}) {
      const Axis axis = axis_for(low, low + extent, false);
      const std::vector<Tick> ticks = ticks_of(axis, 5);
      ASSERT_FALSE(ticks.empty());
      EXPECT_LE(ticks.size(), 5u);
      for (const Tick& tick : ticks) {
        EXPECT_GE(axis.position(tick.value), -1e-6);
        EXPECT_LE(axis.position(tick.value), 1 + 1e-6);
      }
    }
}

std::vector<Bucket> falling(int steps) {
  std::vector<Bucket> out;
  for (int step = 1; step <= steps; ++step) out.push_back(bucket_of(step, 100 + 2 * step, 10.0 / step));
  return out;
}

TEST(Curves, SmoothingIsAMovingAverageWithBiasCorrection) {
  const std::vector<Bucket> values = {bucket_of(1, 0, 4), bucket_of(2, 0, 0), bucket_of(3, 0, 0)};
  const Curve curve = curve_of(values, 0, 0, {.smooth = 0.5});
  EXPECT_DOUBLE_EQ(curve.points[0].y, 4);
  EXPECT_DOUBLE_EQ(curve.points[1].y, 1 / 0.75);
  EXPECT_DOUBLE_EQ(curve.points[2].y, 0.5 / 0.875);
}

TEST(Curves, XIsStepTimeOrEpoch) {
  EXPECT_EQ(curve_of(falling(10), 100, 5, {}).points[9].x, 10);
  EXPECT_EQ(curve_of(falling(10), 100, 5, {.x = XAxis::time}).points[9].x, 20);
  EXPECT_EQ(curve_of(falling(10), 100, 5, {.x = XAxis::epoch}).points[9].x, 2);
}

Chart chart_of(int runs, bool logarithmic = false) {
  Chart out{.metric = "loss", .logarithmic = logarithmic, .curves = {}};
  for (int i = 0; i < runs; ++i) {
    Curve curve = curve_of(falling(100), 0, 0, {});
    for (CurvePoint& point : curve.points) point.y += i, point.low += i, point.high += i;
    curve.name = "run" + std::to_string(i);
    out.curves.push_back(std::move(curve));
  }
  return out;
}

size_t columns_of(const std::string& line) {
  size_t out = 0;
  for (const char c : line) out += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return out;
}

TEST(TerminalChart, FitsItsWidthAndHeight) {
  for (const int runs : {1, 2, 7})
    for (const int width : {kMinWidth, 80, 200})
      for (const bool unicode : {false, true}) {
        const std::vector<std::string> lines =
            lines_of(draw(chart_of(runs), {.width = width, .height = 20, .unicode = unicode}));
        EXPECT_LE(lines.size(), runs == 7 && width == kMinWidth ? 24u : 20u);
        for (const std::string& line : lines) EXPECT_LE(columns_of(line), static_cast<size_t>(width)) << line;
      }
}

TEST(TerminalChart, DrawsAFallingCurveInAscii) {
  const std::vector<std::string> lines = lines_of(draw(chart_of(1), {.width = 40, .height = 10, .unicode = false}));
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[0], "    loss");
  EXPECT_EQ(lines[1], "10 +*");
  EXPECT_EQ(lines[9], "  * run0");
  expect_contains(lines[6], "*******************");
  expect_contains(lines[8], "step");
  for (const std::string& line : lines)
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~');
}

TEST(TerminalChart, LettersDistinguishCurvesWithoutColors) {
  const std::string plain = draw(chart_of(2), {});
  expect_contains(plain, "a run0   b run1");
  expect_lacks(plain, "\033");
  const std::string ascii = draw(chart_of(2), {.unicode = false});
  expect_contains(ascii, "* run0   o run1");
  expect_contains(ascii, "ooooo");
  expect_contains(draw(chart_of(2), {.color = true}), "\033[36m");
}

TEST(TerminalChart, NamesCannotControlTheTerminal) {
  Chart chart = chart_of(1);
  chart.metric = "a\033[31m";
  chart.curves[0].name = "b\033]0;x\007";
  expect_lacks(draw(chart, {}), "\033");
}

TEST(TerminalChart, LogarithmicAxesLeaveOutZero) {
  Chart chart = chart_of(1, true);
  chart.curves[0].points[3].y = chart.curves[0].points[3].low = 0;
  expect_contains(draw(chart, {}), "loss (log scale)");
  expect_contains(draw(chart, {}), "0.1");
}

TEST(TerminalChart, MissingCurvesAreNamed) {
  Chart chart = chart_of(2);
  chart.curves[1].points.clear();
  expect_contains(draw(chart, {}), "run1 (not logged)");
}

TEST(SvgChart, NamesAreEscaped) {
  Chart chart = chart_of(1);
  chart.metric = "<script>&\"'";
  chart.curves[0].name = "</style><x>";
  const std::string file = svg_file({chart});
  expect_contains(file, "&lt;script&gt;&amp;&quot;&#39;");
  expect_lacks(file, "<script");
  expect_lacks(file, "</style><x>");
  EXPECT_EQ(occurrences(file, "<svg"), 1u);
}

TEST(SvgChart, LogarithmicCurvesHaveGapsAtZero) {
  Chart chart = chart_of(1, true);
  chart.curves[0].points[50].y = -1;
  const std::string element = svg_element(chart);
  expect_lacks(element, "nan");
  expect_lacks(element, "inf");
  EXPECT_EQ(occurrences(element, "M"), 2u);
}

RunSummary summary(const std::string& name, const std::string& rate) {
  return {.name = name,
          .title = "mlp",
          .state = "ended",
          .step = 5,
          .total_steps = 10,
          .seconds = 65,
          .results = {{"loss", 0.25}},
          .config = {{"model", "mlp"}, {"learning_rate", rate}, {"x</script>", "<b>"}}};
}

TEST(HtmlReport, NeedsNoOtherFilesAndEscapesNames) {
  Chart chart = chart_of(2);
  chart.curves[0].name = "</script><script>alert(1)</script>";
  const std::string html = html_report({summary("a", "0.1"), summary("b", "0.2")}, {chart}, {"note <1>"});
  expect_lacks(html, "alert(1)</script>");
  for (const char* part : {"http://", "https://", "src=", "@import", "url("}) expect_lacks(html, part);
  expect_contains(html, "note &lt;1&gt;");
  expect_contains(html, "prefers-color-scheme: dark");
  expect_contains(html, "<td>0.25</td>");
  expect_contains(html, "<td>1:05</td>");
}

TEST(HtmlReport, DifferencesOfSettingsComeFirst) {
  RunSummary other = summary("b", "0.2");
  other.config.emplace_back("seed", "3");
  const std::vector<SettingRow> rows = compare_settings({summary("a", "0.1"), other});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].key, "learning_rate");
  EXPECT_EQ(rows[0].values, (std::vector<std::string>{"0.1", "0.2"}));
  EXPECT_EQ(rows[1].key, "seed");
  EXPECT_EQ(rows[1].values, (std::vector<std::string>{"", "3"}));
  EXPECT_TRUE(rows[1].differs);
  EXPECT_FALSE(rows[2].differs);
}

}  // namespace
}  // namespace lockstep::charts
