#include "lockstep/fft.h"

#include <cmath>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/complex.h"
#include "lockstep/rearrange.h"
#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/fft.h"

namespace lockstep::fft {
namespace {

constexpr size_t kMostAtOnce = 3;  // dimensions of one equation

enum class Kind : uint8_t { fft, ifft, rfft, irfft };
bool is_forward(Kind kind) { return kind == Kind::fft || kind == Kind::rfft; }

// What is transformed: axes in order, and the lengths of the transforms along them.
struct Plan {
  const char* what;
  Kind kind;
  Dims axes;
  Dims lengths;
  Norm norm;
};

Value to_complex_numbers(Value x) { return detail::convert(x, complex_of(x.dtype())); }
Value to_real_numbers(const char* what, Value x) {
  if (is_complex(x.dtype()))
    throw_error("{}: the input is {}; the transform of real numbers needs a real array: use real(x), or fft", what,
                to_string(x.type()));
  return detail::convert(x, x.dtype() == f64 ? f64 : f32);
}

// x with `n` elements along an axis: cut, or with zeros at the end.
Value fit_axis(Value x, int64_t axis, int64_t n) {
  const Shape shape = x.shape();
  if (shape[detail::at_axis(axis)] == n) return x;
  Dims none(shape.size(), 0), hi = none;
  hi[detail::at_axis(axis)] = n - shape[detail::at_axis(axis)];
  return pad(x, full(x.builder(), {x.dtype(), {}}, 0), none, hi, none);
}

// 1, the number of points or its square root.
double divisor(const Plan& p) {
  double points = 1;
  for (const int64_t n : p.lengths) points *= static_cast<double>(n);
  if (p.norm == Norm::ortho) return std::sqrt(points);
  return (p.norm == Norm::forward) == is_forward(p.kind) ? points : 1;
}

Value divided(Value x, double by) {
  if (by == 1) return x;
  const auto part = [&](Value v) { return v * (1 / by); };
  return is_complex(x.dtype()) ? by_parts(x, part) : part(x);
}

// Transforms along the last axes, in groups of at most three. Of a real kind, the last axis is in the group that is real.
Value transform_last(Value x, const Plan& p) {
  const auto rank = x.rank();
  size_t left = p.axes.size();
  const auto at_end = std::min(left, kMostAtOnce);
  const Kind kind = p.kind;
  const char* const complex_kind = is_forward(kind) ? "fft" : "ifft";
  const auto others = [&](Value y) {
    for (; left > 0; left -= std::min(left, kMostAtOnce)) {
      const auto dims = static_cast<int64_t>(std::min(left, kMostAtOnce));
      // Moves the group to the end and back.
      const auto first = static_cast<int64_t>(left) - dims;  // of the transformed axes
      const int64_t begin = rank - static_cast<int64_t>(p.axes.size()) + first;
      Dims order = counting(0, begin);
      for (int64_t d = begin + dims; d < rank; ++d) order.push_back(d);
      for (int64_t d = begin; d < begin + dims; ++d) order.push_back(d);
      y = transpose(fourier(transpose(y, order), complex_kind, dims), inverse(order));
    }
    return y;
  };
  if (kind == Kind::irfft) {
    left -= at_end;
    return fourier(others(x), "irfft", static_cast<int64_t>(at_end), p.lengths.back());
  }
  x = fourier(x, kind == Kind::rfft ? "rfft" : complex_kind, static_cast<int64_t>(at_end));
  left -= at_end;
  return others(x);
}

Array transform(const Array& array, const Plan& p) {
  return detail::apply1(p.what, {array}, [&](Builder&, const Values& v) {
    Value x = p.kind == Kind::rfft ? to_real_numbers(p.what, v[0]) : to_complex_numbers(v[0]);
    for (size_t i = 0; i < p.axes.size(); ++i) {
      const bool half = p.kind == Kind::irfft && i + 1 == p.axes.size();
      x = fit_axis(x, p.axes[i], half ? p.lengths[i] / 2 + 1 : p.lengths[i]);
    }
    if (p.axes.empty()) return x;
    Dims order;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (!contains(p.axes, d)) order.push_back(d);
    order.insert(order.end(), p.axes.begin(), p.axes.end());
    return divided(transpose(transform_last(transpose(x, order), p), inverse(order)), divisor(p));
  });
}

void check_length(const char* what, int64_t n) {
  if (n < 1) throw_error("{}: a transform of length {}; a length must be at least 1", what, n);
}

// The lengths and axes of a call, with their defaults.
Plan make_plan(const char* what, Kind kind, const Array& x, const Lengths& s, const TransformedAxes& axes, Norm norm) {
  Plan p{what, kind, {}, {}, norm};
  if (axes && s && axes->size() != s->size())
    throw_error("{}: {} lengths for {} axes; give one for each axis", what, s->size(), axes->size());
  if (axes)
    for (const int64_t axis : *axes) {
      const int64_t counted = detail::axis_of(what, axis, x.shape());
      if (contains(p.axes, counted))
        throw_error("{}: axis {} of {} is given twice; give each axis once", what, counted, to_string(x.shape()));
      p.axes.push_back(counted);
    }
  else {
    const int64_t n = s ? std::ssize(*s) : x.rank();
    if (n > x.rank())
      throw_error("{}: {} lengths for {}; give at most one for each dimension", what, n, to_string(x.type()));
    p.axes = counting(x.rank() - n, x.rank());
  }
  if (p.axes.empty() && (kind == Kind::rfft || kind == Kind::irfft))
    throw_error("{}: no axis of {}; name the axis that is real", what, to_string(x.type()));
  for (size_t i = 0; i < p.axes.size(); ++i) {
    const int64_t extent = x.shape()[detail::at_axis(p.axes[i])];
    const bool half = kind == Kind::irfft && i + 1 == p.axes.size();
    p.lengths.push_back(s ? (*s)[i] : half ? 2 * (extent - 1) : extent);
    check_length(what, p.lengths.back());
  }
  return p;
}

Array along_one(const char* what, Kind kind, const Array& x, Length n, int64_t axis, Norm norm) {
  return transform(x, make_plan(what, kind, x, n ? Lengths(Shape{*n}) : Lengths(), Shape{axis}, norm));
}
Array along_many(const char* what, Kind kind, const Array& x, const Lengths& s, const TransformedAxes& axes,
                 Norm norm) {
  return transform(x, make_plan(what, kind, x, s, axes, norm));
}

// The transforms of Hermitian signals are those of real ones, in the other direction.
Norm exchanged(Norm norm) {
  return norm == Norm::backward ? Norm::forward : norm == Norm::forward ? Norm::backward : norm;
}

// Rolls every axis by half of its extent, rounded down or up.
Array shifted(const char* what, const Array& x, const Axes& axes, bool back) {
  Array out = x;
  for (const int64_t axis : detail::axes_of(what, axes, x.shape())) {
    const int64_t n = x.shape()[detail::at_axis(axis)];
    out = roll(out, back ? -(n / 2) : n / 2, axis);
  }
  return out;
}

Array frequencies(const char* what, int64_t n, double d, int64_t first, int64_t last) {
  check_length(what, n);
  if (d == 0) throw_error("{}: the distance of samples is 0; give another", what);
  std::vector<float> out;
  for (int64_t k = 0; k < last; ++k)
    out.push_back(static_cast<float>(static_cast<double>(k) / (static_cast<double>(n) * d)));
  for (int64_t k = first; k < 0; ++k)
    out.push_back(static_cast<float>(static_cast<double>(k) / (static_cast<double>(n) * d)));
  const Shape shape{std::ssize(out)};
  return Array::from(std::move(out), shape);
}

}  // namespace

#define LOCKSTEP_ONE_AXIS(name)                                     \
  Array name(const Operand& x, Length n, int64_t axis, Norm norm) { \
    return along_one("fft::" #name, Kind::name, x, n, axis, norm);  \
  }
LOCKSTEP_ONE_AXIS(fft)
LOCKSTEP_ONE_AXIS(ifft)
LOCKSTEP_ONE_AXIS(rfft)
LOCKSTEP_ONE_AXIS(irfft)
#undef LOCKSTEP_ONE_AXIS

Array hfft(const Operand& x, Length n, int64_t axis, Norm norm) {
  return along_one("fft::hfft", Kind::irfft, lockstep::conj(x), n, axis, exchanged(norm));
}
Array ihfft(const Operand& x, Length n, int64_t axis, Norm norm) {
  return lockstep::conj(along_one("fft::ihfft", Kind::rfft, x, n, axis, exchanged(norm)));
}

#define LOCKSTEP_MANY_AXES(name, kind)                                                        \
  Array name##2(const Operand& x, const Lengths& s, const Shape& axes, Norm norm) {           \
    return along_many("fft::" #name "2", Kind::kind, x, s, axes, norm);                       \
  }                                                                                           \
  Array name##n(const Operand& x, const Lengths& s, const TransformedAxes& axes, Norm norm) { \
    return along_many("fft::" #name "n", Kind::kind, x, s, axes, norm);                       \
  }
LOCKSTEP_MANY_AXES(fft, fft)
LOCKSTEP_MANY_AXES(ifft, ifft)
LOCKSTEP_MANY_AXES(rfft, rfft)
LOCKSTEP_MANY_AXES(irfft, irfft)
#undef LOCKSTEP_MANY_AXES

Array fftshift(const Operand& x, const Axes& axes) { return shifted("fft::fftshift", x, axes, false); }
Array ifftshift(const Operand& x, const Axes& axes) { return shifted("fft::ifftshift", x, axes, true); }

Array fftfreq(int64_t n, double d, SourceLine at) {
  const detail::CallerLine line(at);
  return frequencies("fft::fftfreq", n, d, -(n / 2), (n + 1) / 2);
}
Array rfftfreq(int64_t n, double d, SourceLine at) {
  const detail::CallerLine line(at);
  return frequencies("fft::rfftfreq", n, d, 0, n / 2 + 1);
}

}  // namespace lockstep::fft
