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

// Per query: lse in the units of exponents (0 if the query sees no key) and delta, [2, b, h, t]. Several lanes per query
// and head.
template <class A, int kThreads>
struct AttentionRowSums {
  using T = typename A::T;
  static constexpr int kEach = A::kF % (16 / int(sizeof(T))) == 0 ? 16 / int(sizeof(T)) : 1;
  static constexpr int lanes_for(int pieces) {
    int lanes = 1;
    while (lanes < pieces && lanes < 32) lanes *= 2;
    return lanes;
  }
  static constexpr int kLanes = lanes_for((A::kF + kEach - 1) / kEach), kRowsPerBlock = kThreads / kLanes;

  // dlse: null if zero.
  static void run(const T* y, const T* dy, const float* lse, const float* dlse, float* out) {
    constexpr int64_t kRows = int64_t(A::kB) * A::kT * A::kH;
    const int64_t row = int64_t(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanes;  // of [b, t, h]
    const int lane = threadIdx.x % kLanes;
    float sum = 0;
    if (row < kRows)
      for (int at = lane * kEach; at < A::kF; at += kLanes * kEach) {
        const auto a = *reinterpret_cast<const Side<T, kEach>*>(y + row * A::kF + at);
        const auto b = *reinterpret_cast<const Side<T, kEach>*>(dy + row * A::kF + at);
#pragma unroll
        for (int e = 0; e < kEach; ++e) sum += load(a.v[e]) * load(b.v[e]);
      }
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    if (row >= kRows || lane > 0) return;
    const int64_t to = (row / (int64_t(A::kT) * A::kH) * A::kH + row % A::kH) * A::kT + row / A::kH % A::kT;
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

  // The same in two steps, between which the products of dy and values may be computed. Without dropout and softcap.
  static constexpr bool kInSteps = A::kDropout == 0 && !AttentionScore<A>::kCapped;
  template <int kWide, class OfQuery>
  static void weigh(float (&w)[1][kWide][4], const AttentionMask<A>& mask, bool some, int row, int col,
                    const OfQuery& of_query) {
    using Score = AttentionScore<A>;
#pragma unroll
    for (int j = 0; j < kWide; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        w[0][j][e] = approx_exp2(__fmaf_rn(Score::of(w[0][j][e]), Score::kUnit, -of_query(0, j, e).x));
    if (!some) return;
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const int across = col + j * 8;
      const uint32_t seen = mask.template seen<kKeysDown>(kKeysDown ? across : row, kKeysDown ? row : across);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!(seen >> e & 1)) w[0][j][e] = 0;
    }
  }
  template <int kWide, class OfQuery>
  static void make_dscores(float (&dscore)[1][kWide][4], const float (&w)[1][kWide][4], const OfQuery& of_query) {
#pragma unroll
    for (int j = 0; j < kWide; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) dscore[0][j][e] = w[0][j][e] * (dscore[0][j][e] - of_query(0, j, e).y);
  }
};

// dk and dv. S describes the thread blocks: Machine, AttentionWarps or AttentionWarpgroups; kWarps; kTall, fragments of 16
// keys per warp; kQueries per tile; kStages of the pipeline that copies queries and dy; kDk and kDv, which gradients to
// compute; kTogether heads of keys.
template <class A, class S>
struct AttentionKeysGrad {
  using T = typename A::T;
  using Machine = typename S::Machine;
  static constexpr int kTall = S::kTall, kWide = S::kQueries / 8, kThreads = S::kWarps * 32;
  static constexpr int kKeys = S::kWarps * kTall * 16, kTiles = (A::kS + kKeys - 1) / kKeys, kPer = A::kH / A::kG;
  using Keys = typename Machine::template Tile<A::kE, kKeys>;
  using Values = typename Machine::template Tile<A::kF, kKeys>;
  using Queries = typename Machine::template Tile<A::kE, S::kQueries>;
  using Dy = typename Machine::template Tile<A::kF, S::kQueries>;
  static constexpr int kStage = Queries::kSize + Dy::kSize, kSizeV = S::kDk ? Values::kSize : 0;
  using RowsK = typename Machine::template Rows<Keys, kTall, false>;
  using RowsV = typename Machine::template Rows<Values, kTall, false>;
  using Place = AttentionPlace<kTiles, A::kG, A::kB * A::kG, S::kTogether, false>;

  struct Sums {
    float dk[S::kDk ? kTall : 1][S::kDk ? Keys::kPadded / 8 : 1][4];
    float dv[S::kDv ? kTall : 1][S::kDv ? Values::kPadded / 8 : 1][4];
  };

