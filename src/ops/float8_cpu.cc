// The CPU kernels of 8-bit floats: quantize in one pass over x, and products of operands decoded to bf16, which
// represents every 8-bit float exactly.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/cpu/gemm.h"
#include "lane/pool.h"
#include "ops/loops/loops.h"
#include "ops/math.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

constexpr int64_t kQuantizeRows = 64, kQuantizeColumns = 256;  // of a tile, which fits the L1 cache
constexpr int64_t kDecodeGrain = 65536;                        // elements per task

// Elements of one tile on their way from x to the results.
struct QuantizeTile {
  std::array<float, kQuantizeColumns> wide;
  std::array<std::array<uint8_t, kQuantizeColumns>, kQuantizeRows> narrow;
};

struct Quantize {
  int64_t m, k;
  DType from, to;

  // Writes the tile at (row0, col0). Returns the bits of the largest absolute value: as integers they are in the order of
  // the numbers, with NaN above all.
  uint32_t run(const std::byte* x, float inverse, uint8_t* y, uint8_t* transposed, int64_t row0, int64_t col0) const {
    QuantizeTile tile;
    const int64_t rows = std::min(kQuantizeRows, m - row0), cols = std::min(kQuantizeColumns, k - col0);
    uint32_t largest = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = (row0 + r) * k + col0;
      loops().load[static_cast<int>(from)](tile.wide.data(), x + at * size_of(from), 1, cols);
      for (int64_t c = 0; c < cols; ++c) {
        float& each = tile.wide[static_cast<size_t>(c)];
        largest = std::max(largest, math::bits(each) & 0x7fffffffu);
        each *= inverse;
      }
      uint8_t* const line = tile.narrow[static_cast<size_t>(r)].data();
      const void* in = tile.wide.data();
      loops().narrow[narrow_index(to)](line, &in, cols);
      std::memcpy(y + at, line, static_cast<size_t>(cols));
    }
    for (int64_t c = 0; c < cols; ++c) {
      uint8_t* const column = transposed + (col0 + c) * m + row0;
      for (int64_t r = 0; r < rows; ++r) column[r] = tile.narrow[static_cast<size_t>(r)][static_cast<size_t>(c)];
    }
    return largest;
  }
};

// The bf16 of every code of an 8-bit float.
template <class T>
std::array<uint16_t, 256> decoding_table() {
  std::array<uint16_t, 256> out;
  for (size_t code = 0; code < out.size(); ++code) {
    T x;
    x.bits = static_cast<uint8_t>(code);
    out[code] = BFloat16(static_cast<float>(x)).bits;
  }
  return out;
}

// An operand of a product, as bf16.
struct DecodedOperand {
  int64_t n;
  std::array<uint16_t, 256> table;
  BufferPtr buffer;

  explicit DecodedOperand(const Type& type)
      : n(count(type.shape)),
        table(type.dtype == DType::f8_e4m3 ? decoding_table<Float8E4M3>() : decoding_table<Float8E5M2>()),
        buffer(allocate(n * 2)) {}

  const void* decode(const void* from, Pool& pool) const {
    const auto* codes = static_cast<const uint8_t*>(from);
    uint16_t* const to = buffer->as<uint16_t>();
    pool.parallel_range(n, kDecodeGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) to[i] = table[codes[i]];
    });
    return to;
  }
};

// Multiplies the rows of a tile of f32 by `scale` and stores them in the type of the result.
void store_scaled(const Tile& tile, float scale, void* out, int64_t columns, DType dtype) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* const row = static_cast<float*>(tile.data) + r * tile.ld;
    for (int64_t c = 0; c < tile.cols; ++c) row[c] *= scale;
    std::byte* const to = static_cast<std::byte*>(out) + ((tile.row0 + r) * columns + tile.col0) * size_of(dtype);
    const void* in = row;
    if (is_narrow(dtype))
      loops().narrow[narrow_index(dtype)](to, &in, tile.cols);
    else
      std::memcpy(to, row, static_cast<size_t>(tile.cols) * sizeof(float));
  }
}

}  // namespace

Kernel quantize_cpu(const KernelSpec& spec) {
  const Quantize by{spec.in[0].shape[0], spec.in[0].shape[1], spec.in[0].dtype, spec.out[0].dtype};
  const int64_t across = (by.k + kQuantizeColumns - 1) / kQuantizeColumns;
  const int64_t down = (by.m + kQuantizeRows - 1) / kQuantizeRows;
  auto largest = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(down));
  return [=, pool = &spec.pool](const void* const* in, void* const* out) {
    const float inverse = 1 / *static_cast<const float*>(in[1]);
    pool->parallel_for(across == 0 ? 0 : down, [&](int64_t row, int) {
      uint32_t most = 0;
      for (int64_t col = 0; col < across; ++col)
        most = std::max(most, by.run(static_cast<const std::byte*>(in[0]), inverse, static_cast<uint8_t*>(out[0]),
                                     static_cast<uint8_t*>(out[1]), row * kQuantizeRows, col * kQuantizeColumns));
      (*largest)[static_cast<size_t>(row)] = most;
    });
    const uint32_t most = across == 0 || down == 0 ? 0 : *std::max_element(largest->begin(), largest->end());
    *static_cast<float*>(out[2]) = math::from_bits(most);
  };
}

Kernel scaled_product_cpu(const KernelSpec& spec) {
  struct State {
    DecodedOperand a, b;
    Gemm gemm;
  };
  const int64_t m = spec.in[0].shape[0], n = spec.in[1].shape[0], k = spec.in[0].shape[1];
  const GemmSpec product{.dtype = DType::bf16, .out = DType::f32, .m = m, .n = n, .k = k, .transpose_b = true};
  auto state = std::make_shared<const State>(
      State{DecodedOperand(spec.in[0]), DecodedOperand(spec.in[1]), Gemm::prepare(product, spec.pool.threads())});
  return [state, n, dtype = spec.out[0].dtype, pool = &spec.pool](const void* const* in, void* const* out) {
    const float scale = *static_cast<const float*>(in[2]) * *static_cast<const float*>(in[3]);
    const void* const a = state->a.decode(in[0], *pool);
    const void* const b = state->b.decode(in[1], *pool);
    state->gemm.run(*pool, a, b, nullptr, [&](const Tile& tile) { store_scaled(tile, scale, out[0], n, dtype); });
  };
}

}  // namespace lockstep
