// The gradients of attention, in three kernels without atomic additions:
//   1. AttentionRowSums: what the others need of each query.
//   2. AttentionKeysGrad: a thread block has a tile of keys and walks along the queries that see them.
//   3. AttentionQueriesGrad: a thread block has a tile of queries and walks along the keys that they see.
//
// With a score s in the units of AttentionScore, its weight w = exp2(s unit - lse) and dw = dy . v:
//   dscore = w (dw - delta), where delta = dy . y - dlse      (times the derivative of s if there is a softcap)
//   dv = sum of w dy,  dk = kScale * sum of dscore q,  dq = kScale * sum of dscore k
// Dropout multiplies w in dv, and dw, by 0 or kKeep. Scores are computed again in both kernels.
#pragma once
#include "attention.cuh"

namespace lockstep {

// Per query: lse in the units of exponents (0 if the query sees no key) and delta, [2, b, h, t]. A warp per query and head.
template <class A, int kThreads>
struct AttentionRowSums {
  using T = typename A::T;
  static constexpr int kEach = A::kF % (16 / int(sizeof(T))) == 0 ? 16 / int(sizeof(T)) : 1;

  // dlse: null if zero.
  static void run(const T* y, const T* dy, const float* lse, const float* dlse, float* out) {
    constexpr int64_t kRows = int64_t(A::kB) * A::kT * A::kH;
    const int64_t row = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;  // of [b, t, h]
    if (row >= kRows) return;
    const int lane = threadIdx.x % 32;
    float sum = 0;
    for (int at = lane * kEach; at < A::kF; at += 32 * kEach) {
      const auto a = *reinterpret_cast<const Side<T, kEach>*>(y + row * A::kF + at);
      const auto b = *reinterpret_cast<const Side<T, kEach>*>(dy + row * A::kF + at);
#pragma unroll
      for (int e = 0; e < kEach; ++e) sum += load(a.v[e]) * load(b.v[e]);
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    const int64_t to = (row / (int64_t(A::kT) * A::kH) * A::kH + row % A::kH) * A::kT + row / A::kH % A::kT;
    if (lane > 0) return;
    out[to] = lse[to] == kAttentionHidden ? 0.0f : lse[to] * kLog2E;
    out[kRows + to] = dlse ? sum - dlse[to] : sum;
  }
};

// Makes weights of the products of queries and keys, and dscores of those of dy and values. `row` and `col`: of the
// thread's first elements. of_query(i, j, e) returns lse and delta of the query of element e of fragment (i, j).
template <class A, bool kKeysDown>
struct AttentionWeights {
  template <int kTall, int kWide, class OfQuery>
  static void compute(float (&w)[kTall][kWide][4], float (&dscore)[kTall][kWide][4], const AttentionMask<A>& mask,
                      bool some, const AttentionDropout<A>& dropout, int row, int col, const OfQuery& of_query) {
    using Score = AttentionScore<A>;
#pragma unroll
    for (int j = 0; j < kWide; ++j)
#pragma unroll
      for (int i = 0; i < kTall; ++i) {
        const int down = row + i * 16, across = col + j * 8;
        const int query = kKeysDown ? across : down, key = kKeysDown ? down : across;
        const uint32_t kept = dropout.template kept<kKeysDown>(query, key);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float2 of = of_query(i, j, e);
          const float score = Score::of(w[i][j][e]), weight = approx_exp2(__fmaf_rn(score, Score::kUnit, -of.x));
          const bool keep = kept >> e & 1;
          const float dw = keep ? dscore[i][j][e] * A::kKeep : 0.0f;
          dscore[i][j][e] = weight * (dw - of.y) * Score::derivative(score);
          w[i][j][e] = keep ? weight : 0.0f;
        }
        if (some) {
          const uint32_t seen = mask.template seen<kKeysDown>(query, key);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (!(seen >> e & 1)) w[i][j][e] = dscore[i][j][e] = 0;
        }
      }
  }
};

// dk and dv. S describes the thread blocks: kWarps; kTall, fragments of 16 keys per warp; kQueries per tile; kStages of the
// pipeline that copies queries and dy; kDk and kDv, which gradients to compute; kTogether heads of keys.
template <class A, class S>
struct AttentionKeysGrad {
  using T = typename A::T;
  using Product = AttentionProduct<T, A::kFull>;
  using TileE = AttentionTile<T, A::kE>;  // of q and k
  using TileF = AttentionTile<T, A::kF>;  // of v and dy
  static constexpr int kTall = S::kTall, kWide = S::kQueries / 8, kThreads = S::kWarps * 32;
  static constexpr int kKeys = S::kWarps * kTall * 16, kTiles = (A::kS + kKeys - 1) / kKeys, kPer = A::kH / A::kG;
  // Elements of shared memory: keys, values if needed, and stages of queries, dy, and the f32 of AttentionRowSums.
  static constexpr int kSizeK = kKeys * TileE::kStep, kSizeV = S::kDk ? kKeys * TileF::kStep : 0;
  static constexpr int kSizeQ = S::kQueries * TileE::kStep, kSizeDy = S::kQueries * TileF::kStep;
  static constexpr int kStage = kSizeQ + kSizeDy + S::kQueries * 2 * 4 / int(sizeof(T));
  static constexpr int kDepthE = TileE::kPadded / Product::kDeep, kDepthF = TileF::kPadded / Product::kDeep;
  using RowsK = AttentionRows<Product, T, kTall, kDepthE, TileE::kStep, false>;
  using RowsV = AttentionRows<Product, T, kTall, kDepthF, TileF::kStep, false>;
  using Place = AttentionPlace<kTiles, A::kG, A::kB * A::kG, S::kTogether, false>;

