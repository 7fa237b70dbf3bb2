// The modes of pad().
#include <algorithm>
#include <cmath>

#include "array/index_plan.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/arrange.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/statistics.h"

namespace lockstep {
namespace {

using detail::at_axis;

struct Ends {
  int64_t before, after;
};

Array along_axis(std::vector<float> values, const Array& x, int64_t axis) {
  Shape shape(x.shape().size(), 1);
  shape[at_axis(axis)] = static_cast<int64_t>(values.size());
  return astype(Array::from(std::move(values), shape), x.dtype());
}

Array piece_of(const Array& x, int64_t axis, int64_t from, int64_t to) { return split_at(x, {from, to}, axis)[1]; }

// Joins the elements before and after x, each made by f(before).
template <class F>
Array with_ends(const Array& x, int64_t axis, const F& f) {
  return concatenate({f(true), x, f(false)}, axis);
}

// Extends x by its own elements: the one at position i, which is outside, is the element at f(i).
template <class F>
Array extended(const Array& x, int64_t axis, Ends ends, const F& f) {
  const int64_t n = x.shape(axis);
  return with_ends(x, axis, [&](bool before) {
    std::vector<int64_t> places;
    for (int64_t i = before ? -ends.before : n; i < (before ? 0 : n + ends.after); ++i) places.push_back(f(i));
    return take(x, detail::index_vector(std::move(places), n), axis);
  });
}

// Positions that repeat with a period; f maps a position within a period.
template <class F>
Array periodic(const Array& x, int64_t axis, Ends ends, int64_t period, const F& f) {
  return extended(x, axis, ends, [&](int64_t i) { return f(((i % period) + period) % period); });
}

// Reflects about the last elements (`gap` 0) or about the edges behind them (`gap` 1).
Array reflected(const Array& x, int64_t axis, Ends ends, int64_t gap, bool odd) {
  const int64_t n = x.shape(axis);
  if (n == 1 && gap == 0) return periodic(x, axis, ends, 1, [](int64_t) { return 0; });
  const int64_t period = 2 * (n - 1 + gap);
  const auto back = [&](int64_t i) { return i < n ? i : period - gap - i; };
  const Array even = periodic(x, axis, ends, period, back);
  if (!odd) return even;
  // Each reflection is turned around its edge, so every period rises by twice the difference of the edges.
  std::vector<float> sign, of_first, of_last;
  for (int64_t i = -ends.before; i < n + ends.after; ++i) {
    const int64_t in_period = ((i % period) + period) % period;
    const auto periods = static_cast<float>((i - in_period) / period);
    const bool turned = in_period >= n;
    sign.push_back(turned ? -1.0f : 1.0f);
    of_first.push_back(-2 * periods);
    of_last.push_back(2 * periods + (turned ? 2.0f : 0.0f));
  }
  const Array first = piece_of(x, axis, 0, 1), last = piece_of(x, axis, n - 1, n);
  return along_axis(sign, x, axis) * even + along_axis(of_first, x, axis) * first + along_axis(of_last, x, axis) * last;
}

// Between `outermost` and the edge, which is not included.
Array ramp_to(const Array& edge, int64_t axis, double outermost, int64_t n, bool before) {
  std::vector<float> steps;
  for (int64_t i = 0; i < n; ++i) steps.push_back(static_cast<float>(before ? i : n - 1 - i));
  const bool floating = is_inexact(edge.dtype());
  const Array wide = floating ? edge : astype(edge, f32);
  const Array ramp = outermost + along_axis(steps, wide, axis) / static_cast<double>(n) * (wide - outermost);
  return floating ? ramp : astype(floor(ramp), edge.dtype());
}

Array statistic(std::string_view mode, const Array& x, int64_t axis) {
  const ReduceOptions keep{.keepdims = true};
  if (mode == "maximum") return max(x, axis, keep);
  if (mode == "minimum") return min(x, axis, keep);
  const Array middle = mode == "mean" ? mean(x, axis, keep) : median(x, axis, {.keepdims = true});
  return astype(is_floating(x.dtype()) ? middle : round(middle), x.dtype());
}

Array repeated_to(const Array& x, int64_t axis, int64_t n) {
  Shape shape = x.shape();
  shape[at_axis(axis)] = n;
  return broadcast_to(x, shape);
}

Array padded_along(const Array& x, int64_t axis, Ends ends, std::string_view mode, const PadOptions& options,
                   std::pair<double, double> constant, std::pair<double, double> outermost) {
  const int64_t n = x.shape(axis);
  const auto width = [&](bool before) { return before ? ends.before : ends.after; };
  const auto filled = [&](std::pair<double, double> values) {
    return with_ends(x, axis, [&](bool before) {
      Shape shape = x.shape();
      shape[at_axis(axis)] = width(before);
      return full(shape, before ? values.first : values.second, x.dtype());
    });
  };
  if (mode == "constant") return filled(constant);
  if (mode == "empty") return filled({0, 0});
  if (n == 0)
    throw_error("pad: dimension {} of {} is empty; mode \"{}\" needs an element to repeat", axis, to_string(x.shape()),
                mode);
  if (mode == "edge") return extended(x, axis, ends, [&](int64_t i) { return std::clamp<int64_t>(i, 0, n - 1); });
  if (mode == "wrap") return periodic(x, axis, ends, n, [](int64_t i) { return i; });
  if (mode == "reflect" || mode == "symmetric")
    return reflected(x, axis, ends, mode == "symmetric" ? 1 : 0, options.odd);
  return with_ends(x, axis, [&](bool before) {
    if (mode == "linear_ramp")
      return ramp_to(piece_of(x, axis, before ? 0 : n - 1, before ? 1 : n), axis,
                     before ? outermost.first : outermost.second, width(before), before);
    const int64_t some = options.stat_length > 0 ? std::min(options.stat_length, n) : n;
    const Array part = piece_of(x, axis, before ? 0 : n - some, before ? some : n);
    return repeated_to(statistic(mode, part, axis), axis, width(before));
  });
}

template <class T>
const T& for_dimension(const char* what, const std::vector<T>& pairs, size_t d, const Array& x) {
  if (pairs.size() != 1 && pairs.size() != x.shape().size())
    throw_error("pad: {} {} for {}; pass one pair, or one for each of its {} dimensions", pairs.size(), what,
                to_string(x.shape()), x.rank());
  return pairs[pairs.size() == 1 ? 0 : d];
}

}  // namespace

Array pad(const Operand& x, const std::vector<std::pair<int64_t, int64_t>>& widths, PadMode given,
          const PadOptions& options) {
  const std::string_view mode = given.name;
  static constexpr std::string_view kModes[] = {"constant", "edge",    "empty",   "linear_ramp", "maximum", "mean",
                                                "median",   "minimum", "reflect", "symmetric",   "wrap"};
  if (std::ranges::find(kModes, mode) == std::end(kModes))
    throw_error(
        "pad: no mode is called \"{}\"; use constant, edge, empty, linear_ramp, maximum, mean, median, minimum, "
        "reflect, "
        "symmetric or wrap",
        mode);
  if (options.stat_length < 0) throw_error("pad: the stat_length is {}; it must not be negative", options.stat_length);
  Array out = x;
  for (size_t d = 0; d < x.shape().size(); ++d) {
    const auto [before, after] = for_dimension("widths", widths, d, x);
    if (before < 0 || after < 0)
      throw_error("pad: widths {} and {} of dimension {}; they must not be negative: use slice to remove elements",
                  before, after, d);
    if (before + after == 0) continue;
    out = padded_along(out, static_cast<int64_t>(d), {before, after}, mode, options,
                       for_dimension("constant values", options.constant_values, d, x),
                       for_dimension("end values", options.end_values, d, x));
  }
  return out;
}

}  // namespace lockstep
