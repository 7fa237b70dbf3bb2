#include <algorithm>
#include <cmath>
#include <limits>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "lockstep/numeric.h"
#include "lockstep/random.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/random_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep::random {
namespace {

using detail::apply1;
using detail::convert;

constexpr double kRootTwo = 1.41421356237309504880;

void check_key(const char* what, const Array& key) {
  if (key.dtype() == u32 && (key.shape() == Shape{2} || key.shape() == Shape{4})) return;  // on any devices
  throw_error("random::{}: the key is {}; a key is u32[2], or u32[4] for philox: create one with random::key(seed){}",
              what, to_string(key.type()),
              key.rank() == 2 ? " (select one of several keys with at(), or use vmap)" : "");
}

void check_floating(const char* what, DType dtype) {
  if (!is_floating(dtype))
    throw_error("random::{}: dtype {} is not floating; use a floating type, or randint", what, name(dtype));
}

// Limits of a floating type: the number just above -1, and the smallest positive normal number.
struct Limits {
  double above_minus_one, tiny;
};
Limits limits_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {-1.0 + 0x1p-8, 0x1p-126};
    case DType::f16:
      return {-1.0 + 0x1p-11, 0x1p-14};
    case DType::f64:
      return {-1.0 + 0x1p-53, 0x1p-1022};
    default:
      return {-1.0 + 0x1p-24, 0x1p-126};
  }
}

Value word(Value like, int64_t value) { return full(like.builder(), like.type(), value); }

// Two u32 words {a, b}, each [n] or a scalar, as keys [n, 2] or [2].
Value pair_up(const Values& words) {
  Shape column = words[0].shape();
  column.push_back(1);
  return concatenate({reshape(words[0], column), reshape(words[1], column)}, static_cast<int64_t>(column.size()) - 1);
}

bool is_philox(Value key) { return key.shape().back() == 4; }

// A key of philox is split as two keys of threefry, as JAX does for impl="rbg".
Value split_key(Value key, int64_t n) {
  if (is_philox(key)) {
    const Value low = iota(key.builder(), {u32, {2, n}}, 1);
    const Value halves = pair_up(threefry(reshape(key, {2, 2}), zeros_like(low), low));
    return reshape(transpose(halves, {1, 0, 2}), {n, 4});
  }
  const Value low = iota(key.builder(), {u32, {n}}, 0);
  return pair_up(threefry(key, zeros_like(low), low));
}

Value row_of(Value keys, int64_t i) {
  const int64_t words = keys.shape()[1];
  return reshape(slice(keys, {i, 0}, {i + 1, words}, {1, 1}), {words});
}

// Random words of 64 bits, as i64. With philox, element i is the words 2 i (low half) and 2 i + 1 of the key.
Value wide_bits(Value key, const Shape& shape) {
  const int64_t n = count(shape);
  const auto combine = [&](Value low, Value high) {
    const Value upper = cast(high, i64);
    return reshape(bit_or(shift_left(upper, word(upper, 32)), cast(low, i64)), shape);
  };
  if (is_philox(key)) {
    const Value words = random_bits(key, {n, 2});
    return combine(slice(words, {0, 0}, {n, 1}, {1, 1}), slice(words, {0, 1}, {n, 2}, {1, 1}));
  }
  const Value index = iota(key.builder(), {i64, {n}}, 0);
  const Values words = threefry(key, cast(shift_right(index, word(index, 32)), u32), cast(index, u32));
  return combine(words[1], words[0]);
}

