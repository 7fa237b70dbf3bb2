// Matrix products of steps: the tensor cores' tile, with whatever is to be done with each element of the result.
#include "ops/cuda/gemm_text.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

const char* const kGemmText = R"(#pragma once
#include "tiles.h"
namespace lockstep {

// For how many of its `own` groups of kSide elements a thread loads the epilogue's inputs at a time: loads take long,
// and registers are free by then.
template <int kSide>
constexpr int group_of(int own, int bytes) {
  constexpr int kMost = 16 / kSide, kLeast = 4 / kSide;
  int out = own < kMost ? own : kMost;
  while (out > kLeast && out * bytes > 64) out /= 2;
  return out;
}

// A word of a sum on its way from one block to another. Zero says that it is not there yet: of the floats one that no
// arithmetic makes, a NaN of all ones, is taken for another NaN.
inline uint32_t on_its_way(float x) {
  const uint32_t word = ~__float_as_uint(x);
  return word ? word : 0x80000000u;
}
inline float arrived(uint32_t word) { return __uint_as_float(~word); }
inline void give(float* to, const float4& x) {
  leave(to, on_its_way(x.x), on_its_way(x.y), on_its_way(x.z), on_its_way(x.w));
}
// Words side by side that may have arrived; and where they were, to be free again.
template <uint32_t kSide>
inline void look_at_side(const float* from, uint32_t (&words)[kSide]) {
  if constexpr (kSide == 4) {
    look_at(from, words);
  } else if constexpr (kSide == 2) {
    const uint64_t both = look_at(reinterpret_cast<const uint64_t*>(from));
    words[0] = uint32_t(both), words[1] = uint32_t(both >> 32);
  } else {
    words[0] = look_at(reinterpret_cast<const uint32_t*>(from));
  }
}
template <int kSide>
inline void take(float* from) {
  if constexpr (kSide == 4)
    leave(from, 0u, 0u, 0u, 0u);
  else if constexpr (kSide == 2)
    leave(reinterpret_cast<uint64_t*>(from), uint64_t(0));
  else
    leave(reinterpret_cast<uint32_t*>(from), 0u);
}

// A result whose elements a thread adds up instead of writing them.
struct AddUp {
  float* sum;
  struct Element {
    float* sum;
    void operator=(float x) const { *sum += x; }
  };
  Element operator[](uint32_t) const { return {sum}; }
};
// What the threads of a block added up, as one of kCount sums, of which the first `blocks` are blocks'.
template <int kThreads, int kCount>
inline void give_sum(float x, float* to, uint32_t block, uint32_t blocks, char* shared) {
  const auto of_warp = [](float y) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) y += __shfl_xor_sync(0xffffffffu, y, d);
    return y;
  };
  float* const sums = reinterpret_cast<float*>(shared);
  x = of_warp(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x < 32) {
    x = of_warp(threadIdx.x < kThreads / 32 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) to[block] = x;
  }
  if (block == 0)
    for (uint32_t k = blocks + threadIdx.x; k < kCount; k += kThreads) to[k] = 0;
}

// A second matrix whose columns are added up besides, by the blocks of the first rows: where they leave their parts,
// in the block's memory.
template <class T>
struct Summed {
  const T* of;
  float* parts;
};
template <class T>
inline const T* matrix_of(const T* x) { return x; }
template <class T>
inline const T* matrix_of(const Summed<T>& x) { return x.of; }

// Called while a block waits for the partial sums of others; the default does nothing.
inline void meanwhile() {}

