#include "lockstep/attention.h"

#include <cmath>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "ops/attention.h"
#include "ops/random_ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr const char* kAttentionName = "dot_product_attention";

Value to_i32(const char* what, Value x) {
  if (!is_integer(x.dtype()))
    throw_error("{}: {} is {}; it must be integers", kAttentionName, what, to_string(x.type()));
  return detail::convert(x, DType::i32);
}

double scale_of(const DotProductAttentionOptions& options, const Array& q) {
  if (!(options.scale >= 0) || std::isinf(options.scale))
    throw_error("{}: the scale is {}; it must be a positive number, or 0 for 1 / sqrt(features)", kAttentionName,
                options.scale);
  if (options.scale > 0) return options.scale;
  return q.rank() == 0 || q.shape(-1) == 0 ? 1 : 1 / std::sqrt(static_cast<double>(q.shape(-1)));
}

// Masks of dropout are computed by threefry: from a key of philox, its second half encrypted with its first.
Value threefry_key(Value key) {
  if (key.type() != Type{u32, {4}}) return key;
  const auto words = [&](int64_t begin, int64_t end) { return slice(key, {begin}, {end}, {1}); };
  return concatenate(threefry(words(0, 2), words(2, 3), words(3, 4)), 0);
}

}  // namespace

std::pair<Array, Array> dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
                                              const DotProductAttentionOptions& options) {
  if (options.key_segments.defined() && !options.query_segments.defined())
    throw_error("{}: key_segments without query_segments; set both", kAttentionName);
  if (options.dropout > 0 && !options.dropout_key.defined())
    throw_error("{}: the dropout is {} without a key; set dropout_key", kAttentionName, options.dropout);
  const AttentionAttrs attrs{.causal = options.causal,
                             .window = options.window,
                             .scale = scale_of(options, q),
                             .softcap = options.softcap,
                             .dropout = options.dropout};
  std::vector<Array> args{q, k, v};
  const auto add = [&](const Array& x) {
    if (x.defined()) args.push_back(x);
    return x.defined();
  };
  const bool has_offset = add(options.offset), has_lengths = add(options.lengths),
             has_segments = add(options.query_segments), has_key_segments = add(options.key_segments),
             has_key = options.dropout > 0 && add(options.dropout_key);
  const detail::Arrays results = detail::apply(kAttentionName, args, {}, [&](Builder&, const Values& x) {
    size_t next = 3;
    AttentionExtras extras;
    if (has_offset) extras.offset = to_i32("the offset", x[next++]);
    if (has_lengths) {
      extras.lengths = to_i32("the array of lengths", x[next++]);
      if (extras.lengths.rank() == 0 && x[0].rank() > 0)
        extras.lengths = broadcast(extras.lengths, {x[0].shape()[0]}, {});
    }
    if (has_segments) extras.query_segments = to_i32("the array of segments", x[next++]);
    extras.key_segments = has_key_segments ? to_i32("the array of segments", x[next++]) : extras.query_segments;
    if (has_key) extras.dropout_key = threefry_key(x[next++]);
    return attention(x[0], x[1], x[2], attrs, extras);
  });
  return {results[0], results[1]};
}

}  // namespace lockstep
