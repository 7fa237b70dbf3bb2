// Two-dimensional convolution of images x [n, h, w, c] with filters w [kh, kw, ci, co] to y [n, oh, ow, co]:
//
//   y[n, i, j, o] = sum over a, b, k of
//     x'[n, i * stride[0] + a * rhs_dilation[0], j * stride[1] + b * rhs_dilation[1], g * ci + k] * w[a, b, k, o]
//
// where ci = c / groups, g = o / (co / groups), and x' is x with lhs_dilation - 1 zeros inserted between adjacent
// elements and `pad` zeros around. The map is bilinear. The gradient with respect to each operand is a separate row,
// and the three rows are closed under differentiation. A Builder belongs to one thread.
#pragma once

#include <array>

#include "program/builder.h"

namespace lockstep {

struct ConvOptions {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 4> pad = {0, 0, 0, 0};  // zeros before and after: {low h, high h, low w, high w}
  std::array<int64_t, 2> lhs_dilation = {1, 1};
  std::array<int64_t, 2> rhs_dilation = {1, 1};
  int64_t groups = 1;
};

// Reads the options from the attributes of an equation.
ConvOptions conv_options(const Attrs&);

Value conv2d(Value x, Value w, const ConvOptions& options = {});

// The gradient of conv2d with respect to x, which has shape `x`; dy is the cotangent of its result.
Value conv2d_input_grad(Value dy, Value w, Shape x, const ConvOptions& options = {});

// The gradient of conv2d with respect to w, which has shape `w`; dy is the cotangent of its result.
Value conv2d_filter_grad(Value x, Value dy, Shape w, const ConvOptions& options = {});

}  // namespace lockstep
