#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/loggers.h"

namespace lockstep {
namespace {

// Buckets of magnitudes follow from the bits of a float: its exponent and the first three bits of its fraction.
constexpr int kShift = 20;
constexpr uint32_t kSmallest = (127 - 40) << 3;           // of 2^-40
constexpr uint32_t kMagnitudes = (255 << 3) - kSmallest;  // buckets of finite values from there on

// The lower limit of a bucket of magnitudes.
double limit_of(uint32_t magnitude) {
  if (magnitude == kMagnitudes) return std::numeric_limits<float>::max();
  return std::bit_cast<float>((magnitude + kSmallest) << kShift);
}

}  // namespace

Histogram make_histogram(std::span<const float> values) {
  std::vector<int64_t> negative(kMagnitudes), positive(kMagnitudes);
  int64_t small = 0;
  Histogram out{.min = std::numeric_limits<double>::infinity(), .max = -std::numeric_limits<double>::infinity()};
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    ++out.count;
    out.min = std::min<double>(out.min, value);
    out.max = std::max<double>(out.max, value);
    out.sum += value;
    out.sum_of_squares += double{value} * value;
    const uint32_t bucket = std::bit_cast<uint32_t>(std::fabs(value)) >> kShift;
    if (bucket < kSmallest)
      ++small;
    else
      ++(value < 0 ? negative : positive)[bucket - kSmallest];
  }
  if (out.count == 0) return {};
  // Leaves out empty buckets before the first one, and joins those in between.
  const auto add = [&](double limit, int64_t count) {
    if (count == 0 && out.counts.empty()) return;
    if (count == 0 && out.counts.back() == 0)
      out.limits.back() = limit;
    else
      out.limits.push_back(limit), out.counts.push_back(count);
  };
  for (uint32_t i = kMagnitudes; i-- > 0;) add(-limit_of(i), negative[i]);
  add(limit_of(0), small);
  for (uint32_t i = 0; i < kMagnitudes; ++i) add(limit_of(i + 1), positive[i]);
  if (out.counts.back() == 0) out.limits.pop_back(), out.counts.pop_back();
  return out;
}

}  // namespace lockstep