// One tile of C = A x B, batched. The warps of the block share the tile's rows, its columns, and the sum, and kSplits
// blocks share the sum once more; what each of the latter added up is added in the same order every time. Then, for
// element i of the dense C, read(i, r) reads what else is needed to r, and finish(i, x, r) makes something of it; or
// for kSide elements from i on, of an array x.
template <class S>
struct Gemm {
  using T = typename S::T;
  using InA = typename S::InA;  // as they lie in memory: T, or floats that are rounded to it
  using InB = typename S::InB;
  static constexpr int kSteps = (S::kK + S::kDeep - 1) / S::kDeep;
  static constexpr int kMost = (kSteps + S::kSplits - 1) / S::kSplits;    // steps of a block
  static constexpr int kSlots = kMost < S::kStages ? kMost : S::kStages;  // that are in memory at a time, A's and then B's
  // Of an operand that is computed, all steps of the block are there, as one.
  static constexpr int kHeldA = S::kSourceA ? kMost * S::kDeep : S::kDeep;
  static constexpr int kHeldB = S::kSourceB ? kMost * S::kDeep : S::kDeep;
  static constexpr int kStepA = S::kTransposeA ? S::kTall + pad_of<T, InA>(true) : kHeldA + pad_of<T, InA>(false);
  static constexpr int kStepB = S::kTransposeB ? kHeldB + pad_of<T, InB>(false) : S::kWide + pad_of<T, InB>(true);
  static constexpr int kSizeA = (S::kTransposeA ? kHeldA : S::kTall) * kStepA;
  static constexpr int kSizeB = (S::kTransposeB ? S::kWide : kHeldB) * kStepB;
  static constexpr int kBytesA = (S::kSourceA ? kSizeA : kSlots * kSizeA) * int(sizeof(InA));
  static constexpr int kBytesB = (S::kSourceB ? kSizeB : kSlots * kSizeB) * int(sizeof(InB));
  static constexpr int kWarpTall = S::kTall / S::kWarpRows, kWarpWide = S::kWide / S::kWarpCols;
  static constexpr int kI = kWarpTall / 16, kJ = kWarpWide / 8;
  using F = Fragments<T, kI, kJ, S::kTransposeA, S::kTransposeB, kStepA, kStepB, InA, InB>;
  static constexpr int kDown = (S::kM + S::kTall - 1) / S::kTall, kAcross = (S::kN + S::kWide - 1) / S::kWide;
  // Of the sums in the block's memory, one tile for each of the warps that share a sum.
  static constexpr int kLine = S::kWide + (F::kSpreadB ? 4 : 8), kTile = S::kTall * kLine;
  static constexpr int kShare = S::kTall * S::kWide / S::kSplits;  // of the tile, that a block finishes
  static constexpr int kMultiply = S::kWarpRows * S::kWarpCols * S::kParts * 32;  // threads
  static constexpr int kAdders = kMultiply < S::kThreads ? S::kThreads - kMultiply : S::kThreads;
  static_assert(kBytesA + kBytesB <= S::kShared && S::kParts * kTile * 4 <= S::kShared, "as much as was asked for");

  // What a block computes: the part `split` of the sums of a tile, at `row` and `col`.
  struct Place {
    int split, whole, batch, row, col;
    explicit Place(uint32_t block)
        : split(block % S::kSplits),
          whole(block / S::kSplits),
          batch(whole / (kDown * kAcross)),
          row(whole % (kDown * kAcross) % kDown * S::kTall),
          col(whole % (kDown * kAcross) / kDown * S::kWide) {}
    int first() const { return split * kSteps / S::kSplits; }  // step of the sum
    int count() const { return (split + 1) * kSteps / S::kSplits - first(); }
    int first_row() const { return row + split * (S::kTall / S::kSplits); }  // of those that it finishes
  };
  using FeedA =
      Feed<InA, S::kThreads, S::kTall, S::kDeep, S::kTransposeA, kStepA, S::kM, S::kK, S::kLeadA, S::kAtOnceA>;
  using FeedB =
      Feed<InB, S::kThreads, S::kWide, S::kDeep, !S::kTransposeB, kStepB, S::kN, S::kK, S::kLeadB, S::kAtOnceB>;
  using HoldA = Hold<T, S::kThreads, S::kTall, kHeldA, S::kTransposeA, kStepA, S::kM, S::kK, S::kLeadA>;
  using HoldB = Hold<T, S::kThreads, S::kWide, kHeldB, !S::kTransposeB, kStepB, S::kN, S::kK, S::kLeadB>;

  // The sum of a column of the tile, of what was left in Summed::parts.
  static float column_sum(const float* parts, int col) {
    float x = 0;
#pragma unroll
    for (int q = 0; q < kAdders / S::kWide; ++q) x += parts[q * S::kWide + col];
    return x;
  }

