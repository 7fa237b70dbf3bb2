// The backward pass of attention. A task computes the gradients of a chunk of keys of an example and a head of keys,
// from the tiles of all queries that see them. With one chunk, dq is complete as well; else each chunk has its own dq,
// and these are added in order. The chunks depend on the shape alone.
#include <cmath>

#include "lane/cpu/attention.h"
#include "lane/cpu/attention_tiles.h"

namespace lockstep {
namespace {

using detail::attention_round_up;

constexpr int64_t kWantedTasks = 32, kMaxKeyChunks = 8, kMinKeyChunk = 4 * kAttentionKeys;

struct KeyChunks {
  int64_t count, keys;  // keys of each chunk but the last
};
KeyChunks key_chunks(const AttentionProblem& p) {
  const int64_t pairs = std::max<int64_t>(p.b * p.g, 1),
                most = std::clamp<int64_t>(p.s / kMinKeyChunk, 1, kMaxKeyChunks);
  const int64_t wanted = std::clamp<int64_t>((kWantedTasks + pairs - 1) / pairs, 1, most);
  const int64_t keys = attention_round_up((p.s + wanted - 1) / wanted, kAttentionKeys);
  return {keys == 0 ? 1 : (p.s + keys - 1) / keys, keys};
}

// Scratch of a task, as offsets.
template <class Products>
struct BackwardScratch {
  using W = typename Products::Sum;
  int64_t ld, k_bytes, v_bytes, kt_bytes, vt_bytes, kn_bytes;  // *_bytes: of a tile of keys
  int64_t scores, dweights, weights, dscores, dq, delta, dk, dv, q, dy, q_right, dy_right, k, v, kt, vt, kn, bytes;

  BackwardScratch(const AttentionProblem& p, const Products& products, int64_t keys) : ld(detail::tile_stride(p)) {
    const int64_t tiles = (keys + kAttentionKeys - 1) / kAttentionKeys;
    detail::ScratchLayout layout;
    scores = layout.add_elements<W>(kAttentionQueries * ld);
    dweights = layout.add_elements<W>(kAttentionQueries * ld);
    weights = layout.add(Products::tile_bytes(kAttentionQueries, ld));
    dscores = layout.add(Products::tile_bytes(kAttentionQueries, ld));
    dq = layout.add_elements<W>(kAttentionQueries * p.e);
    delta = layout.add_elements<W>(kAttentionQueries);
    dk = layout.add_elements<W>(keys * p.e);
    dv = layout.add_elements<W>(keys * p.f);
    q = layout.add(products.loaded_bytes(kAttentionQueries, p.e));
    dy = layout.add(products.loaded_bytes(kAttentionQueries, p.f));
    q_right = layout.add(products.right_bytes(kAttentionQueries, p.e));
    dy_right = layout.add(products.right_bytes(kAttentionQueries, p.f));
    k_bytes = products.loaded_bytes(kAttentionKeys, p.e);
    v_bytes = products.loaded_bytes(kAttentionKeys, p.f);
    kt_bytes = attention_round_up(products.right_bytes(p.e, kAttentionKeys), 64);
    vt_bytes = attention_round_up(products.right_bytes(p.f, kAttentionKeys), 64);
    kn_bytes = attention_round_up(products.right_bytes(kAttentionKeys, p.e), 64);
    k = layout.add(tiles * k_bytes);
    v = layout.add(tiles * v_bytes);
    kt = layout.add(tiles * kt_bytes);
    vt = layout.add(tiles * vt_bytes);
    kn = layout.add(tiles * kn_bytes);
    bytes = layout.bytes();
  }
};

struct BackwardResults {
  void *dq, *dk, *dv;
  void* partial;  // [chunks, b, t, h, e]: dq of each chunk; null if there is one chunk
};

template <class T, class Products>
class BackwardTask {
 public:
  using W = typename Products::Sum;
  using Element = typename Products::Element;

  BackwardTask(const AttentionProblem& p, const AttentionOperands& in, const AttentionGradOperands& gradient,
               const BackwardResults& out, const HalfKernel* kernel, Pool& pool, int thread, int64_t pair,
               int64_t chunk)
      : p_(p),
        in_(in),
        gradient_(gradient),
        out_(out),
        products_(p, kernel, &pool, thread),
        chunk_(chunk),
        begin_(chunk * key_chunks(p).keys),
        end_(std::min(p.s, begin_ + key_chunks(p).keys)),
        at_(p, products_, key_chunks(p).keys),
        memory_(static_cast<std::byte*>(pool.scratch(thread, at_.bytes))),
        example_(pair / p.g),
        key_head_(pair % p.g),
        loops_(detail::tile_loops(*p.loops, W())) {}

