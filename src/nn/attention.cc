#include <cmath>

#include "base/check.h"
#include "lockstep/attention.h"
#include "lockstep/create.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/norm.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/transformer.h"

namespace lockstep::nn {
namespace {

// b: batch, t: queries, s: keys, h: heads of queries, k: heads of keys and values, g = h / k, e: features of a head.
struct AttentionShape {
  int64_t b = 0, t = 0, s = 0, h = 0, k = 0, g = 0, e = 0;
};

AttentionShape attention_shape(const Array& q, const Array& k, const Array& v) {
  const auto shapes = [&] { return to_string(q.shape()) + ", " + to_string(k.shape()) + ", " + to_string(v.shape()); };
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    throw_error("nn::attention: q, k, v are {}; each must be [batch, tokens, heads, features]", shapes());
  if (k.shape(0) != q.shape(0) || v.shape(0) != q.shape(0) || v.shape(1) != k.shape(1) || v.shape(2) != k.shape(2) ||
      k.shape(3) != q.shape(3))
    throw_error(
        "nn::attention: q, k, v are {}; they must have one batch, k and v the same tokens and heads, q and k the "
        "same features",
        shapes());
  if (k.shape(2) < 1 || q.shape(2) % k.shape(2) != 0)
    throw_error("nn::attention: {} heads of queries share {} heads of keys; the second must divide the first",
                q.shape(2), k.shape(2));
  if (!is_floating(q.dtype()) || k.dtype() != q.dtype() || v.dtype() != q.dtype())
    throw_error("nn::attention: q, k, v are {}, {} and {}; they must have one floating-point type", name(q.dtype()),
                name(k.dtype()), name(v.dtype()));
  return {q.shape(0), q.shape(1), k.shape(1), q.shape(2), k.shape(2), q.shape(2) / k.shape(2), q.shape(3)};
}

void check_integers(const char* what, const Array& a, bool fits, const std::string& wanted) {
  if (!is_integer(a.dtype()) || !fits)
    throw_error("nn::attention: {} is {}; it must be integers, {}", what, to_string(a.type()), wanted);
}

void check_mask(const AttentionShape& n, const Array& mask) {
  const Shape whole{n.b, n.h, n.t, n.s};
  bool fits = mask.rank() <= 4;
  for (int64_t d = -1; fits && d >= -mask.rank(); --d)
    fits = mask.shape(d) == 1 || mask.shape(d) == whole[static_cast<size_t>(4 + d)];
  if (!fits)
    throw_error("nn::attention: the mask {} does not broadcast to [batch, heads, queries, keys] {}",
                to_string(mask.shape()), to_string(whole));
}

void check_options(const AttentionShape& n, const AttentionOptions& o) {
  if (!(o.scale >= 0) || std::isinf(o.scale))
    throw_error("nn::attention: the scale is {}; it must be a positive number, or 0 for 1 / sqrt(features)", o.scale);
  if (!(o.softcap >= 0) || std::isinf(o.softcap))
    throw_error("nn::attention: the softcap is {}; it must be a positive number, or 0 for none", o.softcap);
  if (o.window < 0 || o.window > INT32_MAX)
    throw_error("nn::attention: the window is {}; it must be a number of keys, or 0 for no limit", o.window);
  if (!(o.dropout >= 0 && o.dropout < 1))
    throw_error("nn::attention: the dropout is {}; it must be at least 0 and less than 1", o.dropout);
  if (o.offset.defined()) check_integers("the offset", o.offset, o.offset.rank() == 0, "a scalar");
  if (o.lengths.defined())
    check_integers("lengths", o.lengths, o.lengths.rank() == 0 || o.lengths.shape() == Shape{n.b},
                   "a scalar or one per example");
  if (o.segments.defined())
    check_integers("segments", o.segments, o.segments.shape() == Shape{n.b, n.t}, "one per query, [batch, queries]");
  const Array& keys = o.key_segments.defined() ? o.key_segments : o.segments;
  if (keys.defined() && !o.segments.defined()) throw_error("nn::attention: key_segments without segments; set both");
  if (keys.defined())
    check_integers("key_segments", keys, keys.shape() == Shape{n.b, n.s}, "one per key, [batch, keys]");
}

// Which keys each query sees, bool, broadcasts to [b, h, t, s].
Array visible_keys(const AttentionShape& n, const AttentionOptions& options) {
  check_mask(n, options.mask);
  Array visible = astype(options.mask, boolean);
  const auto restrict_to = [&](const Array& more) { visible = logical_and(visible, more); };
  const Array keys = arange(n.s, i32);
  Array queries = expand_dims(arange(n.t, i32), 1);
  if (options.offset.defined()) queries = queries + astype(options.offset, i32);
  if (options.causal) restrict_to(queries >= keys);
  if (options.window > 0) restrict_to(queries - options.window < keys);
  if (options.lengths.defined()) {
    const Array& lengths = options.lengths;
    restrict_to(keys < (lengths.rank() == 0 ? lengths : reshape(lengths, {n.b, 1, 1, 1})));
  }
  if (options.segments.defined()) {
    const Array& of_keys = options.key_segments.defined() ? options.key_segments : options.segments;
    restrict_to(reshape(options.segments, {n.b, 1, n.t, 1}) == reshape(of_keys, {n.b, 1, 1, n.s}));
  }
  return visible;
}

// Queries and keys -> scores [b, h, t, s] in f32.
Array attention_scores(const AttentionShape& n, const Array& q, const Array& k, double scale) {
  const Array products =
      n.g == 1 ? einsum("bthe,bshe->bhts", q, k)
               : reshape(einsum("btkge,bske->bkgts", reshape(q, {n.b, n.t, n.k, n.g, n.e}), k), {n.b, n.h, n.t, n.s});
  return astype(products, q.dtype() == f64 ? f64 : f32) * scale;
}

// Weights [b, h, t, s] and values -> [b, t, h, e].
Array weighted_values(const AttentionShape& n, const Array& weights, const Array& v) {
  if (n.g == 1) return einsum("bhts,bshe->bthe", weights, v);
  return reshape(einsum("bkgts,bske->btkge", reshape(weights, {n.b, n.k, n.g, n.t, n.s}), v),
                 {n.b, n.t, n.h, v.shape(3)});
}

// With a mask of any shape, the scores are an array.
Array masked_attention(const AttentionShape& n, const Array& q, const Array& k, const Array& v,
                       const AttentionOptions& options, const Mode& mode) {
  const double scale =
      options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(n.e, 1)));
  Array scores = attention_scores(n, q, k, scale);
  if (options.softcap > 0) scores = tanh(scores / options.softcap) * options.softcap;
  const Array visible = visible_keys(n, options);
  // A large negative number instead of infinity: the softmax of a row without visible keys stays finite.
  const Array weights = where(visible, softmax(where(visible, scores, -1e30)), 0.0);
  return weighted_values(n, dropout(mode, options.site, astype(weights, q.dtype()), options.dropout), v);
}

}  // namespace

