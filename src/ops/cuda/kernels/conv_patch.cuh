// Bands of images in shared memory, for convolutions with overlapping windows: each element is loaded once, although
// several windows contain it.
#pragma once
#include "mma.cuh"

namespace lockstep {

// Calls what(row, element) for the chunks of kEach elements that this thread copies of kRows rows of kLine elements.
template <int kThreads, int kRows, int kLine, int kEach, class What>
inline void each_chunk(const What& what) {
  constexpr int kAcross = kLine / kEach;
#pragma unroll 4
  for (int u = threadIdx.x; u < kRows * kAcross; u += kThreads) what(u / kAcross, u % kAcross * kEach);
}
// Copies a chunk of kEach elements to shared memory, asynchronously if possible. Not `inside`: zeros.
template <int kEach, class T>
inline void copy_chunk(T* to, const T* from, bool inside) {
  if constexpr (kEach > 1)
    copy_async<16>(to, from, inside);
  else if constexpr (sizeof(T) == 4)
    copy_async<4>(to, from, inside);
  else
    *to = inside ? *from : T{};
}
// Prepares a chunk of floats that this thread has copied for the tensor cores (tf32).
template <int kEach, class T>
inline void round_chunk(T* at) {
  if constexpr (sizeof(T) == 4) {
    uint32_t x[kEach];
    load_floats<kEach>(x, at);
#pragma unroll
    for (int e = 0; e < kEach; ++e) x[e] = tf32(x[e]);
    store_floats<kEach>(at, reinterpret_cast<const float*>(x));
  }
}

// A band of an image in shared memory: kBand rows and the border that their windows need. Outside the image it is zero.
template <class S>
struct Patch {
  using T = typename S::T;
  static constexpr int kPatchRows = S::kBand + (S::kKH - 1) * S::kDH, kPatchCols = S::kOW + (S::kKW - 1) * S::kDW;
  static constexpr int kEach = S::kD * sizeof(T) % 16 == 0 ? 16 / int(sizeof(T)) : 1;
  static constexpr int kStep = S::kPatchStep;  // elements from a pixel to the next
  static constexpr int kTaps = S::kKH * S::kKW;

  static void fetch(T* to, const T* image, int row) {
    each_chunk<S::kThreads, kPatchRows * kPatchCols, S::kD, kEach>([&](int at, int d) {
      const int h = row + at / kPatchCols - S::kPadH, w = at % kPatchCols - S::kPadW;
      const bool in = unsigned(h) < unsigned(S::kH) && unsigned(w) < unsigned(S::kW);
      copy_chunk<kEach>(to + at * kStep + d, in ? image + (h * S::kW + w) * S::kD + d : image, in);
    });
  }
  static void round(T* to) {
    if constexpr (sizeof(T) == 4)
      each_chunk<S::kThreads, kPatchRows * kPatchCols, S::kD, kEach>(
          [&](int at, int d) { round_chunk<kEach>(to + at * kStep + d); });
  }
  // The offset of a pixel's window, and of a position (tap) within a window.
  static int window(int pixel) { return (pixel / S::kOW * kPatchCols + pixel % S::kOW) * kStep; }
  static int tap(int t) { return (t / S::kKW * S::kDH * kPatchCols + t % S::kKW * S::kDW) * kStep; }
};

// The bits of an element, and two 16-bit elements as one word.
inline uint32_t pair_of(uint16_t low, uint16_t high) { return uint32_t(low) | uint32_t(high) << 16; }
inline uint32_t bits_of(float x) { return __float_as_uint(x); }
inline uint16_t bits_of(bf16 x) { return x.bits; }
inline uint16_t bits_of(f16 x) { return x.bits; }

}  // namespace lockstep
