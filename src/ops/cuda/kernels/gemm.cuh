// Matrix products on the tensor cores, one tile per thread block, with an epilogue.
#pragma once
#include "epilogue.cuh"
#include "mma.cuh"
#include "partial_sums.cuh"
#include "reduction.cuh"
#include "tile_load.cuh"

namespace lockstep {

// One tile of C = A x B, batched. The warps of a thread block share the rows and columns of the tile, and kParts groups
// of warps share its sum. kSplits thread blocks share the sum as well (split-K): each publishes its partial sums and
// finishes 1 / kSplits of the tile (epilogue.cuh). Partial sums are added in a fixed order.
//
// S describes the product (gemm_text.cc): kTall x kWide is the tile, kDeep a step along the sum, kStages the steps in
// shared memory at once, kWarpRows x kWarpCols x kParts the warps that multiply.
template <class S>
struct Gemm {
  using T = typename S::T;
  using InA = typename S::InA;  // the type in memory: T, or f32 that is rounded to T
  using InB = typename S::InB;
  static constexpr int kSteps = (S::kK + S::kDeep - 1) / S::kDeep;
  static constexpr int kMaxSteps = (kSteps + S::kSplits - 1) / S::kSplits;        // of a thread block
  static constexpr int kSlots = kMaxSteps < S::kStages ? kMaxSteps : S::kStages;  // steps in shared memory; A, then B
  // A computed operand is in shared memory with all steps of the thread block, as one tile.
  static constexpr int kHeldA = S::kSourceA ? kMaxSteps * S::kDeep : S::kDeep;
  static constexpr int kHeldB = S::kSourceB ? kMaxSteps * S::kDeep : S::kDeep;
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
  // The sums in shared memory: one tile for each of the kParts groups of warps.
  static constexpr int kLine = S::kWide + (F::kSpreadB ? 4 : 8), kTile = S::kTall * kLine;
  static constexpr int kShare = S::kTall * S::kWide / S::kSplits;  // elements of the tile that a thread block finishes
  static constexpr int kMmaThreads = S::kWarpRows * S::kWarpCols * S::kParts * 32;  // threads that multiply
  static constexpr int kColumnSumThreads = kMmaThreads < S::kThreads ? S::kThreads - kMmaThreads : S::kThreads;
  static_assert(kBytesA + kBytesB <= S::kShared && S::kParts * kTile * 4 <= S::kShared,
                "more shared memory than was requested");

  // The work of a thread block: part `split` of the sum of the tile at (row, col) of a batch element.
  struct Place {
    int split, whole, batch, row, col;
    explicit Place(uint32_t block)
        : split(block % S::kSplits),
          whole(block / S::kSplits),
          batch(whole / (kDown * kAcross)),
          row(whole % (kDown * kAcross) % kDown * S::kTall),
          col(whole % (kDown * kAcross) / kDown * S::kWide) {}
    int first() const { return split * kSteps / S::kSplits; }  // step
    int count() const { return (split + 1) * kSteps / S::kSplits - first(); }
    int first_row() const { return row + split * (S::kTall / S::kSplits); }  // of the rows that it finishes
  };
  using LoaderA =
      TileLoader<InA, S::kThreads, S::kTall, S::kDeep, S::kTransposeA, kStepA, S::kM, S::kK, S::kLeadA, S::kAtOnceA>;
  using LoaderB =
      TileLoader<InB, S::kThreads, S::kWide, S::kDeep, !S::kTransposeB, kStepB, S::kN, S::kK, S::kLeadB, S::kAtOnceB>;
  using ComputedA = ComputedTile<T, S::kThreads, S::kTall, kHeldA, S::kTransposeA, kStepA, S::kM, S::kK, S::kLeadA>;
  using ComputedB = ComputedTile<T, S::kThreads, S::kWide, kHeldB, !S::kTransposeB, kStepB, S::kN, S::kK, S::kLeadB>;

