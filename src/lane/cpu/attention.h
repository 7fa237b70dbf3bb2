// Attention on one CPU lane, tile by tile: a tile of scores, at most kAttentionQueries x kAttentionKeys, becomes
// weights in cache and is multiplied by the values at once. Results do not depend on the number of threads.
//
// Letters: b examples, t queries, h heads of queries, e features of queries and keys, s keys, g heads of keys, f
// features of values. Arrays are dense: q [b, t, h, e], k [b, s, g, e], v [b, s, g, f], y [b, t, h, f], lse [b, h, t].
//
// Plain values, and functions that are safe from any thread.
#pragma once

#include <array>
#include <cstdint>

#include "lane/cpu/gemm_half.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// The extents of a tile. A row of a tile is padded to a multiple of kAttentionPad.
inline constexpr int64_t kAttentionQueries = 64, kAttentionKeys = 128, kAttentionPad = 16;

// Which weights are dropped. A number of 16 bits for each weight comes from threefry with the key `key`, the index of
// the example, the head and the query, and the index of the key divided by 4.
struct AttentionDropout {
  uint32_t key[2] = {0, 0};
  uint32_t threshold = 0;  // numbers below it drop; 0: nothing is dropped
  double kept = 1;         // the factor of other weights
};

// Rows of scores: row r belongs to the query at position `position + r`, where key 0 of the tile is at position 0.
template <class T>
struct AttentionTile {
  T* scores = nullptr;  // [rows, ld]: products of queries and keys
  int64_t rows = 0;
  int64_t keys = 0;   // columns from here on are hidden
  int64_t width = 0;  // columns that are read later: a multiple of kAttentionPad, at least `keys`
  int64_t ld = 0;
  bool causal = false;
  int64_t window = 0;    // 0: none
  int64_t position = 0;  // of the first query
  int64_t row_step = 1;  // in queries: 0 if the rows are heads of one query
  T scale = 1, softcap = 0;
  const int32_t* query_segments = nullptr;  // of the first query and key; null: all are one segment
  const int32_t* key_segments = nullptr;
  AttentionDropout dropout = {};
  uint32_t example = 0, head = 0, query = 0, first_key = 0;  // global indices of the first element; for dropout
};

// Functions on tiles of float or double, compiled for an instruction set.
template <class T>
struct AttentionTileLoops {
  // Replaces scores by exp(score - maximum), zero for hidden keys, after these per-row values of all tiles so far are
  // updated: the maximum of visible scores, and the sum of the weights. Writes the factor by which sums of earlier
  // tiles must be multiplied. Then drops weights.
  void (*softmax)(const AttentionTile<T>& tile, T* maxima, T* sums, T* factors);
  // Replaces scores by the weights exp(score - lse) after dropout, and `dweights` [rows, ld], the gradients of these,
  // by the gradients of the products of queries and keys.
  void (*gradients)(const AttentionTile<T>& tile, T* dweights, const T* lse, const T* delta);
};
struct AttentionLoops {
  AttentionTileLoops<float> f32;
  AttentionTileLoops<double> f64;
};

struct AttentionProblem {
  DType dtype = DType::f32;
  int64_t b = 0, t = 0, h = 0, e = 0, s = 0, g = 0, f = 0;
  bool causal = false;
  int64_t window = 0;
  double scale = 1, softcap = 0;
  uint32_t dropout_threshold = 0;
  double dropout_kept = 1;
  std::array<int64_t, 3> first = {0, 0, 0};  // global index of the first example, head and query
  const AttentionLoops* loops = nullptr;
  // f32 -> the 16-bit dtype; f32 -> f32 rounded to its precision. in[0] is the operand. REQUIRES: set for 16 bits.
  void (*narrow)(void* out, const void* const* in, int64_t n) = nullptr;
  void (*round)(void* out, const void* const* in, int64_t n) = nullptr;
};

// Null operands are absent.
struct AttentionOperands {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  const int32_t *offset = nullptr, *lengths = nullptr, *query_segments = nullptr, *key_segments = nullptr;
  const uint32_t* dropout_key = nullptr;
};
// The further operands of the gradient. y, dy and the results are in the dtype; lse and dlse in f32 (f64 for f64).
struct AttentionGradOperands {
  const void *y = nullptr, *lse = nullptr, *dy = nullptr, *dlse = nullptr;
};

void attention_forward(Pool&, const AttentionProblem&, const HalfKernel*, const AttentionOperands&, void* y, void* lse);

// The bytes of memory that attention_backward() needs.
int64_t attention_backward_bytes(const AttentionProblem&);
void attention_backward(Pool&, const AttentionProblem&, const HalfKernel*, const AttentionOperands&,
                        const AttentionGradOperands&, void* dq, void* dk, void* dv, void* memory);

}  // namespace lockstep
