#include "ops/cuda/conv_image_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/digest.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

const char* const kConvImageText = R"(#pragma once
#include "gemm.h"
namespace lockstep {

// Visits what a thread brings of rows of kLine elements, 16 bytes at a time or one by one: what(row, element).
template <int kThreads, int kRows, int kLine, int kEach, class What>
inline void each_chunk(const What& what) {
  constexpr int kAcross = kLine / kEach;
#pragma unroll 4
  for (int u = threadIdx.x; u < kRows * kAcross; u += kThreads) what(u / kAcross, u % kAcross * kEach);
}
template <int kEach, class T>
inline void bring(T* to, const T* from, bool inside) {
  if constexpr (kEach > 1)
    copy_async<16>(to, from, inside);
  else if constexpr (sizeof(T) == 4)
    copy_async<4>(to, from, inside);
  else
    *to = inside ? *from : T{};
}
// Floats that the thread has brought, as the tensor cores take them.
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

// Rows of an image, with what windows need beyond them and beyond its edges, which is zero.
template <class S>
struct Patch {
  using T = typename S::T;
  static constexpr int kHigh = S::kBand + (S::kKH - 1) * S::kDH, kBroad = S::kOW + (S::kKW - 1) * S::kDW;
  static constexpr int kEach = S::kD * sizeof(T) % 16 == 0 ? 16 / int(sizeof(T)) : 1;
  static constexpr int kStep = S::kPatchStep;  // from a pixel to the next
  static constexpr int kTaps = S::kKH * S::kKW;

  static void fetch(T* to, const T* image, int row) {
    each_chunk<S::kThreads, kHigh * kBroad, S::kD, kEach>([&](int at, int d) {
      const int h = row + at / kBroad - S::kPadH, w = at % kBroad - S::kPadW;
      const bool in = unsigned(h) < unsigned(S::kH) && unsigned(w) < unsigned(S::kW);
      bring<kEach>(to + at * kStep + d, in ? image + (h * S::kW + w) * S::kD + d : image, in);
    });
  }
  static void round(T* to) {
    if constexpr (sizeof(T) == 4)
      each_chunk<S::kThreads, kHigh * kBroad, S::kD, kEach>([&](int at, int d) { round_chunk<kEach>(to + at * kStep + d); });
  }
  // Where the window of a pixel begins, and how far from there a position of the window is.
  static int window(int pixel) { return (pixel / S::kOW * kBroad + pixel % S::kOW) * kStep; }
  static int tap(int t) { return (t / S::kKW * S::kDH * kBroad + t % S::kKW * S::kDW) * kStep; }
};

inline uint32_t pair_of(uint16_t low, uint16_t high) { return uint32_t(low) | uint32_t(high) << 16; }
inline uint32_t bits_of(float x) { return __float_as_uint(x); }
inline uint16_t bits_of(bf16 x) { return x.bits; }
inline uint16_t bits_of(f16 x) { return x.bits; }

// A block multiplies the windows of kBand rows of an image by the filter. Warps share the pixels, and the sum.
template <class S>
struct ConvImage {
  using T = typename S::T;
  using P = Patch<S>;
  static constexpr int kK = P::kTaps * S::kD, kOnce = sizeof(T) == 4 ? 8 : 16;  // of the sum, that are multiplied at once
  static constexpr int kSteps = (kK + S::kDeep - 1) / S::kDeep;
  static constexpr int kEachB = S::kVectorB ? 16 / int(sizeof(T)) : 1;
  static constexpr int kRowsB = S::kTransposeB ? S::kWide : S::kDeep, kLineB = S::kTransposeB ? S::kDeep : S::kWide;
  static constexpr int kStepB = kLineB + (S::kTransposeB ? 16 / int(sizeof(T)) : 8);
  using F = Fragments<T, S::kTall, S::kWide / 8, false, S::kTransposeB, P::kStep, kStepB>;
  static constexpr int kRows = S::kBand * S::kOW, kLine = S::kWide + (F::kSpreadB ? 4 : 8);
  static constexpr int kTile = S::kWarps * S::kTall * 16 * kLine;
  static constexpr int kAcross = (S::kN + S::kWide - 1) / S::kWide, kBands = (S::kOH + S::kBand - 1) / S::kBand;

