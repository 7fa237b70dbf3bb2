#include "lockstep/signal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "array/promote.h"
#include "base/check.h"
#include "lockstep/convolution.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/numeric.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/search.h"

namespace lockstep {
namespace {

using detail::axis_of;

Array in_floating(const Array& x) { return is_floating(x.dtype()) ? x : astype(x, f32); }

// The elements [from, to) along an axis; negative bounds count from the end, and 0 as `to` is the end.
Array range_of(const Array& x, int64_t axis, int64_t from, int64_t to) {
  const int64_t n = x.shape(axis), begin = from < 0 ? std::max<int64_t>(n + from, 0) : std::min(from, n);
  const int64_t end = to <= 0 ? std::max<int64_t>(n + to, 0) : std::min(to, n);
  return split_at(x, {begin, std::max(begin, end)}, axis)[1];
}

Array upper(const Array& x, int64_t axis) { return range_of(x, axis, 1, 0); }
Array lower(const Array& x, int64_t axis) { return range_of(x, axis, 0, -1); }

// A vector along one axis of x.
Array along_axis_of(const Array& x, const Array& vector, int64_t axis) {
  Shape shape(x.shape().size(), 1);
  shape[static_cast<size_t>(axis)] = vector.size();
  return reshape(vector, shape);
}

enum class Overlap { full, same, valid };

Overlap overlap_of(const char* what, std::string_view mode) {
  if (mode == "full") return Overlap::full;
  if (mode == "same") return Overlap::same;
  if (mode == "valid") return Overlap::valid;
  throw_error("{}: no mode is called \"{}\"; use full, same or valid", what, mode);
}

// Slides the taps over x, without flipping them.
Array slide(const Array& x, const Array& taps, Overlap overlap) {
  const int64_t n = x.size(), k = taps.size();
  std::pair<int64_t, int64_t> padding{0, 0};
  if (overlap == Overlap::full) padding = {k - 1, k - 1};
  if (overlap == Overlap::same) padding = {k / 2, k - k / 2 - 1};
  const Array image = reshape(x, {1, 1, n, 1}), filter = reshape(taps, {1, k, 1, 1});
  return ravel(conv2d(image, filter, {.padding = {{0, 0}, padding}}));
}

// Both vectors in their floating common type.
std::pair<Array, Array> two_vectors(const char* what, const Array& a, const Array& v) {
  if (a.rank() != 1 || v.rank() != 1 || a.size() == 0 || v.size() == 0)
    throw_error("{}: {} and {}; pass two vectors with at least one element", what, to_string(a.type()),
                to_string(v.type()));
  const DType dtype = detail::floating_of(promote(a.dtype(), v.dtype()));
  return {astype(a, dtype), astype(v, dtype)};
}

// Both polynomials with the same number of coefficients.
std::pair<Array, Array> aligned(const Array& a, const Array& b) {
  const int64_t n = std::max(a.size(), b.size());
  return {pad(ravel(a), {{n - a.size(), 0}}), pad(ravel(b), {{n - b.size(), 0}})};
}

}  // namespace

Array interp(const Operand& x, const Operand& xp, const Operand& fp, const InterpOptions& options) {
  if (xp.rank() != 1 || fp.shape() != xp.shape() || xp.size() == 0)
    throw_error("interp: points {} with values {}; both must be vectors of one length, not empty", to_string(xp.type()),
                to_string(fp.type()));
  const Array both[] = {x, xp};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  Array at_x = astype(x, dtype), points = astype(xp, dtype), values = in_floating(fp);
  if (options.period != 0) {
    const double period = std::abs(options.period);
    at_x = at_x % period;
    points = points % period;
    const Array order = argsort(points);
    points = take(points, order);
    values = take(values, order);
    points = concatenate({range_of(points, 0, -1, 0) - period, points, range_of(points, 0, 0, 1) + period});
    values = concatenate({range_of(values, 0, -1, 0), values, range_of(values, 0, 0, 1)});
  }
  const int64_t n = points.size();
  const Array above = minimum(maximum(searchsorted(points, at_x, Side::right), 1), std::max<int64_t>(n - 1, 1));
  const Array x0 = take(points, above - 1), y0 = take(values, above - 1), dx = take(points, above) - x0;
  const Array same = abs(dx) <= std::numeric_limits<double>::min();  // no slope between equal points
  Array y = where(same, y0, y0 + (at_x - x0) / where(same, 1, dx) * (take(values, above) - y0));
  if (options.period != 0) return y;
  y = where(at_x < at(points, 0), options.left.defined() ? options.left : at(values, 0), y);
  return where(at_x > at(points, -1), options.right.defined() ? options.right : at(values, -1), y);
}

Array convolve(const Operand& a, const Operand& v, std::string_view mode) {
  const Overlap overlap = overlap_of("convolve", mode);
  const auto [x, y] = two_vectors("convolve", a, v);
  const bool swapped = x.size() < y.size();
  return slide(swapped ? y : x, flip(swapped ? x : y), overlap);
}

Array correlate(const Operand& a, const Operand& v, std::string_view mode) {
  const Overlap overlap = overlap_of("correlate", mode);
  const auto [x, y] = two_vectors("correlate", a, v);
  if (x.size() >= y.size()) return slide(x, y, overlap);
  return flip(slide(y, x, overlap));
}

Array diff(const Operand& x, int64_t axis, const DiffOptions& options) {
  const int64_t along = axis_of("diff", axis, x.shape());
  if (options.n < 0) throw_error("diff: {} differences requested; the number must not be negative", options.n);
  const auto joined = [&](const Array& end) {
    if (end.rank() > 0) return end;
    Shape shape = x.shape();
    shape[static_cast<size_t>(along)] = 1;
    return broadcast_to(astype(end, x.dtype()), shape);
  };
  Array out = x;
  if (options.prepend.defined()) out = concatenate({joined(options.prepend), out}, along);
  if (options.append.defined()) out = concatenate({out, joined(options.append)}, along);
  for (int64_t i = 0; i < options.n; ++i)
    out = out.dtype() == boolean ? upper(out, along) != lower(out, along) : upper(out, along) - lower(out, along);
  return out;
}

Array ediff1d(const Operand& x, const Operand& to_end, const Operand& to_begin) {
  const Array flat = ravel(x);
  std::vector<Array> parts{diff(flat)};
  if (to_begin.defined()) parts.insert(parts.begin(), ravel(astype(to_begin, x.dtype())));
  if (to_end.defined()) parts.push_back(ravel(astype(to_end, x.dtype())));
  return concatenate(parts);
}

Array gradient(const Operand& f, int64_t axis, const Operand& spacing) {
  const int64_t along = axis_of("gradient", axis, f.shape()), n = f.shape(along);
  if (n < 2)
    throw_error("gradient: dimension {} of {} has {} elements; at least 2 are needed", along, to_string(f.shape()), n);
  if (spacing.rank() > 1 || (spacing.rank() == 1 && spacing.size() != n))
    throw_error("gradient: the spacing is {} along dimension {} of {}; pass a number or {} coordinates",
                to_string(spacing.type()), along, to_string(f.shape()), n);
  const Array y = in_floating(f), rise = upper(y, along) - lower(y, along);
  const Array first = range_of(rise, along, 0, 1), last = range_of(rise, along, -1, 0);
  const Array before = range_of(y, along, 0, -2), after = range_of(y, along, 2, 0);
  if (spacing.rank() == 0) {
    const Array inner = (after - before) * 0.5 / spacing;
    return concatenate({first / spacing, astype(inner, y.dtype()), last / spacing}, along);
  }
  const Array step = diff(along_axis_of(y, astype(spacing, y.dtype()), along), along);
  const Array d1 = lower(step, along), d2 = upper(step, along);
  const Array inner = -d2 / (d1 * (d1 + d2)) * before + (d2 - d1) / (d1 * d2) * range_of(y, along, 1, -1) +
                      d1 / (d2 * (d1 + d2)) * after;
  return concatenate({first / range_of(step, along, 0, 1), inner, last / range_of(step, along, -1, 0)}, along);
}

std::vector<Array> gradient(const Operand& f, const Operand& spacing) {
  std::vector<Array> out;
  for (int64_t d = 0; d < f.rank(); ++d) out.push_back(gradient(f, d, spacing));
  return out;
}

Array trapezoid(const Operand& y, double dx, int64_t axis) {
  const int64_t along = axis_of("trapezoid", axis, y.shape());
  const Array values = in_floating(y);
  return sum(upper(values, along) + lower(values, along), along) * (0.5 * dx);
}

Array trapezoid(const Operand& y, const Operand& x, int64_t axis) {
  const int64_t along = axis_of("trapezoid", axis, y.shape());
  const Array values = in_floating(y);
  const Array places = astype(x.rank() == 1 ? along_axis_of(values, x, along) : Array(x), values.dtype());
  const int64_t of_x = x.rank() == 1 ? along : axis_of("trapezoid", axis, x.shape());
  return sum(diff(places, of_x) * (upper(values, along) + lower(values, along)), along) * 0.5;
}

Array unwrap(const Operand& p, int64_t axis, const UnwrapOptions& options) {
  const int64_t along = axis_of("unwrap", axis, p.shape());
  if (p.shape(along) == 0) return p;
  const Array x = in_floating(p), step = diff(x, along);
  const double half = options.period / 2, jump = options.discont.value_or(half);
  const Array wrapped = (step + half) % options.period - half;
  const Array in_range = where((wrapped == -half) & (step > 0), half, wrapped);
  const Array correction = where(abs(step) < jump, 0, in_range - step);
  return concatenate({range_of(x, along, 0, 1), upper(x, along) + cumsum(correction, along)}, along);
}

Array polyval(const Operand& p, const Operand& x) {
  if (p.rank() < 1) throw_error("polyval: the coefficients are {}; pass a vector", to_string(p.type()));
  const Array both[] = {p, x};
  const DType dtype = detail::common_dtype(both);
  const Array at_x = astype(x, dtype);
  Array y = zeros_like(at_x);
  for (const Array& c : unstack(astype(p, dtype), 0)) y = y * at_x + c;
  return y;
}

Array polyadd(const Operand& a, const Operand& b) {
  const auto [x, y] = aligned(a, b);
  return x + y;
}
Array polysub(const Operand& a, const Operand& b) {
  const auto [x, y] = aligned(a, b);
  return x - y;
}
Array polymul(const Operand& a, const Operand& b) { return convolve(ravel(a), ravel(b), "full"); }

Array polyder(const Operand& p, int64_t times) {
  if (times < 0) throw_error("polyder: {} derivatives requested; the number must not be negative", times);
  Array out = in_floating(p);
  for (int64_t i = 0; i < times && out.size() > 0; ++i) {
    const int64_t n = out.size();
    out = range_of(out, 0, 0, -1) * astype(arange(n - 1, 0, -1), out.dtype());
  }
  return out;
}

Array polyint(const Operand& p, int64_t times, const Operand& constant) {
  if (times < 0) throw_error("polyint: {} integrals requested; the number must not be negative", times);
  if (constant.rank() > 1 || (constant.rank() == 1 && constant.size() != times && constant.size() != 1))
    throw_error("polyint: the constants are {} for {} integrals; pass one for each, or one for all",
                to_string(constant.type()), times);
  Array out = in_floating(p);
  for (int64_t i = 0; i < times; ++i) {
    const Array c = constant.rank() == 0 ? Array(constant) : at(constant, constant.size() == 1 ? 0 : i);
    const Array powers = astype(arange(out.size(), int64_t{0}, -1), out.dtype());
    out = concatenate({out / powers, reshape(astype(c, out.dtype()), {1})});
  }
  return out;
}

}  // namespace lockstep