  // Shared memory: keys, values if needed, stages of queries and dy, and stages of the f32 of AttentionRowSums.
  static void run(const T* q, const T* k, const T* v, const T* dy, const float* rows, T* dk, T* dv,
                  const AttentionOperands& operands, char* shared) {
    const Place at(blockIdx.x);
    const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * (16 * kTall), first = at.tile * kKeys;
    constexpr int kRowsTogether = Machine::rows_together(kTall);
    const int group_key = first + warp_key / kRowsTogether * kRowsTogether;
    const AttentionMask<A> mask(operands, at.b);
    const int end_key = first + kKeys < mask.end ? first + kKeys : mask.end;
    const int begin = mask.first_query(first) / S::kQueries;
    const int end = first < end_key ? (mask.end_query(end_key) + S::kQueries - 1) / S::kQueries : 0;
    const int tiles = end > begin ? end - begin : 0, steps = tiles * kPer;  // the group's heads, one after the other
    T* const tile_k = reinterpret_cast<T*>(shared);
    T* const tile_v = tile_k + Keys::kSize;
    T* const stages = tile_v + kSizeV;
    float* const stages_rows = reinterpret_cast<float*>(stages + S::kStages * kStage);
    const int64_t from = int64_t(at.b) * A::kS;
    Keys::template fetch<kThreads>(tile_k, k + from * A::kLeadK + at.head * A::kE, A::kLeadK, first, mask.end);
    if constexpr (S::kDk)
      Values::template fetch<kThreads>(tile_v, v + from * A::kLeadV + at.head * A::kF, A::kLeadV, first, mask.end);
    const auto head_of = [&](int step) { return at.head * kPer + (kPer > 1 && tiles > 0 ? step / tiles : 0); };
    const auto query_of = [&](int step) {
      return (begin + (kPer > 1 && tiles > 0 ? step % tiles : step)) * S::kQueries;
    };
    const auto fetch = [&](int step) {
      T* const to = stages + step % S::kStages * kStage;
      const int query = query_of(step), end_query = step < steps ? A::kT : 0;
      fetch_queries(to, q, dy, at.b, head_of(step), query, end_query);
      fetch_rows(stages_rows + step % S::kStages * (2 * S::kQueries), rows, at.b, head_of(step), query, end_query);
      commit();
    };
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) fetch(s);
    const RowsK rows_k(tile_k, warp_key, lane);
    const RowsV rows_v(tile_v, warp_key, lane);
    Sums sums = {};
    const int row = first + warp_key + lane / 4;  // the thread's first key
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for<S::kStages - 2>();
      Machine::publish();
      __syncthreads();
      const auto fetch_next = [&] { fetch(step + S::kStages - 1); };
      const int query = query_of(step);
      const auto sees = mask.sees(query, query + S::kQueries, group_key, group_key + kRowsTogether);
      if (sees == mask.none || !Machine::kInBackground) fetch_next();
      if (sees == mask.none) continue;
      const AttentionDropout<A> dropout(operands, at.b, head_of(step));
      const auto add_tile = [&](auto some) {
        add<some.kValue>(sums, rows_k, rows_v, stages + step % S::kStages * kStage,
                         stages_rows + step % S::kStages * (2 * S::kQueries), mask, dropout, row, query, fetch_next);
      };
      if (sees == mask.some)
        add_tile(Flag<true>{});
      else
        add_tile(Flag<false>{});
    }
    if constexpr (S::kDk)
      Keys::store(sums.dk, dk + from * A::kLeadDk + at.head * A::kE, A::kLeadDk, row, A::kS,
                  [](int, int) { return A::kScale; });
    if constexpr (S::kDv)
      Values::store(sums.dv, dv + from * A::kLeadDv + at.head * A::kF, A::kLeadDv, row, A::kS,
                    [](int, int) { return A::kKeep; });
  }

 private:
  static void fetch_queries(T* to, const T* q, const T* dy, int b, int head, int query, int end) {
    const int64_t from = int64_t(b) * A::kT;
    Queries::template fetch<kThreads>(to, q + from * A::kLeadQ + head * A::kE, A::kLeadQ, query, end);
    Dy::template fetch<kThreads>(to + Queries::kSize, dy + (from * A::kH + head) * A::kF, A::kH * A::kF, query, end);
  }
  static void fetch_rows(float* to, const float* rows, int b, int head, int query, int end) {
    constexpr int kAll = 2 * S::kQueries;
#pragma unroll
    for (int u = 0; u < kAll; u += kThreads) {
      const int i = u + threadIdx.x, row = query + i % S::kQueries;
      if (kAll % kThreads != 0 && i >= kAll) break;
      copy_async<4>(to + i, rows + (int64_t(i / S::kQueries * A::kB + b) * A::kH + head) * A::kT + row, row < end);
    }
  }

  // Adds the contributions of a tile of queries. `of_row`: lse and delta of the queries. `row`: the thread's first key.
  // kSome: some keys are hidden. `meanwhile` is called while products are computed in the background.
  template <bool kSome, class Meanwhile>
  static void add(Sums& sums, const RowsK& rows_k, const RowsV& rows_v, const T* tile_q, const float* of_row,
                  const AttentionMask<A>& mask, const AttentionDropout<A>& dropout, int row, int query,
                  const Meanwhile& meanwhile) {
    using Scores = float[kTall][kWide][4];
    using Packed = typename Machine::template Packed<Scores>;
    using Weights = AttentionWeights<A, true>;
    Scores w, dscore = {};
    const T* const tile_dy = tile_q + Queries::kSize;
    const int column = threadIdx.x % 4 * 2;
    const auto of_query = [&](int, int j, int e) {
      const float2 lse = *reinterpret_cast<const float2*>(of_row + column + j * 8);
      const float2 delta = *reinterpret_cast<const float2*>(of_row + S::kQueries + column + j * 8);
      return e % 2 ? make_float2(lse.y, delta.y) : make_float2(lse.x, delta.x);
    };
    // Two steps need more registers: with many thread blocks per multiprocessor, others multiply meanwhile anyway.
    if constexpr (Machine::kInBackground && Weights::kInSteps && Keys::kPadded + Values::kPadded > 128) {
      Machine::begin();
      Machine::template set_rows<Queries>(w, rows_k, tile_q);
      Machine::commit();
      Machine::template set_rows<Dy>(dscore, rows_v, tile_dy);
      Machine::commit();
      meanwhile();
      Machine::template wait_for<1>(w);
      Weights::weigh(w, mask, kSome, row, query + column, of_query);
      Packed weights(w);
      Machine::begin(weights);
      Machine::template add_scores<Dy>(sums.dv, weights, tile_dy);
      Machine::commit();
      Machine::template wait_for<1>(dscore);
      Weights::make_dscores(dscore, w, of_query);
      Packed dscores(dscore);
      Machine::begin(dscores);
      Machine::template add_scores<Queries>(sums.dk, dscores, tile_q);
      Machine::commit();
      Machine::template wait_for<0>(sums.dv, sums.dk, weights, dscores);
    } else {
      Machine::begin();
      Machine::template set_rows<Queries>(w, rows_k, tile_q);
      if constexpr (S::kDk) Machine::template set_rows<Dy>(dscore, rows_v, tile_dy);
      Machine::commit();
      if constexpr (Machine::kInBackground) meanwhile();
      Machine::template wait_for<0>(w, dscore);
      Weights::compute(w, dscore, mask, kSome, dropout, row, query + column, of_query);
      Packed weights(w), dscores(dscore);
      Machine::begin(weights, dscores);
      if constexpr (S::kDv) Machine::template add_scores<Dy>(sums.dv, weights, tile_dy);
      if constexpr (S::kDk) Machine::template add_scores<Queries>(sums.dk, dscores, tile_q);
      Machine::commit();
      Machine::template wait_for<0>(sums.dv, sums.dk, weights, dscores);
    }
  }
};