  struct Sums {
    float dk[S::kDk ? kTall : 1][TileE::kPadded / 8][4], dv[S::kDv ? kTall : 1][TileF::kPadded / 8][4];
  };

  static void run(const T* q, const T* k, const T* v, const T* dy, const float* rows, T* dk, T* dv,
                  const AttentionOperands& operands, char* shared) {
    const Place at(blockIdx.x);
    const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * (16 * kTall), first = at.tile * kKeys;
    const AttentionMask<A> mask(operands, at.b);
    const int end_key = first + kKeys < mask.end ? first + kKeys : mask.end;
    const int begin = mask.first_query(first) / S::kQueries;
    const int end = first < end_key ? (mask.end_query(end_key) + S::kQueries - 1) / S::kQueries : 0;
    const int tiles = end > begin ? end - begin : 0, steps = tiles * kPer;  // the group's heads, one after the other
    T* const tile_k = reinterpret_cast<T*>(shared);
    T* const tile_v = tile_k + kSizeK;
    T* const stages = tile_v + kSizeV;
    const int64_t from_e = (int64_t(at.b) * A::kS * A::kG + at.head) * A::kE;
    const int64_t from_f = (int64_t(at.b) * A::kS * A::kG + at.head) * A::kF;
    TileE::template fetch<kThreads, kKeys>(tile_k, k + from_e, A::kG * A::kE, first, mask.end);
    if constexpr (S::kDk) TileF::template fetch<kThreads, kKeys>(tile_v, v + from_f, A::kG * A::kF, first, mask.end);
    const auto head_of = [&](int step) { return at.head * kPer + (kPer > 1 ? step / tiles : 0); };
    const auto query_of = [&](int step) { return (begin + (kPer > 1 ? step % tiles : step)) * S::kQueries; };
    const auto fetch = [&](int step) {
      fetch_queries(stages + step % S::kStages * kStage, q, dy, rows, at.b, head_of(step), query_of(step));
    };
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < steps) fetch(s);
      commit();
    }
    const RowsK rows_k(tile_k, warp_key, lane);
    const RowsV rows_v(tile_v, warp_key, lane);
    Sums sums = {};
    const int row = first + warp_key + lane / 4;  // the thread's first key
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      if (step + S::kStages - 1 < steps) fetch(step + S::kStages - 1);
      commit();
      const int query = query_of(step);
      const auto sees = mask.sees(query, query + S::kQueries, first + warp_key, first + warp_key + 16 * kTall);
      if (sees == mask.none) continue;
      const AttentionDropout<A> dropout(operands, at.b, head_of(step));
      add(sums, rows_k, rows_v, stages + step % S::kStages * kStage, mask, sees == mask.some, dropout, row, query,
          lane);
    }
    if constexpr (S::kDk)
      TileE::store(sums.dk, dk + from_e, A::kG * A::kE, row, A::kS, [](int, int) { return A::kScale; });
    if constexpr (S::kDv)
      TileF::store(sums.dv, dv + from_f, A::kG * A::kF, row, A::kS, [](int, int) { return A::kKeep; });
  }

 private:
  static void fetch_queries(T* to, const T* q, const T* dy, const float* rows, int b, int head, int query) {
    const int64_t from = int64_t(b) * A::kT * A::kH + head;
    TileE::template fetch<kThreads, S::kQueries>(to, q + from * A::kE, A::kH * A::kE, query, A::kT);
    TileF::template fetch<kThreads, S::kQueries>(to + kSizeQ, dy + from * A::kF, A::kH * A::kF, query, A::kT);
    float* const row = reinterpret_cast<float*>(to + kSizeQ + kSizeDy);
    const float* const lse = rows + (int64_t(b) * A::kH + head) * A::kT;
    const float* const delta = lse + int64_t(A::kB) * A::kH * A::kT;
    if (const int i = threadIdx.x; i < S::kQueries) {
      const bool in = query + i < A::kT;
      copy_async<4>(row + i, in ? lse + query + i : rows, in);
      copy_async<4>(row + S::kQueries + i, in ? delta + query + i : rows, in);
    }
  }

  // Adds the contributions of a tile of queries. `row`: the thread's first key.
  static void add(Sums& sums, const RowsK& rows_k, const RowsV& rows_v, const T* stage, const AttentionMask<A>& mask,
                  bool some, const AttentionDropout<A>& dropout, int row, int query, int lane) {
    float w[kTall][kWide][4] = {}, dscore[kTall][kWide][4] = {};
    const T* const tile_dy = stage + kSizeQ;
    const float* const of_row = reinterpret_cast<const float*>(tile_dy + kSizeDy) + lane % 4 * 2;
    Product::template multiply_rows<TileE::kPadded, TileE::kStep>(
        w, rows_k, stage + Product::template lane_rows_b<TileE::kStep>(lane));
    if constexpr (S::kDk)
      Product::template multiply_rows<TileF::kPadded, TileF::kStep>(
          dscore, rows_v, tile_dy + Product::template lane_rows_b<TileF::kStep>(lane));
    AttentionWeights<A, true>::compute(w, dscore, mask, some, dropout, row, query + lane % 4 * 2,
                                       [&](int, int j, int e) {
                                         const int at = j * 8 + e % 2;
                                         return make_float2(of_row[at], of_row[S::kQueries + at]);
                                       });
    if constexpr (S::kDv)
      Product::template multiply_scores<TileF::kStep>(sums.dv, w,
                                                      tile_dy + Product::template lane_columns_b<TileF::kStep>(lane));
    if constexpr (S::kDk)
      Product::template multiply_scores<TileE::kStep>(sums.dk, dscore,
                                                      stage + Product::template lane_columns_b<TileE::kStep>(lane));
  }
};

