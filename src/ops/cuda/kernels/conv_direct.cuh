// Convolutions with groups of a few channels, such as depthwise ones: a thread adds up kV adjacent results over the
// taps.
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the convolution as in conv_places.cuh, without dilation of x, and with kKH, the rows of a window. T is
// the element in memory, R in registers, Out that of the results. kV > 1 only if each group has one channel of x and
// of y. A thread of the filter's gradient adds up one of kSplits ranges of kEach pixels of y. kThreads: of a thread
// block.
template <class S>
struct ConvDirect {
  using T = typename S::T;
  using R = typename S::R;
  using Out = typename S::Out;
  using I = typename S::I;
  using U = typename S::U;
  static constexpr int kV = S::kV;
  static constexpr bool kPlain = S::kCI == 1 && S::kCO == 1;
  using Pack = Side<T, kV>;

  static U own() { return U(blockIdx.x) * U(S::kThreads) + threadIdx.x; }
  static Pack pack(const T* __restrict__ from, I at) { return *reinterpret_cast<const Pack*>(from + at); }
  static void add_products(R (&sum)[kV], const Pack& a, const Pack& b) {
#pragma unroll
    for (int k = 0; k < kV; ++k) sum[k] += R(load(a.v[k])) * R(load(b.v[k]));
  }
  static void store(const R (&sum)[kV], Out* out, I at) {
    Side<Out, kV> result;
#pragma unroll
    for (int k = 0; k < kV; ++k) result.v[k] = Store<Out>::of(sum[k]);
    *reinterpret_cast<Side<Out, kV>*>(out + at) = result;
  }
  // Element i of the input channels that output channel o reads.
  static I input_channel(U o, U i) { return kPlain ? I(o) : I(o / S::kCO * S::kCI + i); }

  // Adds up the results from number kV * at.
  static void add_forward(U at, const T* __restrict__ x, const T* __restrict__ w, R (&sum)[kV]) {
    const U o = at % (U(S::kO) / kV) * kV, pixel = at / (U(S::kO) / kV);
    const I top = I(pixel / S::kOW % S::kOH) * S::kSH - S::kPH, left = I(pixel % S::kOW) * S::kSW - S::kPW;
    const I image = I(pixel / (S::kOW * S::kOH)) * I(S::kH);
    for (U a = 0; a < S::kKH; ++a) {
      const I h = top + I(a) * S::kDH;
      if (h < 0 || h >= I(S::kH)) continue;
      for (U b = 0; b < S::kKW; ++b) {
        const I v = left + I(b) * S::kDW;
        if (v < 0 || v >= I(S::kW)) continue;
        const I place = ((image + h) * I(S::kW) + v) * S::kC;
        for (U i = 0; i < S::kCI; ++i)
          add_products(sum, pack(x, place + input_channel(o, i)),
                       pack(w, (I(a * S::kKW + b) * I(S::kCI) + I(i)) * S::kO + I(o)));
      }
    }
  }
  static void forward(const T* __restrict__ x, const T* __restrict__ w, Out* __restrict__ out) {
    const U at = own();
    if (at >= U(S::kResults) / kV) return;
    R sum[kV] = {};
    add_forward(at, x, w, sum);
    store(sum, out, I(at) * kV);
  }
  // The same followed by an epilogue (epilogue.cuh), whose loads are issued first. kV is 1.
  template <class Read, class Reader, class Finish>
  static void forward_finish(U at, const T* __restrict__ x, const T* __restrict__ w, const Reader& read,
                             const Finish& finish) {
    Read given;
    read(at, given);
    R sum[1] = {};
    add_forward(at, x, w, sum);
    finish(at, sum[0], given);
  }

  static void input_grad(const T* __restrict__ dy, const T* __restrict__ w, Out* __restrict__ out) {
    const U at = own(), c = at % (U(S::kC) / kV) * kV, pixel = at / (U(S::kC) / kV);
    if (at >= U(S::kResults) / kV) return;
    const I row = I(pixel / S::kW % S::kH) + S::kPH, column = I(pixel % S::kW) + S::kPW;
    const I image = I(pixel / (S::kW * S::kH)) * I(S::kOH), o = kPlain ? I(c) : I(c / S::kCI * S::kCO);
    const I channel = kPlain ? 0 : I(c % S::kCI);
    R sum[kV] = {};
    for (U a = 0; a < S::kKH; ++a) {
      const I h = row - I(a) * S::kDH;
      if (h < 0 || h % S::kSH != 0 || h / S::kSH >= I(S::kOH)) continue;
      for (U b = 0; b < S::kKW; ++b) {
        const I v = column - I(b) * S::kDW;
        if (v < 0 || v % S::kSW != 0 || v / S::kSW >= I(S::kOW)) continue;
        const I place = ((image + h / S::kSH) * I(S::kOW) + v / S::kSW) * S::kO + o;
        const I tap = (I(a * S::kKW + b) * I(S::kCI) + channel) * S::kO + o;
        for (I j = 0; j < I(S::kCO); ++j) add_products(sum, pack(dy, place + j), pack(w, tap + j));
      }
    }
    store(sum, out, I(at) * kV);
  }

  static void filter_grad(const T* __restrict__ x, const T* __restrict__ dy, Out* __restrict__ out) {
    constexpr U kEachSplit = U(S::kResults) / kV, kPixels = U(S::kPixels);
    const U at = own() % kEachSplit, split = own() / kEachSplit;
    if (split >= S::kSplits) return;
    const U o = at % (U(S::kO) / kV) * kV, row = at / (U(S::kO) / kV);
    const I c = input_channel(o, row % S::kCI), down = I(row / S::kCI / S::kKW) * S::kDH - S::kPH,
            across = I(row / S::kCI % S::kKW) * S::kDW - S::kPW;
    R sum[kV] = {};
    const U last = split + 1 == S::kSplits ? kPixels : (split + 1) * S::kEach;
    for (U pixel = split * S::kEach; pixel < last; ++pixel) {
      const I h = I(pixel / S::kOW % S::kOH) * S::kSH + down, v = I(pixel % S::kOW) * S::kSW + across;
      if (h < 0 || v < 0 || h >= I(S::kH) || v >= I(S::kW)) continue;
      add_products(sum, pack(x, ((I(pixel / (S::kOW * S::kOH)) * I(S::kH) + h) * I(S::kW) + v) * S::kC + c),
                   pack(dy, I(pixel) * S::kO + I(o)));
    }
    store(sum, out, I(split) * I(S::kResults) + I(at) * kV);
  }
};

}  // namespace lockstep
