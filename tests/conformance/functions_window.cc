// Convolutions, windows, image resizing.
#include <limits>

#include "conformance/suite.h"

namespace lockstep::conformance {
namespace {

WindowPadding padding_of(const Call& call) {
  const Json& padding = call.attrs.at("padding");
  return padding.is_string() ? WindowPadding(padding.get<std::string>()) : WindowPadding(call.pairs("padding"));
}

// Channels last, in one to three dimensions.
const ConvDimensionNumbers kNumbers[] = {{"NWC", "WIO", "NWC"}, {"NHWC", "HWIO", "NHWC"}, {"NDHWC", "DHWIO", "NDHWC"}};

Array convolution(const Call& call) {
  return conv_general_dilated(call.x, call.y,
                              {.window_strides = call.integers("strides"),
                               .padding = padding_of(call),
                               .lhs_dilation = call.integers("lhs_dilation"),
                               .rhs_dilation = call.integers("rhs_dilation"),
                               .feature_group_count = call.groups,
                               .dimension_numbers = kNumbers[call.x.rank() - 3]});
}

Array reduced_windows(const Call& call, WindowOp how) {
  Array start = how == WindowOp::mul ? 1 : 0;
  if (how == WindowOp::max || how == WindowOp::min) {
    const double infinity = std::numeric_limits<double>::infinity();
    start = how == WindowOp::max ? -infinity : infinity;
    if (call.x.dtype() == i32)
      start = how == WindowOp::max ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  }
  return reduce_window(call.x, start, how,
                       {.window_dimensions = call.integers("window"),
                        .window_strides = call.integers("strides"),
                        .padding = padding_of(call)});
}

image::Method method_of(const std::string& name) {
  return name == "nearest" ? image::Method::nearest : name == "linear" ? image::Method::linear : image::Method::cubic;
}

}  // namespace

// clang-format off
Functions window_functions() {
  return {
      FUNCTION("lax.conv_general_dilated", convolution(*this)),
      FUNCTION("lax.conv_transpose", conv_transpose(x, y, integers("strides"), padding_of(*this))),
      FUNCTION("lax.reduce_window add", reduced_windows(*this, WindowOp::add)),
      FUNCTION("lax.reduce_window max", reduced_windows(*this, WindowOp::max)),
      FUNCTION("lax.reduce_window min", reduced_windows(*this, WindowOp::min)),
      FUNCTION("lax.reduce_window mul", reduced_windows(*this, WindowOp::mul)),
      FUNCTION("jax.image.resize", image::resize(x, shape, method_of(method), antialias)),
  };
}
// clang-format on

}  // namespace lockstep::conformance