// dq. S describes the thread blocks as that of AttentionForward.
template <class A, class S>
struct AttentionQueriesGrad {
  using T = typename A::T;
  using Product = AttentionProduct<T, A::kFull>;
  using TileE = AttentionTile<T, A::kE>;  // of q and k
  using TileF = AttentionTile<T, A::kF>;  // of v and dy
  static constexpr int kTall = S::kTall, kWide = S::kKeys / 8, kThreads = S::kWarps * 32;
  static constexpr int kQueries = S::kWarps * kTall * 16, kTiles = (A::kT + kQueries - 1) / kQueries;
  // Elements of shared memory: queries, dy, and stages of keys and values.
  static constexpr int kSizeQ = kQueries * TileE::kStep, kSizeDy = kQueries * TileF::kStep;
  static constexpr int kSizeK = S::kKeys * TileE::kStep, kStage = kSizeK + S::kKeys * TileF::kStep;
  static constexpr int kDepthE = TileE::kPadded / Product::kDeep, kDepthF = TileF::kPadded / Product::kDeep;
  using Place = AttentionPlace<kTiles, A::kH, A::kB * A::kH, S::kTogether, A::kCausal>;

  static void run(const T* q, const T* k, const T* v, const T* dy, const float* rows, T* dq,
                  const AttentionOperands& operands, char* shared) {
    const Place at(blockIdx.x);
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * (16 * kTall), first = at.tile * kQueries;
    const AttentionMask<A> mask(operands, at.b);
    const AttentionDropout<A> dropout(operands, at.b, at.head);
    const int end_query = first + kQueries < A::kT ? first + kQueries : A::kT;
    const int begin = mask.first_key(first) / S::kKeys;
    const int end = (mask.end_key(end_query - 1) + S::kKeys - 1) / S::kKeys;
    T* const tile_q = reinterpret_cast<T*>(shared);
    T* const tile_dy = tile_q + kSizeQ;
    T* const stages = tile_dy + kSizeDy;
    const int64_t from_q = int64_t(at.b) * A::kT * A::kH + at.head;
    const int64_t from_k = int64_t(at.b) * A::kS * A::kG + at.head / (A::kH / A::kG);
    TileE::template fetch<kThreads, kQueries>(tile_q, q + from_q * A::kE, A::kH * A::kE, first, A::kT);
    TileF::template fetch<kThreads, kQueries>(tile_dy, dy + from_q * A::kF, A::kH * A::kF, first, A::kT);
    const auto fetch = [&](int tile) {
      fetch_keys(stages + tile % S::kStages * kStage, k + from_k * A::kE, v + from_k * A::kF, tile, mask.end);
    };
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (begin + s < end) fetch(begin + s);
      commit();
    }
    const int row = first + warp_row + lane / 4;  // the thread's first query
    float2 of_row[kTall][2];
    read_rows(of_row, rows + (int64_t(at.b) * A::kH + at.head) * A::kT, row);
    AttentionRows<Product, T, kTall, kDepthE, TileE::kStep, S::kHold> rows_q(tile_q, warp_row, lane);
    AttentionRows<Product, T, kTall, kDepthF, TileF::kStep, S::kHold> rows_dy(tile_dy, warp_row, lane);
    const int lane_k = Product::template lane_rows_b<TileE::kStep>(lane);
    const int lane_v = Product::template lane_rows_b<TileF::kStep>(lane);
    const int lane_across = Product::template lane_columns_b<TileE::kStep>(lane);
    if constexpr (S::kHold) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      rows_q.hold();
      rows_dy.hold();
    }
    float dq_sums[kTall][TileE::kPadded / 8][4] = {};
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
      float w[kTall][kWide][4] = {}, dscore[kTall][kWide][4] = {};
      Product::template multiply_rows<TileE::kPadded, TileE::kStep>(w, rows_q, stage + lane_k);
      Product::template multiply_rows<TileF::kPadded, TileF::kStep>(dscore, rows_dy, stage + kSizeK + lane_v);
      AttentionWeights<A, false>::compute(w, dscore, mask, sees == mask.some, dropout, row, key + lane % 4 * 2,
                                          [&](int i, int, int e) { return of_row[i][e / 2]; });
      Product::template multiply_scores<TileE::kStep>(dq_sums, dscore, stage + lane_across);
    }
    TileE::store(dq_sums, dq + from_q * A::kE, A::kH * A::kE, row, A::kT, [](int, int) { return A::kScale; });
  }

 private:
  static void fetch_keys(T* to, const T* k, const T* v, int tile, int end) {
    TileE::template fetch<kThreads, S::kKeys>(to, k, A::kG * A::kE, tile * S::kKeys, end);
    TileF::template fetch<kThreads, S::kKeys>(to + kSizeK, v, A::kG * A::kF, tile * S::kKeys, end);
  }
  // Reads lse and delta of a thread's queries.
  static void read_rows(float2 (&of_row)[kTall][2], const float* lse, int row) {
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = row + i * 16 + half * 8;
        const float* const from = lse + (query < A::kT ? query : 0);
        of_row[i][half] = make_float2(from[0], from[int64_t(A::kB) * A::kH * A::kT]);
      }
  }
};

}  // namespace lockstep
