// Attention: y = softmax(scores) v and the logarithm of the sum of exponentials, without the matrix of scores in memory.
//
// A thread block has a tile of the queries of a head and walks along the keys, a tile at a time. Each warp has 16 or 32
// queries and keeps their sums in registers (attention_softmax.cuh).
#pragma once
#include "attention_softmax.cuh"

namespace lockstep {

// A as in attention.cuh. S describes the thread blocks: kWarps; kTall, fragments of 16 queries per warp; kKeys per tile;
// kStages of the pipeline that copies keys and values; kHold, whether queries stay in registers; kTogether heads whose
// keys and values fit the L2 cache.
template <class A, class S>
struct AttentionForward {
  using T = typename A::T;
  using Machine = AttentionWarps<T, A::kFull>;
  static constexpr int kTall = S::kTall, kWide = S::kKeys / 8, kThreads = S::kWarps * 32;
  static constexpr int kQueries = S::kWarps * kTall * 16, kTiles = (A::kT + kQueries - 1) / kQueries;
  using Queries = typename Machine::template Tile<A::kE, kQueries>;
  using Keys = typename Machine::template Tile<A::kE, S::kKeys>;
  using Values = typename Machine::template Tile<A::kF, S::kKeys>;
  static constexpr int kStage = Keys::kSize + Values::kSize;
  using Softmax = AttentionSoftmax<A, kTall, kWide>;
  using Place = AttentionPlace<kTiles, A::kH, A::kB * A::kH, S::kTogether, A::kCausal>;

  // Shared memory: the queries, then a tile of keys and one of values per stage.
  static void run(const T* q, const T* k, const T* v, T* y, float* lse, const AttentionOperands& operands,
                  char* shared) {
    const Place at(blockIdx.x);
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * (16 * kTall), first = at.tile * kQueries;
    const AttentionMask<A> mask(operands, at.b);
    const AttentionDropout<A> dropout(operands, at.b, at.head);
    const int end_query = first + kQueries < A::kT ? first + kQueries : A::kT;
    const int begin = mask.first_key(first) / S::kKeys;
    const int end = (mask.end_key(end_query - 1) + S::kKeys - 1) / S::kKeys;
    const int key_head = at.head / (A::kH / A::kG);
    const T* const keys = k + int64_t(at.b) * A::kS * A::kLeadK + key_head * A::kE;
    const T* const values = v + int64_t(at.b) * A::kS * A::kLeadV + key_head * A::kF;
    T* const tile_q = reinterpret_cast<T*>(shared);
    T* const stages = tile_q + Queries::kSize;
    const auto fetch = [&](int tile) {
      T* const to = stages + tile % S::kStages * kStage;
      Keys::template fetch<kThreads>(to, keys, A::kLeadK, tile * S::kKeys, mask.end);
      Values::template fetch<kThreads>(to + Keys::kSize, values, A::kLeadV, tile * S::kKeys, mask.end);
    };
    Queries::template fetch<kThreads>(tile_q, q + int64_t(at.b) * A::kT * A::kLeadQ + at.head * A::kE, A::kLeadQ, first,
                                      A::kT);
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (begin + s < end) fetch(begin + s);
      commit();
    }
    typename Machine::template Rows<Queries, kTall, S::kHold> queries(tile_q, warp_row, lane);
    if constexpr (S::kHold) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      queries.hold();
    }
    Softmax softmax;
    const int row = first + warp_row + lane / 4;  // the thread's first query
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      if (tile + S::kStages - 1 < end) fetch(tile + S::kStages - 1);
      commit();
      const int key = tile * S::kKeys;
      const auto sees = mask.sees(first + warp_row, first + warp_row + 16 * kTall, key, key + S::kKeys);
      if (sees == mask.none) continue;
      const T* const stage = stages + tile % S::kStages * kStage;
      typename Softmax::Scores scores;
      typename Softmax::Factors by;
      Machine::template set_rows<Keys>(scores, queries, stage);
      Softmax::hide(scores, mask, sees == mask.some, row, key + lane % 4 * 2);
      softmax.weigh(scores, by);
      if (Softmax::rescales(by)) softmax.rescale(by);
      Softmax::drop(scores, dropout, row, key + lane % 4 * 2);
      Machine::template add_scores<Values>(softmax.values, typename Machine::template Packed<decltype(scores)>(scores),
                                           stage + Keys::kSize);
    }
    softmax.finish(y + (int64_t(at.b) * A::kT * A::kH + at.head) * A::kF,
                   lse + (int64_t(at.b) * A::kH + at.head) * A::kT, row);
  }
};

}  // namespace lockstep
