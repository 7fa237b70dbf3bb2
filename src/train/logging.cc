#include "train/logging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep::detail {

const double* find_scalar(const Scalars& scalars, std::string_view name) {
  for (const auto& [key, value] : scalars)
    if (key == name) return &value;
  return nullptr;
}

std::string_view set_of(std::string_view name) {
  for (const std::string_view set : {"test_", "validation_"})
    if (name.starts_with(set)) return set;
  return "";
}

std::span<const std::pair<std::string, double>> task_scalars(const Scalars& scalars) {
  constexpr std::string_view kOthers[] = {"learning_rate", "grad_norm", "epoch", "examples_per_second", "step_seconds"};
  const auto end = std::find_if(scalars.begin(), scalars.end(), [&](const auto& scalar) {
    return std::find(std::begin(kOthers), std::end(kOthers), scalar.first) != std::end(kOthers) ||
           !set_of(scalar.first).empty();
  });
  return {scalars.data(), static_cast<size_t>(end - scalars.begin())};
}

const std::pair<std::string, double>* find_rate(const Scalars& scalars) {
  const std::pair<std::string, double>* out = nullptr;
  for (const auto& scalar : scalars)
    if (scalar.first.ends_with("_per_second") && (out == nullptr || out->first == "examples_per_second")) out = &scalar;
  return out;
}

std::string scalar_text(const std::string& name, double value) {
  constexpr std::string_view kRate = "_per_second";
  if (name.ends_with(kRate)) return fmt::format("{:.0f} {}/s", value, name.substr(0, name.size() - kRate.size()));
  const bool four_digits = name.ends_with("loss") || name.ends_with("accuracy");
  const double size = std::fabs(value);
  if (four_digits && std::isfinite(value) && size < 1e6 && (size >= 1e-3 || size == 0))
    return fmt::format("{} {:.4f}", name, value);
  return fmt::format("{} {:.4g}", name, value);
}

std::string step_text(int64_t step, int64_t total) {
  return total > 0 ? fmt::format("step {}/{}", step, total) : fmt::format("step {}", step);
}

std::string duration_text(double seconds) {
  constexpr double kMax = 1e12;  // avoids overflow
  const auto s = static_cast<int64_t>(std::clamp(std::round(seconds), 0.0, kMax));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

void Terminal::print(std::string_view text) {
  if (broken_) return;
  if (std::fwrite(text.data(), 1, text.size(), stream_) == text.size() && std::fflush(stream_) == 0) return;
  broken_ = true;
  if (stream_ != stderr)
    std::fprintf(stderr, "lockstep: write progress: %s; training continues without progress output\n",
                 std::strerror(errno));
}

std::string rate_text(const ProgressValues& progress) {
  // The rate is 0 until the first step that does not compile.
  if (const auto* rate = find_rate(*progress.scalars); rate != nullptr && rate->second > 0)
    return scalar_text(rate->first, rate->second);
  return progress.steps_per_second > 0 ? fmt::format("{:.3g} steps/s", progress.steps_per_second) : "";
}

std::string progress_line(const ProgressValues& progress, int64_t width) {
  std::vector<std::string> items;
  if (std::string rate = rate_text(progress); !rate.empty()) items.push_back(std::move(rate));
  for (const auto& [name, value] : task_scalars(*progress.scalars)) items.push_back(scalar_text(name, value));
  if (progress.seconds_left >= 0) items.push_back(duration_text(progress.seconds_left) + " left");

  std::string line = step_text(progress.step, progress.total);
  double done = 0;
  if (progress.total > 0) {
    done = std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.total), 0.0, 1.0);
    line += fmt::format("  {:.0f} %", std::floor(100 * done));
  }
  const auto size = [](const std::string& text) { return static_cast<int64_t>(text.size()); };
  int64_t room = width - size(line);
  std::string rest;
  for (const std::string& item : items) {
    if (size(rest) + 2 + size(item) > room) break;
    rest += "  " + item;
  }
  room -= size(rest);
  constexpr int64_t kMin = 8, kMax = 30, kFrame = 3;  // characters of the bar; a blank and two brackets
  if (progress.total > 0 && room >= kMin + kFrame) {
    const int64_t length = std::min(kMax, room - kFrame);
    const auto full = static_cast<int64_t>(done * static_cast<double>(length));
    std::string bar(static_cast<size_t>(length), ' ');
    std::fill_n(bar.begin(), full, '=');
    if (full < length) bar[static_cast<size_t>(full)] = '>';
    line += " [" + bar + "]";
  }
  line += rest;
  if (size(line) > width) line.resize(static_cast<size_t>(std::max<int64_t>(width, 0)));
  return line;
}

}  // namespace lockstep::detail
