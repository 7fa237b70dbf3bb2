#include "lane/cpu/attention.h"

#include <cmath>
#include <limits>

#include "lane/cpu/attention_tiles.h"

namespace lockstep {
namespace {

using detail::attention_round_up;

// Scratch of a task of the forward pass, as offsets.
template <class T, class Products>
struct ForwardScratch {
  using W = typename Products::Sum;
  int64_t ld, k_bytes, v_bytes, k_tile_bytes, v_tile_bytes;
  int64_t scores, weights, sums, maxima, row_sums, factors, q, k, v, k_right, v_right, bytes;

  ForwardScratch(const AttentionProblem& p, const Products& products) : ld(detail::tile_stride(p)) {
    const int64_t tiles = (p.s + kAttentionKeys - 1) / kAttentionKeys;
    detail::ScratchLayout layout;
    scores = layout.add_elements<W>(kAttentionQueries * ld);
    weights = layout.add(Products::tile_bytes(kAttentionQueries, ld));
    sums = layout.add_elements<W>(kAttentionQueries * p.f);
    maxima = layout.add_elements<W>(kAttentionQueries);
    row_sums = layout.add_elements<W>(kAttentionQueries);
    factors = layout.add_elements<W>(kAttentionQueries);
    q = layout.add(products.loaded_bytes(kAttentionQueries, p.e));
    k_bytes = products.loaded_bytes(kAttentionKeys, p.e);
    v_bytes = products.loaded_bytes(kAttentionKeys, p.f);
    k_tile_bytes = attention_round_up(products.right_bytes(p.e, kAttentionKeys), 64);
    v_tile_bytes = attention_round_up(products.right_bytes(kAttentionKeys, p.f), 64);
    k = layout.add(tiles * k_bytes);
    v = layout.add(tiles * v_bytes);
    k_right = layout.add(tiles * k_tile_bytes);
    v_right = layout.add(tiles * v_tile_bytes);
    bytes = layout.bytes();
  }
};

// The forward pass of an example and a head of keys, on one thread.
template <class T, class Products>
class ForwardTask {
 public:
  using W = typename Products::Sum;
  using Element = typename Products::Element;

  ForwardTask(const AttentionProblem& p, const AttentionOperands& in, const HalfKernel* kernel, Pool& pool, int thread,
              int64_t example, int64_t key_head)
      : p_(p),
        in_(in),
        products_(p, kernel, &pool, thread),
        at_(p, products_),
        memory_(static_cast<std::byte*>(pool.scratch(thread, at_.bytes))),
        example_(example),
        key_head_(key_head),
        loops_(detail::tile_loops(*p.loops, W())) {}

  // Prepares the keys that the queries of these blocks see.
  void prepare(detail::KeyRange keys) {
    for (int64_t key = keys.begin / kAttentionKeys * kAttentionKeys; key < keys.end; key += kAttentionKeys) {
      const int64_t n = std::min(kAttentionKeys, p_.s - key);
      static_cast<void>(k_right(key, n, true));
      static_cast<void>(v_right(key, n, true));
    }
  }

  // Computes `rows` queries: from `query` on of one head, or one query of `rows` heads.
  void run(int64_t head, int64_t query, int64_t rows, bool heads, T* y, W* lse) {
    W *const scores = memory<W>(at_.scores), *const sums = memory<W>(at_.sums), *const maxima = memory<W>(at_.maxima),
             *const row_sums = memory<W>(at_.row_sums), *const factors = memory<W>(at_.factors);
    std::fill_n(maxima, rows, -std::numeric_limits<W>::infinity());
    std::fill_n(row_sums, rows, W{0});
    const int64_t q_ld = heads ? p_.e : p_.h * p_.e;
    const T* const q = static_cast<const T*>(in_.q) + ((example_ * p_.t + query) * p_.h + head) * p_.e;
    const auto left = products_.load(q, q_ld, rows, p_.e, memory_ + at_.q);
    auto tile = detail::query_tile<W>(p_, in_, example_, head, query, rows, heads ? 0 : 1);
    tile.scores = scores;
    tile.ld = at_.ld;
    const detail::KeyRange keys = detail::visible_keys(p_, in_, example_, query, heads ? 1 : rows);
    bool first = true;
    for (int64_t key = keys.begin / kAttentionKeys * kAttentionKeys; key < keys.end; key += kAttentionKeys) {
      const int64_t whole = std::min(kAttentionKeys, p_.s - key), visible = std::min(whole, keys.end - key);
      const int64_t extent = Products::kWholeTiles ? whole : visible;
      detail::move_to_keys(tile, p_, in_, example_, key, visible, extent);
      products_.multiply(left, k_right(key, whole, false), rows, extent, p_.e, false, scores, at_.ld);
      loops_.softmax(tile, maxima, row_sums, factors);
      if (!first) rescale(sums, factors, rows);
      const auto weights = products_.tile(scores, rows, at_.ld, memory_ + at_.weights);
      products_.multiply(weights, v_right(key, whole, false), rows, p_.f, extent, !first, sums, p_.f);
      first = false;
    }
    if (first) std::fill_n(sums, rows * p_.f, W{0});
    finish(head, query, rows, heads, y, lse);
  }

 private:
  template <class X>
  X* memory(int64_t at) const {
    return reinterpret_cast<X*>(memory_ + at);
  }

