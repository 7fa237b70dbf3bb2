#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "array/apply.h"
#include "array/index_plan.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/image.h"
#include "lockstep/indexing.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "ops/shape_ops.h"

namespace lockstep::image {
namespace {

double linear_weight(double x) { return std::max(0.0, 1.0 - x); }

double cubic_weight(double x) {
  if (x >= 2) return 0;
  return x >= 1 ? ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0 : ((1.5 * x - 2.5) * x) * x + 1.0;
}

double lanczos_weight(double x, double radius) {
  if (x > radius) return 0;
  if (x <= 1e-3) return 1;
  const double angle = std::numbers::pi * x;
  return radius * std::sin(angle) * std::sin(angle / radius) / (angle * angle);
}

double weight_of(Method method, double x) {
  switch (method) {
    case Method::cubic:
      return cubic_weight(x);
    case Method::lanczos3:
      return lanczos_weight(x, 3);
    case Method::lanczos5:
      return lanczos_weight(x, 5);
    default:
      return linear_weight(x);
  }
}

// The weights [in, out] of the elements of a dimension. Those of a result add up to 1; outside of the image to 0.
std::vector<double> weights_of(int64_t in, int64_t out, double scale, double translation, Method method,
                               bool antialias) {
  std::vector<double> w(static_cast<size_t>(in * out), 0);
  const double inverse = 1 / scale, width = antialias ? std::max(inverse, 1.0) : 1.0;
  for (int64_t o = 0; o < out; ++o) {
    const double at = (static_cast<double>(o) + 0.5) * inverse - translation * inverse - 0.5;
    if (!(at >= -0.5 && at <= static_cast<double>(in) - 0.5)) continue;
    const auto element = [&](int64_t i) -> double& { return w[static_cast<size_t>(i * out + o)]; };
    double total = 0;
    for (int64_t i = 0; i < in; ++i)
      total += element(i) = weight_of(method, std::abs(at - static_cast<double>(i)) / width);
    const bool sums = std::abs(total) > 1000 * static_cast<double>(std::numeric_limits<float>::epsilon());
    for (int64_t i = 0; i < in; ++i) element(i) = sums ? element(i) / total : 0;
  }
  return w;
}

// The product of dimension d of x [..., in, ...] with weights [in, out].
Array multiply_dimension(const Array& x, int64_t d, const std::vector<double>& weights, int64_t out) {
  Shape shape = x.shape();
  const int64_t in = shape[detail::at_axis(d)];
  const Array matrix =
      x.dtype() == DType::f64
          ? Array::from(weights, {in, out})
          : astype(Array::from(std::vector<float>(weights.begin(), weights.end()), {in, out}), x.dtype());
  const int64_t before = count(Shape(shape.begin(), shape.begin() + d)),
                after = count(Shape(shape.begin() + d + 1, shape.end()));
  shape[detail::at_axis(d)] = out;
  return reshape(einsum("aib,io->aob", reshape(x, {before, in, after}), matrix), shape);
}

// Element i of the result is element floor((i + 0.5) * in / out) of x.
Array nearest_dimension(const Array& x, int64_t d, int64_t out) {
  const int64_t in = x.shape(d);
  if (out % in == 0) return repeat(x, out / in, d);
  if (in % out == 0) {
    const int64_t step = in / out;
    std::vector<int64_t> starts(x.shape().size(), 0), limits = x.shape(), strides(x.shape().size(), 1);
    starts[detail::at_axis(d)] = step / 2;
    strides[detail::at_axis(d)] = step;
    return slice(x, starts, limits, strides);
  }
  std::vector<int64_t> places;
  for (int64_t i = 0; i < out; ++i)
    places.push_back(static_cast<int64_t>(
        std::floor((static_cast<float>(i) + 0.5f) * static_cast<float>(in) / static_cast<float>(out))));
  return take(x, detail::index_vector(std::move(places), in), d);
}

void check_shape(const char* what, const Array& x, const Shape& shape) {
  if (x.rank() != static_cast<int64_t>(shape.size()))
    throw_error("{}: {} has {} dimensions and the new shape {} has {}; both must have the same number", what,
                to_string(x.shape()), x.rank(), to_string(shape), shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) throw_error("{}: the new shape is {}; extents must not be negative", what, to_string(shape));
    if (shape[d] > 0 && x.shape()[d] == 0)
      throw_error("{}: dimension {} of {} is empty and cannot be resized to {}", what, d, to_string(x.shape()),
                  shape[d]);
  }
}

Array floating(const Array& x) { return astype(x, detail::floating_of(x.dtype())); }

}  // namespace

Array resize(const Operand& x, const Shape& shape, Method method, bool antialias) {
  check_shape("image::resize", x, shape);
  Array y = method == Method::nearest ? Array(x) : floating(x);
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t in = x.shape(d), out = shape[detail::at_axis(d)];
    if (in == out) continue;
    if (method == Method::nearest && out > 0)
      y = nearest_dimension(y, d, out);
    else
      y = multiply_dimension(
          y, d, weights_of(in, out, static_cast<double>(out) / static_cast<double>(in), 0, method, antialias), out);
  }
  return y;
}

Array scale_and_translate(const Operand& x, const Shape& shape, const std::vector<int64_t>& spatial_dims,
                          const std::vector<double>& scale, const std::vector<double>& translation, Method method,
                          bool antialias) {
  constexpr const char* kWhat = "image::scale_and_translate";
  check_shape(kWhat, x, shape);
  if (method == Method::nearest) throw_error("{}: the method is nearest; use another one, or image::resize", kWhat);
  if (scale.size() != spatial_dims.size() || translation.size() != spatial_dims.size())
    throw_error("{}: {} dimensions, {} scales and {} translations; give one of each for each dimension", kWhat,
                spatial_dims.size(), scale.size(), translation.size());
  Array y = floating(x);
  Shape made = x.shape();
  for (size_t i = 0; i < spatial_dims.size(); ++i) {
    const int64_t d = detail::axis_of(kWhat, spatial_dims[i], x.shape()), out = shape[detail::at_axis(d)];
    y = multiply_dimension(y, d, weights_of(x.shape(d), out, scale[i], translation[i], method, antialias), out);
    made[detail::at_axis(d)] = out;
  }
  if (made != shape)
    throw_error("{}: {} becomes {} where {} was asked for; list all dimensions that change in spatial_dims", kWhat,
                to_string(x.shape()), to_string(made), to_string(shape));
  return y;
}

}  // namespace lockstep::image
