// Random numbers as functions of a key: the same key gives the same numbers, on any machine and however arrays are cut.
// Keys are u32[2] arrays; use each for one draw, and split() or fold_in() to get more. The numbers are those of JAX
// (threefry2x32, partitionable). Safe from any thread; keys may be traced or batched.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/array.h"
#include "lockstep/rearrange.h"

namespace lockstep::random {

Array key(uint64_t seed);
// n new keys, [n, 2].
Array split(const Array& key, int64_t n = 2);
// The same as separate keys: auto [a, b] = random::split<2>(key).
template <size_t kCount>
std::array<Array, kCount> split(const Array& key) {
  const Array keys = random::split(key, static_cast<int64_t>(kCount));
  std::array<Array, kCount> out;
  for (size_t i = 0; i < kCount; ++i) out[i] = at(keys, static_cast<int64_t>(i));
  return out;
}
// A new key from a key and a number, for example the step or a layer's index.
Array fold_in(const Array& key, const Array& data);

// Uniform u32.
Array bits(const Array& key, const Shape& shape);
// In [lo, hi), which broadcast to `shape`.
Array uniform(const Array& key, const Shape& shape, const Array& lo = 0, const Array& hi = 1, DType dtype = f32);
// Mean 0, variance 1.
Array normal(const Array& key, const Shape& shape, DType dtype = f32);
// The same, kept between lo and hi.
Array truncated_normal(const Array& key, double lo, double hi, const Shape& shape, DType dtype = f32);
// -log(-log(uniform)).
Array gumbel(const Array& key, const Shape& shape, DType dtype = f32);

// true with probability p, which broadcasts to `shape`; without one, p's own.
Array bernoulli(const Array& key, const Array& p);
Array bernoulli(const Array& key, const Array& p, const Shape& shape);
// i32 in [lo, hi), which broadcast to `shape`; lo where hi is not greater. Bounds that i32 has not are its least and
// one more than its most.
Array randint(const Array& key, const Shape& shape, const Array& lo, const Array& hi);
// 0 .. n-1 in random order (i32), or the slices of x along its first dimension.
Array permutation(const Array& key, int64_t n);
Array permutation(const Array& key, const Array& x);
// i32 indices along `axis`, which is removed, drawn with probability softmax(logits).
Array categorical(const Array& key, const Array& logits, int64_t axis = -1);

}  // namespace lockstep::random
