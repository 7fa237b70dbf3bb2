// Filter gradients of convolutions from bands of images in shared memory.
#pragma once
#include "conv_patch.cuh"

namespace lockstep {

// The gradient of the filter, as partial sums [kSplits, rows, columns] that remain to be added up. Its rows are (tap,
// channel). A thread block adds up windows of x times elements of dy over a range of bands, for kTilesEach x 16 rows
// and kWide columns. kWarps warps share the rows and columns, and kParts groups of them share the pixels.
template <class S>
struct ConvFilter {
  using T = typename S::T;
  using P = Patch<S>;
  static constexpr int kOnce = sizeof(T) == 4 ? 8 : 16, kM = P::kTaps * S::kD, kTiles = (kM + 15) / 16;
  static constexpr int kPixels = S::kBand * S::kOW, kBands = (S::kOH + S::kBand - 1) / S::kBand;
  static constexpr int kDeep = (kPixels + kOnce * S::kParts - 1) / (kOnce * S::kParts) * (kOnce * S::kParts);
  static constexpr int kEachB = 16 / int(sizeof(T)), kStepB = S::kWide + 8;
  static constexpr int kUnit = S::kWide < 32 ? S::kWide : 32, kColumns = S::kWide / kUnit;
  static constexpr int kSideBySide = S::kWarps / kColumns, kUnits = (S::kTilesEach + kSideBySide - 1) / kSideBySide;
  using F = Fragments<T, 1, kUnit / 8, true, false, P::kStep, kStepB>;
  static constexpr int kLine = S::kWide + (F::kSpreadB ? 4 : 8), kRows = S::kTilesEach * 16;
  static constexpr int kAcross = S::kN / S::kWide;

  static void fetch(char* slot, const T* x, const T* dy, int col, int item) {
    const int image = item / kBands, row = item % kBands * S::kBand;
    P::fetch(reinterpret_cast<T*>(slot), x + int64_t(image) * S::kH * S::kW * S::kD, row);
    T* const to = reinterpret_cast<T*>(slot + S::kPatchBytes);
    const T* const from = dy + int64_t((image * S::kOH + row) * S::kOW) * S::kN + col;
    const int rows = (S::kOH - row) * S::kOW < kPixels ? (S::kOH - row) * S::kOW : kPixels;
    each_chunk<S::kThreads, kDeep, S::kWide, kEachB>(
        [&](int r, int c) { copy_chunk<kEachB>(to + r * kStepB + c, r < rows ? from + r * S::kN + c : dy, r < rows); });
  }
  static void round(char* slot) {
    if constexpr (sizeof(T) == 4) {
      P::round(reinterpret_cast<T*>(slot));
      T* const to = reinterpret_cast<T*>(slot + S::kPatchBytes);
      each_chunk<S::kThreads, kDeep, S::kWide, kEachB>([&](int r, int c) { round_chunk<kEachB>(to + r * kStepB + c); });
    }
  }
  static int window(int pixel) { return P::window(pixel < kPixels ? pixel : 0); }
  static T element(const T* at, int row) { return row < kM ? at[P::tap(row / S::kD) + row % S::kD] : T{}; }