  // Of the filter, where element (k, n) is that of position k / kD of the window, turned around for the gradient.
  static void fetch_b(T* to, const T* b, int col, int step) {
    each_chunk<S::kThreads, kRowsB, kLineB, kEachB>([&](int r, int c) {
      const int k = step * S::kDeep + (S::kTransposeB ? c : r), n = col + (S::kTransposeB ? r : c);
      const bool in = k < kK && n < S::kN;
      const int at = S::kTransposeB ? ((P::kTaps - 1 - k / S::kD) * S::kN + n) * S::kD + k % S::kD : k * S::kN + n;
      bring<kEachB>(to + r * kStepB + c, in ? b + at : b, in);
    });
  }
  static void round_b(T* to) {
    if constexpr (sizeof(T) == 4)
      each_chunk<S::kThreads, kRowsB, kLineB, kEachB>([&](int r, int c) { round_chunk<kEachB>(to + r * kStepB + c); });
  }

  // Element k of a window, one by one.
  static T element(const T* window, int k) {
    return k < kK ? window[P::tap(k / S::kD) + k % S::kD] : T{};
  }
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
    // Blocks begin at different places of the filter: all of them at the same would have to take turns.
    const int turn = image % kSteps;
    const auto place = [&](int step) { return step + turn < kSteps ? step + turn : step + turn - kSteps; };
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < kSteps) fetch_b(slots + s * kRowsB * kStepB, b, col, place(s));
      commit();
    }
    // The windows of the thread's pixels; those beyond the last are not used.
    const T* windows[S::kTall][2];
#pragma unroll
    for (int i = 0; i < S::kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = first + i * 16 + (S::kThin ? lane / 4 + half * 8 : lane % 16);
        windows[i][half] = patch + P::window(pixel < kRows ? pixel : 0) + (S::kThin ? 0 : lane / 16 * F::kEach);
      }
    constexpr int kOnceB = kOnce * (S::kTransposeB ? 1 : kStepB);
    const int own_b = part * kOnceB + F::own_b(lane);
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
        now.template load_b<false>(from_b + own_b + d * S::kParts * kOnceB);
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

// The gradient of a filter: a block adds up windows of x times elements of dy over some bands of images, for some rows
// of the filter, (tap, channel), sixteen at a time, and kWide of its columns. Warps share those, and the pixels.
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
    each_chunk<S::kThreads, kDeep, S::kWide, kEachB>([&](int r, int c) {
      bring<kEachB>(to + r * kStepB + c, r < rows ? from + r * S::kN + c : dy, r < rows);
    });
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
    const int first = int64_t(split) * S::kImages * kBands / S::kSplits, end = int64_t(split + 1) * S::kImages * kBands / S::kSplits;
    const int warp = threadIdx.x / 32 % S::kWarps, part = threadIdx.x / 32 / S::kWarps, lane = threadIdx.x % 32;
    const int n = warp % kColumns * kUnit, side = warp / kColumns;
    float sums[kUnits][1][kUnit / 8][4] = {};
    // Of the unit's rows: where they are in a window. The results of units beyond the last are not used.
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
      if (S::kSlots > 1 && item + 1 < end) fetch(shared + (item + 1 - first) % S::kSlots * S::kSlotBytes, x, dy, col, item + 1);
      commit();
      wait_for<(S::kSlots > 1 ? 1 : 0)>();
      round(slot);
      __syncthreads();
      const T* const patch = reinterpret_cast<const T*>(slot);
      const T* const from_b = reinterpret_cast<const T*>(slot + S::kPatchBytes) + n + F::own_b(lane);
#pragma unroll 1
      for (int k = part * kOnce; k < kDeep; k += S::kParts * kOnce) {
        F now;
        now.template load_b<false>(from_b + k * kStepB);
        const int t = lane % 4, g = lane / 4;
        // Where the windows of the pixels begin that the thread needs.
        int at[4];
        if constexpr (!S::kThin && sizeof(T) == 2)
          at[0] = window(k + lane % 8 + lane / 16 * 8);
        else if constexpr (sizeof(T) == 4)
          at[0] = window(k + t), at[1] = window(k + t + 4);
        else
          at[0] = window(k + 2 * t), at[1] = window(k + 2 * t + 1), at[2] = window(k + 2 * t + 8), at[3] = window(k + 2 * t + 9);
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
                a[e] = pair_of(bits_of(element(patch + at[e / 2 * 2], m)), bits_of(element(patch + at[e / 2 * 2 + 1], m)));
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
)";

namespace {

int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

// What the windows of one image's rows are, whatever is done with them.
struct Windows {
  DType dtype;
  int64_t images, h, w, depth;  // of the image that is read
  int64_t oh, ow, columns;      // of what has a window for each pixel, and how many channels
  ConvSpec::Pair kernel, dilation, pad;
  int64_t band = 0, step = 0;  // rows of a block; elements from a pixel to the next
  bool thin = false;           // elements are gathered one by one