  // The sum of a column of the tile, from ColumnSummed::parts.
  static float column_sum(const float* parts, int col) {
    float x = 0;
#pragma unroll
    for (int q = 0; q < kColumnSumThreads / S::kWide; ++q) x += parts[q * S::kWide + col];
    return x;
  }

  // Prefetches the first tiles of one operand, or computes it. REQUIRES: no other code uses the shared memory until
  // run().
  template <class A>
  static void prefetch_a(uint32_t block, const A& a, char* shared) {
    const Place at(block);
    if constexpr (S::kSourceA)
      ComputedA::fill(a, reinterpret_cast<T*>(shared), at.row, at.first() * S::kDeep);
    else
      prefetch<kSizeA>(LoaderA(a + int64_t(at.batch) * S::kStrideA, at.row), at, reinterpret_cast<InA*>(shared));
  }
  template <class B>
  static void prefetch_b(uint32_t block, const B& b, char* shared) {
    const Place at(block);
    InB* const to = reinterpret_cast<InB*>(shared + kBytesA);
    if constexpr (S::kSourceB)
      ComputedB::fill(b, to, at.col, at.first() * S::kDeep);
    else
      prefetch<kSizeB>(LoaderB(b + int64_t(at.batch) * S::kStrideB, at.col), at, to);
  }

  // `a`, `b`: pointers, or functions that compute elements (ComputedTile). `partial`: global memory in which thread
  // blocks exchange partial sums, all zero before and after; unused if kSplits is 1. `prefetched`: bits 0 and 1 say
  // whether a and b were prefetched. Calls then() when the thread block has computed its part of the product.
  template <class Read, class A, class B, class Reader, class Finish, class Then>
  static void run(uint32_t block, const A& a, const B& b, float* partial, char* shared, const Reader& read,
                  const Finish& finish, uint32_t prefetched, const Then& then) {
    const Place own(block);
    const auto [split, whole, batch, row, col] = own;
    const uint32_t row0 = row, col0 = col;
    const float* const sums = reinterpret_cast<const float*>(shared);
    // A thread finishes its vectors in groups, and loads all inputs of a group first. If there are enough registers, it
    // loads those of the first group before the product (kEarly).
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
        reads[e] = {};  // otherwise the values of the last round would stay in registers
        if (inside(u + e)) read(at(u + e), reads[e]);
      }
    };
    if constexpr (kEarly) read_group(0);
    multiply(a, b, own, prefetched, shared);
    const auto add_parts = [&](uint32_t place, float(&x)[kSide]) {
#pragma unroll
      for (int p = 0; p < S::kParts; ++p) {
        const auto part = *reinterpret_cast<const Side<float, kSide>*>(sums + p * kTile + place / S::kWide * kLine +
                                                                       place % S::kWide);
#pragma unroll
        for (uint32_t q = 0; q < kSide; ++q) x[q] = p == 0 ? part.v[q] : x[q] + part.v[q];
      }
    };
    // Publish the parts of the tile that other thread blocks finish.
    if constexpr (S::kSplits > 1) {
      float* const published = partial + int64_t(block) * S::kTall * S::kWide;
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
        publish(published + place, x);
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
        // The thread blocks after this one come first, then those before it.
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
          each([&](uint32_t(&side)[kSide], const float* at) { poll(at, side); });
          each([&](uint32_t(&side)[kSide], const float*) {
#pragma unroll
            for (uint32_t k = 0; k < kSide; ++k) all &= side[k] != 0;
          });
        } while (!all);
        each([&](uint32_t(&)[kSide], float* at) { reset<kSide>(at); });
      }
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        if (!inside(u + e)) continue;
        float x[kSide];
        add_parts(place_of(u + e), x);
#pragma unroll
        for (int q = 0; q < kOthers; ++q)
