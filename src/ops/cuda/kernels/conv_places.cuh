// The positions of the elements of convolutions as matrix products, for any stride, padding, dilation and groups.
#pragma once
#include <cstdint>

namespace lockstep {

enum class ConvPass { forward, input_grad, filter_grad };

// The product C = A x B of one group, as in conv_text.h. S describes the convolution: x is [n, kH, kW, kC], the
// filter [kh, kKW, kCI, kO], y [n, kOH, kOW, kO]. kCI and kCO are the channels of a group. kSH, kSW: strides; kDH,
// kDW: dilation of the filter; kLH, kLW: of x; kPH, kPW: padding. Positions have the signed type I and the unsigned
// type U.
template <class S>
struct ConvPlaces {
  using I = typename S::I;
  using U = typename S::U;

  // The position in x of window element `tap` = (a, b, channel) of pixel `pixel` of y; -1 if it is outside.
  static I in_x(U pixel, U tap, I group) {
    const U ab = tap / S::kCI;
    const I h = I(pixel / S::kOW % S::kOH) * S::kSH + I(ab / S::kKW) * S::kDH - S::kPH;
    const I v = I(pixel % S::kOW) * S::kSW + I(ab % S::kKW) * S::kDW - S::kPW;
    if (h < 0 || v < 0 || h % S::kLH != 0 || v % S::kLW != 0 || h / S::kLH >= I(S::kH) || v / S::kLW >= I(S::kW))
      return -1;
    return ((I(pixel / (S::kOW * S::kOH)) * I(S::kH) + h / S::kLH) * I(S::kW) + v / S::kLW) * S::kC +
           group * I(S::kCI) + I(tap % S::kCI);
  }
  // The position in y of the result that pixel `pixel` of x contributes to as window element `tap` = (a, b, channel of
  // y); -1 if there is none.
  static I in_y(U pixel, U tap, I group) {
    const U ab = tap / S::kCO;
    const I h = I(pixel / S::kW % S::kH) * S::kLH + S::kPH - I(ab / S::kKW) * S::kDH;
    const I v = I(pixel % S::kW) * S::kLW + S::kPW - I(ab % S::kKW) * S::kDW;
    if (h < 0 || v < 0 || h % S::kSH != 0 || v % S::kSW != 0 || h / S::kSH >= I(S::kOH) || v / S::kSW >= I(S::kOW))
      return -1;
    return ((I(pixel / (S::kW * S::kH)) * I(S::kOH) + h / S::kSH) * I(S::kOW) + v / S::kSW) * S::kO +
           group * I(S::kCO) + I(tap % S::kCO);
  }

  // The position of A(row, k), or -1.
  static I a(U row, U k, I group) {
    if constexpr (S::kPass == ConvPass::forward)
      return in_x(row, k, group);
    else if constexpr (S::kPass == ConvPass::input_grad)
      return in_y(row, k, group);
    else
      return in_x(k, row, group);
  }
  // The position of B(col, k).
  static I b(U col, U k, I group) {
    if constexpr (S::kPass == ConvPass::input_grad)
      return (I(k / S::kCO) * I(S::kCI) + I(col)) * S::kO + group * I(S::kCO) + I(k % S::kCO);
    else
      return I(k) * S::kO + group * I(S::kCO) + I(col);
  }
  // The position of C(row, col).
  static I c(U row, U col, I group) {
    if constexpr (S::kPass == ConvPass::input_grad)
      return I(row) * S::kC + group * I(S::kCI) + I(col);
    else
      return I(row) * S::kO + group * I(S::kCO) + I(col);
  }
};

}  // namespace lockstep