  void run() {
    std::fill_n(memory<W>(at_.dk), (end_ - begin_) * p_.e, W{0});
    std::fill_n(memory<W>(at_.dv), (end_ - begin_) * p_.f, W{0});
    for (int64_t key = begin_; key < end_; key += kAttentionKeys) prepare(key);
    const int64_t sharing = p_.h / p_.g;
    for (int64_t head = key_head_ * sharing; head < (key_head_ + 1) * sharing; ++head)
      for (int64_t query = 0; query < p_.t; query += kAttentionQueries)
        run_queries(head, query, std::min(kAttentionQueries, p_.t - query));
    store(memory<W>(at_.dk), p_.e, static_cast<T*>(out_.dk));
    store(memory<W>(at_.dv), p_.f, static_cast<T*>(out_.dv));
  }

 private:
  template <class X>
  X* memory(int64_t at) const {
    return reinterpret_cast<X*>(memory_ + at);
  }
  int64_t tile_of(int64_t key) const { return (key - begin_) / kAttentionKeys; }

  detail::GemmOperand<Element> load_keys(const void* array, int64_t key, int64_t n, int64_t features,
                                         std::byte* to) const {
    return products_.load(static_cast<const T*>(array) + ((example_ * p_.s + key) * p_.g + key_head_) * features,
                          p_.g * features, n, features, to);
  }

  // A tile of keys and values as right operands.
  struct Keys {
    detail::Right<Element> kt, vt, kn;  // [e, keys], [f, keys], [keys, e]
  };
  void prepare(int64_t key) { static_cast<void>(keys_at(key, true)); }
  Keys keys_at(int64_t key, bool pack) const {
    const int64_t n = std::min(kAttentionKeys, p_.s - key), tile = tile_of(key);
    std::byte *const kt = memory_ + at_.kt + tile * at_.kt_bytes, *const vt = memory_ + at_.vt + tile * at_.vt_bytes,
                     *const kn = memory_ + at_.kn + tile * at_.kn_bytes,
                     *const k = memory_ + at_.k + tile * at_.k_bytes, *const v = memory_ + at_.v + tile * at_.v_bytes;
    if constexpr (Products::kWholeTiles) {
      if (!pack) return {{.packed = kt}, {.packed = vt}, {.packed = kn}};
    } else if (!pack && products_.copies()) {
      const auto *copied_k = reinterpret_cast<const Element*>(k), *copied_v = reinterpret_cast<const Element*>(v);
      return {{{copied_k, p_.e, true}}, {{copied_v, p_.f, true}}, {{copied_k, p_.e, false}}};
    }
    const detail::GemmOperand<Element> rows = load_keys(in_.k, key, n, p_.e, k),
                                       values = load_keys(in_.v, key, n, p_.f, v);
    return {products_.right({rows.data, rows.ld, true}, p_.e, n, kt),
            products_.right({values.data, values.ld, true}, p_.f, n, vt), products_.right(rows, n, p_.e, kn)};
  }

  void run_queries(int64_t head, int64_t query, int64_t rows) {
    detail::KeyRange keys = detail::visible_keys(p_, in_, example_, query, rows);
    keys = {std::max(keys.begin / kAttentionKeys * kAttentionKeys, begin_), std::min(keys.end, end_)};
    W* const dq = memory<W>(at_.dq);
    if (keys.empty()) {
      std::fill_n(dq, rows * p_.e, W{0});
      return store_dq(head, query, rows);
    }
    const int64_t place = (example_ * p_.t + query) * p_.h + head;
    const auto q =
        products_.load(static_cast<const T*>(in_.q) + place * p_.e, p_.h * p_.e, rows, p_.e, memory_ + at_.q);
    const auto dy =
        products_.load(static_cast<const T*>(gradient_.dy) + place * p_.f, p_.h * p_.f, rows, p_.f, memory_ + at_.dy);
    const auto q_right = products_.right(q, rows, p_.e, memory_ + at_.q_right);
    const auto dy_right = products_.right(dy, rows, p_.f, memory_ + at_.dy_right);
    compute_delta(place, head, query, rows);
    auto tile = detail::query_tile<W>(p_, in_, example_, head, query, rows, 1);
    tile.scores = memory<W>(at_.scores);
    tile.ld = at_.ld;
    W* const dweights = memory<W>(at_.dweights);
    const W* const lse = static_cast<const W*>(gradient_.lse) + (example_ * p_.h + head) * p_.t + query;
    for (int64_t key = keys.begin; key < keys.end; key += kAttentionKeys) {
      const int64_t whole = std::min(kAttentionKeys, p_.s - key), visible = std::min(whole, keys.end - key);
      const int64_t extent = Products::kWholeTiles ? whole : visible;
      const Keys right = keys_at(key, false);
      detail::move_to_keys(tile, p_, in_, example_, key, visible, extent);
      products_.multiply(q, right.kt, rows, extent, p_.e, false, tile.scores, at_.ld);
      products_.multiply(dy, right.vt, rows, extent, p_.f, false, dweights, at_.ld);
      loops_.gradients(tile, dweights, lse, memory<W>(at_.delta));
      detail::GemmOperand<Element> weights = products_.tile(tile.scores, rows, at_.ld, memory_ + at_.weights);
      detail::GemmOperand<Element> dscores = products_.tile(dweights, rows, at_.ld, memory_ + at_.dscores);
      products_.multiply(dscores, right.kn, rows, p_.e, extent, key > keys.begin, dq, p_.e);
      weights.transposed = dscores.transposed = true;
      products_.multiply(weights, dy_right, extent, p_.f, rows, true, memory<W>(at_.dv) + (key - begin_) * p_.f, p_.f);
      products_.multiply(dscores, q_right, extent, p_.e, rows, true, memory<W>(at_.dk) + (key - begin_) * p_.e, p_.e);
    }
    store_dq(head, query, rows);
  }

