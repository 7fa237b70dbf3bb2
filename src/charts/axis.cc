#include "charts/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::charts {
namespace {

constexpr double kLargest = 1e300;   // the extent of an axis must be finite
constexpr double kTolerance = 1e-9;  // of the position of a tick

// The smallest of 1, 2, 5, 10, 20, ... times a power of ten that is at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - kTolerance)) return factor * power;
  return 10 * power;
}

std::vector<double> multiples(const Axis& axis, double step) {
  std::vector<double> out;
  const double slack = kTolerance * (axis.high - axis.low);
  for (double n = std::ceil((axis.low - slack) / step); n * step <= axis.high + slack && out.size() < 1000; ++n)
    out.push_back(n == 0 ? 0 : n * step);
  return out;
}

// The decimals that the multiples of a step need.
int decimals_of(double step) {
  for (int decimals = 0; decimals < 12; ++decimals) {
    const double scaled = step * std::pow(10, decimals);
    if (std::fabs(scaled - std::round(scaled)) < 1e-6 * scaled) return decimals;
  }
  return 12;
}

// Labels with the same unit and the same decimals.
std::vector<Tick> labeled(const std::vector<double>& values, double step) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  std::vector<Tick> out;
  if (largest >= 1e12 || (largest > 0 && step < 1e-4)) {
    for (const double value : values) out.push_back({value, fmt::format("{:.4g}", value)});
    return out;
  }
  constexpr std::pair<double, const char*> kUnits[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  const auto& [scale, unit] = *std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& each) {
    return each.first == 1 || largest >= 10 * each.first;
  });
  const int decimals = decimals_of(step / scale);
  for (const double value : values)
    out.push_back({value, value == 0 ? "0" : fmt::format("{:.{}f}{}", value / scale, decimals, unit)});
  return out;
}

std::vector<Tick> logarithmic_ticks(const Axis& axis, int most) {
  const double first = std::floor(std::log10(axis.low)), last = std::ceil(std::log10(axis.high));
  const auto inside = [&](const std::vector<double>& factors, double stride) {
    std::vector<Tick> out;
    for (double power = first; power <= last; power += stride)
      for (const double factor : factors) {
        const double value = factor * std::pow(10, power);
        if (value >= axis.low * (1 - kTolerance) && value <= axis.high * (1 + kTolerance))
          out.push_back({value, short_number(value)});
      }
    return out;
  };
  for (const auto& factors : {std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}, {1, 3}, {1}}) {
    std::vector<Tick> out = inside(factors, 1);
    if (!out.empty() && std::ssize(out) <= most) return out;
  }
  std::vector<Tick> out = inside({1}, std::ceil((last - first) / most));
  if (!out.empty()) return out;
  Axis linear = axis;  // less than a decade, without a round value
  linear.logarithmic = false;
  return ticks_of(linear, most);
}

}  // namespace

double Axis::position(double value) const {
  if (logarithmic) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

Axis axis_for(double low, double high, bool logarithmic) {
  if (low > high) std::swap(low, high);
  low = std::clamp(low, -kLargest, kLargest);
  high = std::clamp(high, -kLargest, kLargest);
  // Not so small or large that differences lose their meaning.
  const double extent = std::max({std::fabs(low), std::fabs(high), 1e-300});
  if (high - low <= 1e-12 * extent) {
    if (logarithmic) return {low / 2, high * 2, true};
    const double margin = low == 0 ? 1 : std::fabs(low) / 10;
    return {low - margin, high + margin, false};
  }
  return {low, high, logarithmic};
}

std::vector<Tick> ticks_of(const Axis& axis, int most) {
  if (axis.logarithmic) return logarithmic_ticks(axis, most);
  double step = round_step((axis.high - axis.low) / most);
  std::vector<double> values = multiples(axis, step);
  while (std::ssize(values) > most) values = multiples(axis, step = round_step(1.5 * step));
  if (values.empty()) values = {axis.low};
  return labeled(values, step);
}

std::string short_number(double value) {
  const double size = std::fabs(value);
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (size != 0 && (size >= 1e12 || size < 1e-4)) return fmt::format("{:.4g}", value);
  for (const auto& [scale, unit] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (size >= scale * (scale == 1e3 ? 10 : 1)) return fmt::format("{:.4g}{}", value / scale, unit);
  return fmt::format("{:.4g}", value);
}

std::string short_duration(double seconds) {
  if (seconds < 0) return "-" + short_duration(-seconds);
  if (seconds < 10 && seconds != std::round(seconds)) return fmt::format("{:.3g}s", seconds);
  if (seconds < 60) return fmt::format("{:.0f}s", seconds);
  const auto s = static_cast<int64_t>(std::min(std::round(seconds), 1e12));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return s % 86400 < 3600 ? fmt::format("{}d", s / 86400) : fmt::format("{}d {}h", s / 86400, s / 3600 % 24);
}

std::vector<Tick> duration_ticks(const Axis& axis, int most) {
  const double least = (axis.high - axis.low) / most;
  double step = least;
  if (least <= 1) {
    step = round_step(least);
  } else if (least > 86400) {
    step = 86400 * round_step(least / 86400);
  } else {
    for (const double each :
         {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400})
      if (each >= least) {
        step = each;
        break;
      }
  }
  std::vector<double> values = multiples(axis, step);
  while (std::ssize(values) > most) values = multiples(axis, step *= 2);
  if (values.empty()) values = {axis.low};
  std::vector<Tick> out;
  for (const double value : values) out.push_back({value, value == 0 ? "0" : short_duration(value)});
  return out;
}

}  // namespace lockstep::charts
