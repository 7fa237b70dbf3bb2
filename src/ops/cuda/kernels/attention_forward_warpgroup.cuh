// Attention as in attention_forward.cuh, with the products of warpgroups: while a warpgroup computes the weights of a tile
// of keys, the tensor cores multiply the weights of the previous tile by its values.
#pragma once
#include "attention_softmax.cuh"
#include "attention_warpgroup.cuh"

namespace lockstep {

// S describes the thread blocks: kWarps, four per warpgroup of 64 queries; kKeys per tile; kStages of the pipeline that
// copies keys and values; kTogether heads whose keys and values fit the L2 cache.
template <class A, class S>
struct AttentionForwardWarpgroups {
  using T = typename A::T;
  using Machine = AttentionWarpgroups<T>;
  static constexpr int kWide = S::kKeys / 8, kThreads = S::kWarps * 32;
  static constexpr int kQueries = S::kWarps * 16, kTiles = (A::kT + kQueries - 1) / kQueries;
  using Queries = typename Machine::template Tile<A::kE, kQueries>;
  using Keys = typename Machine::template Tile<A::kE, S::kKeys>;
  using Values = typename Machine::template Tile<A::kF, S::kKeys>;
  using Softmax = AttentionSoftmax<A, 1, kWide>;
  using Scores = typename Softmax::Scores;
  using Packed = typename Machine::template Packed<Scores>;
  using Place = AttentionPlace<kTiles, A::kH, A::kB * A::kH, S::kTogether, A::kCausal>;

  // Shared memory: the queries, the stages of keys, and those of values. Keys are copied a tile ahead of values.
  static void run(const T* q, const T* k, const T* v, T* y, float* lse, const AttentionOperands& operands,
                  char* shared) {
    const Place at(blockIdx.x);
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, first = at.tile * kQueries;
    const AttentionMask<A> mask(operands, at.b);
    const AttentionDropout<A> dropout(operands, at.b, at.head);
    const int end_query = first + kQueries < A::kT ? first + kQueries : A::kT;
    const int begin = mask.first_key(first) / S::kKeys;
    const int end = (mask.end_key(end_query - 1) + S::kKeys - 1) / S::kKeys;
    const int key_head = at.head / (A::kH / A::kG);
    const T* const keys = k + int64_t(at.b) * A::kS * A::kLeadK + key_head * A::kE;
    const T* const values = v + int64_t(at.b) * A::kS * A::kLeadV + key_head * A::kF;
    T* const tile_q = reinterpret_cast<T*>(shared);
    T* const stages_k = tile_q + Queries::kSize;
    T* const stages_v = stages_k + S::kStages * Keys::kSize;
    const auto tile_k = [&](int tile) { return stages_k + tile % S::kStages * Keys::kSize; };
    const auto tile_v = [&](int tile) { return stages_v + tile % S::kStages * Values::kSize; };
    const auto fetch = [&](int tile) {
      if (tile < end) Keys::template fetch<kThreads>(tile_k(tile), keys, A::kLeadK, tile * S::kKeys, mask.end);
      if (begin < tile && tile <= end)
        Values::template fetch<kThreads>(tile_v(tile - 1), values, A::kLeadV, (tile - 1) * S::kKeys, mask.end);
      commit();
    };
    Queries::template fetch<kThreads>(tile_q, q + int64_t(at.b) * A::kT * A::kLeadQ + at.head * A::kE, A::kLeadQ, first,
                                      A::kT);
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) fetch(begin + s);
    const typename Machine::template Rows<Queries, 1, false> queries(tile_q, warp_row, lane);
    // The tiles of keys that the warpgroup's queries see.
    const int group_row = first + warp_row / 64 * 64, group_end = group_row + 64 < A::kT ? group_row + 64 : A::kT;
    const int own_begin = mask.first_key(group_row) / S::kKeys;
    const int own_end = group_row < A::kT ? (mask.end_key(group_end - 1) + S::kKeys - 1) / S::kKeys : own_begin;
    const int row = first + warp_row + lane / 4;  // the thread's first query
    Softmax softmax;
    Scores scores;
    Packed weights;
    // Makes weights of scores, except for packing them.
    const auto weigh = [&](int tile, typename Softmax::Factors& by) {
      const int key = tile * S::kKeys;
      const bool whole = mask.sees(group_row, group_row + 64, key, key + S::kKeys) == mask.all;
      Softmax::hide(scores, mask, !whole, row, key + lane % 4 * 2);
      softmax.weigh(scores, by);
      Softmax::drop(scores, dropout, row, key + lane % 4 * 2);
    };
#pragma unroll 1
    for (int tile = begin; tile <= end; ++tile) {
      wait_for<S::kStages - 2>();
      Machine::publish();
      __syncthreads();
      fetch(tile + S::kStages - 1);
      if (own_begin >= own_end || tile < own_begin || tile > own_end) continue;
      typename Softmax::Factors by;
      if (tile == own_begin) {
        Machine::begin();
        Machine::template set_rows<Keys>(scores, queries, tile_k(tile));
        Machine::finish(scores);
        weigh(tile, by);
        weights.pack(scores);
      } else if (tile < own_end) {
        Machine::begin();
        Machine::template set_rows<Keys>(scores, queries, tile_k(tile));
        commit_products();
        Machine::template add_scores<Values>(softmax.values, weights, tile_v(tile - 1));
        commit_products();
        wait_for_products<1>();
        Machine::keep_all(scores);
        weigh(tile, by);
        Machine::finish(softmax.values, weights);
        softmax.rescale(by);
        weights.pack(scores);
      } else {
        Machine::begin();
        Machine::template add_scores<Values>(softmax.values, weights, tile_v(tile - 1));
        Machine::finish(softmax.values, weights);
      }
    }
    softmax.finish(y + (int64_t(at.b) * A::kT * A::kH + at.head) * A::kF, lse + (int64_t(at.b) * A::kH + at.head) * A::kT,
                   row);
  }
};

}  // namespace lockstep
