// Random numbers as functions of a key, compatible with JAX (threefry2x32, partitionable).
//
//   Array key = random::key(42);
//   auto [a, b] = random::split<2>(key);             // use each key for one draw
//   Array w = 0.01f * random::normal(a, {784, 10});
//
// The same key gives the same numbers on any machine and with any sharding. Keys are u32 arrays of 2 words (threefry)
// or 4 words (philox); they may be traced or batched. Draw from each key once; split() and fold_in() derive new ones of
// the same generator. Safe to call from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "lockstep/array.h"
#include "lockstep/operand.h"
#include "lockstep/rearrange.h"

namespace lockstep::detail {
// Assigns n new keys.
void split_key(const Operand& key, Array* keys, size_t n);
}  // namespace lockstep::detail

namespace lockstep::random {

// The cipher that computes the bits of a key.
enum class BitGenerator {
  threefry,  // Threefry-2x32, keys u32[2]: the numbers of JAX's default keys
  philox,    // Philox-4x32-10, keys u32[4]: faster. Seeds, split() and fold_in() give the keys of JAX's impl="rbg";
             // bits depend on the index of an element only, and are not those of XLA
};
Array key(uint64_t seed, BitGenerator generator = BitGenerator::threefry);
// Returns n new keys, of shape [n, 2] or [n, 4].
Array split(const Operand& key, int64_t n = 2);
// Same, as separate arrays.
template <size_t kCount>
std::array<Array, kCount> split(const Operand& key) {
  std::array<Array, kCount> out;
  lockstep::detail::split_key(key, out.data(), kCount);
  return out;
}
// Returns keys of shape [shape..., 2] or [shape..., 4].
Array split(const Operand& key, const Shape& shape);
// Keys are plain u32 arrays: both functions return them as they are, wrap_key_data after a check. clone marks a copy.
Array key_data(const Operand& key);
Array wrap_key_data(const Operand& data);
Array clone(const Operand& key);
// Derives a new key from a key and an integer scalar, for example a step or layer index.
Array fold_in(const Operand& key, const Operand& data);

// Uniform random integers: u8, u16, u32 or u64.
Array bits(const Operand& key, const Shape& shape = {}, DType dtype = u32);
// Uniform in [lo, hi). The bounds broadcast to `shape`.
Array uniform(const Operand& key, const Shape& shape, const Operand& lo = 0, const Operand& hi = 1, DType dtype = f32);
// Normal with mean 0 and variance 1.
Array normal(const Operand& key, const Shape& shape, DType dtype = f32);
// Same, conditioned to lie between lo and hi.
Array truncated_normal(const Operand& key, double lo, double hi, const Shape& shape, DType dtype = f32);
// With bounds in arrays, which broadcast to `shape`.
Array truncated_normal(const Operand& key, const Operand& lo, const Operand& hi, const Shape& shape, DType dtype = f32);
// Gumbel distributed: -log(-log(uniform)).
Array gumbel(const Operand& key, const Shape& shape, DType dtype = f32);

// true with probability p, which broadcasts to `shape` (default: p's own shape).
Array bernoulli(const Operand& key, const Operand& p);
Array bernoulli(const Operand& key, const Operand& p, const Shape& shape);
// Uniform integers in [lo, hi), of any integer type. The bounds broadcast to `shape`. Where hi <= lo the result is
// lo. Bounds outside the range of the type are clamped to it.
Array randint(const Operand& key, const Shape& shape, const Operand& lo, const Operand& hi, DType dtype = i32);
// 0 .. n-1 in random order (i32), or the slices of x along its first dimension in random order.
Array permutation(const Operand& key, int64_t n);
Array permutation(const Operand& key, const Operand& x);
// Along another axis; `independent`: each line along the axis in an order of its own.
struct PermutationOptions {
  int64_t axis = 0;
  bool independent = false;
};
Array permutation(const Operand& key, const Operand& x, const PermutationOptions& options);
// Draws i32 indices along `axis` with probability softmax(logits). `axis` is removed.
Array categorical(const Operand& key, const Operand& logits, int64_t axis = -1);
struct CategoricalOptions {
  int64_t axis = -1;
  bool replace = true;  // false: the leading dimensions of `shape` hold different indices
};
// Draws an array of this shape, which ends with the shape of logits without `axis`.
Array categorical(const Operand& key, const Operand& logits, const Shape& shape,
                  const CategoricalOptions& options = {});
inline Array categorical(const Operand& key, const Operand& logits, std::initializer_list<int64_t> shape,
                         const CategoricalOptions& options = {}) {
  return categorical(key, logits, Shape(shape), options);
}

}  // namespace lockstep::random