  // The tile of keys, transposed, and of values, as right operands. `pack`: now, else they are packed already.
  detail::Right<Element> k_right(int64_t key, int64_t n, bool pack) {
    return right_of(static_cast<const T*>(in_.k), key, n, p_.e, at_.k, at_.k_bytes, at_.k_right, at_.k_tile_bytes, true,
                    pack);
  }
  detail::Right<Element> v_right(int64_t key, int64_t n, bool pack) {
    return right_of(static_cast<const T*>(in_.v), key, n, p_.f, at_.v, at_.v_bytes, at_.v_right, at_.v_tile_bytes,
                    false, pack);
  }
  detail::Right<Element> right_of(const T* array, int64_t key, int64_t n, int64_t features, int64_t loaded,
                                  int64_t loaded_bytes, int64_t packed, int64_t packed_bytes, bool transposed,
                                  bool pack) {
    const int64_t tile = key / kAttentionKeys;
    const T* const from = array + ((example_ * p_.s + key) * p_.g + key_head_) * features;
    std::byte *const wide = memory_ + loaded + tile * loaded_bytes, *const to = memory_ + packed + tile * packed_bytes;
    if (!pack) {
      if constexpr (Products::kWholeTiles) return {.packed = to};
      if (products_.copies()) return {{reinterpret_cast<const Element*>(wide), features, transposed}};
      if constexpr (std::is_same_v<T, Element>) return {{from, p_.g * features, transposed}};
    }
    detail::GemmOperand<Element> matrix = products_.load(from, p_.g * features, n, features, wide);
    matrix.transposed = transposed;
    return transposed ? products_.right(matrix, features, n, to) : products_.right(matrix, n, features, to);
  }

  void rescale(W* sums, const W* factors, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r) {
      if (factors[r] == 1) continue;
      for (int64_t f = 0; f < p_.f; ++f) sums[r * p_.f + f] *= factors[r];
    }
  }

  void finish(int64_t head, int64_t query, int64_t rows, bool heads, T* y, W* lse) const {
    const W *const sums = memory<W>(at_.sums), *const maxima = memory<W>(at_.maxima),
                   *const row_sums = memory<W>(at_.row_sums);
    T* const to = y + ((example_ * p_.t + query) * p_.h + head) * p_.f;
    const int64_t ld = heads ? p_.f : p_.h * p_.f;
    for (int64_t r = 0; r < rows; ++r) {
      const W factor = row_sums[r] == 0 ? W{0} : 1 / row_sums[r];
      for (int64_t f = 0; f < p_.f; ++f) to[r * ld + f] = static_cast<T>(sums[r * p_.f + f] * factor);
      lse[(example_ * p_.h + head) * p_.t + query + r] = maxima[r] + std::log(row_sums[r]);
    }
  }

  const AttentionProblem& p_;
  const AttentionOperands& in_;
  const Products products_;
  const ForwardScratch<T, Products> at_;
  std::byte* const memory_;
  const int64_t example_, key_head_;
  const AttentionTileLoops<W>& loops_;
};

}  // namespace

void attention_forward(Pool& pool, const AttentionProblem& p, const HalfKernel* kernel, const AttentionOperands& in,
                       void* y, void* lse) {
  if (p.b * p.t * p.h == 0) return;
  // Heads that share their keys are the rows of a tile if there is one query of each.
  const int64_t sharing = p.h / p.g;
  const bool heads = p.t == 1;
  const int64_t blocks = ((heads ? sharing : p.t) + kAttentionQueries - 1) / kAttentionQueries;
  const int64_t units = heads ? blocks : sharing * blocks;
  // Few pairs are divided; each part prepares its keys.
  const int64_t pairs = p.b * p.g, wanted = 4 * int64_t{pool.threads()};
  const int64_t parts = std::clamp<int64_t>((wanted + pairs - 1) / pairs, 1, units);
  const int64_t per_part = (units + parts - 1) / parts;
  detail::with_products(p, kernel, [&]<class T, class Products>() {
    using W = typename Products::Sum;
    pool.parallel_for(pairs * parts, [&](int64_t index, int thread) {
      const int64_t pair = index / parts, begin = index % parts * per_part, end = std::min(units, begin + per_part);
      const int64_t example = pair / p.g, key_head = pair % p.g;
      if (begin >= end) return;
      ForwardTask<T, Products> task(p, in, kernel, pool, thread, example, key_head);
      const auto query_of = [&](int64_t unit) { return heads ? 0 : unit % blocks * kAttentionQueries; };
      const auto rows_of = [&](int64_t unit) {
        return std::min(kAttentionQueries, (heads ? sharing : p.t) - unit % blocks * kAttentionQueries);
      };
      detail::KeyRange keys{p.s, 0};
      for (int64_t unit = begin; unit < end; ++unit) {
        const detail::KeyRange seen = detail::visible_keys(p, in, example, query_of(unit), heads ? 1 : rows_of(unit));
        if (seen.empty()) continue;
        keys = {std::min(keys.begin, seen.begin), std::max(keys.end, seen.end)};
      }
      task.prepare(keys);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t head = key_head * sharing + (heads ? unit * kAttentionQueries : unit / blocks);
        task.run(head, query_of(unit), rows_of(unit), heads, static_cast<T*>(y), static_cast<W*>(lse));
      }
    });
  });
}

}  // namespace lockstep
