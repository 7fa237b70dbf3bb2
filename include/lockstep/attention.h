// Attention of many heads without the matrix of scores in memory. Layers for models are in lockstep/transformer.h. Safe
// to call from any thread.
//
//   auto [y, lse] = dot_product_attention(q, k, v, {.causal = true});
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// Arrays that are undefined restrict nothing.
struct DotProductAttentionOptions {
  bool causal = false;        // a query at position p sees only the keys 0 .. p
  int64_t window = 0;         // a query at position p sees only the keys after p - window; 0: no limit
  double scale = 0;           // multiplies the products of queries and keys; 0: 1 / sqrt(e)
  double softcap = 0;         // scores become softcap * tanh(scores / softcap); 0: unchanged
  Array offset = {};          // the position of the first query: an integer scalar; undefined: 0
  Array lengths = {};         // only the first lengths[i] keys of example i count: integers [b] or a scalar
  Array query_segments = {};  // integers [b, tq]: a query sees only keys of its own segment
  Array key_segments = {};    // integers [b, tk]; undefined: those of the queries
  double dropout = 0;         // the probability that a weight becomes 0
  Array dropout_key = {};     // the random key of the dropout
};

// y = softmax(scale * q k^T) v, [b, tq, heads, ev] in the type of q, and the logarithm of the sum of the exponentials
// of the scores, [b, heads, tq] in f32 (f64 for f64). q is [b, tq, heads, e], k is [b, tk, kv_heads, e], v is [b, tk,
// kv_heads, ev], of one floating type; kv_heads divides heads, and heads / kv_heads consecutive heads of queries share
// a head of keys and values. Scores and softmax are computed in f32 (f64 for f64). A query that sees no key gets zeros,
// and -inf as logarithm.
//
// Each weight is kept with probability 1 - dropout, in steps of 1/65536, and is then divided by 1 - dropout. Equal keys
// drop the same weights. A batch of vmap with one key drops other weights in each example.
std::pair<Array, Array> dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
                                              const DotProductAttentionOptions& options = {});

}  // namespace lockstep
