// Draws charts as SVG. Colors are CSS classes (series-0, grid, text, ...), so that a page can define light and dark ones.
// Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "charts/chart.h"

namespace lockstep::charts {

struct SvgSize {
  int width = 720, height = 300;
};

inline constexpr int kSeriesColors = 8;

// An <svg> element with the title, the axes and the curves, to be part of a page.
std::string svg_element(const Chart& chart, SvgSize size = {});

// An SVG file with all charts below each other, a legend and light and dark colors.
std::string svg_file(const std::vector<Chart>& charts, SvgSize size = {});

// The text with the characters escaped that have a meaning in HTML and SVG. Bytes that are not UTF-8 and control
// characters become \xNN.
std::string escaped(std::string_view text);

// The plot area within the element, in its units.
struct PlotArea {
  double left = 0, top = 0, width = 0, height = 0;
};
PlotArea plot_area(SvgSize size);

// The colors of the classes, light and dark, by prefers-color-scheme.
std::string_view chart_styles();

}  // namespace lockstep::charts