  int64_t size() const { return size_of(dtype); }
  int64_t once() const { return size() == 4 ? 8 : 16; }
  int64_t high() const { return band + (kernel[0] - 1) * dilation[0]; }
  int64_t broad() const { return ow + (kernel[1] - 1) * dilation[1]; }
  int64_t patch_bytes() const { return up(high() * broad() * step * size(), 16); }
  int64_t sum() const { return kernel[0] * kernel[1] * depth; }
  int64_t bands() const { return (oh + band - 1) / band; }
  // Bands of at most `most` rows, as even as possible.
  void set_band(int64_t most) {
    most = std::clamp<int64_t>(most, 1, oh);
    const int64_t count = (oh + most - 1) / most;
    band = (oh + count - 1) / count;
  }
  std::string members() const {
    return fmt::format(
        "  using T = {};\n  static constexpr int kThreads = {}, kImages = {}, kH = {}, kW = {}, kD = {}, kOH = {}, kOW "
        "= "
        "{}, kN = {};\n"
        "  static constexpr int kKH = {}, kKW = {}, kDH = {}, kDW = {}, kPadH = {}, kPadW = {};\n"
        "  static constexpr int kBand = {}, kPatchStep = {}, kPatchBytes = {};\n  static constexpr bool kThin = {};\n",
        memory_type(dtype), kStepThreads, images, h, w, depth, oh, ow, columns, kernel[0], kernel[1], dilation[0],
        dilation[1], pad[0], pad[1], band, step, patch_bytes(), thin);
  }
};

// Nothing where windows do not lie side by side, or are too large.
std::optional<Windows> windows_of(ConvPass pass, const ConvSpec& s) {
  constexpr int64_t kThin = 64;  // elements of a window that are gathered one by one
  const bool real = s.dtype == DType::f32 || s.dtype == DType::bf16 || s.dtype == DType::f16;
  const auto ones = [](const ConvSpec::Pair& pair) { return pair[0] == 1 && pair[1] == 1; };
  if (!real || s.groups != 1 || !ones(s.stride) || !ones(s.in_dilation)) return {};
  ConvSpec::Pair out{};
  for (size_t d = 0; d < 2; ++d)
    out[d] = s.in[d] + s.pad_lo[d] + s.pad_hi[d] - (s.kernel[d] - 1) * s.kernel_dilation[d];
  Windows x{s.dtype, s.batch,        s.in[0],  s.in[1],           s.in_channels, out[0],
            out[1],  s.out_channels, s.kernel, s.kernel_dilation, s.pad_lo};
  if (pass == ConvPass::input_grad) {
    std::swap(x.h, x.oh);
    std::swap(x.w, x.ow);
    std::swap(x.depth, x.columns);
    for (size_t d = 0; d < 2; ++d) x.pad[d] = (s.kernel[d] - 1) * s.kernel_dilation[d] - s.pad_lo[d];
  }
  if (x.pad[0] < 0 || x.pad[1] < 0 || x.ow > 256 || x.oh < 1 || x.ow < 1) return {};
  if (x.images * std::max(x.h * x.w, x.oh * x.ow) * std::max(x.depth, x.columns) >= INT32_MAX) return {};
  if (x.sum() * x.columns >= INT32_MAX) return {};
  x.thin = x.depth % (pass == ConvPass::filter_grad ? 16 : x.once()) != 0;
  if (x.thin && x.sum() > kThin) return {};
  return x;
}

std::string named(const char* what, const std::string& members, std::string& prelude) {
  const std::string type =
      fmt::format("{}_{}", what, md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  prelude = fmt::format("#include \"conv_image.h\"\nusing namespace lockstep;\nstruct {} {{\n{}}};\n", type, members);
  return type;
}

}  // namespace

std::optional<GemmStep> conv_image_step(ConvPass pass, const ConvSpec& spec, int64_t shared_bytes) {
  constexpr int64_t kMostPixels = 256, kMostDeep = 64, kMostSlot = 48 << 10, kMostStages = 8;
  std::optional<Windows> made = windows_of(pass, spec);
  if (!made) return {};
  Windows& x = *made;
  const int64_t each = 16 / x.size(), once = x.once();
  const bool transposed = pass == ConvPass::input_grad;
  x.step = x.thin ? x.depth : x.depth + each;  // rows of eight pixels are in different banks
  x.set_band(kMostPixels / x.ow);
  const int64_t wide = x.columns > 32 ? 64 : x.columns > 16 ? 32 : x.columns > 8 ? 16 : 8;
  // What a step along the sum is: all of it; a part of one position of the window; or several positions, as many as
  // there is room for three times: a step costs the block a meeting.
  const auto slot_of = [&](int64_t deep) { return (transposed ? wide * (deep + each) : deep * (wide + 8)) * x.size(); };
  int64_t deep = up(x.sum(), 2 * once);
  if (!x.thin) {
    for (deep = std::min(x.depth, kMostDeep); x.depth % deep != 0 || deep % once != 0;) --deep;
    const int64_t taps = x.kernel[0] * x.kernel[1];
    for (int64_t some = taps; some > 1 && deep == x.depth; --some)
      if (taps % some == 0 && slot_of(some * deep) <= kMostSlot &&
          x.patch_bytes() + 3 * slot_of(some * deep) <= shared_bytes)
        deep *= some;
  }
  const int64_t parts = deep / once % 2 == 0 ? 2 : 1, warps = kStepThreads / 32 / parts;
  const int64_t tall = (x.band * x.ow + warps * 16 - 1) / (warps * 16);
  const int64_t steps = (x.sum() + deep - 1) / deep, slot = slot_of(deep);
  const int64_t sums = parts * warps * tall * 16 * (wide + 8) * 4;
  const int64_t stages =
      std::clamp<int64_t>((shared_bytes - x.patch_bytes()) / slot, 2, std::min(steps + 1, kMostStages));
  GemmStep out;
  out.shared_bytes = std::max(x.patch_bytes() + stages * slot, sums);
  if (out.shared_bytes > shared_bytes || tall * wide > 128) return {};
  const bool vector = transposed ? !x.thin : x.columns % each == 0;
  const std::string members =
      x.members() + fmt::format(
                        "  static constexpr bool kTransposeB = {}, kVectorB = {};\n  static constexpr int kWide = "
                        "{}, kDeep = {}, kStages = {}, kTall = {}, kWarps = {}, kParts = {};\n",
                        transposed, vector, wide, deep, stages, tall, warps, parts);
  out.call = fmt::format("ConvImage<{}>::run<Read>", named("Conv", members, out.prelude));
  out.blocks = x.images * x.bands() * ((x.columns + wide - 1) / wide);
  return out;
}

std::optional<ConvFilterStep> conv_filter_step(const ConvSpec& spec, int processors, int64_t shared_bytes) {
  constexpr int64_t kMostUnits = 4;  // of 16 x 32 results, that a warp has
  std::optional<Windows> made = windows_of(ConvPass::filter_grad, spec);
  if (!made) return {};
  Windows& x = *made;
  if (x.columns % 8 != 0) return {};
  const int64_t wide = x.columns % 64 == 0 ? 64 : x.columns % 32 == 0 ? 32 : x.columns % 16 == 0 ? 16 : 8;
  const int64_t unit = std::min<int64_t>(wide, 32), columns = wide / unit, each = 16 / x.size();
  x.step = x.thin ? x.depth : x.depth + (x.size() == 4 ? 8 : each);
  const int64_t tiles = (x.sum() + 15) / 16;
  const int64_t warps = std::clamp<int64_t>(
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(tiles * columns / 2, 1)))), columns,
      kStepThreads / 32);
  const int64_t parts = kStepThreads / 32 / warps, side_by_side = warps / columns;
  const int64_t groups = (tiles + side_by_side * kMostUnits - 1) / (side_by_side * kMostUnits);
  const int64_t tiles_each = (tiles + groups - 1) / groups;
  const auto slot_bytes = [&] { return x.patch_bytes() + up(x.band * x.ow, x.once() * parts) * (wide + 8) * x.size(); };
  int64_t slots = 2;
  for (int64_t most = x.oh; most > 0; most = x.band - 1) {
    x.set_band(most);
    if (slots * slot_bytes() <= shared_bytes || x.band == 1) break;
  }
  if (slots * slot_bytes() > shared_bytes) return {};
  ConvFilterStep out;
  const int64_t sums = parts > 1 || x.thin ? parts * tiles_each * 16 * (wide + 8) * 4 : 0;
  out.shared_bytes = std::max(slots * slot_bytes(), sums);
  if (out.shared_bytes > shared_bytes) return {};
  const int64_t across = x.columns / wide;
  out.splits = std::clamp<int64_t>(processors / (groups * across), 1, x.images * x.bands());
  const std::string members =
      x.members() + fmt::format(
                        "  static constexpr int kWide = {}, kWarps = {}, kParts = {}, kGroups = {}, kTilesEach = "
                        "{}, kSplits = {}, kSlots = {}, kSlotBytes = {};\n",
                        wide, warps, parts, groups, tiles_each, out.splits, slots, slot_bytes());
  out.call = fmt::format("ConvFilter<{}>::run", named("Filter", members, out.prelude));
  out.blocks = across * groups * out.splits;
  return out;
}

}  // namespace lockstep
