#include <algorithm>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/convolution.h"
#include "ops/conv.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using Pair = std::array<int64_t, 2>;

Pair pair_of(Extent2d e) { return {e.height, e.width}; }

void check_images(const char* what, const Array& x) {
  if (x.rank() != 4)
    throw_error("{}: the images are {}; they must be [n, h, w, c]: use expand_dims to add dimensions", what,
                to_string(x.shape()));
}

void check_positive(const char* what, const char* name, Extent2d e) {
  if (e.height < 1 || e.width < 1)
    throw_error("{}: the {} is {} x {}; it must be at least 1", what, name, e.height, e.width);
}

// Padding {top, bottom, left, right} for images of this shape and windows of `taps`, `dilation` apart.
std::array<int64_t, 4> widths_of(const Padding2d& padding, const Shape& images, Pair taps, Pair stride, Pair dilation) {
  if (padding.kind != Padding2d::Kind::same) return padding.widths;
  std::array<int64_t, 4> widths{};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t n = images[d + 1], out = (n + stride[d] - 1) / stride[d];
    const int64_t total = std::max<int64_t>((out - 1) * stride[d] + (taps[d] - 1) * dilation[d] + 1 - n, 0);
    widths[2 * d] = total / 2;
    widths[2 * d + 1] = total - total / 2;
  }
  return widths;
}

}  // namespace

Padding2d::Padding2d(std::string_view name, SourceLine at, int) : kind(name == "SAME" ? Kind::same : Kind::valid) {
  const detail::CallerLine line(at);
  if (name != "SAME" && name != "VALID")
    throw_error(
        "padding: \"{}\" is neither \"SAME\" nor \"VALID\"; use one of these, a number, or widths {{{{top, bottom}}, "
        "{{left, right}}}}",
        name);
}

Array conv2d(const Operand& x, const Operand& w, const Conv2dOptions& options) {
  check_images("conv2d", x);
  if (w.rank() != 4)
    throw_error("conv2d: the filters are {}; they must be [kh, kw, c / groups, co]", to_string(w.shape()));
  check_positive("conv2d", "stride", options.stride);
  check_positive("conv2d", "dilation", options.dilation);
  if (options.groups < 1 || x.shape(3) != w.shape(2) * options.groups || w.shape(3) % options.groups != 0)
    throw_error(
        "conv2d: images {} do not fit filters {} with {} groups: the images have {} channels, the filters take {} "
        "per group and produce {}; filters must be [kh, kw, channels / groups, a multiple of groups]",
        to_string(x.shape()), to_string(w.shape()), options.groups, x.shape(3), w.shape(2), w.shape(3));
  const Array both[] = {x, w};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  const Pair stride = pair_of(options.stride), dilation = pair_of(options.dilation);
  const ConvOptions strict{.stride = stride,
                           .pad = widths_of(options.padding, x.shape(), {w.shape(0), w.shape(1)}, stride, dilation),
                           .rhs_dilation = dilation,
                           .groups = options.groups};
  return detail::apply1("conv2d", {x, w}, [&](Builder&, const Values& v) {
    return conv2d(detail::convert(v[0], dtype), detail::convert(v[1], dtype), strict);
  });
}

}  // namespace lockstep