// Uniform in [0, 1): as many random bits as the type has mantissa bits become the fraction of a number in [1,
// 2), less 1.
Value unit(Value key, Shape shape, DType dtype) {
  if (dtype == DType::f64) {
    const Value all = wide_bits(key, shape);
    const Value fraction = bit_and(shift_right(all, word(all, 12)), word(all, (int64_t{1} << 52) - 1));
    return bitcast(bit_or(fraction, word(all, int64_t{1023} << 52)), f64) - 1.0;
  }
  const Value bits = random_bits(key, shape);
  if (dtype == DType::f32) return bitcast(bit_or(shift_right(bits, word(bits, 9)), word(bits, 0x3f800000)), f32) - 1.0;
  // The 16-bit floats take 7 of the lowest 8 bits and 10 of the lowest 16.
  const bool brain = dtype == DType::bf16;
  const Value fraction = shift_right(bit_and(bits, word(bits, brain ? 0xff : 0xffff)), word(bits, brain ? 1 : 6));
  return cast(fraction, dtype) * (brain ? 0x1p-7 : 0x1p-10);
}

// lo and hi have the type and shape of the result.
Value uniform_between(Value key, Value lo, Value hi) {
  return maximum(lo, unit(key, lo.shape(), lo.dtype()) * (hi - lo) + lo);
}

Value uniform_between(Value key, Type type, double lo, double hi) {
  Builder& b = key.builder();
  return uniform_between(key, full(b, type, lo), full(b, type, hi));
}

Value gumbel_noise(Value key, Type type) {
  const double tiny = limits_of(type.dtype).tiny;
  return -log(-log(uniform_between(key, std::move(type), tiny, 1.0)));
}

// How random integers of a type are computed: in the unsigned numbers of `bits` bits, which i64 holds for 64. Types of
// fewer than 32 bits use 32, as in JAX, so that their numbers are as even as those of i32.
struct IntegerFormat {
  DType words;
  int bits;
  int64_t least, most;
};
IntegerFormat integer_format(DType dtype) {
  const int bits = static_cast<int>(8 * size_of(dtype));
  const int64_t half = bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  const bool is_wide = bits == 64;
  if (is_signed(dtype)) return {is_wide ? i64 : u32, std::max(bits, 32), -half - 1, half};
  return {is_wide ? i64 : u32, std::max(bits, 32), 0, is_wide ? half : 2 * half + 1};
}

// x modulo n of unsigned words. Those of 64 bits are halved first, so that signed division is right; n >= 2^63 or 0
// (2^64) is handled apart.
Value unsigned_rem(Value x, Value n) {
  if (x.dtype() == u32) {
    const Value zero = zeros_like(n);
    return select(eq(n, zero), x, rem(x, select(eq(n, zero), ones_like(n), n)));
  }
  const Value one = ones_like(x), zero = zeros_like(x), sign = word(x, std::numeric_limits<int64_t>::min());
  const auto below = [&](Value a, Value b) { return lt(bit_xor(a, sign), bit_xor(b, sign)); };
  const Value safe = select(le(n, zero), one, n);
  const Value half = bit_and(shift_right(x, one), word(x, std::numeric_limits<int64_t>::max()));
  const Value left = x - shift_left(div(half, safe), one) * safe;
  const Value small = select(below(left, safe), left, left - safe);
  const Value large = select(bit_or(eq(n, zero), below(x, n)), x, x - n);
  return select(le(n, zero), large, small);
}

// The integers in [lo, hi): the smallest and their number, which is 1 if the interval is empty. 2^bits counts as 0.
struct Integers {
  Value least, span;
};
Integers integers_between(Value lo, Value hi, const IntegerFormat& f) {
  const Values bounds = detail::promote_and_broadcast("random::randint", {lo, hi}, i64);
  const auto number = [&](int64_t n) { return word(bounds[0], n); };
  const auto limited = [&](Value x) { return minimum(maximum(x, number(f.least)), number(f.most)); };
  const Value from = limited(bounds[0]), to = limited(bounds[1]);
  // `hi` may be one more than the greatest number.
  const Value beyond = convert(gt(bounds[1], number(f.most)), i64);
  const Value open = gt(to, from);
  const Value span = select(open, to - from + beyond, number(1));
  const Value wrapped = f.bits == 64 ? span : bit_and(span, number((int64_t{1} << f.bits) - 1));
  return {from, convert(wrapped, f.words)};
}

