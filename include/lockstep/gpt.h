// Gpt: a decoder-only language model. One configuration covers GPT-2 and Llama.
//
//   GptConfig config = gpt_config("char");
//   config.vocabulary = 65;
//   Gpt gpt = create_gpt(config, random::key(0));
//   Array logits = apply(config, gpt, tokens, mode);  // [b, t] -> [b, t, 65]
//
// Generation keeps the keys and values of earlier tokens in a GptCache, whose shapes never change. So one compiled step
// serves every position:
//
//   auto step = jit([=](Gpt g, Array token, Array position, GptCache c) {
//     return decode(config, g, token, position, c, {});
//   }, {.donate = {3}});
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/nn.h"
#include "lockstep/operand.h"
#include "lockstep/transformer.h"

namespace lockstep {

// The sizes and the variant of a model. The defaults are GPT-2's form; Llama is
// {.norm = rms, .position = rotary, .feed_forward = swiglu, .bias = false, .tied = false, .norm_epsilon = 1e-6}.
struct GptConfig {
  using Norm = nn::NormKind;
  using FeedForward = nn::FeedForwardKind;
  enum class Position : uint8_t { learned, rotary };

  int64_t vocabulary = 0;  // number of tokens; must be set
  int64_t context = 1024;  // the longest sequence, in tokens
  int64_t layers = 12;     // number of blocks
  int64_t heads = 12;      // heads of queries
  int64_t kv_heads = 0;    // heads of keys and values; divides `heads`; 0: as many as `heads`
  int64_t width = 768;     // features of a token between blocks
  int64_t head_width = 0;  // features of a head; even if rotary; 0: width / heads
  int64_t hidden = 0;      // features inside a feed-forward layer; 0: as in nn::TransformerConfig
  Norm norm = Norm::layer;
  Position position = Position::learned;
  FeedForward feed_forward = FeedForward::gelu_tanh;
  bool bias = true;            // layers and layer norms have biases; the output layer never has one
  bool tied = true;            // the output layer is the token embedding
  double dropout = 0;          // in training: after the embedding, on attention weights, and on what each layer adds
  double rope_base = 10000;    // rotary: the base of the wavelengths ("rope_theta")
  double norm_epsilon = 1e-5;  // is added to variances

  // The configuration of the blocks, with the values of fields that are 0 here. Throws Error where check() does.
  nn::TransformerConfig blocks() const;
};

// A named size: "char" (6 layers, 6 heads, 384 wide, 256 tokens), "char-small" (4 layers, 4 heads, 128 wide, 64 tokens;
// for CPUs), "124m" (GPT-2's smallest: 12 layers, 12 heads, 768 wide, 1024 tokens, vocabulary 50257). The char sizes
// have the exact gelu and no biases, and `vocabulary` must be set. Throws Error for an unknown name, listing the known
// ones.
GptConfig gpt_config(std::string_view name);
std::vector<std::string> gpt_config_names();

// Throws Error, naming the field, when a value is out of range or two do not fit.
void check(const GptConfig& config);

// The parameters. See nn::TransformerBlock for the order of heads in its weights, and nn::rotary() for positions.
struct Gpt {
  Array token_embedding;                    // [vocabulary, width]
  std::optional<Array> position_embedding;  // [context, width]; learned positions only
  std::vector<nn::TransformerBlock> blocks;
  nn::TransformerNorm norm;
  std::optional<Array> output;  // [width, vocabulary]; unless tied
};

// GPT-2's initialization: normal with deviation 0.02, divided by sqrt(2 * layers) for `projection` and `down`; zero
// biases, scales 1. Throws Error where check() does.
Gpt create_gpt(const GptConfig& config, const Operand& key);

// Tokens (integers [b, t], t <= context) -> logits [b, t, vocabulary] in mode.compute. Position i depends on the tokens
// 0 to i only. Weights are converted to mode.compute where they are used. Tokens outside the vocabulary are clamped to
// it, so check data before training.
Array apply(const GptConfig& config, const Gpt& gpt, const Operand& tokens, const nn::Mode& mode);

// The keys and values of earlier tokens: a pair of arrays [b, context, kv_heads, head_width] per layer.
struct GptCache {
  std::vector<nn::KeyValueCache> layers;
};
// A cache of zeros. `dtype` should be mode.compute of the calls.
GptCache create_cache(const GptConfig& config, int64_t batch, DType dtype = f32);

// Continues sequences. Tokens [b, t] (usually t = 1) are at positions position .. position + t - 1, where `position` is
// an integer scalar, perhaps traced. Reads the cache below `position` and returns {logits [b, t, vocabulary], the cache
// with the new keys and values}. Equals apply() on the whole sequence, without dropout.
// REQUIRES: position + t <= context.
std::pair<Array, GptCache> decode(const GptConfig& config, const Gpt& gpt, const Operand& tokens,
                                  const Operand& position, const GptCache& cache, const nn::Mode& mode);

// Reads a prompt. `tokens` [b, t] is padded at the end with any tokens: only the first `length` (an integer scalar,
// perhaps traced, 1 <= length <= t) count. So one compiled version serves all prompts up to t. Returns {logits
// [b, vocabulary] of the token after the prompt, the cache}. Generation continues with decode() at position `length`:
// each step overwrites the padding in the cache before it reads it.
std::pair<Array, GptCache> prefill(const GptConfig& config, const Gpt& gpt, const Operand& tokens,
                                   const Operand& length, const GptCache& cache, const nn::Mode& mode);

}  // namespace lockstep
