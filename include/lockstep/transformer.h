// Attention and transformer blocks: multi-head and grouped-query attention, causal or not, rotary positions, a cache of
// keys and values.
//
//   nn::TransformerConfig config{.width = 384, .heads = 6, .causal = true};
//   nn::TransformerBlock block = nn::transformer_block(config, key);
//   Array y = nn::apply(config, block, x, mode, site);  // [b, t, 384] -> [b, t, 384]
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/array.h"
#include "lockstep/nn.h"
#include "lockstep/operand.h"

namespace lockstep::nn {

struct AttentionOptions {
  bool causal = false;  // query i sees the keys 0 .. offset + i
  int64_t window = 0;   // query i sees only the keys after offset + i - window; 0: no limit
  double scale = 0;     // multiplies the products of queries and keys; 0: 1 / sqrt(head_width)
  double softcap = 0;   // scores become softcap * tanh(scores / softcap); 0: unchanged
  Array offset = {};    // the position of the first query: an integer scalar >= 0, perhaps traced; undefined: 0
  Array lengths = {};   // only the first lengths[i] keys of example i count: integers [b] or a scalar; undefined: all
  Array segments = {};  // integers [b, tq]: a query sees only keys of its own segment; undefined: all
  Array key_segments = {};  // integers [b, tk]; undefined: `segments`
  Array mask = {};          // only keys where this is nonzero count; broadcasts to [b, heads, tq, tk]; undefined: all
  double dropout = 0;       // of attention weights, in training
  int64_t site = 0;         // of the dropout
};

// softmax(scale * q k^T) v. q is [b, tq, heads, e], k is [b, tk, kv_heads, e], v is [b, tk, kv_heads, ev]; kv_heads
// divides heads, and heads / kv_heads consecutive heads of queries share a head of keys and values. Returns
// [b, tq, heads, ev] in the type of q. Scores are computed in f32 (f64 stays f64). A query that sees no key gets zeros.
// The matrix of scores is never in memory, unless there is a mask.
Array attention(const Operand& q, const Operand& k, const Operand& v, const AttentionOptions& options = {},
                const Mode& mode = {});

// Rotary positions. x is [b, t, heads, e] with even e, positions are integers [t]. Rotates each pair of features
// (i, i + e/2) by the angle position * base^(-2i/e), as Hugging Face's Llama does. Computed in f32.
Array rotary(const Operand& x, const Operand& positions, double base = 10000);

enum class NormKind : uint8_t { layer, rms };
enum class FeedForwardKind : uint8_t { gelu_exact, gelu_tanh, swiglu };

// What a stack of equal blocks needs to know. Zeros stand for the defaults in brackets; resolved() replaces them.
struct TransformerConfig {
  int64_t width = 0;       // features of a token between blocks
  int64_t heads = 0;       // heads of queries
  int64_t kv_heads = 0;    // heads of keys and values; divides `heads` [heads]
  int64_t head_width = 0;  // features of a head; even if rotary [width / heads]
  int64_t hidden = 0;      // features inside a feed-forward layer [4 width; swiglu: 8/3 width, up to a multiple of 64]
  int64_t layers = 1;      // number of blocks in the stack: initial weights depend on it
  NormKind norm = NormKind::layer;
  FeedForwardKind feed_forward = FeedForwardKind::gelu_tanh;
  bool causal = false;
  bool rotary = false;
  bool bias = true;            // layers and layer norms have biases
  double dropout = 0;          // in training: on attention weights and on what each layer adds
  double rope_base = 10000;    // rotary: the base of the wavelengths
  double norm_epsilon = 1e-5;  // is added to variances
};
// Throws Error, naming the field, when a value is out of range or two do not fit.
TransformerConfig resolved(TransformerConfig config);

struct TransformerNorm {
  Array scale;                // [width]
  std::optional<Array> bias;  // [width]; layer norm with `bias` only
};
// Weights are [in, out]. h = heads, k = kv_heads, e = head_width.
struct Attention {
  Linear qkv;         // [width, (h + 2k) e]: the outputs are h heads of queries, k of keys, k of values
  Linear projection;  // [h e, width]
};
// gelu: down(gelu(up(x))); swiglu: down(silu(gate(x)) * up(x)).
struct FeedForward {
  std::optional<Linear> gate;  // swiglu only: [width, hidden]
  Linear up;                   // [width, hidden]
  Linear down;                 // [hidden, width]
};
// x += attention(norm(x)); x += feed_forward(norm(x)).
struct TransformerBlock {
  TransformerNorm attention_norm;
  Attention attention;
  TransformerNorm feed_forward_norm;
  FeedForward feed_forward;
};

// GPT-2's initialization: normal with deviation 0.02, divided by sqrt(2 * layers) for `projection` and `down`; zero
// biases, scales 1. Throw Error where resolved() does.
TransformerBlock transformer_block(const TransformerConfig& config, const Operand& key);
TransformerNorm transformer_norm(const TransformerConfig& config);

// The keys and values of earlier tokens, both [b, context, kv_heads, head_width].
struct KeyValueCache {
  Array keys, values;
};

// x [b, t, width] -> [b, t, width] in the type of x. The dropouts have the sites `site` to `site` + 2.
Array apply(const TransformerConfig& config, const TransformerBlock& block, const Operand& x, const Mode& mode,
            int64_t site);
// Same for tokens at the positions `position` to `position` + t - 1 of longer sequences: their keys and values replace
// those in `cache`, and queries see the cache up to their own position, whether or not the config is causal.
// `position` is an integer scalar, perhaps traced. REQUIRES: position + t <= context.
Array apply(const TransformerConfig& config, const TransformerBlock& block, const Operand& x, const Mode& mode,
            const Operand& position, KeyValueCache& cache);
Array apply(const TransformerConfig& config, const TransformerNorm& norm, const Operand& x);

}  // namespace lockstep::nn
