// Shared by the kernels for AVX-512 and for AMX. Included only by files that are compiled for machines with them.
// Everything here has internal linkage and calls no function of the standard library: the linker could otherwise merge
// an AVX-512 copy of an inline function into code for all machines. Safe from any thread.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lockstep {
namespace {

[[maybe_unused]] int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The mask of the first `count` of 16 or 32 elements.
[[maybe_unused]] __mmask16 first16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
}
[[maybe_unused]] __mmask32 first32(int64_t count) { return count >= 32 ? 0xffffffffu : (1u << count) - 1u; }

// Transposes 16 rows of 16 numbers of 32 bits.
inline __attribute__((always_inline)) void transpose(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      x[4 * i + 2 * j] = _mm512_unpacklo_epi64(y[4 * i + j], y[4 * i + 2 + j]);
      x[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(y[4 * i + j], y[4 * i + 2 + j]);
    }
    // x[4 i + j] has, in its quarter q, column 4 q + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    y[j] = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88);
    y[4 + j] = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xdd);
    y[8 + j] = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
    y[12 + j] = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
    x[4 + j] = _mm512_shuffle_i32x4(y[4 + j], y[12 + j], 0x88);
    x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
    x[12 + j] = _mm512_shuffle_i32x4(y[4 + j], y[12 + j], 0xdd);
  }
}

// Packs up to kLanes contiguous lanes; load(lane, p) returns packed numbers p to p + 15. `to` has one row of kLanes per
// number.
template <int kLanes, class Load>
inline void pack_transposed(int64_t lanes, int64_t numbers, uint32_t* to, Load load) {
  for (int64_t p = 0; p < numbers; p += 16)
    for (int64_t first = 0; first < kLanes; first += 16) {
      __m512i x[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) x[i] = first + i < lanes ? load(first + i, p) : _mm512_setzero_si512();
      transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        if (p + i < numbers) _mm512_mask_storeu_epi32(to + (p + i) * kLanes + first, first16(kLanes - first), x[i]);
    }
}

// bf16 in pairs of depths, [panel][depth / 2][lane][2].
struct Bf16Pairs {
  using Packed = uint32_t;  // a pair
  static constexpr int kGroup = 2;

  template <int kLanes>
  static void pack_lanes(const uint16_t* from, int64_t ld, int64_t lanes, int64_t depth, uint32_t* to) {
    pack_transposed<kLanes>(lanes, (depth + 1) / 2, to, [&](int64_t lane, int64_t p) {
      return _mm512_maskz_loadu_epi16(first32(depth - 2 * p), from + lane * ld + 2 * p);
    });
  }

  // Depths p and p + 1 of the adjacent lanes in the mask.
  static __m512i pair(const uint16_t* from, int64_t ld, __mmask16 lanes, int64_t p, int64_t depth) {
    const auto row = [&](int64_t q) {
      return q < depth ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from + q * ld)) : _mm512_setzero_si512();
    };
    return _mm512_or_si512(row(p), _mm512_slli_epi32(row(p + 1), 16));
  }

  // Up to kLanes adjacent lanes.
  template <int kLanes>
  static void pack_depths(const uint16_t* from, int64_t ld, int64_t lanes, int64_t depth, uint32_t* to) {
    for (int64_t p = 0; p < depth; p += 2, to += kLanes)
      for (int lane = 0; lane < kLanes; lane += 16)
        _mm512_mask_storeu_epi32(to + lane, first16(kLanes - lane),
                                 pair(from + lane, ld, first16(lanes > lane ? lanes - lane : 0), p, depth));
  }

  // Rounds to nearest even, including subnormals, which the hardware instruction flushes.
  static __m256i round(__m512 x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i bits = _mm512_mask_or_epi32(nearest, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
  }
};

}  // namespace
}  // namespace lockstep