  static void run(uint32_t block, const T* x, const T* dy, float* parts, char* shared) {
    const int col = block % kAcross * S::kWide, tile0 = block / kAcross % S::kGroups * S::kTilesEach;
    const int split = block / (kAcross * S::kGroups);
    const int first = int64_t(split) * S::kImages * kBands / S::kSplits,
              end = int64_t(split + 1) * S::kImages * kBands / S::kSplits;
    const int warp = threadIdx.x / 32 % S::kWarps, part = threadIdx.x / 32 / S::kWarps, lane = threadIdx.x % 32;
    const int n = warp % kColumns * kUnit, side = warp / kColumns;
    float sums[kUnits][1][kUnit / 8][4] = {};
    // The offsets of the units' rows in a window. Results of units after the last are not used.
    int offsets[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int row = (tile0 + side + u * kSideBySide) * 16;
      offsets[u] = row < kM && !S::kThin ? P::tap(row / S::kD) + row % S::kD : 0;
    }
    fetch(shared, x, dy, col, first);
    commit();
#pragma unroll 1
    for (int item = first; item < end; ++item) {
      char* const slot = shared + (item - first) % S::kSlots * S::kSlotBytes;
      if (S::kSlots > 1 && item + 1 < end)
        fetch(shared + (item + 1 - first) % S::kSlots * S::kSlotBytes, x, dy, col, item + 1);
      commit();
      wait_for<(S::kSlots > 1 ? 1 : 0)>();
      round(slot);
      __syncthreads();
      const T* const patch = reinterpret_cast<const T*>(slot);
      const T* const from_b = reinterpret_cast<const T*>(slot + S::kPatchBytes) + n + F::lane_offset_b(lane);
#pragma unroll 1
      for (int k = part * kOnce; k < kDeep; k += S::kParts * kOnce) {
        F now;
        now.template load_b<false>(from_b + k * kStepB);
        const int t = lane % 4, g = lane / 4;
        // The offsets of the windows of the thread's pixels.
        int at[4];
        if constexpr (!S::kThin && sizeof(T) == 2)
          at[0] = window(k + lane % 8 + lane / 16 * 8);
        else if constexpr (sizeof(T) == 4)
          at[0] = window(k + t), at[1] = window(k + t + 4);
        else
          at[0] = window(k + 2 * t), at[1] = window(k + 2 * t + 1), at[2] = window(k + 2 * t + 8),
          at[3] = window(k + 2 * t + 9);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          uint32_t(&a)[4] = now.a[0];
          if constexpr (S::kThin) {
            const int row = (tile0 + side + u * kSideBySide) * 16;
            const int low = row + F::row(0, g), high = row + F::row(0, g + 8);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int m = e % 2 ? high : low;
              if constexpr (sizeof(T) == 4)
                a[e] = bits_of(element(patch + at[e / 2], m));
              else
                a[e] =
                    pair_of(bits_of(element(patch + at[e / 2 * 2], m)), bits_of(element(patch + at[e / 2 * 2 + 1], m)));
            }
          } else {
            if constexpr (sizeof(T) == 4) {
              load_floats<2>(a, patch + at[0] + offsets[u] + g * 2);
              load_floats<2>(a + 2, patch + at[1] + offsets[u] + g * 2);
            } else {
              load_matrices<true, 4>(a, patch + at[0] + offsets[u] + lane / 8 % 2 * 8);
            }
          }
          now.multiply(sums[u]);
        }
      }
      __syncthreads();
      if (S::kSlots == 1 && item + 1 < end) fetch(shared, x, dy, col, item + 1);
    }
    wait_for<0>();
    float* const out = parts + int64_t(split) * kM * S::kN;
    if constexpr (S::kParts == 1 && !S::kThin) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int local = side + u * kSideBySide, row = (tile0 + local) * 16;
        if (local < S::kTilesEach && row < kM) F::store(sums[u], out + row * S::kN + col + n, S::kN, lane);
      }
    } else {
      float* const all = reinterpret_cast<float*>(shared);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int local = side + u * kSideBySide;
        if (local < S::kTilesEach) F::store(sums[u], all + (part * kRows + local * 16) * kLine + n, kLine, lane);
      }
      __syncthreads();
      for (int place = threadIdx.x; place < kRows * S::kWide; place += S::kThreads) {
        const int m = place / S::kWide, c = place % S::kWide;
        float sum = 0;
        for (int p = 0; p < S::kParts; ++p) sum += all[(p * kRows + m) * kLine + c];
        if (tile0 * 16 + m < kM) out[(tile0 * 16 + m) * S::kN + col + c] = sum;
      }
    }
  }
};

}  // namespace lockstep
