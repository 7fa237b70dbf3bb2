// The definitions of AttentionLoops, included once by each file that compiles them for an instruction set. Everything
// here has internal linkage and calls no function of the standard library.
//
// Loops over kLanes elements are divided into vector registers by the compiler. Partial sums are kept per lane, so
// results are the same for every instruction set.
#pragma once

#include "lane/cpu/attention.h"
#include "ops/math.h"

namespace lockstep {
namespace {

inline constexpr int64_t kLanes = kAttentionPad;

template <class T>
inline constexpr T kLowestScore = -__builtin_inf();

// e^x for scores relative to their maximum. Below -88 the result is 0: 2^-127 has the bits of zero. NaN stays NaN.
// REQUIRES: x < 88.
LOCKSTEP_INLINE float exp_score(float x) {
  const math::ExpParts e = math::exp_parts(x < -88.03f ? -88.03f : x);
  return (1.0f + e.expm1_r) * math::exp2i(e.k);
}
LOCKSTEP_INLINE double exp_score(double x) { return math::exp(x); }

// The visible keys of a row, [begin, end), and the same range rounded to blocks of kLanes.
struct VisibleRange {
  int64_t begin, end, first, last;
};
template <class T>
LOCKSTEP_INLINE VisibleRange visible_range(const AttentionTile<T>& tile, int64_t row) {
  const int64_t position = tile.position + row * tile.row_step;
  int64_t begin = tile.window > 0 ? position - tile.window + 1 : 0;
  int64_t end = tile.causal && position + 1 < tile.keys ? position + 1 : tile.keys;
  begin = begin > 0 ? begin : 0;
  if (end <= begin) return {0, 0, 0, 0};
  end = end < tile.width ? end : tile.width;
  return {begin, end, begin / kLanes * kLanes, (end + kLanes - 1) / kLanes * kLanes};
}

template <class T>
LOCKSTEP_INLINE void fill_row(T* x, int64_t begin, int64_t end, T value) {
  for (int64_t i = begin; i < end; ++i) x[i] = value;
}

// Products -> scores, -inf for keys of other segments.
template <class T>
LOCKSTEP_INLINE void score_row(const AttentionTile<T>& tile, int64_t row, const VisibleRange& at, T* x) {
  const T scale = tile.scale;
  if (tile.softcap > 0) {
    const T cap = tile.softcap, inner = scale / cap;
    for (int64_t i = at.first; i < at.last; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) x[i + k] = cap * math::tanh(x[i + k] * inner);
  } else {
    for (int64_t i = at.first; i < at.last; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) x[i + k] *= scale;
  }
  fill_row(x, at.first, at.begin, kLowestScore<T>);
  fill_row(x, at.end, at.last, kLowestScore<T>);
  if (!tile.query_segments) return;
  const int32_t segment = tile.query_segments[row * tile.row_step];
  const int32_t* const of_keys = tile.key_segments;
  for (int64_t i = at.begin; i < at.end; ++i) x[i] = of_keys[i] == segment ? x[i] : kLowestScore<T>;
}

template <class T>
LOCKSTEP_INLINE T max_of_row(const T* x, int64_t first, int64_t last) {
  T most[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) most[k] = kLowestScore<T>;
  for (int64_t i = first; i < last; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
  T out = most[0];
  for (int64_t k = 1; k < kLanes; ++k) out = most[k] > out ? most[k] : out;
  return out;
}

// x = e^(x - shift). Returns the sum.
template <class T>
LOCKSTEP_INLINE T exp_row(T* x, int64_t first, int64_t last, T shift) {
  T sums[kLanes] = {};
  for (int64_t i = first; i < last; i += kLanes) {
    T block[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) block[k] = exp_score(x[i + k] - shift);
    for (int64_t k = 0; k < kLanes; ++k) sums[k] += block[k];
    for (int64_t k = 0; k < kLanes; ++k) x[i + k] = block[k];
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

// Threefry-2x32 (see random_ops.cc) of kN counters with one key.
template <int kN>
LOCKSTEP_INLINE void encrypt_words(uint32_t k0, uint32_t k1, uint32_t (&x0)[kN], uint32_t (&x1)[kN]) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t key[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
  for (int i = 0; i < kN; ++i) x0[i] += key[0];
  for (int i = 0; i < kN; ++i) x1[i] += key[1];
#pragma GCC unroll 5
  for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
      const int by = kRotations[group % 2][round];
      for (int i = 0; i < kN; ++i) x0[i] += x1[i];
      for (int i = 0; i < kN; ++i) x1[i] = ((x1[i] << by) | (x1[i] >> (32 - by))) ^ x0[i];
    }
    for (int i = 0; i < kN; ++i) x0[i] += key[(group + 1) % 3];
    for (int i = 0; i < kN; ++i) x1[i] += key[(group + 2) % 3] + (group + 1);
  }
}

struct HeadKey {
  uint32_t k0[1], k1[1];
};
template <class T>
LOCKSTEP_INLINE HeadKey head_key(const AttentionTile<T>& tile, int64_t row) {
  // Rows that are heads of one query have a key each.
  HeadKey key{{tile.example}, {tile.head + static_cast<uint32_t>(tile.row_step == 0 ? row : 0)}};
  encrypt_words(tile.dropout.key[0], tile.dropout.key[1], key.k0, key.k1);
  return key;
}

// x *= the factors of the weights of a row.
template <class T>
LOCKSTEP_INLINE void drop_row(const AttentionTile<T>& tile, int64_t row, int64_t first, int64_t last, T* x) {
  constexpr int64_t kFours = kLanes / 4;
  const HeadKey key = head_key(tile, row);
  const uint32_t query = tile.query + static_cast<uint32_t>(row * tile.row_step);
  const T kept = static_cast<T>(tile.dropout.kept);
  const uint32_t threshold = tile.dropout.threshold;
  for (int64_t i = first; i < last; i += kLanes) {
    uint32_t w0[kFours], w1[kFours];
    for (int64_t k = 0; k < kFours; ++k) {
      w0[k] = query;
      w1[k] = (tile.first_key + static_cast<uint32_t>(i)) / 4 + static_cast<uint32_t>(k);
    }
    encrypt_words(key.k0[0], key.k1[0], w0, w1);
    uint32_t numbers[kLanes];
    for (int64_t k = 0; k < kFours; ++k) {
      numbers[4 * k] = w0[k] & 0xffffu;
      numbers[4 * k + 1] = w0[k] >> 16;
      numbers[4 * k + 2] = w1[k] & 0xffffu;
      numbers[4 * k + 3] = w1[k] >> 16;
    }
    for (int64_t k = 0; k < kLanes; ++k) x[i + k] *= numbers[k] >= threshold ? kept : T{0};
  }
}

template <class T>
void softmax_tile(const AttentionTile<T>& tile, T* maxima, T* sums, T* factors) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    T* const x = tile.scores + row * tile.ld;
    const VisibleRange at = visible_range(tile, row);
    fill_row(x, 0, at.first, T{0});
    fill_row(x, at.last, tile.width, T{0});
    factors[row] = 1;
    if (at.begin == at.end) continue;
    score_row(tile, row, at, x);
    const T most = max_of_row(x, at.first, at.last), before = maxima[row];
    const T now = most > before ? most : before;
    // Without a visible key, all are -inf. NaN reaches the sum.
    const T sum = exp_row(x, at.first, at.last, now == kLowestScore<T> ? T{0} : now);
    if (now > before) factors[row] = before == kLowestScore<T> ? T{0} : exp_score(before - now);
    maxima[row] = now;
    sums[row] = sums[row] * factors[row] + sum;
    if (tile.dropout.threshold > 0) drop_row(tile, row, at.first, at.last, x);
  }
}

// d = w (d - delta) scale, times the derivative of the softcap.
template <class T>
LOCKSTEP_INLINE void score_gradients(const AttentionTile<T>& tile, const VisibleRange& at, T* x, T* d, T lse, T delta) {
  const T scale = tile.scale, cap = tile.softcap, inverse = cap > 0 ? 1 / cap : T{0};
  for (int64_t i = at.first; i < at.last; i += kLanes) {
    T weights[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) weights[k] = exp_score(x[i + k] - lse);
    if (cap > 0) {
      for (int64_t k = 0; k < kLanes; ++k) {
        const T tangent = (x[i + k] < -cap ? -cap : x[i + k]) * inverse;
        d[i + k] = weights[k] * (d[i + k] - delta) * (scale * (1 - tangent * tangent));
      }
    } else {
      for (int64_t k = 0; k < kLanes; ++k) d[i + k] = weights[k] * (d[i + k] - delta) * scale;
    }
    for (int64_t k = 0; k < kLanes; ++k) x[i + k] = weights[k];
  }
}

template <class T>
void gradients_tile(const AttentionTile<T>& tile, T* dweights, const T* lse, const T* delta) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    T *const x = tile.scores + row * tile.ld, *const d = dweights + row * tile.ld;
    VisibleRange at = visible_range(tile, row);
    if (lse[row] == kLowestScore<T>) at = {0, 0, 0, 0};
    for (T* const each : {x, d}) {
      fill_row(each, 0, at.first, T{0});
      fill_row(each, at.last, tile.width, T{0});
    }
    if (at.begin == at.end) continue;
    score_row(tile, row, at, x);
    // What the padding holds may be infinite, and its weight is 0.
    fill_row(d, at.first, at.begin, T{0});
    fill_row(d, at.end, at.last, T{0});
    if (tile.dropout.threshold > 0) drop_row(tile, row, at.first, at.last, d);
    score_gradients(tile, at, x, d, lse[row], delta[row]);
    if (tile.dropout.threshold > 0) drop_row(tile, row, at.first, at.last, x);
  }
}

constexpr AttentionLoops make_attention_loops() {
  return {{softmax_tile<float>, gradients_tile<float>}, {softmax_tile<double>, gradients_tile<double>}};
}

}  // namespace
}  // namespace lockstep
