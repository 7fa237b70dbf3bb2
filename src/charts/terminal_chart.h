// Draws a chart with characters. Pure functions, safe from any thread.
#pragma once

#include <string>

#include "charts/chart.h"

namespace lockstep::charts {

struct TerminalStyle {
  int width = 80, height = 20;  // of the chart with its title, axes and legend
  bool unicode = true;          // braille dots; otherwise one ASCII character per cell
  bool color = false;           // ANSI colors
};

inline constexpr int kMinWidth = 30, kMinHeight = 8;

// Lines that end with a newline, each of at most `width` columns. Without colors, letters distinguish
// several curves. REQUIRES: width >= kMinWidth, height >= kMinHeight.
std::string draw(const Chart& chart, const TerminalStyle& style);

}  // namespace lockstep::charts
