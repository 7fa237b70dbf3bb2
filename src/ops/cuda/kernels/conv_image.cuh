// Convolutions and their image gradients from bands of images in shared memory.
#pragma once
#include "conv_patch.cuh"
#include "epilogue.cuh"

namespace lockstep {

// The forward pass, or the gradient of the image: a thread block multiplies the windows of kBand rows of an image by
// kWide columns of the filter, with an epilogue (epilogue.cuh). kWarps warps share the pixels, and kParts groups of
// them share the sum. kThin: windows have so few elements that they are gathered one by one.
template <class S>
struct ConvImage {
  using T = typename S::T;
  using P = Patch<S>;
  static constexpr int kK = P::kTaps * S::kD, kOnce = sizeof(T) == 4 ? 8 : 16;  // elements of the sum per fragment
  static constexpr int kSteps = (kK + S::kDeep - 1) / S::kDeep;
  static constexpr int kEachB = S::kVectorB ? 16 / int(sizeof(T)) : 1;
  static constexpr int kRowsB = S::kTransposeB ? S::kWide : S::kDeep, kLineB = S::kTransposeB ? S::kDeep : S::kWide;
  static constexpr int kStepB = kLineB + (S::kTransposeB ? 16 / int(sizeof(T)) : 8);
  using F = Fragments<T, S::kTall, S::kWide / 8, false, S::kTransposeB, P::kStep, kStepB>;
  static constexpr int kRows = S::kBand * S::kOW, kLine = S::kWide + (F::kSpreadB ? 4 : 8);
  static constexpr int kTile = S::kWarps * S::kTall * 16 * kLine;
  static constexpr int kAcross = (S::kN + S::kWide - 1) / S::kWide, kBands = (S::kOH + S::kBand - 1) / S::kBand;

  // Starts to copy a step of the filter. Element (k, n) belongs to tap k / kD; the gradient reverses the taps.
  static void fetch_b(T* to, const T* b, int col, int step) {
    each_chunk<S::kThreads, kRowsB, kLineB, kEachB>([&](int r, int c) {
      const int k = step * S::kDeep + (S::kTransposeB ? c : r), n = col + (S::kTransposeB ? r : c);
      const bool in = k < kK && n < S::kN;
      const int at = S::kTransposeB ? ((P::kTaps - 1 - k / S::kD) * S::kN + n) * S::kD + k % S::kD : k * S::kN + n;
      copy_chunk<kEachB>(to + r * kStepB + c, in ? b + at : b, in);
    });
  }
  static void round_b(T* to) {
    if constexpr (sizeof(T) == 4)
      each_chunk<S::kThreads, kRowsB, kLineB, kEachB>([&](int r, int c) { round_chunk<kEachB>(to + r * kStepB + c); });
  }

  // Element k of a window, and the fragment of 16 windows from such elements.
  static T element(const T* window, int k) { return k < kK ? window[P::tap(k / S::kD) + k % S::kD] : T{}; }
  static void gather(uint32_t (&a)[4], const T* low, const T* high, int k, int t) {
    if constexpr (sizeof(T) == 4) {
      a[0] = bits_of(element(low, k + t)), a[1] = bits_of(element(high, k + t));
      a[2] = bits_of(element(low, k + t + 4)), a[3] = bits_of(element(high, k + t + 4));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const T* const from = e % 2 ? high : low;
        const int at = k + 2 * t + e / 2 * 8;
        a[e] = pair_of(bits_of(element(from, at)), bits_of(element(from, at + 1)));
      }
    }
  }