  // Prefetches the first tiles of one operand, or computes it. REQUIRES: no other code uses the shared memory until
  // run().
  template <class A>
  static void bring_a(uint32_t block, const A& a, char* shared) {
    const Place at(block);
    if constexpr (S::kSourceA)
      HoldA::fill(a, reinterpret_cast<T*>(shared), at.row, at.first() * S::kDeep);
    else
      bring<kSizeA>(FeedA(a + int64_t(at.batch) * S::kStrideA, at.row), at, reinterpret_cast<InA*>(shared));
  }
  template <class B>
  static void bring_b(uint32_t block, const B& b, char* shared) {
    const Place at(block);
    InB* const to = reinterpret_cast<InB*>(shared + kBytesA);
    if constexpr (S::kSourceB)
      HoldB::fill(b, to, at.col, at.first() * S::kDeep);
    else
      bring<kSizeB>(FeedB(b + int64_t(at.batch) * S::kStrideB, at.col), at, to);
  }

  // `a` and `b`: pointers, or what computes their elements (Hold). `partial`: where blocks give each other their sums,
  // all zero before and after; unused with one split. `early`: what was brought already, bit 0 for a and bit 1 for b.
  // `then` is called when the product is computed, before others' parts are waited for.
  template <class Read, class A, class B, class Reader, class Finish, class Then>
  static void run(uint32_t block, const A& a, const B& b, float* partial, char* shared, const Reader& read,
                  const Finish& finish, uint32_t early, const Then& then) {
    const Place own(block);
    const auto [split, whole, batch, row, col] = own;
    const uint32_t row0 = row, col0 = col;
    const float* const sums = reinterpret_cast<const float*>(shared);
    // What a thread finishes, a group at once, for which all is on its way before the first is. Where registers are
    // left, what the first group needs besides the product is, while that is computed.
    constexpr bool kEarly = kI * kJ <= 4;
    constexpr uint32_t kSide = S::kSide, kAtOnce = S::kThreads * kSide;
    constexpr int kOwn = (kShare + kAtOnce - 1) / kAtOnce;
    constexpr int kGroup = group_of<kSide>(kOwn, int(sizeof(Read)) + (S::kSplits > 1 ? 4 * kSide * S::kSplits : 0));
    const auto own_of = [](int e) { return threadIdx.x * kSide + e * kAtOnce; };
    const auto place_of = [&](int e) { return split * uint32_t(kShare) + own_of(e); };
    const auto inside = [&](int e) {
      return (kShare % kAtOnce == 0 || own_of(e) < kShare) &&
             (S::kM % S::kTall == 0 || row0 + place_of(e) / S::kWide < S::kM) &&
             (S::kN % S::kWide == 0 || col0 + place_of(e) % S::kWide < S::kN);
    };
    const auto at = [&](int e) {
      return (uint32_t(batch) * S::kM + row0 + place_of(e) / S::kWide) * S::kN + col0 + place_of(e) % S::kWide;
    };
    Read reads[kGroup];
    const auto read_group = [&](int u) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        reads[e] = {};  // else, in a loop of rounds, what the last one read would be kept for those that are not
        if (inside(u + e)) read(at(u + e), reads[e]);
      }
    };
    if constexpr (kEarly) read_group(0);
    multiply(a, b, own, early, shared);
    const auto add_parts = [&](uint32_t place, float (&x)[kSide]) {
#pragma unroll
      for (int p = 0; p < S::kParts; ++p) {
        const auto part = *reinterpret_cast<const Side<float, kSide>*>(
            sums + p * kTile + place / S::kWide * kLine + place % S::kWide);
#pragma unroll
        for (uint32_t q = 0; q < kSide; ++q) x[q] = p == 0 ? part.v[q] : x[q] + part.v[q];
      }
    };
    // What others finish goes to them.
    if constexpr (S::kSplits > 1) {
      float* const given = partial + int64_t(block) * S::kTall * S::kWide;
      constexpr int kTimes = (S::kTall * S::kWide + 4 * S::kThreads - 1) / (4 * S::kThreads);
#pragma unroll(kTimes <= 4 ? kTimes : 2)
      for (int e = 0; e < kTimes; ++e) {
        const uint32_t place = threadIdx.x * 4u + e * 4u * S::kThreads;
        constexpr bool kEven = S::kTall * S::kWide % (4 * S::kThreads) == 0;
        if (place / kShare == uint32_t(split) || (!kEven && place >= S::kTall * S::kWide)) continue;
        float4 x = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int p = 0; p < S::kParts; ++p) {
          const float4 y =
              *reinterpret_cast<const float4*>(sums + p * kTile + place / S::kWide * kLine + place % S::kWide);
          x = p == 0 ? y : make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
        }
        give(given + place, x);
      }
    }
    then();
