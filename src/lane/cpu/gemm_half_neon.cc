// The kernels for Arm: bf16 by bfmmla, which multiplies 2x4 by 4x2, and f16 by fmlal, which widens as it multiplies.
// This file is compiled for machines with both. It calls no function of the standard library: the linker could
// otherwise merge its copy of an inline function into code for all machines.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "lane/cpu/gemm_half.h"

namespace lockstep {

extern const HalfKernel kBf16Neon;
extern const HalfKernel kF16Neon;

namespace {

constexpr int kRows = 8, kCols = 12;
// This many depths of all panels are packed before the next: adjacent lanes share cache lines with neighboring panels.
constexpr int64_t kPackDepth = 32;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Four vectors of 8 as eight groups of 4.
struct Groups {
  uint16x8_t pair[4];
};
inline Groups interleave(uint16x8_t x0, uint16x8_t x1, uint16x8_t x2, uint16x8_t x3) {
  const uint16x8_t low02 = vzip1q_u16(x0, x2), low13 = vzip1q_u16(x1, x3);
  const uint16x8_t high02 = vzip2q_u16(x0, x2), high13 = vzip2q_u16(x1, x3);
  return {{vzip1q_u16(low02, low13), vzip2q_u16(low02, low13), vzip1q_u16(high02, high13), vzip2q_u16(high02, high13)}};
}

// A partial panel.
template <int kLanes, int kGroup>
void pack_ragged(const uint16_t* from, int64_t lane_step, int64_t depth_step, int64_t lanes, int64_t depth,
                 uint16_t* to) {
  for (int64_t p = 0; p < depth; p += kGroup)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int64_t i = p; i < p + kGroup; ++i)
        *to++ = lane < lanes && i < depth ? from[lane * lane_step + i * depth_step] : uint16_t{0};
}

// One full panel of `depth`, a multiple of 8, in groups of 4; each lane is contiguous.
template <int kLanes>
void pack_lanes_of_4(const uint16_t* from, int64_t ld, int64_t depth, uint16_t* to) {
  for (int64_t p = 0; p < depth; p += 8)
    for (int lane = 0; lane < kLanes; lane += 2) {
      const uint64x2_t even = vreinterpretq_u64_u16(vld1q_u16(from + lane * ld + p));
      const uint64x2_t odd = vreinterpretq_u64_u16(vld1q_u16(from + (lane + 1) * ld + p));
      uint16_t* const group = to + p * kLanes + lane * 4;
      vst1q_u16(group, vreinterpretq_u16_u64(vzip1q_u64(even, odd)));
      vst1q_u16(group + kLanes * 4, vreinterpretq_u16_u64(vzip2q_u64(even, odd)));
    }
}

// The same where the lanes are adjacent; `depth` is a multiple of 4.
template <int kLanes>
void pack_depths_of_4(const uint16_t* from, int64_t ld, int64_t depth, uint16_t* to) {
  for (int64_t p = 0; p < depth; p += 4) {
    const uint16_t* const row = from + p * ld;
    uint16_t* const group = to + p * kLanes;
    const Groups first =
        interleave(vld1q_u16(row), vld1q_u16(row + ld), vld1q_u16(row + 2 * ld), vld1q_u16(row + 3 * ld));
    for (int i = 0; i < 4; ++i) vst1q_u16(group + 8 * i, first.pair[i]);
    if constexpr (kLanes > 8) {
      const auto four = [](const uint16_t* x) { return vcombine_u16(vld1_u16(x), vdup_n_u16(0)); };
      const Groups rest = interleave(four(row + 8), four(row + ld + 8), four(row + 2 * ld + 8), four(row + 3 * ld + 8));
      for (int i = 0; i < 2; ++i) vst1q_u16(group + 32 + 8 * i, rest.pair[i]);
    }
  }
}

// One full panel of `depth`, a multiple of 8, without groups; each lane is contiguous.
template <int kLanes>
void pack_lanes_of_1(const uint16_t* from, int64_t ld, int64_t depth, uint16_t* to) {
  for (int64_t p = 0; p < depth; p += 8)
    for (int lane = 0; lane < kLanes; lane += 4) {
      const uint16_t* const x = from + lane * ld + p;
      const Groups groups = interleave(vld1q_u16(x), vld1q_u16(x + ld), vld1q_u16(x + 2 * ld), vld1q_u16(x + 3 * ld));
      for (int i = 0; i < 4; ++i) {
        vst1_u16(to + (p + 2 * i) * kLanes + lane, vget_low_u16(groups.pair[i]));
        vst1_u16(to + (p + 2 * i + 1) * kLanes + lane, vget_high_u16(groups.pair[i]));
      }
    }
}

template <int kLanes>
void pack_depths_of_1(const uint16_t* from, int64_t ld, int64_t depth, uint16_t* to) {
  for (int64_t p = 0; p < depth; ++p) {
    vst1q_u16(to + p * kLanes, vld1q_u16(from + p * ld));
    if constexpr (kLanes > 8) vst1_u16(to + p * kLanes + 8, vld1_u16(from + p * ld + 8));
  }
}

template <int kLanes, int kGroup>
void pack(const void* memory, int64_t ld, bool lanes_adjacent, int64_t lanes, int64_t depth, void* packed) {
  const auto* const from = static_cast<const uint16_t*>(memory);
  auto* const to = static_cast<uint16_t*>(packed);
  const int64_t padded = (depth + kGroup - 1) / kGroup * kGroup;
  const int64_t lane_step = lanes_adjacent ? 1 : ld, depth_step = lanes_adjacent ? ld : 1;
  const int64_t step = lanes_adjacent ? kPackDepth : depth;
  for (int64_t p = 0; p < depth; p += step) {
    const int64_t here = least(step, depth - p);
    for (int64_t lane = 0; lane < lanes; lane += kLanes) {
      const uint16_t* const source = from + lane * lane_step + p * depth_step;
      uint16_t* const target = to + lane * padded + p * kLanes;
      int64_t whole = 0;
      if (lane + kLanes <= lanes) {
        whole = lanes_adjacent ? here / kGroup * kGroup : here / 8 * 8;
        if constexpr (kGroup == 4) {
          if (lanes_adjacent)
            pack_depths_of_4<kLanes>(source, ld, whole, target);
          else
            pack_lanes_of_4<kLanes>(source, ld, whole, target);
        } else {
          if (lanes_adjacent)
            pack_depths_of_1<kLanes>(source, ld, whole, target);
          else
            pack_lanes_of_1<kLanes>(source, ld, whole, target);
        }
      }
      pack_ragged<kLanes, kGroup>(source + whole * depth_step, lane_step, depth_step, least(kLanes, lanes - lane),
                                  here - whole, target + whole * kLanes);
    }
  }
}

// A tile of sums as rows of vectors.
struct Sums {
  float32x4_t row[kRows][kCols / 4];
};

inline __attribute__((always_inline)) Sums load_sums(const float* from, int64_t ld) {
  Sums sums;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int q = 0; q < kCols / 4; ++q) sums.row[r][q] = vld1q_f32(from + r * ld + 4 * q);
  return sums;
}

