// Attention of many heads without the matrix of scores in memory:
//
//   y[b, i, h] = sum over the visible keys j of weight[b, h, i, j] v[b, j, h / (heads / key heads)]
//
// where weights are the softmax over j of scale * q[b, i, h] . k[b, j, h / (heads / key heads)]. A Builder belongs to
// one thread; all else are pure functions and plain values, safe from any thread.
//
// Operands: q [b, t, h, e], k [b, s, g, e], v [b, s, g, f], where g divides h, of one floating type. Then the extras
// that the attribute `extras` lists, separated by commas, in this order:
//   dlse         attention_grad only: [b, h, t] in the type of lse: the cotangent of lse
//   offset       i32 []: query i stands at position offset + first[2] + i of the keys
//   lengths      i32 [b]: keys from this position on are padding
//   segments     two operands, i32 [b, t] and i32 [b, s]: a query sees keys of its own segment only
//   dropout_key  u32 [2]: the threefry key of the dropout
//
// Results: y [b, t, h, f] in the type of q, and lse [b, h, t] in f32 (f64 for f64), the logarithm of the sum of the
// exponentials of the scores of visible keys. For a query that sees no key, y is 0, lse is -inf, and all gradients are
// 0.
//
// Scores, softmax and sums are computed in f32 (f64 for f64). Weights are rounded to the type of q before they are
// multiplied by v if that type has 16 bits.
//
// Dropout of weights: the weight of the global indices (b, h, i, j) is kept if a number of 16 bits is at least
// round(dropout * 65536), and is then divided by 1 - dropout. With head_key = threefry(key, b, h) and the two words
// threefry(head_key, i, j / 4), the numbers of j % 4 = 0, 1, 2, 3 are the low and high half of the first word and the
// low and high half of the second. lse is that of the weights without dropout. If a batch is merged into b (vmap with a
// key that is not batched), each example of the batch has its own mask: that of its index in the merged b.
#pragma once

#include <array>
#include <cstdint>

#include "program/builder.h"
#include "program/op.h"

namespace lockstep {

// The attributes of the rows attention and attention_grad, and where their extras are.
struct AttentionAttrs {
  bool causal = false;                       // a query at position p sees only keys j <= p
  int64_t window = 0;                        // a query at position p sees only keys j > p - window; 0: no limit
  double scale = 1;                          // multiplies the products of queries and keys
  double softcap = 0;                        // scores become softcap * tanh(scores / softcap); 0: unchanged
  double dropout = 0;                        // the probability that a weight becomes 0
  std::array<int64_t, 3> first = {0, 0, 0};  // global index of the first example, query head and query of this shard

  // The number of each operand; -1 if it is missing.
  int dlse = -1, offset = -1, lengths = -1, query_segments = -1, key_segments = -1, dropout_key = -1;
  size_t operands = 3;  // the number of all operands

  // Numbers of 16 bits below this one drop a weight.
  uint32_t dropout_threshold() const;
  // Whether it depends on positions which keys a query sees.
  bool sees_by_position() const { return causal || window > 0; }
};

// Reads the attributes of an equation of `op`, attention_grad if `gradient`. Throws Error if one is out of range.
AttentionAttrs attention_attrs(const Attrs&, bool gradient);

// b, t, h, e: examples, queries, heads and features of queries; s, g, f: keys, heads of keys, features of values.
struct AttentionSizes {
  int64_t b, t, h, e, s, g, f;

  // From the types of the operands q, k and v.
  explicit AttentionSizes(Types in)
      : b(in[0].shape[0]),
        t(in[0].shape[1]),
        h(in[0].shape[2]),
        e(in[0].shape[3]),
        s(in[1].shape[1]),
        g(in[1].shape[2]),
        f(in[2].shape[3]) {}

  // Consecutive heads of queries that share a head of keys.
  int64_t sharing() const { return g == 0 ? 1 : h / g; }
};

// Operands that may be absent.
struct AttentionExtras {
  Value offset = {}, lengths = {}, query_segments = {}, key_segments = {}, dropout_key = {};
};

// The results y and lse. `attrs` says everything but where the extras are.
Values attention(Value q, Value k, Value v, const AttentionAttrs& attrs, const AttentionExtras& extras = {});

// The row `attention` for an equation that multiplies the weights of a softmax by values, if all of it is what the row
// computes; else absent. See attention_recognize.cc.
Value recognize_attention(const Recognition&);

// Both rows as programs of simpler rows, with the scores as an array. They define the gradient of attention_grad, and
// compute batches that the rows cannot express.
Program attention_program(Types in, const AttentionAttrs&);
Program attention_grad_program(Types in, const AttentionAttrs&);

}  // namespace lockstep