  // The sum of the products of y and its cotangent, for each query, less the cotangent of lse.
  void compute_delta(int64_t place, int64_t head, int64_t query, int64_t rows) const {
    W* const delta = memory<W>(at_.delta);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = (place + r * p_.h) * p_.f;
      const T *const y = static_cast<const T*>(gradient_.y) + row, *const dy =
                                                                       static_cast<const T*>(gradient_.dy) + row;
      W sum = 0;
      for (int64_t f = 0; f < p_.f; ++f) sum += static_cast<W>(y[f]) * static_cast<W>(dy[f]);
      if (gradient_.dlse) sum -= static_cast<const W*>(gradient_.dlse)[(example_ * p_.h + head) * p_.t + query + r];
      delta[r] = sum;
    }
  }

  void store_dq(int64_t head, int64_t query, int64_t rows) const {
    const W* const dq = memory<W>(at_.dq);
    const int64_t place = ((example_ * p_.t + query) * p_.h + head) * p_.e, ld = p_.h * p_.e;
    if (out_.partial) {
      W* const to = static_cast<W*>(out_.partial) + chunk_ * p_.b * p_.t * ld + place;
      for (int64_t r = 0; r < rows; ++r) std::copy_n(dq + r * p_.e, p_.e, to + r * ld);
    } else {
      detail::convert(dq, p_.e, rows, p_.e, static_cast<T*>(out_.dq) + place, ld);
    }
  }

  void store(const W* from, int64_t features, T* to) const {
    detail::convert(from, features, end_ - begin_, features,
                    to + ((example_ * p_.s + begin_) * p_.g + key_head_) * features, p_.g * features);
  }

  const AttentionProblem& p_;
  const AttentionOperands& in_;
  const AttentionGradOperands& gradient_;
  const BackwardResults& out_;
  const Products products_;
  const int64_t chunk_, begin_, end_;  // the keys of the task
  const BackwardScratch<Products> at_;
  std::byte* const memory_;
  const int64_t example_, key_head_;
  const AttentionTileLoops<W>& loops_;
};

}  // namespace

int64_t attention_backward_bytes(const AttentionProblem& p) {
  const int64_t chunks = key_chunks(p).count;
  return chunks == 1 ? 0 : chunks * p.b * p.t * p.h * p.e * (p.dtype == DType::f64 ? 8 : 4);
}

void attention_backward(Pool& pool, const AttentionProblem& p, const HalfKernel* kernel, const AttentionOperands& in,
                        const AttentionGradOperands& gradient, void* dq, void* dk, void* dv, void* memory) {
  if (p.b * p.g == 0) return;
  const int64_t chunks = key_chunks(p).count;
  const BackwardResults out{dq, dk, dv, chunks == 1 ? nullptr : memory};
  detail::with_products(p, kernel, [&]<class T, class Products>() {
    pool.parallel_for(p.b * p.g * chunks, [&](int64_t task, int thread) {
      BackwardTask<T, Products>(p, in, gradient, out, kernel, pool, thread, task / chunks, task % chunks).run();
    });
    if (chunks == 1) return;
    using W = typename Products::Sum;
    constexpr int64_t kGrain = 16384;
    const int64_t n = p.b * p.t * p.h * p.e;
    pool.parallel_range(n, kGrain, [&](int64_t begin, int64_t end, int) {
      const W* const partial = static_cast<const W*>(memory);
      for (int64_t i = begin; i < end; ++i) {
        W sum = partial[i];
        for (int64_t chunk = 1; chunk < chunks; ++chunk) sum += partial[chunk * n + i];
        static_cast<T*>(dq)[i] = static_cast<T>(sum);
      }
    });
  });
}

}  // namespace lockstep
