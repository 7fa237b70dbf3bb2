#include <cmath>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
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

// Which keys each query sees, bool, broadcasts to [b, h, t, s]. Undefined: all.
Array visible_keys(const AttentionShape& n, const AttentionOptions& options) {
  Array visible;
  const auto restrict_to = [&](const Array& more) { visible = visible.defined() ? logical_and(visible, more) : more; };
  const Array keys = arange(n.s, i32);
  if (options.causal) {
    Array queries = arange(n.t, i32);
    if (options.offset.defined()) {
      check_integers("the offset", options.offset, options.offset.rank() == 0, "a scalar");
      queries = queries + astype(options.offset, i32);
    }
    restrict_to(expand_dims(queries, 1) >= keys);
  }
  if (options.lengths.defined()) {
    const Array& lengths = options.lengths;
    check_integers("lengths", lengths, lengths.rank() == 0 || lengths.shape() == Shape{n.b},
                   "a scalar or one per example");
    restrict_to(keys < (lengths.rank() == 0 ? lengths : reshape(lengths, {n.b, 1, 1, 1})));
  }
  if (options.mask.defined()) {
    check_mask(n, options.mask);
    restrict_to(astype(options.mask, boolean));
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

}  // namespace

Array attention(const Array& q, const Array& k, const Array& v, const AttentionOptions& options, const Mode& mode) {
  const AttentionShape n = attention_shape(q, k, v);
  if (!(options.scale >= 0) || std::isinf(options.scale))
    throw_error("nn::attention: the scale is {}; it must be a positive number, or 0 for 1 / sqrt(features)",
                options.scale);
  const double scale =
      options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(n.e, 1)));
  Array scores = attention_scores(n, q, k, scale);
  const Array visible = visible_keys(n, options);
  // A large negative number instead of infinity: the softmax of a row without visible keys stays finite.
  if (visible.defined()) scores = where(visible, scores, -1e30);
  Array weights = softmax(scores);
  // A causal query sees key 0, so only other masks can leave a row empty.
  if (options.lengths.defined() || options.mask.defined()) weights = where(visible, weights, 0.0);
  return weighted_values(n, dropout(mode, options.site, astype(weights, q.dtype()), options.dropout), v);
}

Array rotary(const Array& x, const Array& positions, double base) {
  if (x.rank() != 4 || x.shape(3) % 2 != 0)
    throw_error("nn::rotary: x is {}; it must be [batch, tokens, heads, features] with an even number of features",
                to_string(x.shape()));
  if (!is_integer(positions.dtype()) || positions.shape() != Shape{x.shape(1)})
    throw_error("nn::rotary: the positions are {}; they must be integers, one for each of {} tokens",
                to_string(positions.type()), x.shape(1));
  if (!(base > 0) || std::isinf(base)) throw_error("nn::rotary: the base is {}; it must be a positive number", base);
  const int64_t e = x.shape(3), half = e / 2;
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i)
    frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(e)));
  const Array angles = reshape(astype(positions, dtype), {-1, 1, 1}) * astype(Array::from(frequencies, {half}), dtype);
  const Array c = cos(angles), s = sin(angles);  // [t, 1, half]
  const std::vector<Array> part = split(astype(x, dtype), 2, -1);
  return astype(concatenate({part[0] * c - part[1] * s, part[1] * c + part[0] * s}, -1), x.dtype());
}

}  // namespace lockstep::nn