#pragma unroll
          for (uint32_t k = 0; k < kSide; ++k) x[k] += decode(words[e][q][k]);
        if constexpr (kSide > 1)
          finish(at(u + e), x, reads[e]);
        else
          finish(at(u + e), x[0], reads[e]);
      }
    }
  }

 private:
  // Starts to copy the first steps of an operand.
  template <int kSize, class Loader, class In>
  static void prefetch(const Loader& loader, const Place& at, In* to) {
    const int first = at.first(), count = at.count();
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1 && s < count; ++s) loader.fetch(to + s * kSize, first + s);
    commit();
  }

  // Computes the thread block's part of the sums and stores it to shared memory, so that adjacent threads then finish
  // adjacent elements.
  template <class A, class B>
  static void multiply(const A& a, const B& b, const Place& at, uint32_t prefetched, char* shared) {
    const InA* read_a = nullptr;
    const InB* read_b = nullptr;
    if constexpr (!S::kSourceA) read_a = a + int64_t(at.batch) * S::kStrideA;
    if constexpr (!S::kSourceB) read_b = matrix_of(b) + int64_t(at.batch) * S::kStrideB;
    const LoaderA loader_a(read_a, at.row);
    const LoaderB loader_b(read_b, at.col);
    const int first = at.first(), count = at.count();
    InA* const slots_a = reinterpret_cast<InA*>(shared);
    InB* const slots_b = reinterpret_cast<InB*>(shared + kBytesA);
    const auto fetch = [&](int step, bool with_a, bool with_b) {
      if (!S::kSourceA && with_a) loader_a.fetch(slots_a + step % S::kStages * kSizeA, first + step);
      if (!S::kSourceB && with_b) loader_b.fetch(slots_b + step % S::kStages * kSizeB, first + step);
    };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp % S::kWarpRows * kWarpTall, warp_col = warp / S::kWarpRows % S::kWarpCols * kWarpWide;
    const int part = warp / (S::kWarpRows * S::kWarpCols);
    // The other threads only load and finish.
    const bool multiplies = kMmaThreads == S::kThreads || part < S::kParts;
    // The distance between fragments along the sum, and the thread's first elements.
    constexpr int kOnceA = F::kDeep * (S::kTransposeA ? kStepA : 1), kOnceB = F::kDeep * (S::kTransposeB ? 1 : kStepB);
    const InA* const first_a =
        slots_a + (warp_row * (S::kTransposeA ? 1 : kStepA) + part * kOnceA + F::lane_offset_a(lane));
    const InB* const first_b =
        slots_b + (warp_col * (S::kTransposeB ? kStepB : 1) + part * kOnceB + F::lane_offset_b(lane));
    float c[kI][kJ][4] = {};
    // kColumnSumThreads / kWide threads add up a column: those that do not multiply, if there are any.
    constexpr bool kAdds = requires { b.parts; };
    const int adder = int(threadIdx.x) - (S::kThreads - kColumnSumThreads);
    const bool adds = kAdds && at.row == 0 && adder >= 0;
    float added = 0;
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < count) fetch(s, !(prefetched & 1u), !(prefetched & 2u));
      commit();
    }
    if constexpr (S::kSourceA)
      if (!(prefetched & 1u)) ComputedA::fill(a, slots_a, at.row, first * S::kDeep);
    if constexpr (S::kSourceB)
      if (!(prefetched & 2u)) ComputedB::fill(b, slots_b, at.col, first * S::kDeep);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      if constexpr (kMaxSteps >= S::kStages)
        if (step + S::kStages - 1 < count) fetch(step + S::kStages - 1, true, true);
      commit();
      const InA* const from_a =
          first_a + (S::kSourceA ? step * (S::kDeep / F::kDeep * kOnceA) : step % S::kStages * kSizeA);
      const InB* const from_b =
          first_b + (S::kSourceB ? step * (S::kDeep / F::kDeep * kOnceB) : step % S::kStages * kSizeB);
      if constexpr (kAdds) {
        constexpr int kRows = S::kDeep / (kColumnSumThreads / S::kWide);
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
      ComputedA::template write_back<kAcross>(slots_a, a.to, at.row, first * S::kDeep, count * S::kDeep,
                                              at.col / S::kWide);
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
