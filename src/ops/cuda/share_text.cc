#include "ops/cuda/share_text.h"

#include <fmt/format.h>

#include "ops/cuda/text.h"

namespace lockstep {

const char* const kShareText = R"(#pragma once
#include "tiles.h"
namespace lockstep {

// Publishes a float together with the number of the execution, in one word that is written and read atomically: a
// reader sees from that number whether the float has arrived.
inline void tell(uint64_t* to, float x, uint32_t now) {
  leave(to, uint64_t(now) << 32 | __float_as_uint(x));
}

// What is written to some columns of a matrix in the block's memory (Near) and to its place in all of it.
template <class T, int kWidth, int kCols>
struct Both {
  T *to, *near;
  uint32_t row, col;
  struct Element {
    T *to, *near;
    void operator=(const T& x) const { *to = x, *near = x; }
  };
  Element operator[](uint32_t i) const { return {to + i, near + (i / kWidth - row) * kCols + (i % kWidth - col)}; }
};

// Rows of C = A x B, where kAcross blocks have kCols columns of A and kCols rows of B each. A warp has a row: each
// publishes its partial sums, and all add them up in the same order.
template <class T, class InB, int kCols, int kAcross, int kN>
struct SharedSums {
  static constexpr int kParts = 32 / kN, kOwn = (kAcross + kParts - 1) / kParts;
  uint64_t* told;
  uint32_t now, place;

  static int lane() { return threadIdx.x % 32; }
  static float together(float x) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p) sum += __shfl_sync(0xffffffffu, x, p * kN + lane() % kN);
    return sum;
  }

  void give(uint32_t row, const T* a, const InB* b) const {
    const int n = lane() % kN, part = lane() / kN;
    float x = 0;
    if (part < kParts) {
#pragma unroll 8
      for (int c = part; c < kCols; c += kParts) x = __fmaf_rn(load(a[c]), element_of<T>(b[c * kN + n]), x);
    }
    x = together(x);
    if (lane() < kN) tell(told + (uint64_t(row) * kAcross + place) * kN + n, x, now);
  }

  template <class Read, class Reader, class Finish>
  void take(uint32_t row, const T*, const InB*, char*, char*, const Reader& read, const Finish& finish) const {
    const int n = lane() % kN, part = lane() / kN;
    const uint64_t* const from = told + uint64_t(row) * kAcross * kN + n;
    Read r = {};
    if (lane() < kN) read(row * kN + n, r);
    uint64_t words[kOwn];
    bool all;
    do {
      all = true;
#pragma unroll
      for (int u = 0; u < kOwn; ++u) {
        const int q = part + u * kParts;
        words[u] = part < kParts && q < kAcross ? look_at(from + q * kN) : uint64_t(now) << 32;
      }
#pragma unroll
      for (int u = 0; u < kOwn; ++u) all &= uint32_t(words[u] >> 32) == now;
    } while (!all);
    float x = 0;
#pragma unroll
    for (int u = 0; u < kOwn; ++u) x += __uint_as_float(uint32_t(words[u]));
    x = together(x);
    if (lane() < kN) finish(row * kN + n, x, r);
  }
};

// kCols columns of rows of C = A x B, whose columns are kN, from `col` on; A has kK. B is turned around.
template <class T, class InB, int kCols, int kN, int kK>
struct SharedColumns {
  uint32_t col;

  template <class Read, class Reader, class Finish>
  void run(uint32_t row, const T* a, const InB* b, char*, char*, const Reader& read, const Finish& finish) const {
    const T* const from = a + uint64_t(row) * kK;
#pragma unroll 2
    for (int c = threadIdx.x % 32; c < kCols; c += 32) {
      const uint32_t i = row * kN + col + c;
      Read r;
      read(i, r);
      float x = 0;
#pragma unroll
      for (int k = 0; k < kK; ++k) x = __fmaf_rn(load(from[k]), element_of<T>(b[c * kK + k]), x);
      finish(i, x, r);
    }
  }
};
}  // namespace lockstep
)";

namespace {

constexpr int64_t kMostFew = 32;  // columns: a lane each

GemmStep shared_step(const std::string& call) {
  GemmStep out;
  out.prelude = "#include \"share.h\"\nusing namespace lockstep;\n";
  out.call = call;
  out.blocks = 1;
  return out;
}

// The types of the operands' elements in memory.
std::string types_of(const GemmSpec& g, bool rounded) {
  return fmt::format("{}, {}", memory_type(g.dtype), rounded ? "float" : memory_type(g.dtype));
}

std::string sums_of(const GemmSpec& g, int64_t cols, bool rounded) {
  return fmt::format("SharedSums<{}, {}, {}, {}>{{told, now, place}}", types_of(g, rounded), cols, g.k / cols, g.n);
}

}  // namespace

CudaSpread::Kind spread_kind(const GemmSpec& g) {
  const bool dense = g.ldb == GemmSpec::kDense || g.ldb == (g.transpose_b ? g.k : g.n);
  if (!dense) return CudaSpread::none;
  if (!g.transpose_b) return g.n <= kMostFew ? CudaSpread::sums : CudaSpread::none;
  return g.k <= kMostFew ? CudaSpread::columns : CudaSpread::none;
}

GemmStep shared_sums_step(const GemmSpec& g, int64_t cols, bool rounded) {
  return shared_step(sums_of(g, cols, rounded) + ".take<Read>");
}

GemmStep shared_columns_step(const GemmSpec& g, int64_t cols, bool rounded) {
  return shared_step(
      fmt::format("SharedColumns<{}, {}, {}, {}>{{col}}.run<Read>", types_of(g, rounded), cols, g.n, g.k));
}

std::string shared_sums_publish(const GemmSpec& g, int64_t cols, bool rounded) {
  return sums_of(g, cols, rounded) + ".give";
}

}  // namespace lockstep
