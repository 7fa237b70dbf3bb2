// The kernels for x86 with AVX-512: bf16 by AVX512-BF16's vdpbf16ps, which adds the products of two neighboring
// depths, and both types widened to f32 as they are packed; and f32. This file is compiled for machines with both. It calls no
// function of the standard library: the linker could otherwise merge an AVX-512 copy of an inline function into code
// for all machines.
#if defined(__x86_64__)

#include "lane/cpu/gemm_half_avx512.h"

#include "lane/cpu/gemm_half.h"

namespace lockstep {

extern const HalfKernel kBf16Avx512;
extern const HalfKernel kBf16Widened;
extern const HalfKernel kF16Widened;
extern const HalfKernel kF32Avx512;

namespace {

constexpr int kRows = 12, kCols = 32;
constexpr int kVectors = kCols / 16;

struct Bf16 : Bf16Pairs {
  using Stored = uint16_t;
  static __m512 add(__m512 sums, const uint32_t* a, __m512i b) {
    return _mm512_dpbf16_ps(sums, (__m512bh)_mm512_set1_epi32(static_cast<int>(*a)), (__m512bh)b);
  }
  static __m512i load(const uint32_t* b) { return _mm512_loadu_si512(b); }
};

template <DType kType>
struct StoredAs {
  using Type = uint16_t;
};
template <>
struct StoredAs<DType::f32> {
  using Type = float;
};

// Widened to f32 unless they are f32, [panel][depth][lane].
template <DType kType>
struct Widened {
  using Stored = typename StoredAs<kType>::Type;
  using Packed = float;
  static constexpr int kGroup = 1;