struct Bf16 {
  static constexpr int kGroup = 4;

  static inline __attribute__((always_inline)) Sums multiply(const uint16_t* a, const uint16_t* b, int64_t depth,
                                                             const float* from, int64_t ld) {
    // block[i][j] holds rows 2i, 2i + 1 of columns 2j, 2j + 1.
    float32x4_t block[kRows / 2][kCols / 2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows / 2; ++i)
#pragma GCC unroll 6
      for (int j = 0; j < kCols / 2; ++j)
        block[i][j] = from
                          ? vcombine_f32(vld1_f32(from + 2 * i * ld + 2 * j), vld1_f32(from + (2 * i + 1) * ld + 2 * j))
                          : vdupq_n_f32(0);
    for (int64_t p = 0; p < depth; p += kGroup, a += kRows * kGroup, b += kCols * kGroup) {
      bfloat16x8_t left[kRows / 2];
#pragma GCC unroll 4
      for (int i = 0; i < kRows / 2; ++i) left[i] = vreinterpretq_bf16_u16(vld1q_u16(a + 8 * i));
#pragma GCC unroll 6
      for (int j = 0; j < kCols / 2; ++j) {
        const bfloat16x8_t right = vreinterpretq_bf16_u16(vld1q_u16(b + 8 * j));
#pragma GCC unroll 4
        for (int i = 0; i < kRows / 2; ++i) block[i][j] = vbfmmlaq_f32(block[i][j], left[i], right);
      }
    }
    Sums sums;
#pragma GCC unroll 4
    for (int i = 0; i < kRows / 2; ++i)
#pragma GCC unroll 3
      for (int q = 0; q < kCols / 4; ++q) {
        const float64x2_t x = vreinterpretq_f64_f32(block[i][2 * q]), y = vreinterpretq_f64_f32(block[i][2 * q + 1]);
        sums.row[2 * i][q] = vreinterpretq_f32_f64(vzip1q_f64(x, y));
        sums.row[2 * i + 1][q] = vreinterpretq_f32_f64(vzip2q_f64(x, y));
      }
    return sums;
  }

  static uint16x4_t round(float32x4_t x) { return vreinterpret_u16_bf16(vcvt_bf16_f32(x)); }
};