#pragma unroll 1
    for (int u = 0; u < kOwn; u += kGroup) {
      if (u > 0 || !kEarly) read_group(u);
      constexpr int kOthers = S::kSplits - 1;
      uint32_t words[kGroup][kOthers > 0 ? kOthers : 1][kSide] = {};
      if constexpr (kOthers > 0) {
        float* const from = partial + (int64_t(whole) * S::kSplits * S::kTall * S::kWide + split * kShare);
        // Those behind this block's own come first, then those before it.
        uint32_t others[kOthers];
#pragma unroll
        for (int q = 0; q < kOthers; ++q)
          others[q] = (split + 1u + q) % S::kSplits * uint32_t(S::kTall * S::kWide) + threadIdx.x * kSide;
        const auto each = [&](auto&& done) {
#pragma unroll
          for (int e = 0; e < kGroup; ++e)
#pragma unroll
            for (int q = 0; q < kOthers; ++q)
              if (inside(u + e)) done(words[e][q], from + others[q] + (u + e) * kAtOnce);
        };
        bool all;
        do {
          all = true;
          each([&](uint32_t (&side)[kSide], const float* at) { look_at_side(at, side); });
          each([&](uint32_t (&side)[kSide], const float*) {
#pragma unroll
            for (uint32_t k = 0; k < kSide; ++k) all &= side[k] != 0;
          });
        } while (!all);
        each([&](uint32_t (&)[kSide], float* at) { take<kSide>(at); });
      }
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        if (!inside(u + e)) continue;
        float x[kSide];
        add_parts(place_of(u + e), x);
#pragma unroll
        for (int q = 0; q < kOthers; ++q)
#pragma unroll
          for (uint32_t k = 0; k < kSide; ++k) x[k] += arrived(words[e][q][k]);
        if constexpr (kSide > 1)
          finish(at(u + e), x, reads[e]);
        else
          finish(at(u + e), x[0], reads[e]);
      }
    }
  }

 private:
  template <int kSize, class F, class In>
  static void bring(const F& feed, const Place& at, In* to) {
    const int first = at.first(), count = at.count();
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1 && s < count; ++s) feed.fetch(to + s * kSize, first + s);
    commit();
  }

  // Leaves the block's part of the tile's sums in its memory: there threads side by side finish elements side by side.
  template <class A, class B>
  static void multiply(const A& a, const B& b, const Place& at, uint32_t early, char* shared) {
    const InA* read_a = nullptr;
    const InB* read_b = nullptr;
    if constexpr (!S::kSourceA) read_a = a + int64_t(at.batch) * S::kStrideA;
    if constexpr (!S::kSourceB) read_b = matrix_of(b) + int64_t(at.batch) * S::kStrideB;
    const FeedA feed_a(read_a, at.row);
    const FeedB feed_b(read_b, at.col);
    const int first = at.first(), count = at.count();
    InA* const slots_a = reinterpret_cast<InA*>(shared);
    InB* const slots_b = reinterpret_cast<InB*>(shared + kBytesA);
    const auto fetch = [&](int step, bool with_a, bool with_b) {
      if (!S::kSourceA && with_a) feed_a.fetch(slots_a + step % S::kStages * kSizeA, first + step);
      if (!S::kSourceB && with_b) feed_b.fetch(slots_b + step % S::kStages * kSizeB, first + step);
    };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp % S::kWarpRows * kWarpTall, warp_col = warp / S::kWarpRows % S::kWarpCols * kWarpWide;
    const int part = warp / (S::kWarpRows * S::kWarpCols);
    // The others bring and finish.
    const bool multiplies = kMultiply == S::kThreads || part < S::kParts;
    // How far what is multiplied next is behind, and where the thread's own begins.
    constexpr int kOnceA = F::kDeep * (S::kTransposeA ? kStepA : 1), kOnceB = F::kDeep * (S::kTransposeB ? 1 : kStepB);
    const InA* const own_a = slots_a + (warp_row * (S::kTransposeA ? 1 : kStepA) + part * kOnceA + F::own_a(lane));
    const InB* const own_b = slots_b + (warp_col * (S::kTransposeB ? kStepB : 1) + part * kOnceB + F::own_b(lane));
    float c[kI][kJ][4] = {};
    // A column is added up by kAdders / kWide threads: those that do not multiply, where there are such.
    constexpr bool kAdds = requires { b.parts; };
    const int adder = int(threadIdx.x) - (S::kThreads - kAdders);
    const bool adds = kAdds && at.row == 0 && adder >= 0;
    float added = 0;
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < count) fetch(s, !(early & 1u), !(early & 2u));
      commit();
    }
    if constexpr (S::kSourceA)
      if (!(early & 1u)) HoldA::fill(a, slots_a, at.row, first * S::kDeep);
    if constexpr (S::kSourceB)
      if (!(early & 2u)) HoldB::fill(b, slots_b, at.col, first * S::kDeep);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      if constexpr (kMost >= S::kStages)
        if (step + S::kStages - 1 < count) fetch(step + S::kStages - 1, true, true);
      commit();
      const InA* const from_a = own_a + (S::kSourceA ? step * (S::kDeep / F::kDeep * kOnceA) : step % S::kStages * kSizeA);
      const InB* const from_b = own_b + (S::kSourceB ? step * (S::kDeep / F::kDeep * kOnceB) : step % S::kStages * kSizeB);
      if constexpr (kAdds) {
        constexpr int kRows = S::kDeep / (kAdders / S::kWide);
        if (adds) {
          const InB* const rows =
              slots_b + step % S::kStages * kSizeB + adder / S::kWide * kRows * kStepB + adder % S::kWide;
#pragma unroll
          for (int r = 0; r < kRows; ++r) added += load(rows[r * kStepB]);
        }
      }
      if (!multiplies) continue;
