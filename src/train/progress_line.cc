#include "train/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "train/logging.h"

namespace lockstep::detail {
namespace {

// The items of the line, from left to right.
enum class LineItem { epoch, bar, percent, step, loss, sparkline, metric, other_metrics, rate, left, items };

using ItemSize = int;  // of an item: 0 for none; a bar and a sparkline have columns, the others 1 (short) or 2 (long)
// What a line gets as long as it has room, the most important first. A line ends before the first item that does not
// fit, except that optional ones are left out.
struct Growth {
  LineItem item;
  ItemSize size;
  bool optional;
};
constexpr ItemSize kLongestBar = 42;
constexpr Growth kGrowth[] = {
    {LineItem::left, 1, false},          {LineItem::step, 1, false},         {LineItem::percent, 1, true},
    {LineItem::loss, 1, false},          {LineItem::bar, 6, false},          {LineItem::epoch, 1, true},
    {LineItem::bar, 8, false},           {LineItem::metric, 1, true},        {LineItem::rate, 1, true},
    {LineItem::bar, 10, false},          {LineItem::left, 2, true},          {LineItem::sparkline, 8, true},
    {LineItem::other_metrics, 1, false}, {LineItem::bar, 16, true},          {LineItem::rate, 2, true},
    {LineItem::sparkline, 16, true},     {LineItem::step, 2, true},          {LineItem::bar, 24, true},
    {LineItem::sparkline, 24, true},     {LineItem::bar, kLongestBar, true},
};

constexpr size_t kFrame = 2;

std::string metric_text(const Scalars& metrics, size_t i, const TerminalStyle& style) {
  if (i >= metrics.size()) return "";
  const auto& [name, value] = metrics[i];
  const std::string text = scalar_text(name, value);
  const std::string plain = text.substr(text.rfind(' ') + 1), padded = fmt::format("{:#.4g}", value);
  // With all its digits a number keeps its width while it changes.
  const bool longer = padded.size() > plain.size() && !padded.ends_with('.') && plain.find('e') == plain.npos;
  return painted(name, Paint::dim, style.color) + " " + (longer && std::isfinite(value) ? padded : plain);
}

std::string epoch_text(const Progress& p) {
  if (p.steps_per_epoch <= 0 || p.total <= p.steps_per_epoch) return "";
  const auto number = [&](int64_t step) { return (step + p.steps_per_epoch - 1) / p.steps_per_epoch; };
  return fmt::format("epoch {}/{}", std::max<int64_t>(number(p.step), 1), number(p.total));
}

std::string step_count(const Progress& p, ItemSize size) {
  const std::string name = size == 2 ? "step " : "";
  if (p.total <= 0) return fmt::format("step {}", p.step);
  const std::string total = std::to_string(p.total);
  return fmt::format("{}{:>{}}/{}", name, p.step, total.size(), total);
}

double fraction_done(const Progress& p) {
  return p.total > 0 ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.total), 0.0, 1.0) : 0;
}

std::string rate_item(const Progress& p, ItemSize size) {
  if (!p.activity.empty()) return p.activity;
  if (p.rate <= 0) return "";
  if (size == 1) return fmt::format("{:>5}/s", short_number(p.rate));
  return p.rate >= 100 ? fmt::format("{:.0f} {}/s", p.rate, p.rate_unit)
                       : fmt::format("{:.3g} {}/s", p.rate, p.rate_unit);
}

std::string other_metrics_text(const Progress& p, const TerminalStyle& style) {
  std::string out;
  for (size_t i = 2; i < p.metrics.size(); ++i) out += (i > 2 ? "  " : "") + metric_text(p.metrics, i, style);
  return out;
}

std::string item_text(const Progress& p, LineItem item, ItemSize size, const TerminalStyle& style) {
  if (size == 0) return "";
  switch (item) {
    case LineItem::epoch:
      return epoch_text(p);
    case LineItem::bar:
      return p.total > 0 ? bar_text(fraction_done(p), static_cast<size_t>(size), style) : "";
    case LineItem::percent:
      return p.total > 0 ? fmt::format("{:>3.0f}%", std::floor(100 * fraction_done(p))) : "";
    case LineItem::step:
      return step_count(p, size);
    case LineItem::loss:
      return metric_text(p.metrics, 0, style);
    case LineItem::sparkline:
      return p.losses.size() > 1 ? sparkline(p.losses, static_cast<size_t>(size), style) : "";
    case LineItem::metric:
      return metric_text(p.metrics, 1, style);
    case LineItem::other_metrics:
      return other_metrics_text(p, style);
    case LineItem::rate:
      return rate_item(p, size);
    case LineItem::left:
      return p.seconds_left < 0 ? ""
             : size == 1        ? short_duration(p.seconds_left)
                                : duration_text(p.seconds_left) + " left";
    case LineItem::items:
      break;
  }
  return "";
}