// Random words of a format, with `bits` bits.
Value random_words(Value key, const Shape& shape, const IntegerFormat& f) {
  return f.bits == 64 ? wide_bits(key, shape) : random_bits(key, shape);
}

// The elements of each line along an axis in random order: sorted by random words, often enough that collisions do not
// matter.
Value shuffled(Value key, Value order, int64_t axis) {
  const auto n = static_cast<double>(count(order.shape()));
  const double rounds = std::ceil(3 * std::log(std::max(1.0, n)) / std::log(4294967295.0));
  for (int round = 0; round < static_cast<int>(rounds); ++round) {
    const Value keys = split_key(key, 2);
    key = row_of(keys, 0);
    order = sort({random_bits(row_of(keys, 1), order.shape()), order}, axis)[1];
  }
  return order;
}

// 0 .. n-1 in random order.
Value shuffled(Value key, int64_t n) { return shuffled(key, iota(key.builder(), {i32, {n}}, 0), 0); }

}  // namespace

Array key(uint64_t seed, BitGenerator generator) {
  std::vector<uint32_t> words{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  if (generator == BitGenerator::philox) words.insert(words.end(), {words[0], words[1]});
  return Array::from(words, {static_cast<int64_t>(words.size())});
}

Array split(const Operand& key, int64_t n) {
  check_key("split", key);
  if (n < 0 || n > std::numeric_limits<uint32_t>::max())
    throw_error("random::split: {} keys requested; valid: 0 to 2^32 - 1", n);
  return apply1("random::split", {key}, [&](Builder&, const Values& v) { return split_key(v[0], n); });
}

Array split(const Operand& key, const Shape& shape) {
  const Array keys = random::split(key, count(shape));
  Shape all = shape;
  all.push_back(keys.shape(-1));
  return reshape(keys, all);
}

Array key_data(const Operand& key) { return key; }
Array clone(const Operand& key) { return key; }
Array wrap_key_data(const Operand& data) {
  if (data.dtype() != u32 || data.rank() < 1 || (data.shape(-1) != 2 && data.shape(-1) != 4))
    throw_error("random::wrap_key_data: the data is {}; keys are u32[..., 2] (threefry) or u32[..., 4] (philox)",
                to_string(data.type()));
  return data;
}

Array fold_in(const Operand& key, const Operand& data) {
  check_key("fold_in", key);
  if (data.rank() != 0 || !is_integer(data.dtype()))
    throw_error("random::fold_in: the data is {}; it must be an integer scalar", to_string(data.type()));
  return apply1("random::fold_in", {key, data}, [](Builder& b, const Values& v) {
    const Value number = convert(v[1], u32);
    if (!is_philox(v[0])) return pair_up(threefry(v[0], full(b, {u32, {}}, 0), number));
    const Value both = broadcast(number, {2}, {});
    return reshape(pair_up(threefry(reshape(v[0], {2, 2}), zeros_like(both), both)), {4});
  });
}

Array bits(const Operand& key, const Shape& shape, DType dtype) {
  check_key("bits", key);
  if (!is_integer(dtype) || is_signed(dtype))
    throw_error("random::bits: dtype {}; use u8, u16, u32 or u64", name(dtype));
  // Conversions of integers keep their low bits.
  return apply1("random::bits", {key}, [&](Builder&, const Values& v) {
    return convert(random_words(v[0], shape, integer_format(dtype)), dtype);
  });
}

Array uniform(const Operand& key, const Shape& shape, const Operand& lo, const Operand& hi, DType dtype) {
  check_key("uniform", key);
  check_floating("uniform", dtype);
  return apply1(
      "random::uniform", {key, lo, hi},
      [&](Builder&, const Values& v) {
        auto bound = [&](Value x) { return detail::broadcast_value("random::uniform", convert(x, dtype), shape); };
        return uniform_between(v[0], bound(v[1]), bound(v[2]));
      },
      dtype);
}

Array normal(const Operand& key, const Shape& shape, DType dtype) {
  check_key("normal", key);
  check_floating("normal", dtype);
  return apply1("random::normal", {key}, [&](Builder&, const Values& v) {
    return kRootTwo * erf_inv(uniform_between(v[0], {dtype, shape}, limits_of(dtype).above_minus_one, 1.0));
  });
}

Array truncated_normal(const Operand& key, double lo, double hi, const Shape& shape, DType dtype) {
  check_key("truncated_normal", key);
  check_floating("truncated_normal", dtype);
  if (!(lo < hi))
    throw_error("random::truncated_normal: bounds {} and {}; the first must be less than the second", lo, hi);
  return apply1("random::truncated_normal", {key}, [&](Builder& b, const Values& v) {
    // The bounds themselves are excluded, in the precision of the computation.
    const bool wide = dtype == f64;
    const double up = wide ? std::nextafter(lo, HUGE_VAL) : std::nextafterf(static_cast<float>(lo), HUGE_VALF);
    const double down = wide ? std::nextafter(hi, -HUGE_VAL) : std::nextafterf(static_cast<float>(hi), -HUGE_VALF);
    const Type type{wide ? f64 : f32, shape};
    auto bound = [&](double x) { return erf(full(b, type, x) / kRootTwo); };
    const Value x = kRootTwo * erf_inv(uniform_between(v[0], bound(lo), bound(hi)));
    return convert(minimum(maximum(x, full(b, type, up)), full(b, type, down)), dtype);
  });
}

Array truncated_normal(const Operand& key, const Operand& lo, const Operand& hi, const Shape& shape, DType dtype) {
  check_floating("truncated_normal", dtype);
  const DType wide = dtype == f64 ? f64 : f32;
  const Array least = broadcast_to(astype(lo, wide), shape), most = broadcast_to(astype(hi, wide), shape);
  const Array u = uniform(key, shape, erf(least / kRootTwo), erf(most / kRootTwo), wide);
  const Array up = nextafter(stop_gradient(least), HUGE_VAL), down = nextafter(stop_gradient(most), -HUGE_VAL);
  return astype(clip(kRootTwo * erf_inv(u), up, down), dtype);
}

Array gumbel(const Operand& key, const Shape& shape, DType dtype) {
  check_key("gumbel", key);
  check_floating("gumbel", dtype);
  return apply1("random::gumbel", {key}, [&](Builder&, const Values& v) { return gumbel_noise(v[0], {dtype, shape}); });
}

Array bernoulli(const Operand& key, const Operand& p) { return bernoulli(key, p, p.shape()); }

Array bernoulli(const Operand& key, const Operand& p, const Shape& shape) {
  check_key("bernoulli", key);
  return apply1("random::bernoulli", {key, p}, [&](Builder&, const Values& v) {
    const Value chance = detail::broadcast_value("random::bernoulli", detail::to_floating(v[1]), shape);
    return lt(uniform_between(v[0], chance.type(), 0.0, 1.0), chance);
  });
}

Array randint(const Operand& key, const Shape& shape, const Operand& lo, const Operand& hi, DType dtype) {
  check_key("randint", key);
  if (!is_integer(lo.dtype()) || !is_integer(hi.dtype()))
    throw_error("random::randint: bounds {} and {}; they must be integers", to_string(lo.type()), to_string(hi.type()));
  if (!is_integer(dtype)) throw_error("random::randint: dtype {}; use a type of integers", name(dtype));
  return apply1("random::randint", {key, lo, hi}, [&](Builder&, const Values& v) {
    const IntegerFormat f = integer_format(dtype);
    const auto [least, span] = integers_between(v[1], v[2], f);
    // 2^bits modulo the span: the weight of the higher of two random words.
    const Value root = unsigned_rem(word(span, int64_t{1} << (f.bits / 2)), span);
    const Value weight = unsigned_rem(root * root, span);
    auto stretched = [&](Value x) { return detail::broadcast_value("random::randint", x, shape); };
    const Value keys = split_key(v[0], 2), modulus = stretched(span);
    const Value higher = unsigned_rem(random_words(row_of(keys, 0), shape, f), modulus);
    const Value lower = unsigned_rem(random_words(row_of(keys, 1), shape, f), modulus);
    const Value offset = unsigned_rem(higher * stretched(weight) + lower, modulus);
    return stretched(convert(least, dtype)) + convert(offset, dtype);
  });
}

Array permutation(const Operand& key, int64_t n) {
  check_key("permutation", key);
  if (n < 0 || n > std::numeric_limits<int32_t>::max())
    throw_error("random::permutation: {} numbers requested; valid: 0 to 2^31 - 1", n);
  return apply1("random::permutation", {key}, [&](Builder&, const Values& v) { return shuffled(v[0], n); });
}

Array permutation(const Operand& key, const Operand& x) { return permutation(key, x, PermutationOptions{}); }

Array permutation(const Operand& key, const Operand& x, const PermutationOptions& options) {
  check_key("permutation", key);
  if (x.rank() == 0)
    throw_error("random::permutation: {} is a scalar; pass an array, or a plain number n for 0 to n - 1",
                to_string(x.type()));
  const int64_t along = detail::axis_of("random::permutation", options.axis, x.shape());
  return apply1("random::permutation", {key, x}, [&](Builder&, const Values& v) {
    if (options.independent) return shuffled(v[0], v[1], along);
    return gather(v[1], shuffled(v[0], v[1].shape()[static_cast<size_t>(along)]), along);
  });
}

Array categorical(const Operand& key, const Operand& logits, int64_t axis) {
  check_key("categorical", key);
  const int64_t along = detail::axis_of("random::categorical", axis, logits.shape());
  return apply1("random::categorical", {key, logits}, [&](Builder&, const Values& v) {
    const Value scores = detail::to_floating(v[1]);
    return argmax(gumbel_noise(v[0], scores.type()) + scores, along);
  });
}

Array categorical(const Operand& key, const Operand& logits, const Shape& shape, const CategoricalOptions& options) {
  check_key("categorical", key);
  const int64_t along = detail::axis_of("random::categorical", options.axis, logits.shape());
  const int64_t n = logits.shape(along);
  Shape batch = logits.shape();
  batch.erase(batch.begin() + along);
  if (shape.size() < batch.size() || !std::equal(batch.rbegin(), batch.rend(), shape.rbegin()))
    throw_error("random::categorical: shape {} for logits {} without axis {}; it must end with {}", to_string(shape),
                to_string(logits.shape()), along, to_string(batch));
  const Shape prefix(shape.begin(), shape.end() - static_cast<int64_t>(batch.size()));
  if (!options.replace && count(prefix) > n)
    throw_error("random::categorical: {} of {} categories without replacement; draw at most {}", count(prefix), n, n);
  return apply1("random::categorical", {key, logits}, [&](Builder&, const Values& v) {
    const Value scores = detail::to_floating(v[1]);
    if (!options.replace) {
      const int64_t rank = scores.rank();
      const Value noisy = gumbel_noise(v[0], scores.type()) + scores;
      const Value best = top_k(transpose(noisy, move_dim(rank, along, rank - 1)), count(prefix))[1];
      return reshape(transpose(best, move_dim(rank, rank - 1, 0)), shape);
    }
    Shape all = prefix;
    all.insert(all.end(), logits.shape().begin(), logits.shape().end());
    const Value noise = gumbel_noise(v[0], {scores.dtype(), all});
    return argmax(noise + detail::broadcast_value("random::categorical", scores, all),
                  static_cast<int64_t>(prefix.size()) + along);
  });
}

}  // namespace lockstep::random

namespace lockstep::detail {

void split_key(const Operand& key, Array* keys, size_t n) {
  const Array all = random::split(key, static_cast<int64_t>(n));
  for (size_t i = 0; i < n; ++i) keys[i] = at(all, static_cast<int64_t>(i));
}

}  // namespace lockstep::detail
