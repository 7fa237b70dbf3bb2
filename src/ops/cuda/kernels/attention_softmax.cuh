// The softmax of attention while tiles of keys go by: what a thread keeps of its queries.
//
// The sums of weighted values are relative to the largest score so far (`most`), as weights
// exp2((score - most) * unit). If a later score exceeds `most` by more than kSlack, the sums are rescaled. A smaller
// excess only makes weights larger, up to 2^8, which the final division by their sum undoes.
#pragma once
#include "attention.cuh"

namespace lockstep {

// kTall fragments of 16 queries per warp, kWide fragments of 8 keys per tile.
template <class A, int kTall, int kWide>
struct AttentionSoftmax {
  using Score = AttentionScore<A>;
  using Values = AttentionFeatures<typename A::T, A::kF>;
  using Scores = float[kTall][kWide][4];
  using Factors = float[kTall][2];  // of the rows of a thread
  static constexpr float kSlack = 8 / Score::kUnit;

  float most[kTall][2], sum[kTall][2];  // what weights are relative to; the thread's part of their sum
  float values[kTall][Values::kPadded / 8][4] = {};

  AttentionSoftmax() {
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) most[r / 2][r % 2] = kAttentionHidden, sum[r / 2][r % 2] = 0;
  }

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

  // Makes weights of scores and adds them up. Returns the factors by which the earlier sums of values are to be rescaled.
  void weigh(Scores& scores, Factors& by) {
    float zero[kTall][2];  // in the units of exponents
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float highest = highest_of(scores[i], half);
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
        const bool rises = highest > most[i][half] + kSlack;
        // Without a branch: the compiler would wait for products in flight before it.
        by[i][half] = approx_exp2(rises ? (most[i][half] - highest) * Score::kUnit : 0.0f);
        most[i][half] = rises ? highest : most[i][half];
        // Nothing seen yet: all scores are hidden.
        zero[i][half] = most[i][half] == kAttentionHidden ? 0.0f : most[i][half] * Score::kUnit;
      }
#pragma unroll
    for (int i = 0; i < kTall; ++i) {
      float parts[2][2] = {};
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[i][j][e] = approx_exp2(__fmaf_rn(scores[i][j][e], Score::kUnit, -zero[i][e / 2]));
          parts[e / 2][e % 2] += scores[i][j][e];
        }
#pragma unroll
      for (int half = 0; half < 2; ++half)
        sum[i][half] = __fmaf_rn(sum[i][half], by[i][half], parts[half][0] + parts[half][1]);
    }
  }
  // Whether a thread of the warp has to rescale its sums.
  static bool rescales(const Factors& by) {
    bool out = false;
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) out = out || by[r / 2][r % 2] != 1;
    return __any_sync(~0u, out);
  }
  void rescale(const Factors& by) {
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (auto& fragment : values[i])
#pragma unroll
        for (int e = 0; e < 4; ++e) fragment[e] *= by[i][e / 2];
  }

  static float highest_of(const float (&scores)[kWide][4], int half) {
    float parts[2] = {kAttentionHidden, kAttentionHidden};
#pragma unroll
    for (int j = 0; j < kWide; ++j)
      parts[j % 2] = fmaxf(parts[j % 2], fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
    return fmaxf(parts[0], parts[1]);
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
  void finish(typename A::T* y, float* lse, int row) const {
    float by[kTall][2];
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float all = sum[i][half];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        by[i][half] = all == 0 ? 0.0f : A::kKeep / all;  // 0: it sees no key
        const int query = row + i * 16 + half * 8;
        if (threadIdx.x % 4 == 0 && query < A::kT)
          lse[query] = all == 0 ? kAttentionHidden : most[i][half] * (Score::kUnit * kLn2) + math::log(all);
      }
    Values::store(values, y, A::kH * A::kF, row, A::kT, [&](int i, int half) { return by[i][half]; });
  }
};

}  // namespace lockstep
