// What the forward and backward passes of attention share: the matrix products of a tile for each kind of arithmetic,
// which tiles a block of queries needs, and the layout of scratch memory. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/dispatch.h"
#include "lane/cpu/attention.h"
#include "lane/cpu/gemm_tile.h"

namespace lockstep::detail {

inline int64_t attention_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Assigns offsets in the scratch memory of a task.
class ScratchLayout {
 public:
  int64_t add(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ += attention_round_up(bytes, 64);
    return at;
  }
  template <class T>
  int64_t add_elements(int64_t n) {
    return add(n * static_cast<int64_t>(sizeof(T)));
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// Computes the product if it has no multiplication.
template <class Sum>
bool is_empty_product(int64_t rows, int64_t cols, int64_t depth, bool accumulate, Sum* out, int64_t ld) {
  if (depth > 0 && cols > 0) return false;
  for (int64_t r = 0; r < rows && !accumulate; ++r) std::fill_n(out + r * ld, cols, Sum{0});
  return true;
}

// Products by OpenBLAS. 16-bit operands are converted to float first. Other operands are copied if they are used often:
// rows that are far apart would displace each other in the cache.
template <class T>
class BlasProducts {
 public:
  using Sum = detail::Sum<T>;
  using Element = Sum;  // of operands
  // Whether all columns of a tile must be multiplied, even those that no query sees.
  static constexpr bool kWholeTiles = false;

  BlasProducts(const AttentionProblem& p, const HalfKernel*, Pool*, int)
      : round_(p.round), copies_(is_half<T> || p.t >= kManyQueries) {}

  // Whether load() writes to its memory.
  bool copies() const { return copies_; }
  // Memory for load(), right() and tile().
  int64_t loaded_bytes(int64_t rows, int64_t cols) const {
    return copies_ ? rows * cols * static_cast<int64_t>(sizeof(Sum)) : 0;
  }
  int64_t right_bytes(int64_t, int64_t) const { return 0; }
  static int64_t tile_bytes(int64_t, int64_t) { return 0; }

  // A matrix of an operand.
  GemmOperand<Sum> load(const T* from, int64_t ld, int64_t rows, int64_t cols, void* memory) const {
    if constexpr (!is_half<T>) {
      if (!copies_) return {from, ld, false};
    }
    auto* const to = static_cast<Sum*>(memory);
    convert(from, ld, rows, cols, to, cols);
    return {to, cols, false};
  }
  // A loaded matrix [depth, cols] as the right operand of several products.
  Right<Sum> right(const GemmOperand<Sum>& b, int64_t, int64_t, void*) const { return {b}; }
  // A computed matrix, dense, as an operand: rounded to the type of the others.
  GemmOperand<Sum> tile(Sum* data, int64_t rows, int64_t ld, void*) const {
    if constexpr (is_half<T>) {
      const void* const in = data;
      round_(data, &in, rows * ld);
    }
    return {data, ld, false};
  }
  void multiply(const GemmOperand<Sum>& a, const Right<Sum>& b, int64_t rows, int64_t cols, int64_t depth,
                bool accumulate, Sum* out, int64_t ld) const {
    if (is_empty_product(rows, cols, depth, accumulate, out, ld)) return;
    blas_gemm(a.transposed, b.stored.transposed, rows, cols, depth, a.data, a.ld, b.stored.data, b.stored.ld,
              accumulate, out, ld);
  }

 private:
  static constexpr int64_t kManyQueries = 16;

  void (*round_)(void*, const void* const*, int64_t);
  bool copies_;
};

// Products of 16-bit floats by a kernel for them.
template <class T>
class HalfProducts {
 public:
  using Sum = float;
  using Element = T;
  static constexpr bool kWholeTiles = true;

  HalfProducts(const AttentionProblem& p, const HalfKernel* kernel, Pool* pool, int thread)
      : kernel_(*kernel), narrow_(p.narrow), pool_(pool), thread_(thread) {}

  bool copies() const { return false; }
  static int64_t loaded_bytes(int64_t, int64_t) { return 0; }
  int64_t right_bytes(int64_t depth, int64_t cols) const { return packed_right_bytes(kernel_, cols, depth); }
  static int64_t tile_bytes(int64_t rows, int64_t ld) { return rows * ld * static_cast<int64_t>(sizeof(T)); }

  GemmOperand<T> load(const T* from, int64_t ld, int64_t, int64_t, void*) const { return {from, ld, false}; }
  Right<T> right(const GemmOperand<T>& b, int64_t depth, int64_t cols, void* memory) const {
    if (cols > 0 && depth > 0) pack_right(kernel_, b, cols, depth, memory);
    return {b, memory};
  }
  GemmOperand<T> tile(float* data, int64_t rows, int64_t ld, void* memory) const {
    const void* const in = data;
    narrow_(memory, &in, rows * ld);
    return {static_cast<const T*>(memory), ld, false};
  }
  void multiply(const GemmOperand<T>& a, const Right<T>& b, int64_t rows, int64_t cols, int64_t depth, bool accumulate,
                float* out, int64_t ld) const {
    if (is_empty_product(rows, cols, depth, accumulate, out, ld)) return;
    multiply_half<T>(kernel_, *pool_, thread_, a, b, rows, cols, depth,
                     {.sums = out, .ld = ld, .accumulate = accumulate});
  }

 private:
  const HalfKernel& kernel_;
  void (*narrow_)(void*, const void* const*, int64_t);
  Pool* pool_;
  int thread_;
};

// f.template operator()<T, Products>() with the type of the operands and how they are multiplied.
template <class F>
void with_products(const AttentionProblem& p, const HalfKernel* kernel, F&& f) {
  with_dtype(p.dtype, [&]<class T>() {
    if constexpr (is_half<T>) {
      if (kernel) return f.template operator()<T, HalfProducts<T>>();
    }
    if constexpr (is_half<T> || std::is_floating_point_v<T>) f.template operator()<T, BlasProducts<T>>();
  });
}

inline const AttentionTileLoops<float>& tile_loops(const AttentionLoops& loops, float) { return loops.f32; }
inline const AttentionTileLoops<double>& tile_loops(const AttentionLoops& loops, double) { return loops.f64; }

// From one row of a tile to the next. An odd number of cache lines distributes the rows over all sets of the cache.
inline int64_t tile_stride(const AttentionProblem& p) {
  const int64_t width = attention_round_up(std::min(kAttentionKeys, p.s), kAttentionPad);
  return width / kAttentionPad % 2 == 0 ? width + kAttentionPad : width;
}

struct KeyRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// The keys that at least one of `rows` queries from `query` on sees, apart from segments.
inline KeyRange visible_keys(const AttentionProblem& p, const AttentionOperands& in, int64_t example, int64_t query,
                             int64_t rows) {
  const int64_t position = query + p.first[2] + (in.offset ? *in.offset : 0);
  KeyRange keys{0, p.s};
  if (in.lengths) keys.end = std::min<int64_t>(keys.end, in.lengths[example]);
  if (p.causal) keys.end = std::min(keys.end, position + rows);
  if (p.window > 0) keys.begin = std::max<int64_t>(0, position - p.window + 1);
  return keys.empty() ? KeyRange{} : keys;
}

// The part of a tile that does not depend on its keys.
template <class T>
AttentionTile<T> query_tile(const AttentionProblem& p, const AttentionOperands& in, int64_t example, int64_t head,
                            int64_t query, int64_t rows, int64_t row_step) {
  AttentionTile<T> tile{.rows = rows,
                        .causal = p.causal,
                        .window = p.window,
                        .row_step = row_step,
                        .scale = static_cast<T>(p.scale),
                        .softcap = static_cast<T>(p.softcap),
                        .example = static_cast<uint32_t>(example + p.first[0]),
                        .head = static_cast<uint32_t>(head + p.first[1]),
                        .query = static_cast<uint32_t>(query + p.first[2])};
  if (in.query_segments) tile.query_segments = in.query_segments + example * p.t + query;
  if (in.dropout_key) tile.dropout = {{in.dropout_key[0], in.dropout_key[1]}, p.dropout_threshold, p.dropout_kept};
  return tile;
}

// Moves the tile to the keys from `key` on, of which the first `keys` are visible and `extent` are multiplied.
template <class T>
void move_to_keys(AttentionTile<T>& tile, const AttentionProblem& p, const AttentionOperands& in, int64_t example,
                  int64_t key, int64_t keys, int64_t extent) {
  const int64_t query = static_cast<int64_t>(tile.query) + (in.offset ? *in.offset : 0);
  tile.position = query - key;
  tile.keys = keys;
  tile.width = attention_round_up(extent, kAttentionPad);
  tile.first_key = static_cast<uint32_t>(key);
  if (in.key_segments) tile.key_segments = in.key_segments + example * p.s + key;
}

}  // namespace lockstep::detail