// dq. S describes the thread blocks as that of AttentionForward, and has a Machine.
template <class A, class S>
struct AttentionQueriesGrad {
  using T = typename A::T;
  using Machine = typename S::Machine;
  static constexpr int kTall = S::kTall, kWide = S::kKeys / 8, kThreads = S::kWarps * 32;
  static constexpr int kQueries = S::kWarps * kTall * 16, kTiles = (A::kT + kQueries - 1) / kQueries;
  using Queries = typename Machine::template Tile<A::kE, kQueries>;
  using Dy = typename Machine::template Tile<A::kF, kQueries>;
  using Keys = typename Machine::template Tile<A::kE, S::kKeys>;
  using Values = typename Machine::template Tile<A::kF, S::kKeys>;
  static constexpr int kStage = Keys::kSize + Values::kSize;
  using Place = AttentionPlace<kTiles, A::kH, A::kB * A::kH, S::kTogether, A::kCausal>;

  // Shared memory: queries, dy, and stages of keys and values.
  static void run(const T* q, const T* k, const T* v, const T* dy, const float* rows, T* dq,
                  const AttentionOperands& operands, char* shared) {
    const Place at(blockIdx.x);
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * (16 * kTall), first = at.tile * kQueries;
    constexpr int kRowsTogether = Machine::rows_together(kTall);
    const int group_row = first + warp_row / kRowsTogether * kRowsTogether;
    const AttentionMask<A> mask(operands, at.b);
    const AttentionDropout<A> dropout(operands, at.b, at.head);
    const int end_query = first + kQueries < A::kT ? first + kQueries : A::kT;
    const int begin = mask.first_key(first) / S::kKeys;
    const int end = (mask.end_key(end_query - 1) + S::kKeys - 1) / S::kKeys;
    T* const tile_q = reinterpret_cast<T*>(shared);
    T* const tile_dy = tile_q + Queries::kSize;
    T* const stages = tile_dy + Dy::kSize;
    const int64_t from_q = int64_t(at.b) * A::kT, from_k = int64_t(at.b) * A::kS;
    const int key_head = at.head / (A::kH / A::kG);
    const T* const keys = k + from_k * A::kLeadK + key_head * A::kE;
    const T* const values = v + from_k * A::kLeadV + key_head * A::kF;
    Queries::template fetch<kThreads>(tile_q, q + from_q * A::kLeadQ + at.head * A::kE, A::kLeadQ, first, A::kT);
    Dy::template fetch<kThreads>(tile_dy, dy + (from_q * A::kH + at.head) * A::kF, A::kH * A::kF, first, A::kT);
    const auto fetch = [&](int tile) {
      T* const to = stages + tile % S::kStages * kStage;
      const int end_key = tile < end ? mask.end : 0;
      Keys::template fetch<kThreads>(to, keys, A::kLeadK, tile * S::kKeys, end_key);
      Values::template fetch<kThreads>(to + Keys::kSize, values, A::kLeadV, tile * S::kKeys, end_key);
      commit();
    };
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) fetch(begin + s);
    const int row = first + warp_row + lane / 4;  // the thread's first query
    float2 of_row[kTall][2];
    read_rows(of_row, rows + (int64_t(at.b) * A::kH + at.head) * A::kT, row);
    typename Machine::template Rows<Queries, kTall, S::kHold> rows_q(tile_q, warp_row, lane);
    typename Machine::template Rows<Dy, kTall, S::kHold> rows_dy(tile_dy, warp_row, lane);
    if constexpr (S::kHold) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      rows_q.hold();
      rows_dy.hold();
    }
    float dq_sums[kTall][Queries::kPadded / 8][4] = {};
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile) {
      wait_for<S::kStages - 2>();
      Machine::publish();
      __syncthreads();
      const auto fetch_next = [&] { fetch(tile + S::kStages - 1); };
      const int key = tile * S::kKeys;
      const auto sees = mask.sees(group_row, group_row + kRowsTogether, key, key + S::kKeys);
      if (sees == mask.none || !Machine::kInBackground) fetch_next();
      if (sees == mask.none) continue;
      const T* const stage = stages + tile % S::kStages * kStage;
      const auto add_tile = [&](auto some) {
        using Scores = float[kTall][kWide][4];
        using Weights = AttentionWeights<A, false>;
        Scores w, dscore;
        const auto of_query = [&](int i, int, int e) { return of_row[i][e / 2]; };
        const int col = key + lane % 4 * 2;
        if constexpr (Machine::kInBackground && Weights::kInSteps) {
          Machine::begin();
          Machine::template set_rows<Keys>(w, rows_q, stage);
          Machine::commit();
          Machine::template set_rows<Values>(dscore, rows_dy, stage + Keys::kSize);
          Machine::commit();
          fetch_next();
          Machine::template wait_for<1>(w);
          Weights::weigh(w, mask, some.kValue, row, col, of_query);
          Machine::settle(w);
          Machine::template wait_for<0>(dscore);
          Weights::make_dscores(dscore, w, of_query);
        } else {
          Machine::begin();
          Machine::template set_rows<Keys>(w, rows_q, stage);
          Machine::template set_rows<Values>(dscore, rows_dy, stage + Keys::kSize);
          Machine::commit();
          if constexpr (Machine::kInBackground) fetch_next();
          Machine::template wait_for<0>(w, dscore);
          Weights::compute(w, dscore, mask, some.kValue, dropout, row, col, of_query);
        }
        typename Machine::template Packed<Scores> dscores(dscore);
        Machine::begin(dscores);
        Machine::template add_scores<Keys>(dq_sums, dscores, stage);
        Machine::commit();
        Machine::template wait_for<0>(dq_sums, dscores);
      };
      if (sees == mask.some)
        add_tile(Flag<true>{});
      else
        add_tile(Flag<false>{});
    }
    Queries::store(dq_sums, dq + from_q * A::kLeadDq + at.head * A::kE, A::kLeadDq, row, A::kT,
                   [](int, int) { return A::kScale; });
  }

 private:
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