#pragma unroll
      for (int d = 0; d < S::kDeep / F::kDeep / S::kParts; ++d) {
        F now;
        now.load_a(from_a + d * S::kParts * kOnceA);
        now.load_b(from_b + d * S::kParts * kOnceB);
        now.multiply(c);
      }
    }
    if constexpr (requires { a.to; })
      HoldA::template put<kAcross>(slots_a, a.to, at.row, first * S::kDeep, count * S::kDeep, at.col / S::kWide);
    if constexpr (kAdds)
      if (adds) b.parts[adder] = added;
    wait_for<0>();
    __syncthreads();
    if (multiplies)
      F::store(c, reinterpret_cast<float*>(shared) + part * kTile + warp_row * kLine + warp_col, kLine, lane);
    __syncthreads();
  }
};
}  // namespace lockstep
)";

std::optional<GemmStep> gemm_step(const GemmSpec& g, int processors, int64_t shared_bytes, GemmSources sources,
                                  int64_t exchanged) {
  const bool half = g.dtype == DType::bf16 || g.dtype == DType::f16;
  if (!half && g.dtype != DType::f32) return {};
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch * g.m * g.n >= INT32_MAX) return {};
  if (g.lda >= INT32_MAX || g.ldb >= INT32_MAX || g.m >= INT32_MAX / 2 || g.k >= INT32_MAX / 2) return {};
  const int64_t lda = g.lda == GemmSpec::kDense ? (g.transpose_a ? g.m : g.k) : g.lda;
  const int64_t ldb = g.ldb == GemmSpec::kDense ? (g.transpose_b ? g.k : g.n) : g.ldb;
  const int64_t stride_a = g.stride_a == GemmSpec::kDense ? g.m * g.k : g.stride_a;
  const int64_t stride_b = g.stride_b == GemmSpec::kDense ? g.k * g.n : g.stride_b;
  if ((g.ldc != GemmSpec::kDense && g.ldc != g.n) || (g.stride_c != GemmSpec::kDense && g.stride_c != g.m * g.n))
    return {};
  if (!half && (sources.a == GemmOperand::rounded || sources.b == GemmOperand::rounded)) return {};
  const auto type_of = [&](GemmOperand how) { return how == GemmOperand::rounded ? DType::f32 : g.dtype; };
  // Sixteen bytes at a time, or four, where all rows begin at a multiple of that.
  const auto at_once = [&](GemmOperand how, int64_t lead, int64_t cols, int64_t stride) {
    const int64_t size = size_of(type_of(how));
    for (const int64_t bytes : {16, 4})
      if (lead * size % bytes == 0 && cols * size % bytes == 0 && stride * size % bytes == 0) return bytes;
    return size;
  };
  // Four at a time, of a whole matrix.
  const auto computable = [&](int64_t lead, int64_t rows, int64_t cols) {
    return g.batch == 1 && lead == cols && cols % 4 == 0 && rows * cols < INT32_MAX;
  };
  const bool computed_a = sources.a == GemmOperand::computed, computed_b = sources.b == GemmOperand::computed;
  if (computed_a && !computable(lda, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k)) return {};
  if (computed_b && !computable(ldb, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n)) return {};
  const std::optional<GemmChoice> choice = choose_tiles(g, processors, shared_bytes, sources, exchanged);
  if (!choice) return {};
  const auto& [tile, splits, deep, stages, tiles, shared, nanoseconds] = *choice;
  const bool register_bound = tile.tall / tile.rows / 16 * (tile.wide / tile.cols / 8) > 4;  // see kEarly
  if (computed_a || computed_b) {
    // To compute them takes registers, too, which is worth it where nothing else is waited for; and where they take the
    // memory of larger tiles, they are better read.
    const std::optional<GemmChoice> plain = choose_tiles(
        g, processors, shared_bytes,
        {computed_a ? GemmOperand::read : sources.a, computed_b ? GemmOperand::read : sources.b}, exchanged);
    const bool same = plain->tile.tall == tile.tall && plain->tile.wide == tile.wide && plain->splits == splits;
    constexpr double kPhase = 2000;  // nanoseconds of one, and of meeting after it
    if (sources.first ? nanoseconds > plain->nanoseconds + kPhase : register_bound || !same) return {};
  }
  // Consecutive elements that a thread finishes in one call.
  int vector_width = 4;
  while (vector_width > 1 &&
         (g.n % vector_width != 0 || tile.tall * tile.wide / splits % (vector_width * kStepThreads) != 0))
    vector_width /= 2;
  const std::string members = fmt::format(
      "  using T = {};\n  using InA = {};\n  using InB = {};\n"
      "  static constexpr bool kTransposeA = {}, kTransposeB = {}, kSourceA = {}, "
      "kSourceB = {};\n"
      "  static constexpr int kM = {}, kN = {}, kK = {}, kLeadA = {}, kLeadB = {}, kAtOnceA = {}, kAtOnceB = {};\n"
      "  static constexpr int64_t kStrideA = {}, kStrideB = {};\n"
      "  static constexpr int kTall = {}, kWide = {}, kDeep = {}, kStages = {}, kWarpRows = {}, kWarpCols = {}, "
      "kParts = {}, kSplits = {}, kSide = {}, kThreads = {}, kShared = {};\n",
      memory_type(g.dtype), memory_type(type_of(sources.a)), memory_type(type_of(sources.b)), g.transpose_a,
      g.transpose_b, computed_a, computed_b, g.m, g.n, g.k, lda, ldb,
      at_once(sources.a, lda, g.transpose_a ? g.m : g.k, stride_a),
      at_once(sources.b, ldb, g.transpose_b ? g.k : g.n, stride_b), stride_a, stride_b, tile.tall, tile.wide, deep,
      stages, tile.rows, tile.cols, tile.parts, splits, vector_width, kStepThreads, shared);
  const std::string type =
      fmt::format("Product_{}", md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  GemmStep out;
  out.prelude = fmt::format(
      "#include \"gemm.h\"\nusing namespace lockstep;\n#ifndef HAS_{0}\n#define HAS_{0}\nstruct {0} "
      "{{\n{1}}};\n#endif\n",
      type, members);
  out.call = fmt::format("Gemm<{}>::run<Read>", type);
  const int64_t idle = kStepThreads - tile.rows * tile.cols * tile.parts * 32;
  const int64_t adders = idle > 0 ? idle : kStepThreads;
  if (splits == 1 && g.batch == 1 && !g.transpose_b && !computed_b && g.n % tile.wide == 0 && adders % tile.wide == 0 &&
      deep % (adders / tile.wide) == 0)
    out.columns = {fmt::format("Gemm<{}>", type), tile.wide, adders};
  out.bring_a = fmt::format("Gemm<{}>::bring_a", type);
  out.bring_b = fmt::format("Gemm<{}>::bring_b", type);
  out.vector_width = vector_width;
  out.register_bound = register_bound;
  out.blocks = tiles * splits;
  if (has_whole_rows(g, *choice))
    out.share = {tile.tall / splits, tile.wide, g.m, g.n, fmt::format("Gemm<{}>::Place", type)};
  if (splits > 1) out.partial_bytes = out.blocks * tile.tall * tile.wide * 4;
  out.shared_bytes = shared;
  return out;
}

}  // namespace lockstep
