#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "lockstep/visualize.h"
#include "sharding/cells.h"

namespace lockstep {
namespace {

using detail::Cell;
using detail::Cells;

constexpr std::array kFills = {"#87d7ff", "#ffaf87", "#afd7af", "#d7afff", "#ffd7af", "#afffff",
                               "#ff8787", "#d7d7ff", "#ffffaf", "#87d7af", "#ffafd7", "#d7af87"};
constexpr int kTitle = 28, kMargin = 8, kLine = 16, kCharacter = 8;  // pixels
constexpr double kMinCell = 4;                                       // pixels of an empty shard

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The edges of the shards on a line of `length` pixels.
std::vector<double> edges(const std::vector<int64_t>& sizes, double length) {
  const double sum = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  const double least = std::min(kMinCell, length / static_cast<double>(sizes.size()));
  std::vector<double> pixels;
  for (int64_t size : sizes) pixels.push_back(std::max(sum > 0 ? static_cast<double>(size) / sum * length : 0, least));
  const double scale = length / std::accumulate(pixels.begin(), pixels.end(), 0.0);
  std::vector<double> out{0};
  for (double p : pixels) out.push_back(out.back() + p * scale);
  return out;
}

// The height that keeps the array's proportions at this width, within limits.
double drawing_height(const Cells& table, double width) {
  const auto sum = [](const std::vector<int64_t>& sizes) {
    return static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  };
  const double least = std::min(width, kLine * 3.0 * static_cast<double>(table.rows()));
  if (sum(table.widths) == 0) return least;
  return std::clamp(width * sum(table.heights) / sum(table.widths), least, std::max(width, least));
}

}  // namespace

std::string sharding_svg(const NamedSharding& sharding, const Shape& shape, int width) {
  if (width < 100) throw_error("sharding_svg: the width is {} pixels; use at least 100", width);
  const Cells table = detail::make_cells(sharding, shape);
  const double inner = width - 2 * kMargin, height = drawing_height(table, inner);
  const std::vector<double> xs = edges(table.widths, inner), ys = edges(table.heights, height);

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 {0} {1:.0f}\" "
      "font-family=\"monospace\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"19\">{3}</text>\n",
      width, kTitle + height + kMargin, kMargin,
      escaped(fmt::format("{} {} on {}", to_string(shape), to_string(sharding.spec()), to_string(sharding.mesh()))));
  for (size_t row = 0; row < table.rows(); ++row) {
    for (size_t column = 0; column < table.columns(); ++column) {
      const Cell& cell = table.at(row, column);
      const double w = xs[column + 1] - xs[column], h = ys[row + 1] - ys[row];
      const double x = kMargin + xs[column], y = kTitle + ys[row];
      const auto lines = detail::label_lines(table, cell, static_cast<size_t>(w) / kCharacter);
      std::string title;
      for (const std::string& line : lines) title += line;
      svg += fmt::format(
          "<g><title>{} {}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
          "stroke=\"#333\"/>",
          title, cell.indices, x, y, w, h, kFills[(row * table.columns() + column) % kFills.size()]);
      // Text that does not fit is omitted; the title shows it on hover.
      size_t longest = 0;
      for (const std::string& line : lines) longest = std::max(longest, line.size());
      if (static_cast<double>(longest * kCharacter) <= w && static_cast<double>(lines.size() * kLine) <= h) {
        double baseline = y + h / 2 - kLine * (static_cast<double>(lines.size()) - 1) / 2 + 5;
        for (const std::string& line : lines) {
          svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\">{}</text>", x + w / 2, baseline,
                             line);
          baseline += kLine;
        }
      }
      svg += "</g>\n";
    }
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep
