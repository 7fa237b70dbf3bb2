#include "lockstep/transformer.h"

#include <cmath>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/initializers.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"

namespace lockstep::nn {
namespace {

constexpr double kWeightDeviation = 0.02;
// Bounds that keep every product of two sizes within 64 bits.
constexpr int64_t kLargestWidth = int64_t{1} << 24, kMostLayers = int64_t{1} << 16;

void check_size(const char* field, int64_t value, int64_t largest) {
  if (value < 1 || value > largest)
    throw_error("transformer: {} is {}; it must be between 1 and {}", field, value, largest);
}

int64_t default_hidden(const TransformerConfig& c) {
  if (c.feed_forward != FeedForwardKind::swiglu) return 4 * c.width;
  constexpr int64_t kMultiple = 64;
  return (8 * c.width / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

Linear block_weights(const TransformerConfig& c, const Array& key, int64_t in, int64_t out,
                     double sd = kWeightDeviation) {
  return {initializers::normal(key, {in, out}, sd), c.bias ? std::optional(zeros({out})) : std::nullopt};
}

struct Heads {
  Array q, k, v;
};

// x split along its last dimension. The gradient is one concatenation; that of slices is a sum of padded arrays.
std::vector<Array> split_features(const Array& x, const std::vector<int64_t>& positions) {
  const auto parts = [positions](const Array& y) { return split_at(y, positions, -1); };
  const auto forward = [parts](const Array& y) { return std::pair{parts(y), std::tuple<>()}; };
  const auto backward = [](const std::tuple<>&, const std::vector<Array>& cts) { return concatenate(cts, -1); };
  return custom_vjp(parts, forward, backward)(x);
}

// The heads of all tokens, [b, t, heads, e] each.
Heads project_heads(const TransformerConfig& c, const Attention& layer, const Array& x, const Mode& mode) {
  const int64_t b = x.shape(0), t = x.shape(1), e = c.head_width, q = c.heads * e, k = c.kv_heads * e;
  const std::vector<Array> parts = split_features(apply(layer.qkv, x, mode), {q, q + k});
  return {reshape(parts[0], {b, t, c.heads, e}), reshape(parts[1], {b, t, c.kv_heads, e}),
          reshape(parts[2], {b, t, c.kv_heads, e})};
}

Array apply_feed_forward(const TransformerConfig& c, const FeedForward& layer, const Array& x, const Mode& mode) {
  const Array up = apply(layer.up, x, mode);
  switch (c.feed_forward) {
    case FeedForwardKind::gelu_exact:
      return apply(layer.down, gelu_exact(up), mode);
    case FeedForwardKind::gelu_tanh:
      return apply(layer.down, gelu(up), mode);
    case FeedForwardKind::swiglu:
      break;
  }
  if (!layer.gate) throw_error("transformer: a swiglu layer has no gate; create it with the same configuration");
  return apply(layer.down, silu(apply(*layer.gate, x, mode)) * up, mode);
}

void check_tokens(const TransformerConfig& c, const Array& x) {
  if (x.rank() != 3 || x.shape(2) != c.width)
    throw_error("transformer: x is {}; it must be [batch, tokens, {}]", to_string(x.shape()), c.width);
}

// Everything but the attention between heads, which attend(heads) computes. `site` is the first of three.
template <class Attend>
Array apply_block(const TransformerConfig& c, const TransformerBlock& block, const Array& x, const Mode& mode,
                  int64_t site, const Attend& attend) {
  const Array heads = attend(project_heads(c, block.attention, apply(c, block.attention_norm, x), mode));
  const Array attended = apply(block.attention.projection, reshape(heads, {x.shape(0), x.shape(1), -1}), mode);
  const Array h = x + dropout(mode, site + 1, attended, c.dropout);
  const Array fed = apply_feed_forward(c, block.feed_forward, apply(c, block.feed_forward_norm, h), mode);
  return h + dropout(mode, site + 2, fed, c.dropout);
}

}  // namespace

TransformerConfig resolved(TransformerConfig c) {
  check_size("width", c.width, kLargestWidth);
  check_size("heads", c.heads, kLargestWidth);
  check_size("layers", c.layers, kMostLayers);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  check_size("kv_heads", c.kv_heads, kLargestWidth);
  if (c.heads % c.kv_heads != 0)
    throw_error("transformer: kv_heads is {}, heads is {}; the first must divide the second", c.kv_heads, c.heads);
  if (c.head_width == 0) {
    if (c.width % c.heads != 0)
      throw_error("transformer: width is {}, heads is {}; heads must divide width, or set head_width", c.width,
                  c.heads);
    c.head_width = c.width / c.heads;
  }
  check_size("head_width", c.head_width, kLargestWidth);
  check_size("heads * head_width", c.heads * c.head_width, kLargestWidth);
  if (c.rotary && c.head_width % 2 != 0)
    throw_error("transformer: head_width is {}; rotary positions need an even number", c.head_width);
  if (c.hidden == 0) c.hidden = default_hidden(c);
  check_size("hidden", c.hidden, 4 * kLargestWidth);
  if (!(c.dropout >= 0 && c.dropout < 1))
    throw_error("transformer: dropout is {}; it must be at least 0 and less than 1", c.dropout);
  if (!(c.rope_base > 0) || std::isinf(c.rope_base))
    throw_error("transformer: rope_base is {}; it must be a positive number", c.rope_base);
  if (!(c.norm_epsilon >= 0) || std::isinf(c.norm_epsilon))
    throw_error("transformer: norm_epsilon is {}; it must be 0 or a positive number", c.norm_epsilon);
  return c;
}

TransformerNorm transformer_norm(const TransformerConfig& c) {
  const bool bias = c.bias && c.norm == NormKind::layer;
  return {ones({c.width}), bias ? std::optional(zeros({c.width})) : std::nullopt};
}

TransformerBlock transformer_block(const TransformerConfig& config, const Operand& key) {
  const TransformerConfig c = resolved(config);
  const double residual = kWeightDeviation / std::sqrt(2.0 * static_cast<double>(c.layers));
  const auto layer_key = [&](int64_t i) { return random::fold_in(key, i); };
  const int64_t heads = c.heads * c.head_width, keys = c.kv_heads * c.head_width;
  TransformerBlock block;
  block.attention_norm = transformer_norm(c);
  block.feed_forward_norm = transformer_norm(c);
  block.attention.qkv = block_weights(c, layer_key(0), c.width, heads + 2 * keys);
  block.attention.projection = block_weights(c, layer_key(1), heads, c.width, residual);
  block.feed_forward.up = block_weights(c, layer_key(2), c.width, c.hidden);
  block.feed_forward.down = block_weights(c, layer_key(3), c.hidden, c.width, residual);
  if (c.feed_forward == FeedForwardKind::swiglu)
    block.feed_forward.gate = block_weights(c, layer_key(4), c.width, c.hidden);
  return block;
}

Array apply(const TransformerConfig& c, const TransformerNorm& norm, const Operand& x) {
  if (c.norm == NormKind::rms) return apply(RmsNorm{norm.scale}, x, c.norm_epsilon);
  return apply(LayerNorm{norm.scale, norm.bias ? *norm.bias : zeros_like(norm.scale)}, x, c.norm_epsilon);
}

Array apply(const TransformerConfig& config, const TransformerBlock& block, const Operand& x, const Mode& mode,
            int64_t site) {
  const TransformerConfig c = resolved(config);
  check_tokens(c, x);
  const auto compute = [&](const TransformerBlock& weights, const Array& in) {
    return apply_block(c, weights, in, mode, site, [&](Heads heads) {
      if (c.rotary) {
        const Array positions = arange(in.shape(1), i32);
        heads.q = rotary(heads.q, positions, c.rope_base);
        heads.k = rotary(heads.k, positions, c.rope_base);
      }
      return attention(heads.q, heads.k, heads.v, {.causal = c.causal, .dropout = c.dropout, .site = site}, mode);
    });
  };
  return mode.remat && mode.training ? remat(compute)(block, x) : compute(block, x);
}

Array apply(const TransformerConfig& config, const TransformerBlock& block, const Operand& x, const Mode& mode,
            const Operand& position, KeyValueCache& cache) {
  const TransformerConfig c = resolved(config);
  check_tokens(c, x);
  const Shape shape{x.shape(0), cache.keys.rank() == 4 ? cache.keys.shape(1) : 0, c.kv_heads, c.head_width};
  if (cache.keys.shape() != shape || cache.values.shape() != shape || x.shape(1) > shape[1])
    throw_error(
        "transformer: the cache has keys {} and values {}; {} tokens of {} sequences need [{}, context, {}, {}]",
        to_string(cache.keys.shape()), to_string(cache.values.shape()), x.shape(1), x.shape(0), x.shape(0), c.kv_heads,
        c.head_width);
  const Array start = astype(position, i32), zero = Array(0);
  const Mode prediction{.compute = mode.compute};
  return apply_block(c, block, x, prediction, 0, [&](Heads heads) {
    if (c.rotary) {
      const Array positions = start + arange(x.shape(1), i32);
      heads.q = rotary(heads.q, positions, c.rope_base);
      heads.k = rotary(heads.k, positions, c.rope_base);
    }
    const auto stored = [&](const Array& old, const Array& rows) {
      return dynamic_update_slice(old, astype(rows, old.dtype()), {zero, start, zero, zero});
    };
    cache = {stored(cache.keys, heads.k), stored(cache.values, heads.v)};
    const auto read = [&](const Array& stored_rows) { return astype(stored_rows, x.dtype()); };
    return attention(heads.q, read(cache.keys), read(cache.values), {.causal = true, .offset = start});
  });
}

}  // namespace lockstep::nn
