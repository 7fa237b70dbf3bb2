// Two-dimensional convolution: images x [n, h, w, c] with filters w [kh, kw, ci, co] give y [n, oh, ow, co]:
//
//   y[n, i, j, o] = sum over a, b, k of  x'[n, i * stride + a * rhs_dilation, j * ... + b * ..., g * ci + k] * w[a, b,
//   k, o]
//
// where ci = c / groups, g = o / (co / groups), and x' is x with lhs_dilation - 1 zeros between neighbours and then
// `pad` zeros around. The map is bilinear; the gradient with respect to each operand is a row of its own, and the three
// are closed under differentiation. A Builder belongs to one thread.
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

// The options that the attributes of an equation hold.
ConvOptions conv_options(const Attrs&);

Value conv2d(Value x, Value w, const ConvOptions& options = {});

// What conv2d's cotangent dy gives for its operand x, whose shape is `x`.
Value conv2d_input_grad(Value dy, Value w, Shape x, const ConvOptions& options = {});

// What conv2d's cotangent dy gives for its operand w, whose shape is `w`.
Value conv2d_filter_grad(Value x, Value dy, Shape w, const ConvOptions& options = {});

}  // namespace lockstep
