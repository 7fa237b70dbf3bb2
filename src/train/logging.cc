#include "train/logging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

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

Terminal::Terminal(std::FILE* stream)
    : stream_(stream), own_(stream == stderr ? nullptr : std::make_unique<LiveLine>(stream)) {}

void Terminal::print(std::string_view text) {
  if (broken_) return;
  const int error = line().print(text);
  if (error == 0) return;
  broken_ = true;
  if (stream_ != stderr)
    std::fprintf(stderr, "lockstep: write progress: %s; training continues without progress output\n",
                 std::strerror(error));
}

}  // namespace lockstep::detail
