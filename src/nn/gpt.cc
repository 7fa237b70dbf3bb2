#include "lockstep/gpt.h"

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/initializers.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace {

constexpr double kEmbeddingDeviation = 0.02;
constexpr int64_t kLargestVocabulary = int64_t{1} << 24, kLongestContext = int64_t{1} << 24;
// Dropout sites: the embedding, then three per block.
constexpr int64_t kEmbeddingSite = 0, kFirstBlockSite = 1, kSitesPerBlock = 3;

void check_range(const char* field, int64_t value, int64_t largest) {
  if (value < 1 || value > largest) throw_error("gpt: {} is {}; it must be between 1 and {}", field, value, largest);
}

// Throws Error unless the parameters have the structure and the tables of this configuration.
void check_parameters(const GptConfig& c, const Gpt& gpt) {
  if (gpt.token_embedding.shape() != Shape{c.vocabulary, c.width})
    throw_error("gpt: the token embedding is {}; the configuration needs [{}, {}]",
                to_string(gpt.token_embedding.shape()), c.vocabulary, c.width);
  const bool learned = c.position == GptConfig::Position::learned;
  if (gpt.position_embedding.has_value() != learned || gpt.output.has_value() == c.tied ||
      gpt.blocks.size() != static_cast<size_t>(c.layers))
    throw_error(
        "gpt: the parameters have {} blocks, {} position embedding and {} output layer, which does not fit the "
        "configuration (layers {}, position {}, tied {}); create them with the same configuration",
        gpt.blocks.size(), gpt.position_embedding ? "a" : "no", gpt.output ? "an" : "no", c.layers,
        learned ? "learned" : "rotary", c.tied);
  if (learned && gpt.position_embedding->shape() != Shape{c.context, c.width})
    throw_error("gpt: the position embedding is {}; the configuration needs [{}, {}]",
                to_string(gpt.position_embedding->shape()), c.context, c.width);
}

void check_token_array(const GptConfig& c, const Array& tokens) {
  if (!is_integer(tokens.dtype()) || tokens.rank() != 2)
    throw_error("gpt: the tokens are {}; give integers [batch, tokens]", to_string(tokens.type()));
  if (tokens.shape(1) < 1 || tokens.shape(1) > c.context)
    throw_error("gpt: sequences of {} tokens; this model takes 1 to {}", tokens.shape(1), c.context);
}

void check_scalar_integer(const char* what, const Array& x) {
  if (!is_integer(x.dtype()) || x.rank() != 0)
    throw_error("gpt: the {} is {}; it must be an integer scalar", what, to_string(x.type()));
}

// The sum of token embeddings and `positions` ([t, width]; none if rotary), [b, t, width] in mode.compute.
Array embedded(const Gpt& gpt, const Array& tokens, const std::optional<Array>& positions, const nn::Mode& mode) {
  const Array x = astype(nn::apply(nn::Embedding{gpt.token_embedding}, tokens), mode.compute);
  return positions ? x + astype(*positions, mode.compute) : x;
}

// Features [..., width] -> logits [..., vocabulary].
Array logits_of(const nn::TransformerConfig& blocks, const Gpt& gpt, const Array& x) {
  const Array y = nn::apply(blocks, gpt.norm, x);
  if (gpt.output) return dot(y, astype(*gpt.output, y.dtype()));
  return einsum("...d,vd->...v", y, astype(gpt.token_embedding, y.dtype()));
}

// The features of tokens that continue a cache, [b, t, width]; updates the cache.
Array continued(const GptConfig& c, const nn::TransformerConfig& blocks, const Gpt& gpt, const Array& tokens,
                const Array& position, GptCache& cache, const nn::Mode& mode) {
  check_parameters(c, gpt);
  check_token_array(c, tokens);
  if (cache.layers.size() != gpt.blocks.size())
    throw_error("gpt: the cache has {} layers, the model {}; create it with the same configuration",
                cache.layers.size(), gpt.blocks.size());
  std::optional<Array> positions;
  if (gpt.position_embedding)
    positions = dynamic_slice(*gpt.position_embedding, {position, 0}, {tokens.shape(1), c.width});
  Array x = embedded(gpt, tokens, positions, mode);
  for (size_t i = 0; i < gpt.blocks.size(); ++i)
    x = nn::apply(blocks, gpt.blocks[i], x, mode, position, cache.layers[i]);
  return x;
}

}  // namespace