Array attention(const Operand& q, const Operand& k, const Operand& v, const AttentionOptions& options,
                const Mode& mode) {
  const AttentionShape n = attention_shape(q, k, v);
  check_options(n, options);
  if (options.mask.defined()) return masked_attention(n, q, k, v, options, mode);
  const bool drops = mode.training && options.dropout > 0;
  if (drops && !mode.key.defined())
    throw_error("nn::attention: training with dropout without a key; set Mode::key, a new one for every step");
  return dot_product_attention(q, k, v,
                               {.causal = options.causal,
                                .window = options.window,
                                .scale = options.scale,
                                .softcap = options.softcap,
                                .offset = options.offset,
                                .lengths = options.lengths,
                                .query_segments = options.segments,
                                .key_segments = options.key_segments,
                                .dropout = drops ? options.dropout : 0,
                                .dropout_key = drops ? random::fold_in(mode.key, options.site) : Array()})
      .first;
}

Array rotary(const Operand& x, const Operand& positions, double base) {
  if (x.rank() != 4 || x.shape(3) % 2 != 0)
    throw_error("nn::rotary: x is {}; it must be [batch, tokens, heads, features] with an even number of features",
                to_string(x.shape()));
  if (!is_integer(positions.dtype()) || positions.shape() != Shape{x.shape(1)})
    throw_error("nn::rotary: the positions are {}; they must be integers, one for each of {} tokens",
                to_string(positions.type()), x.shape(1));
  if (!(base > 0) || std::isinf(base)) throw_error("nn::rotary: the base is {}; it must be a positive number", base);
  return astype(lockstep::rotary_embedding(x, positions, base), x.dtype());
}

}  // namespace lockstep::nn
