// Attention: y = softmax(scores) v and the logarithm of the sum of exponentials, without the matrix of scores in memory.
//
// A thread block has a tile of the queries of a head and walks along the keys, a tile at a time. Each warp has 16 or 32
// queries. It keeps their sums of weighted values in registers, relative to the largest score so far (`most`), as weights
// exp2((score - most) * unit). If a later score exceeds `most` by more than kSlack, the sums are rescaled. A smaller
// excess only makes weights larger, up to 2^8, which the final division by their sum undoes.
#pragma once
#include "attention.cuh"

namespace lockstep {

// A as in attention.cuh. S describes the thread blocks: kWarps; kTall, fragments of 16 queries per warp; kKeys per tile;
// kStages of the pipeline that copies keys and values; kHold, whether queries stay in registers; kTogether heads whose
// keys and values fit the L2 cache.
template <class A, class S>
struct AttentionForward {
  using T = typename A::T;
  using Product = AttentionProduct<T, A::kFull>;
  using Score = AttentionScore<A>;
  using Keys = AttentionTile<T, A::kE>;
  using Values = AttentionTile<T, A::kF>;
  static constexpr int kTall = S::kTall, kWide = S::kKeys / 8, kThreads = S::kWarps * 32;
  static constexpr int kQueries = S::kWarps * kTall * 16, kTiles = (A::kT + kQueries - 1) / kQueries;
  static constexpr int kDepth = Keys::kPadded / Product::kDeep;
  // Elements of shared memory: the queries, then a tile of keys and one of values per stage.
  static constexpr int kSizeQ = kQueries * Keys::kStep, kSizeK = S::kKeys * Keys::kStep;
  static constexpr int kStage = kSizeK + S::kKeys * Values::kStep;
  static constexpr float kSlack = 8 / Score::kUnit;
  using Place = AttentionPlace<kTiles, A::kH, A::kB * A::kH, S::kTogether, A::kCausal>;
  using Scores = float[kTall][kWide][4];

  // Of the rows of a thread: the score that weights are relative to, the thread's part of their sum, and the sum of
  // weighted values.
  struct Rows {
    float most[kTall][2], sum[kTall][2];
    float values[kTall][Values::kPadded / 8][4];
  };

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
    const T* const keys = k + (int64_t(at.b) * A::kS * A::kG + key_head) * A::kE;
    const T* const values = v + (int64_t(at.b) * A::kS * A::kG + key_head) * A::kF;
    T* const tile_q = reinterpret_cast<T*>(shared);
    T* const stages = tile_q + kSizeQ;
    const auto fetch = [&](int tile) {
      T* const to = stages + tile % S::kStages * kStage;
      Keys::template fetch<kThreads, S::kKeys>(to, keys, A::kG * A::kE, tile * S::kKeys, mask.end);
      Values::template fetch<kThreads, S::kKeys>(to + kSizeK, values, A::kG * A::kF, tile * S::kKeys, mask.end);
    };
    Keys::template fetch<kThreads, kQueries>(tile_q, q + (int64_t(at.b) * A::kT * A::kH + at.head) * A::kE,
                                             A::kH * A::kE, first, A::kT);
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (begin + s < end) fetch(begin + s);
      commit();
    }
    AttentionRows<Product, T, kTall, kDepth, Keys::kStep, S::kHold> queries(tile_q, warp_row, lane);
    const T* const lane_k = stages + Product::template lane_rows_b<Keys::kStep>(lane);
    const T* const lane_v = stages + kSizeK + Product::template lane_columns_b<Values::kStep>(lane);
    if constexpr (S::kHold) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      queries.hold();
    }
    Rows rows = {};
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) rows.most[r / 2][r % 2] = kAttentionHidden;
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
      Scores scores = {};
      Product::template multiply_rows<Keys::kPadded, Keys::kStep>(scores, queries, lane_k + tile % S::kStages * kStage);
      hide(scores, mask, sees == mask.some, row, key + lane % 4 * 2);
      weigh(scores, rows);
      drop(scores, dropout, row, key + lane % 4 * 2);
      Product::template multiply_scores<Values::kStep>(rows.values, scores, lane_v + tile % S::kStages * kStage);
    }
    finish(rows, y + (int64_t(at.b) * A::kT * A::kH + at.head) * A::kF, lse + (int64_t(at.b) * A::kH + at.head) * A::kT,
           row);
  }

 private:
  // Makes scores of products. `some`: some are hidden.
  static void hide(Scores& scores, const AttentionMask<A>& mask, bool some, int row, int col) {
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[i][j][e] = Score::of(scores[i][j][e]);
    if (!some) return;
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        const uint32_t seen = mask.template seen<false>(row + i * 16, col + j * 8);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (!(seen >> e & 1)) scores[i][j][e] = kAttentionHidden;
      }
  }

  // Makes weights of scores and adds them up. Rescales what there is if `most` changes.
  static void weigh(Scores& scores, Rows& rows) {
#pragma unroll
    for (int i = 0; i < kTall; ++i) {
      float by[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = kAttentionHidden;
#pragma unroll
        for (int j = 0; j < kWide; ++j) most = fmaxf(most, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        float& now = rows.most[i][half];
        by[half] = 1;
        if (most > now + kSlack) {
          by[half] = approx_exp2((now - most) * Score::kUnit);
          now = most;
        }
      }
      if (by[0] != 1 || by[1] != 1) {
#pragma unroll
        for (int half = 0; half < 2; ++half) rows.sum[i][half] *= by[half];
#pragma unroll
        for (auto& fragment : rows.values[i])
#pragma unroll
          for (int e = 0; e < 4; ++e) fragment[e] *= by[e / 2];
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Nothing seen yet: all scores are hidden.
        const float most = rows.most[i][half] == kAttentionHidden ? 0.0f : rows.most[i][half] * Score::kUnit;
#pragma unroll
        for (int j = 0; j < kWide; ++j)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[i][j][e] = approx_exp2(__fmaf_rn(scores[i][j][e], Score::kUnit, -most));
            rows.sum[i][half] += scores[i][j][e];
          }
      }
    }
  }

  static void drop(Scores& weights, const AttentionDropout<A>& dropout, int row, int col) {
    if constexpr (A::kDropout > 0) {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          const uint32_t kept = dropout.template kept<false>(row + i * 16, col + j * 8);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (!(kept >> e & 1)) weights[i][j][e] = 0;
        }
    }
  }

  // Divides by the sums and writes the results of a head.
  static void finish(Rows& rows, T* y, float* lse, int row) {
    float by[kTall][2];
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = rows.sum[i][half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        by[i][half] = sum == 0 ? 0.0f : A::kKeep / sum;  // 0: it sees no key
        const int query = row + i * 16 + half * 8;
        if (threadIdx.x % 4 == 0 && query < A::kT)
          lse[query] = sum == 0 ? kAttentionHidden : rows.most[i][half] * (Score::kUnit * kLn2) + math::log(sum);
      }
    Values::store(rows.values, y, A::kH * A::kF, row, A::kT, [&](int i, int half) { return by[i][half]; });
  }
};

}  // namespace lockstep