  template <class Read, class Reader, class Finish>
  static void run(uint32_t block, const T* a, const T* b, char*, char* shared, const Reader& read,
                  const Finish& finish) {
    const int col = block % kAcross * S::kWide, row = block / kAcross % kBands * S::kBand;
    const int image = block / (kAcross * kBands);
    T* const patch = reinterpret_cast<T*>(shared);
    T* const slots = reinterpret_cast<T*>(shared + S::kPatchBytes);
    const int warp = threadIdx.x / 32 % S::kWarps, part = threadIdx.x / 32 / S::kWarps, lane = threadIdx.x % 32;
    const int first = warp * S::kTall * 16;
    P::fetch(patch, a + int64_t(image) * S::kH * S::kW * S::kD, row);
    // Thread blocks begin at different steps of the filter, so that they do not all load the same memory at once.
    const int turn = image % kSteps;
    const auto place = [&](int step) { return step + turn < kSteps ? step + turn : step + turn - kSteps; };
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < kSteps) fetch_b(slots + s * kRowsB * kStepB, b, col, place(s));
      commit();
    }
    // The windows of the thread's pixels. Results of pixels after the last are not used.
    const T* windows[S::kTall][2];
#pragma unroll
    for (int i = 0; i < S::kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = first + i * 16 + (S::kThin ? lane / 4 + half * 8 : lane % 16);
        windows[i][half] = patch + P::window(pixel < kRows ? pixel : 0) + (S::kThin ? 0 : lane / 16 * F::kEach);
      }
    constexpr int kOnceB = kOnce * (S::kTransposeB ? 1 : kStepB);
    const int first_b = part * kOnceB + F::lane_offset_b(lane);
    float c[S::kTall][S::kWide / 8][4] = {};
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      wait_for<S::kStages - 2>();
      T* const from_b = slots + step % S::kStages * kRowsB * kStepB;
      if (step == 0) P::round(patch);
      round_b(from_b);
      __syncthreads();
      if (step + S::kStages - 1 < kSteps)
        fetch_b(slots + (step + S::kStages - 1) % S::kStages * kRowsB * kStepB, b, col, place(step + S::kStages - 1));
      commit();
      if (first >= kRows) continue;
      const int at = place(step) * S::kDeep;
#pragma unroll
      for (int d = 0; d < S::kDeep / kOnce / S::kParts; ++d) {
        const int k = (d * S::kParts + part) * kOnce;
        F now;
#pragma unroll
        for (int i = 0; i < S::kTall; ++i) {
          if constexpr (S::kThin)
            gather(now.a[i], windows[i][0], windows[i][1], k, lane % 4);
          else
            load_matrices<false, 4>(now.a[i], windows[i][0] + P::tap((at + k) / S::kD) + (at + k) % S::kD);
        }
        now.template load_b<false>(from_b + first_b + d * S::kParts * kOnceB);
        now.multiply(c);
      }
    }
    wait_for<0>();
    __syncthreads();
    float* const sums = reinterpret_cast<float*>(shared);
    if (first < kRows) F::store(c, sums + part * kTile + first * kLine, kLine, lane);
    __syncthreads();
    constexpr int kOwn = (kRows * S::kWide + S::kThreads - 1) / S::kThreads, kGroup = group_of<1>(kOwn, sizeof(Read));
    const uint32_t base = uint32_t((image * S::kOH + row) * S::kOW) * S::kN + col;
    const int rows = (S::kOH - row) * S::kOW < kRows ? (S::kOH - row) * S::kOW : kRows;
#pragma unroll 1
    for (int u = 0; u < kOwn; u += kGroup) {
      Read reads[kGroup];
      const auto each = [&](int e, const auto& what) {
        const int place = threadIdx.x + (u + e) * S::kThreads, m = place / S::kWide, n = place % S::kWide;
        if (m < rows && col + n < S::kN) what(base + m * S::kN + n, m * kLine + n);
      };
#pragma unroll
      for (int e = 0; e < kGroup; ++e) each(e, [&](uint32_t i, int) { read(i, reads[e]); });
#pragma unroll
      for (int e = 0; e < kGroup; ++e)
        each(e, [&](uint32_t i, int at) {
          float x = 0;
#pragma unroll
          for (int p = 0; p < S::kParts; ++p) x += sums[p * kTile + at];
          finish(i, x, reads[e]);
        });
    }
  }
};

}  // namespace lockstep