nn::TransformerConfig GptConfig::blocks() const {
  check_range("vocabulary", vocabulary, kLargestVocabulary);
  check_range("context", context, kLongestContext);
  return nn::resolved({.width = width,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_width = head_width,
                       .hidden = hidden,
                       .layers = layers,
                       .norm = norm,
                       .feed_forward = feed_forward,
                       .causal = true,
                       .rotary = position == Position::rotary,
                       .bias = bias,
                       .dropout = dropout,
                       .rope_base = rope_base,
                       .norm_epsilon = norm_epsilon});
}

GptConfig gpt_config(std::string_view name) {
  constexpr auto kExact = GptConfig::FeedForward::gelu_exact;
  if (name == "char")
    return {.context = 256, .layers = 6, .heads = 6, .width = 384, .feed_forward = kExact, .bias = false};
  if (name == "char-small")
    return {.context = 64, .layers = 4, .heads = 4, .width = 128, .feed_forward = kExact, .bias = false};
  if (name == "124m") return {.vocabulary = 50257};
  throw_unknown_name("gpt size", name, gpt_config_names());
}

std::vector<std::string> gpt_config_names() { return {"char", "char-small", "124m"}; }

void check(const GptConfig& config) { static_cast<void>(config.blocks()); }

Gpt create_gpt(const GptConfig& c, const Operand& key) {
  const nn::TransformerConfig blocks = c.blocks();
  const auto table = [&](int64_t index, int64_t rows, int64_t columns) {
    return initializers::normal(random::fold_in(key, index), {rows, columns}, kEmbeddingDeviation);
  };
  Gpt gpt;
  gpt.token_embedding = table(0, c.vocabulary, c.width);
  gpt.norm = nn::transformer_norm(blocks);
  if (c.position == GptConfig::Position::learned) gpt.position_embedding = table(1, c.context, c.width);
  if (!c.tied) gpt.output = table(2, c.width, c.vocabulary);
  const Array block_key = random::fold_in(key, 3);
  for (int64_t i = 0; i < c.layers; ++i)
    gpt.blocks.push_back(nn::transformer_block(blocks, random::fold_in(block_key, i)));
  return gpt;
}

Array apply(const GptConfig& c, const Gpt& gpt, const Operand& tokens, const nn::Mode& mode) {
  const nn::TransformerConfig blocks = c.blocks();
  check_parameters(c, gpt);
  check_token_array(c, tokens);
  std::optional<Array> positions;
  if (gpt.position_embedding) positions = slice(*gpt.position_embedding, {0}, {tokens.shape(1)});
  Array x = nn::dropout(mode, kEmbeddingSite, embedded(gpt, tokens, positions, mode), c.dropout);
  for (size_t i = 0; i < gpt.blocks.size(); ++i)
    x = nn::apply(blocks, gpt.blocks[i], x, mode, kFirstBlockSite + kSitesPerBlock * static_cast<int64_t>(i));
  return logits_of(blocks, gpt, x);
}

GptCache create_cache(const GptConfig& config, int64_t batch, DType dtype) {
  const nn::TransformerConfig blocks = config.blocks();
  if (batch < 1) throw_error("gpt: a cache for {} sequences; there must be at least one", batch);
  if (!is_floating(dtype)) throw_error("gpt: a cache of {}; choose a floating-point type", name(dtype));
  const Shape shape{batch, config.context, blocks.kv_heads, blocks.head_width};
  GptCache cache;
  // Each array has memory of its own, so that a compiled step can reuse it.
  for (int64_t i = 0; i < config.layers; ++i) cache.layers.push_back({zeros(shape, dtype), zeros(shape, dtype)});
  return cache;
}

std::pair<Array, GptCache> decode(const GptConfig& config, const Gpt& gpt, const Operand& tokens,
                                  const Operand& position, const GptCache& cache, const nn::Mode& mode) {
  const nn::TransformerConfig blocks = config.blocks();
  check_scalar_integer("position", position);
  GptCache next = cache;
  const Array x = continued(config, blocks, gpt, tokens, position, next, mode);
  return {logits_of(blocks, gpt, x), std::move(next)};
}

std::pair<Array, GptCache> prefill(const GptConfig& config, const Gpt& gpt, const Operand& tokens,
                                   const Operand& length, const GptCache& cache, const nn::Mode& mode) {
  const nn::TransformerConfig blocks = config.blocks();
  check_scalar_integer("length of the prompt", length);
  GptCache next = cache;
  const Array x = continued(config, blocks, gpt, tokens, 0, next, mode);
  return {logits_of(blocks, gpt, at(x, astype(length, i32) - 1, 1)), std::move(next)};
}

}  // namespace lockstep
