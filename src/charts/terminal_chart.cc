#include "charts/terminal_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/printable.h"

namespace lockstep::charts {
namespace {

constexpr const char* kColors[] = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m", "\033[31m"};
constexpr std::string_view kSymbols = "*o+x#@%&=~";
constexpr int kLetterDistance = 14;  // columns between the letters on a curve

std::string utf8(char32_t code) {
  std::string out;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
  return out;
}

char letter_of(size_t curve) { return static_cast<char>('a' + curve % 26); }
char symbol_of(size_t curve) { return kSymbols[curve % kSymbols.size()]; }

// Characters with dots: braille has 2 x 4 dots per character, ASCII one.
class Canvas {
 public:
  Canvas(int columns, int rows, const TerminalStyle& style, bool letters)
      : columns_(columns), rows_(rows), style_(style), letters_(letters), cells_(static_cast<size_t>(columns * rows)) {}

  int dots_x() const { return columns_ * (style_.unicode ? 2 : 1); }
  int dots_y() const { return rows_ * (style_.unicode ? 4 : 1); }

  // Sets a dot; y is counted from below.
  void set(int x, int y, size_t curve) {
    if (x < 0 || y < 0 || x >= dots_x() || y >= dots_y()) return;
    y = dots_y() - 1 - y;
    const int across = style_.unicode ? 2 : 1, down = style_.unicode ? 4 : 1;
    Cell& cell = cells_[static_cast<size_t>(y / down * columns_ + x / across)];
    if (cell.dots == 0 || cell.curve != curve) cell.curve = curve;
    constexpr unsigned kDots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell.dots |= style_.unicode ? kDots[y % 4][x % 2] : 1;
  }

  void line(int x0, int y0, int x1, int y1, size_t curve) {
    const int steps = std::max(std::abs(x1 - x0), std::abs(y1 - y0));
    for (int i = 0; i <= steps; ++i) {
      const double part = steps == 0 ? 0 : static_cast<double>(i) / steps;
      set(x0 + static_cast<int>(std::lround(part * (x1 - x0))), y0 + static_cast<int>(std::lround(part * (y1 - y0))),
          curve);
    }
  }

  // Puts the letter of each curve on some of its characters.
  void add_letters(size_t curves) {
    if (!letters_ || !style_.unicode) return;
    for (size_t curve = 0; curve < curves; ++curve)
      for (int x = 3 + static_cast<int>(3 * curve) % kLetterDistance; x < columns_; x += kLetterDistance)
        for (int y = 0; y < rows_; ++y)
          if (Cell& cell = cells_[static_cast<size_t>(y * columns_ + x)]; cell.dots != 0 && cell.curve == curve) {
            cell.letter = letter_of(curve);
            break;
          }
  }

  std::string row(int y) const {
    std::string out;
    size_t color = SIZE_MAX;
    for (int x = 0; x < columns_; ++x) {
      const Cell& cell = cells_[static_cast<size_t>(y * columns_ + x)];
      if (style_.color && cell.dots != 0 && cell.curve != color) {
        out += kColors[cell.curve % std::size(kColors)];
        color = cell.curve;
      }
      if (cell.dots == 0)
        out += ' ';
      else if (cell.letter != 0)
        out += cell.letter;
      else
        out += style_.unicode ? utf8(0x2800 + cell.dots) : std::string(1, symbol_of(cell.curve));
    }
    if (color != SIZE_MAX) out += "\033[0m";
    return out;
  }

 private:
  struct Cell {
    unsigned dots = 0;
    size_t curve = 0;
    char letter = 0;
  };

  int columns_, rows_;
  TerminalStyle style_;
  bool letters_;
  std::vector<Cell> cells_;
};

std::string without_end_blanks(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

int dot_of(double position, int dots) {
  return static_cast<int>(std::lround(std::clamp(position, 0.0, 1.0) * (dots - 1)));
}

void draw_curve(Canvas& canvas, const Curve& curve, size_t index, const Axis& x_axis, const Axis& y_axis) {
  bool has_last = false;
  int last_x = 0, last_y = 0;
  for (const CurvePoint& point : curve.points) {
    const bool shown = !y_axis.logarithmic || point.y > 0;
    if (!shown) {
      has_last = false;
      continue;
    }
    const auto y_of = [&](double y) {
      return y_axis.logarithmic && y <= 0 ? 0 : dot_of(y_axis.position(y), canvas.dots_y());
    };
    const int x = dot_of(x_axis.position(point.x), canvas.dots_x()), y = y_of(point.y);
    canvas.line(has_last ? last_x : x, has_last ? last_y : y, x, y, index);
    canvas.line(x, y_of(point.low), x, y_of(point.high), index);
    last_x = x;
    last_y = y;
    has_last = true;
  }
}

// The label of each row with a tick.
std::vector<std::string> row_labels(const Axis& axis, int rows) {
  std::vector<std::string> out(static_cast<size_t>(rows));
  for (const Tick& tick : ticks_of(axis, std::max(2, rows / 3 + 1)))
    out[static_cast<size_t>(rows - 1 - dot_of(axis.position(tick.value), rows))] = tick.label;
  return out;
}

// The line of the x axis and the labels below it.
std::string x_axis_lines(const Chart& chart, const Axis& axis, int columns, size_t indent, bool unicode) {
  std::vector<std::string> line(static_cast<size_t>(columns), unicode ? "─" : "-");
  std::string labels(indent + 1 + static_cast<size_t>(columns), ' ');
  const std::string name = x_name(chart.x);
  const size_t name_at = labels.size() - name.size();
  size_t free_from = 0;
  for (const Tick& tick : chart.x_ticks(axis, std::max(2, columns / 10))) {
    const auto column = static_cast<size_t>(dot_of(axis.position(tick.value), columns));
    const size_t center = indent + 1 + column, half = tick.label.size() / 2;
    const size_t begin =
        std::min(center > half ? center - half : 0, labels.size() - std::min(labels.size(), tick.label.size()));
    if (begin < free_from || begin + tick.label.size() + 2 > name_at) continue;
    line[column] = unicode ? "┬" : "+";
    labels.replace(begin, tick.label.size(), tick.label);
    free_from = begin + tick.label.size() + 1;
  }
  labels.replace(name_at, name.size(), name);
  std::string out = std::string(indent, ' ') + (unicode ? "└" : "+");
  for (const std::string& each : line) out += each;
  return out + "\n" + labels + "\n";
}

// The names of the curves, as many in a line as fit.
std::string legend(const Chart& chart, const TerminalStyle& style, bool letters) {
  std::string out, line;
  size_t used = 0;
  const auto width = static_cast<size_t>(style.width);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    std::string mark(1, style.unicode ? letter_of(i) : symbol_of(i));
    if (style.unicode && !letters) mark = "━━";
    const size_t columns = style.unicode && !letters ? 2 : 1;
    std::string name = printable(chart.curves[i].name, width - columns - 5);
    if (chart.curves[i].points.empty()) name = printable(chart.curves[i].name, width - columns - 20) + " (not logged)";
    const size_t size = columns + 1 + name.size();
    if (used > 0 && used + 3 + size > width) {
      out += line + "\n";
      line.clear();
      used = 0;
    }
    if (style.color) mark = kColors[i % std::size(kColors)] + mark + "\033[0m";
    line += (used > 0 ? "   " : "  ") + mark + " " + name;
    used += (used > 0 ? 3 : 2) + size;
  }
  return out + line + "\n";
}

}  // namespace

std::string draw(const Chart& chart, const TerminalStyle& style) {
  const Axis x_axis = chart.x_axis(), y_axis = chart.y_axis();
  const bool letters = chart.curves.size() > 1 && !style.color;
  const std::string names = legend(chart, style, letters);
  const auto legend_lines = static_cast<int>(std::count(names.begin(), names.end(), '\n'));
  const int rows = std::max(3, style.height - 3 - legend_lines);
  const std::vector<std::string> labels = row_labels(y_axis, rows);
  size_t indent = 2;
  for (const std::string& label : labels) indent = std::max(indent, label.size() + 1);
  const int columns = std::max(10, style.width - static_cast<int>(indent) - 1);
  Canvas canvas(columns, rows, style, letters);
  for (size_t i = 0; i < chart.curves.size(); ++i) draw_curve(canvas, chart.curves[i], i, x_axis, y_axis);
  canvas.add_letters(chart.curves.size());

  const std::string title = printable(chart.metric, static_cast<size_t>(style.width) - 20);
  std::string out = std::string(indent + 1, ' ') + title + (chart.logarithmic ? " (log scale)" : "") + "\n";
  for (int y = 0; y < rows; ++y) {
    const std::string& label = labels[static_cast<size_t>(y)];
    const char* border = style.unicode ? (label.empty() ? "│" : "┤") : (label.empty() ? "|" : "+");
    out += without_end_blanks(fmt::format("{:>{}} {}{}", label, indent - 1, border, canvas.row(y))) + "\n";
  }
  return out + x_axis_lines(chart, x_axis, columns, indent, style.unicode) + names;
}

}  // namespace lockstep::charts
