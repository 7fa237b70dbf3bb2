// The kernel for x86 with AMX: bf16 by tdpbf16ps, which multiplies 16x32 by 32x16. This file is compiled for machines
// with AMX and AVX-512. It calls no function of the standard library: the linker could otherwise merge an AVX-512 copy
// of an inline function into code for all machines.
#if defined(__x86_64__)

#include "lane/cpu/gemm_half.h"
#include "lane/cpu/gemm_half_avx512.h"

namespace lockstep {

extern const HalfKernel kBf16Amx;

namespace {

constexpr int kTile = 16, kSide = 2 * kTile, kGroup = 32;
constexpr int64_t kPairs = kGroup / 2;

int64_t groups_of(int64_t depth) { return (depth + kGroup - 1) / kGroup; }

// Tile registers of 16 rows of 64 bytes: 0 to 3 hold sums, 4 and 5 rows of A, 6 and 7 pairs of B.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// [panel][depth / 32][lane][32]: a lane of a group is 64 bytes.
void pack_a(const void* memory, int64_t ld, bool lanes_adjacent, int64_t lanes, int64_t depth, void* packed) {
  const auto* const from = static_cast<const uint16_t*>(memory);
  auto* to = static_cast<uint16_t*>(packed);
  for (int64_t panel = 0; panel < lanes; panel += kSide)
    for (int64_t p = 0; p < depth; p += kGroup)
      for (int64_t first = panel; first < panel + kSide; first += kTile, to += kTile * kGroup) {
        __m512i x[kTile];
        if (lanes_adjacent) {
          const __mmask16 here = first16(lanes > first ? lanes - first : 0);
          for (int i = 0; i < kTile; ++i) x[i] = Bf16Pairs::pair(from + first, ld, here, p + 2 * i, depth);
          transpose(x);
        } else {
          for (int i = 0; i < kTile; ++i)
            x[i] = first + i < lanes ? _mm512_maskz_loadu_epi16(first32(depth - p), from + (first + i) * ld + p)
                                     : _mm512_setzero_si512();
        }
        for (int i = 0; i < kTile; ++i) _mm512_storeu_si512(to + i * kGroup, x[i]);
      }
}

// [panel][depth / 2][lane][2], depth padded with zeros to a multiple of 32.
void pack_b(const void* memory, int64_t ld, bool lanes_adjacent, int64_t lanes, int64_t depth, void* packed) {
  const auto* const from = static_cast<const uint16_t*>(memory);
  const int64_t groups = groups_of(depth);
  const int64_t step = lanes_adjacent ? kGroup : groups * kGroup;
  for (int64_t p = 0; p < depth; p += step)
    for (int64_t panel = 0; panel < lanes; panel += kSide) {
      uint32_t* const to = static_cast<uint32_t*>(packed) + (panel * groups + p / kGroup * kSide) * kPairs;
      const int64_t here = least(kSide, lanes - panel), deep = least(step, depth - p);
      if (lanes_adjacent)
        Bf16Pairs::pack_depths<kSide>(from + p * ld + panel, ld, here, deep, to);
      else
        Bf16Pairs::pack_lanes<kSide>(from + panel * ld + p, ld, here, deep, to);
      const int64_t pairs = (deep + 1) / 2, all = groups_of(deep) * kPairs;
      for (int64_t i = pairs * kSide; i < all * kSide; i += kTile) _mm512_storeu_si512(to + i, _mm512_setzero_si512());
    }
}

// Computes a tile of 32x32 in `sums`; adds to its contents if `accumulate`.
void multiply_tile(const uint16_t* a, const uint16_t* b, int64_t groups, bool accumulate, float* sums, int64_t ld) {
  const int64_t stride = ld * static_cast<int64_t>(sizeof(float));
  float* const below = sums + kTile * ld;
  if (accumulate) {
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, sums + kTile, stride);
    _tile_loadd(2, below, stride);
    _tile_loadd(3, below + kTile, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < groups; ++p, a += kSide * kGroup, b += kSide * kGroup) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 128);
    _tile_loadd(7, b + 2 * kTile, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTile * kGroup, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + kTile, stride);
  _tile_stored(2, below, stride);
  _tile_stored(3, below + kTile, stride);
}

void multiply(const void* packed_a, const void* packed_b, int64_t rows, int64_t cols, int64_t depth,
              const HalfResult& result) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const int64_t groups = groups_of(depth);
  alignas(64) float beside[kSide][kSide];
  for (int64_t col = 0; col < cols; col += kSide)
    for (int64_t row = 0; row < rows; row += kSide) {
      const uint16_t* const a = static_cast<const uint16_t*>(packed_a) + row * groups * kGroup;
      const uint16_t* const b = static_cast<const uint16_t*>(packed_b) + col * groups * kGroup;
      const int64_t count = least(kSide, rows - row), width = least(kSide, cols - col);
      float* const sums = result.sums ? result.sums + row * result.ld + col : nullptr;
      if (!result.rounded && count == kSide && width == kSide) {
        multiply_tile(a, b, groups, result.accumulate, sums, result.ld);
        continue;
      }
      // A rounded or partial tile is computed in a temporary.
      const __mmask16 mask[2] = {first16(width), first16(width > kTile ? width - kTile : 0)};
      for (int64_t r = 0; r < kSide && result.accumulate; ++r)
        for (int v = 0; v < 2; ++v)
          _mm512_store_ps(beside[r] + kTile * v, r < count
                                                     ? _mm512_maskz_loadu_ps(mask[v], sums + r * result.ld + kTile * v)
                                                     : _mm512_setzero_ps());
      multiply_tile(a, b, groups, result.accumulate, beside[0], kSide);
      auto* const out = static_cast<uint16_t*>(result.rounded);
      for (int64_t r = 0; r < count; ++r)
        for (int v = 0; v < 2; ++v) {
          const __m512 x = _mm512_load_ps(beside[r] + kTile * v);
          if (out)
            _mm256_mask_storeu_epi16(out + (row + r) * result.rounded_ld + col + kTile * v, mask[v],
                                     Bf16Pairs::round(x));
          else
            _mm512_mask_storeu_ps(sums + r * result.ld + kTile * v, mask[v], x);
        }
    }
  _tile_release();
}

}  // namespace

constinit const HalfKernel kBf16Amx{"bf16 by AMX", DType::bf16, kSide, kSide, kGroup, 2, 512, pack_a, pack_b, multiply};

}  // namespace lockstep

#endif
