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
    // Without branches, which would keep the compiler from leaving products in flight. There are no rows from `end` on.
    const auto fetch = [&](int tile) {
      const int before = tile > begin ? tile - 1 : begin;
      Keys::template fetch<kThreads>(tile_k(tile), keys, A::kLeadK, tile * S::kKeys, tile < end ? mask.end : 0);
      Values::template fetch<kThreads>(tile_v(before), values, A::kLeadV, before * S::kKeys,
                                       tile <= end ? mask.end : 0);
      commit();
    };
    Queries::template fetch<kThreads>(tile_q, q + int64_t(at.b) * A::kT * A::kLeadQ + at.head * A::kE, A::kLeadQ, first,
                                      A::kT);
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) fetch(begin + s);
    const typename Machine::template Rows<Queries, 1, false> queries(tile_q, warp_row, lane);
    // The tiles of keys that the warpgroup's queries see.
    const int group_row = first + __shfl_sync(~0u, warp_row, 0) / 64 * 64,
              group_end = group_row + 64 < A::kT ? group_row + 64 : A::kT;
    const int own_begin = mask.first_key(group_row) / S::kKeys;
    const int own_end = group_row < A::kT ? (mask.end_key(group_end - 1) + S::kKeys - 1) / S::kKeys : own_begin;
    const int row = first + warp_row + lane / 4;  // the thread's first query
    Softmax softmax;
    Scores scores;
    Packed weights;
    const auto sees_all = [&](int tile) {
      return mask.sees(group_row, group_row + 64, tile * S::kKeys, (tile + 1) * S::kKeys) == mask.all;
    };
    // Makes weights of scores, except for packing them. `some`: some keys of the tile are hidden.
    const auto weigh = [&](int tile, bool some, typename Softmax::Factors& by) {
      const int col = tile * S::kKeys + lane % 4 * 2;
      Softmax::hide(scores, mask, some, row, col);
      softmax.weigh(scores, by);
      Softmax::drop(scores, dropout, row, col);
    };
    // Waits for the copies of a tile of keys, and of the previous tile of values.
    const auto wait_for_tile = [&] {
      wait_for<S::kStages - 2>();
      Machine::publish();
      __syncthreads();
    };
    const auto skip_until = [&](int tile, int to) {
#pragma unroll 1
      for (; tile < to; ++tile) {
        wait_for_tile();
        fetch(tile + S::kStages - 1);
      }
    };
    const bool sees_any = own_begin < own_end;
    skip_until(begin, sees_any ? own_begin : end + 1);
    if (sees_any) {
      typename Softmax::Factors by;
      wait_for_tile();
      Machine::begin(scores);
      Machine::template set_rows<Keys>(scores, queries, tile_k(own_begin));
      Machine::commit();
      fetch(own_begin + S::kStages - 1);
      Machine::template wait_for<0>(scores);
      weigh(own_begin, !sees_all(own_begin), by);
      weights.pack(scores);
      // `some` is a constant: the compiler waits for products in flight before branches.
      const auto advance = [&](int tile, auto some) {
        Machine::begin(scores, softmax.values, weights);
        Machine::template set_rows<Keys>(scores, queries, tile_k(tile));
        Machine::commit();
        Machine::template add_scores<Values>(softmax.values, weights, tile_v(tile - 1));
        Machine::commit();
        fetch(tile + S::kStages - 1);
        Machine::template wait_for<1>(scores);
        weigh(tile, some.kValue, by);
        Machine::settle(scores);
        // The branch also keeps the compiler from waiting for the products before it computes the weights.
        if (Softmax::rescales(by)) {
          Machine::template wait_for<0>(softmax.values);
          softmax.rescale(by);
        }
        Machine::template wait_for<0>(scores, softmax.values, weights);
        weights.pack(scores);
      };
#pragma unroll 1
      for (int tile = own_begin + 1; tile < own_end; ++tile) {
        wait_for_tile();
        if (sees_all(tile))
          advance(tile, Flag<false>{});
        else
          advance(tile, Flag<true>{});
      }
      wait_for_tile();
      Machine::begin(softmax.values, weights);
      Machine::template add_scores<Values>(softmax.values, weights, tile_v(own_end - 1));
      Machine::commit();
      fetch(own_end + S::kStages - 1);
      Machine::template wait_for<0>(softmax.values, weights);
      skip_until(own_end + 1, end + 1);
    }
    softmax.finish(y + (int64_t(at.b) * A::kT * A::kH + at.head) * A::kF,
                   lse + (int64_t(at.b) * A::kH + at.head) * A::kT, row);
  }
};

}  // namespace lockstep