// The items of a line. Texts are made once for each size, because a line is made ten times per second.
class LineLayout {
 public:
  // Sets the text of an item; empty for none.
  void set(LineItem item, std::string text) {
    const auto i = static_cast<size_t>(item);
    widths_[i] = display_width(text);
    texts_[i] = std::move(text);
  }
  const std::string& text(LineItem item) const { return texts_[static_cast<size_t>(item)]; }

  size_t width() const {
    size_t out = 0;
    for (size_t i = 0; i < texts_.size(); ++i)
      if (widths_[i] > 0) out += widths_[i] + (out > 0 ? gap(i) : 0);
    return out;
  }
  std::string line() const {
    std::string out;
    for (size_t i = 0; i < texts_.size(); ++i)
      if (widths_[i] > 0) out.append(out.empty() ? 0 : gap(i), ' ') += texts_[i];
    return out;
  }

 private:
  // Spaces before an item. The bar and what belongs to it are one group, as are the loss and its sparkline.
  size_t gap(size_t i) const {
    const auto item = static_cast<LineItem>(i);
    const bool close = item == LineItem::bar || item == LineItem::sparkline ||
                       (item == LineItem::percent && !text(LineItem::bar).empty());
    return close ? 1 : 2;
  }

  std::array<std::string, static_cast<size_t>(LineItem::items)> texts_;
  std::array<size_t, static_cast<size_t>(LineItem::items)> widths_ = {};
};

}  // namespace

std::string bar_text(double done, size_t columns, const TerminalStyle& style) {
  constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const size_t cells = columns > kFrame ? columns - kFrame : 0;
  const auto eighths = static_cast<size_t>(done * static_cast<double>(cells * 8));
  const size_t full = std::min(eighths / 8, cells), part = full < cells ? eighths % 8 : 0;
  std::string filled;
  size_t used = full;
  for (size_t i = 0; i < full; ++i) filled += style.unicode ? "█" : "=";
  if (!style.unicode && full < cells) filled += '>', ++used;
  if (style.unicode && part > 0) filled += kEighths[part], ++used;
  return (style.unicode ? "▕" : "[") + painted(filled, done >= 1 ? Paint::green : Paint::cyan, style.color) +
         std::string(cells - used, ' ') + (style.unicode ? "▏" : "]");
}

std::string sparkline(const std::vector<double>& values, size_t columns, const TerminalStyle& style) {
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 8> kAscii = {"_", "_", ".", ".", "-", "-", "^", "^"};
  const size_t first = values.size() - std::min(values.size(), columns);
  double low = INFINITY, high = -INFINITY;
  for (size_t i = first; i < values.size(); ++i)
    if (std::isfinite(values[i])) low = std::min(low, values[i]), high = std::max(high, values[i]);
  std::string out;
  for (size_t i = first; i < values.size(); ++i) {
    size_t level = kBlocks.size() - 1;
    if (std::isfinite(values[i]))
      level = high > low ? static_cast<size_t>(std::lround((values[i] - low) / (high - low) * 7)) : 0;
    out += style.unicode ? kBlocks[level] : kAscii[level];
  }
  return painted(out, Paint::cyan, style.color);
}

std::string short_number(double value) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  const int digits = value >= 99.95 ? 0 : 1;
  return fmt::format("{:.{}f}{}", value, digits, kUnits[unit]);
}

std::string short_duration(double seconds) {
  constexpr double kMax = 1e9;
  const auto s = static_cast<int64_t>(std::clamp(std::round(seconds), 0.0, kMax));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string progress_line(const Progress& progress, size_t columns, const TerminalStyle& style) {
  LineLayout layout;
  ItemSize bar = 0;
  for (const Growth& growth : kGrowth) {
    const std::string before = layout.text(growth.item);
    layout.set(growth.item, item_text(progress, growth.item, growth.size, style));
    if (layout.width() <= columns) {
      if (growth.item == LineItem::bar) bar = growth.size;
      continue;
    }
    layout.set(growth.item, before);
    if (!growth.optional) break;
  }
  // The bar takes what is left.
  if (bar > 0 && bar < kLongestBar) {
    bar += static_cast<ItemSize>(std::min(columns - layout.width(), static_cast<size_t>(kLongestBar - bar)));
    layout.set(LineItem::bar, item_text(progress, LineItem::bar, bar, style));
  }
  return layout.line();
}

void LossHistory::add(double loss) {
  if (count_ < per_bucket_) {
    means_.back() += (loss - means_.back()) / static_cast<double>(++count_);
    return;
  }
  if (means_.size() == kMaxBuckets) {
    for (size_t i = 0; i < kMaxBuckets / 2; ++i) means_[i] = (means_[2 * i] + means_[2 * i + 1]) / 2;
    means_.resize(kMaxBuckets / 2);
    per_bucket_ *= 2;
  }
  means_.push_back(loss);
  count_ = 1;
}

}  // namespace lockstep::detail