struct F16 {
  static constexpr int kGroup = 1;

  template <int kRow>
  static inline __attribute__((always_inline)) void add_rows(Sums& sums, float16x8_t a, float16x8_t b,
                                                             float16x8_t rest) {
    sums.row[kRow][0] = vfmlalq_laneq_low_f16(sums.row[kRow][0], b, a, kRow);
    sums.row[kRow][1] = vfmlalq_laneq_high_f16(sums.row[kRow][1], b, a, kRow);
    sums.row[kRow][2] = vfmlalq_laneq_low_f16(sums.row[kRow][2], rest, a, kRow);
    if constexpr (kRow + 1 < kRows) add_rows<kRow + 1>(sums, a, b, rest);
  }

  static inline __attribute__((always_inline)) Sums multiply(const uint16_t* a, const uint16_t* b, int64_t depth,
                                                             const float* from, int64_t ld) {
    Sums sums{};
    if (from) sums = load_sums(from, ld);
    for (int64_t p = 0; p < depth; ++p, a += kRows, b += kCols) {
      const float16x8_t left = vreinterpretq_f16_u16(vld1q_u16(a)), right = vreinterpretq_f16_u16(vld1q_u16(b));
      const float16x8_t rest = vreinterpretq_f16_u16(vcombine_u16(vld1_u16(b + 8), vdup_n_u16(0)));
      add_rows<0>(sums, left, right, rest);
    }
    return sums;
  }

  static uint16x4_t round(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
};

// A partial tile is computed as a full tile in a temporary.
template <class T>
void multiply_ragged(const uint16_t* a, const uint16_t* b, int64_t rows, int64_t cols, int64_t depth,
                     const HalfResult& result) {
  float beside[kRows][kCols] = {};
  if (result.accumulate)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) beside[r][c] = result.sums[r * result.ld + c];
  const Sums sums = T::multiply(a, b, depth, result.accumulate ? beside[0] : nullptr, kCols);
  uint16_t rounded[kRows][kCols];
  for (int r = 0; r < kRows; ++r)
    for (int q = 0; q < kCols / 4; ++q) {
      vst1q_f32(beside[r] + 4 * q, sums.row[r][q]);
      vst1_u16(rounded[r] + 4 * q, T::round(sums.row[r][q]));
    }
  auto* const out = static_cast<uint16_t*>(result.rounded);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      if (out)
        out[r * result.rounded_ld + c] = rounded[r][c];
      else
        result.sums[r * result.ld + c] = beside[r][c];
    }
}

template <class T>
void multiply_tile(const uint16_t* a, const uint16_t* b, int64_t depth, const HalfResult& result) {
  const Sums sums = T::multiply(a, b, depth, result.accumulate ? result.sums : nullptr, result.ld);
  auto* const out = static_cast<uint16_t*>(result.rounded);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int q = 0; q < kCols / 4; ++q) {
      if (out)
        vst1_u16(out + r * result.rounded_ld + 4 * q, T::round(sums.row[r][q]));
      else
        vst1q_f32(result.sums + r * result.ld + 4 * q, sums.row[r][q]);
    }
}

template <class T>
void multiply(const void* packed_a, const void* packed_b, int64_t rows, int64_t cols, int64_t depth,
              const HalfResult& result) {
  const int64_t padded = (depth + T::kGroup - 1) / T::kGroup * T::kGroup;
  for (int64_t col = 0; col < cols; col += kCols)
    for (int64_t row = 0; row < rows; row += kRows) {
      const uint16_t* const a = static_cast<const uint16_t*>(packed_a) + row * padded;
      const uint16_t* const b = static_cast<const uint16_t*>(packed_b) + col * padded;
      HalfResult here = result;
      if (here.sums) here.sums += row * here.ld + col;
      if (here.rounded) here.rounded = static_cast<uint16_t*>(here.rounded) + row * here.rounded_ld + col;
      if (row + kRows <= rows && col + kCols <= cols)
        multiply_tile<T>(a, b, padded, here);
      else
        multiply_ragged<T>(a, b, least(kRows, rows - row), least(kCols, cols - col), padded, here);
    }
}

}  // namespace

constinit const HalfKernel kBf16Neon{"bf16 by bfmmla", DType::bf16,    kRows,         kCols, 4, 2, 64,
                                     pack<kRows, 4>,   pack<kCols, 4>, multiply<Bf16>};
constinit const HalfKernel kF16Neon{"f16 by fmlal", DType::f16,     kRows,        kCols, 1, 2, 16,
                                    pack<kRows, 1>, pack<kCols, 1>, multiply<F16>};

}  // namespace lockstep

#endif
