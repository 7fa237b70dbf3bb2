#include "lockstep/visualize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sharding/cells.h"

namespace lockstep {
namespace {

using detail::Cell;
using detail::Cells;

// Light colors of the 256-color palette, for black text.
constexpr std::array kColors = {117, 216, 151, 183, 223, 159, 210, 189, 229, 115, 218, 180};
constexpr size_t kWidth = 9;  // preferred width of a cell

using Lines = std::vector<std::string>;

std::string centered(const std::string& text, size_t width) {
  const size_t left = (width - text.size()) / 2;
  return std::string(left, ' ') + text + std::string(width - left - text.size(), ' ');
}

std::string rule(size_t columns, size_t width, const char* left, const char* middle, const char* right) {
  std::string segment;
  for (size_t i = 0; i < width; ++i) segment += "─";
  std::string line = left;
  for (size_t c = 0; c < columns; ++c) line += segment + (c + 1 < columns ? middle : right);
  return line + "\n";
}

}  // namespace

std::string visualize_sharding(const NamedSharding& sharding, const Shape& shape, const VisualizeOptions& options) {
  const Cells table = detail::make_cells(sharding, shape);
  const size_t columns = table.columns();
  const size_t total = static_cast<size_t>(std::max(options.width, 0));
  const size_t room = total > columns + 1 ? (total - columns - 1) / columns : 0;

  std::vector<Lines> text;
  size_t width = std::min(kWidth, room);
  for (const Cell& cell : table.cells) {
    Lines lines = detail::label_lines(table, cell, room > 2 ? room - 2 : 0);
    if (table.uneven) lines.push_back(cell.indices);
    for (const std::string& line : lines) width = std::max(width, line.size() + 2);
    text.push_back(std::move(lines));
  }

  std::string drawing = rule(columns, width, "┌", "┬", "┐");
  for (size_t row = 0; row < table.rows(); ++row) {
    const size_t first = row * columns;
    size_t height = 0;
    for (size_t c = 0; c < columns; ++c) height = std::max(height, text[first + c].size());
    for (size_t y = 0; y < height; ++y) {
      drawing += "│";
      for (size_t c = 0; c < columns; ++c) {
        const Lines& lines = text[first + c];
        const size_t above = (height - lines.size()) / 2;
        const std::string line = centered(y >= above && y - above < lines.size() ? lines[y - above] : "", width);
        drawing += options.color ? fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", kColors[(first + c) % kColors.size()], line)
                                 : line;
        drawing += "│";
      }
      drawing += "\n";
    }
    drawing += row + 1 < table.rows() ? rule(columns, width, "├", "┼", "┤") : rule(columns, width, "└", "┴", "┘");
  }
  return drawing;
}

}  // namespace lockstep