  static __m512 widen(__mmask16 mask, const float* from) { return _mm512_maskz_loadu_ps(mask, from); }
  static __m512 widen(__mmask16 mask, const uint16_t* from) {
    const __m256i halves = _mm256_maskz_loadu_epi16(mask, from);
    if constexpr (kType == DType::f16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }

  template <int kLanes>
  static void pack_lanes(const Stored* from, int64_t ld, int64_t lanes, int64_t depth, float* to) {
    pack_transposed<kLanes>(lanes, depth, reinterpret_cast<uint32_t*>(to), [&](int64_t lane, int64_t p) {
      return _mm512_castps_si512(widen(first16(depth - p), from + lane * ld + p));
    });
  }

  template <int kLanes>
  static void pack_depths(const Stored* from, int64_t ld, int64_t lanes, int64_t depth, float* to) {
    for (int64_t p = 0; p < depth; ++p, to += kLanes)
      for (int lane = 0; lane < kLanes; lane += 16) {
        const __m512 values = lane < lanes ? widen(first16(lanes - lane), from + p * ld + lane) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(to + lane, first16(kLanes - lane), values);
      }
  }

  static __m512 add(__m512 sums, const float* a, __m512 b) { return _mm512_fmadd_ps(_mm512_set1_ps(*a), b, sums); }
  static __m512 load(const float* b) { return _mm512_loadu_ps(b); }
  static __m256i round(__m512 x) {
    if constexpr (kType == DType::f16) return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return Bf16Pairs::round(x);
  }
};

template <class T, int kLanes>
void pack(const void* memory, int64_t ld, bool lanes_adjacent, int64_t lanes, int64_t depth, void* packed) {
  // This many depths of all panels are packed before the next: adjacent lanes share
  // cache lines with neighboring panels.
  constexpr int64_t kPackDepth = 32;
  const auto* const from = static_cast<const typename T::Stored*>(memory);
  auto* const to = static_cast<typename T::Packed*>(packed);
  const int64_t groups = (depth + T::kGroup - 1) / T::kGroup;
  const int64_t step = lanes_adjacent ? kPackDepth : depth;
  for (int64_t p = 0; p < depth; p += step)
    for (int64_t lane = 0; lane < lanes; lane += kLanes) {
      typename T::Packed* const target = to + lane * groups + p / T::kGroup * kLanes;
      const int64_t here = least(kLanes, lanes - lane), deep = least(step, depth - p);
      if (lanes_adjacent)
        T::template pack_depths<kLanes>(from + p * ld + lane, ld, here, deep, target);
      else
        T::template pack_lanes<kLanes>(from + lane * ld + p, ld, here, deep, target);
    }
}

// Stores vector `v` of row `r` of a tile, rounded if the result is.
template <class T>
inline __attribute__((always_inline)) void store(__m512 sums, int r, int v, __mmask16 mask, const HalfResult& result) {
  if constexpr (sizeof(typename T::Stored) == 2) {
    if (result.rounded) {
      auto* const out = static_cast<uint16_t*>(result.rounded) + r * result.rounded_ld + 16 * v;
      _mm256_mask_storeu_epi16(out, mask, T::round(sums));
      return;
    }
  }
  _mm512_mask_storeu_ps(result.sums + r * result.ld + 16 * v, mask, sums);
}

// Computes one tile and stores its first `rows` rows and `cols` columns.
template <class T>
void multiply_tile(const typename T::Packed* a, const typename T::Packed* b, int64_t rows, int64_t cols, int64_t groups,
                   const HalfResult& result) {
  const __mmask16 mask[kVectors] = {first16(cols), first16(cols > 16 ? cols - 16 : 0)};
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = result.accumulate && r < rows ? _mm512_maskz_loadu_ps(mask[v], result.sums + r * result.ld + 16 * v)
                                                 : _mm512_setzero_ps();
  for (int64_t p = 0; p < groups; ++p, a += kRows, b += kCols) {
    const auto b0 = T::load(b), b1 = T::load(b + 16);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = T::add(sums[r][0], a + r, b0);
      sums[r][1] = T::add(sums[r][1], a + r, b1);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      if (r < rows) store<T>(sums[r][v], r, v, mask[v], result);
}

template <class T>
void multiply(const void* packed_a, const void* packed_b, int64_t rows, int64_t cols, int64_t depth,
              const HalfResult& result) {
  const int64_t groups = (depth + T::kGroup - 1) / T::kGroup;
  for (int64_t col = 0; col < cols; col += kCols)
    for (int64_t row = 0; row < rows; row += kRows) {
      const auto* const a = static_cast<const typename T::Packed*>(packed_a) + row * groups;
      const auto* const b = static_cast<const typename T::Packed*>(packed_b) + col * groups;
      HalfResult here = result;
      if (here.sums) here.sums += row * here.ld + col;
      if (here.rounded) here.rounded = static_cast<uint16_t*>(here.rounded) + row * here.rounded_ld + col;
      multiply_tile<T>(a, b, least(kRows, rows - row), least(kCols, cols - col), groups, here);
    }
}

}  // namespace

constinit const HalfKernel kBf16Avx512{"bf16 by vdpbf16ps", DType::bf16,       kRows,         kCols, 2, 2, 64,
                                       pack<Bf16, kRows>,   pack<Bf16, kCols>, multiply<Bf16>};
constinit const HalfKernel kBf16Widened{
    "bf16 widened",         DType::bf16, kRows, kCols, 1, 4, 32, pack<Widened<bf16>, kRows>, pack<Widened<bf16>, kCols>,
    multiply<Widened<bf16>>};
constinit const HalfKernel kF16Widened{
    "f16 widened",         DType::f16, kRows, kCols, 1, 4, 32, pack<Widened<f16>, kRows>, pack<Widened<f16>, kCols>,
    multiply<Widened<f16>>};
constinit const HalfKernel kF32Avx512{
    "f32 by AVX-512",      DType::f32, kRows, kCols, 1, 4, 32, pack<Widened<f32>, kRows>, pack<Widened<f32>, kCols>,
    multiply<Widened<f32>>};

}  // namespace lockstep

#endif
