// The rows of attention as programs of simpler rows. Letters: b examples, g heads of keys, m heads of queries that
// share one, t queries, s keys, e features of queries and keys, f features of values.
#include <limits>
#include <optional>

#include "ops/attention.h"
#include "ops/dims.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/random_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The values that both programs have in common.
class AttentionWriter {
 public:
  AttentionWriter(Types in, const AttentionAttrs& attrs)
      : attrs_(attrs),
        n_(in),
        m_(n_.sharing()),
        narrow_(in[0].dtype),
        wide_(narrow_ == DType::f64 ? narrow_ : DType::f32) {
    for (const Type& type : in) in_.push_back(b_.input(type));
    scores_ = make_scores();
    if (const Value visible = make_visible())
      masked_ = select(visible, scores_, full_like(scores_, kMinusInfinity));
    else
      masked_ = scores_;
    if (attrs_.dropout > 0) kept_ = make_kept();
  }

  Program forward() {
    // The result does not depend on the subtracted maximum.
    const Value most = stop_gradient(reduce_max(masked_, {4}));
    const Value shift = select(is_empty(most), zeros_like(most), most);
    const Value sum = reduce_sum(exp(masked_ - per_query(shift)), {4});
    const Value empty = is_empty(most);
    // An infinite value that is not selected would make gradients NaN.
    const Value log_sum = shift + log(select(empty, ones_like(sum), sum));
    const Value weights = dropped(exp(masked_ - per_query(select(empty, zeros_like(sum), log_sum))));
    const Value y = einsum("bgmts,bsgf->btgmf", rounded(weights), widened(2));
    const Value lse = select(empty, full_like(log_sum, kMinusInfinity), log_sum);
    const Value results[] = {cast(reshape(y, {n_.b, n_.t, n_.h, n_.f}), narrow_), reshape(lse, {n_.b, n_.h, n_.t})};
    return b_.take(results);
  }

  Program backward() {
    const Value lse = reshape(in_[4], {n_.b, n_.g, m_, n_.t});
    const Value weights = exp(masked_ - per_query(select(is_empty(lse), zeros_like(lse), lse)));
    const Value q = by_heads(widened(0), n_.e), dy = by_heads(widened(5), n_.f);
    const Value dv = einsum("bgmts,btgmf->bsgf", rounded(dropped(weights)), dy);
    const Value dweights = dropped(einsum("btgmf,bsgf->bgmts", dy, widened(2)));
    const Value products = reduce_sum(dy * by_heads(widened(3), n_.f), {4});  // [b, t, g, m]
    Value delta = transpose(products, {0, 2, 3, 1});
    if (attrs_.dlse >= 0) delta = delta - reshape(operand(attrs_.dlse), {n_.b, n_.g, m_, n_.t});
    Value dscores = weights * (dweights - per_query(delta));
    if (attrs_.softcap > 0) {
      const Value tangent = scores_ / attrs_.softcap;
      dscores = dscores * (1.0 - tangent * tangent);
    }
    dscores = dscores * attrs_.scale;
    const Value dq = einsum("bgmts,bsge->btgme", dscores, widened(1));
    const Value dk = einsum("bgmts,btgme->bsge", dscores, q);
    const Value results[] = {cast(reshape(dq, in_[0].shape()), narrow_), cast(dk, narrow_), cast(dv, narrow_)};
    return b_.take(results);
  }

 private:
  Value operand(int number) const { return in_[static_cast<size_t>(number)]; }
  Value widened(int number) const { return cast(operand(number), wide_); }
  // [b, t, h, features] as [b, t, g, m, features].
  Value by_heads(Value x, int64_t features) const { return reshape(x, {n_.b, n_.t, n_.g, m_, features}); }
  Shape matrix() const { return {n_.b, n_.g, m_, n_.t, n_.s}; }
  // [b, g, m, t] for every key.
  Value per_query(Value x) const { return broadcast(x, matrix(), {0, 1, 2, 3}); }
  Value is_empty(Value extreme) const { return eq(extreme, full_like(extreme, kMinusInfinity)); }
  Value dropped(Value weights) const { return kept_ ? weights * kept_ : weights; }
  // To the precision of the operands.
  Value rounded(Value weights) const { return narrow_ == wide_ ? weights : cast(cast(weights, narrow_), wide_); }

  Value make_scores() {
    const Value products = einsum("btgme,bsge->bgmts", by_heads(widened(0), n_.e), widened(1)) * attrs_.scale;
    return attrs_.softcap > 0 ? tanh(products / attrs_.softcap) * attrs_.softcap : products;
  }

  // An integer operand of shape [] as an array.
  Value spread(Value scalar, const Shape& shape) const { return broadcast(scalar, shape, {}); }

  // Which keys each query sees; absent: all.
  Value make_visible() {
    Value visible;
    const auto restrict_to = [&](Value more, const Dims& dims) {
      const Value all = broadcast(more, matrix(), dims);
      visible = visible ? bit_and(visible, all) : all;
    };
    const Type positions{DType::i32, {n_.t, n_.s}};
    const Value keys = iota(b_, positions, 1);
    if (attrs_.sees_by_position()) {
      Value queries = iota(b_, positions, 0) + full(b_, positions, attrs_.first[2]);
      if (attrs_.offset >= 0) queries = queries + spread(operand(attrs_.offset), positions.shape);
      if (attrs_.causal) restrict_to(ge(queries, keys), {3, 4});
      if (attrs_.window > 0) restrict_to(lt(queries - full(b_, positions, attrs_.window), keys), {3, 4});
    }
    if (attrs_.lengths >= 0) {
      const Shape each{n_.b, n_.s};
      restrict_to(lt(iota(b_, {DType::i32, each}, 1), broadcast(operand(attrs_.lengths), each, {0})), {0, 4});
    }
    if (attrs_.query_segments >= 0) {
      const Shape each{n_.b, n_.t, n_.s};
      restrict_to(eq(broadcast(operand(attrs_.query_segments), each, {0, 1}),
                     broadcast(operand(attrs_.key_segments), each, {0, 2})),
                  {0, 3, 4});
    }
    return visible;
  }

  // Counts from `begin` along dimension `dim`.
  Value counters(const Shape& shape, int64_t dim, int64_t begin) {
    const Type type{DType::u32, shape};
    return iota(b_, type, dim) + full(b_, type, begin);
  }

  // The factor of each weight: 0 or 1 / (1 - dropout).
  Value make_kept() {
    const Shape heads{n_.b, n_.h};
    const Values words =
        threefry(operand(attrs_.dropout_key), counters(heads, 0, attrs_.first[0]), counters(heads, 1, attrs_.first[1]));
    const Shape one_word{n_.b, n_.h, 1};
    const Value keys = concatenate({reshape(words[0], one_word), reshape(words[1], one_word)}, 2);
    const Shape fours{n_.b, n_.h, n_.t, (n_.s + 3) / 4};
    const Values bits = threefry(keys, counters(fours, 2, attrs_.first[2]), counters(fours, 3, 0));
    const Value low = full(b_, {DType::u32, fours}, 0xffff), by = full(b_, {DType::u32, fours}, 16);
    const Shape one_number = {n_.b, n_.h, n_.t, fours[3], 1};
    Values numbers;
    for (const Value word : bits) {
      numbers.push_back(reshape(bit_and(word, low), one_number));
      numbers.push_back(reshape(shift_right(word, by), one_number));
    }
    const Value all = reshape(concatenate(numbers, 4), {n_.b, n_.h, n_.t, 4 * fours[3]});
    const Value used = slice(all, {0, 0, 0, 0}, {n_.b, n_.h, n_.t, n_.s}, {1, 1, 1, 1});
    const Value keeps = ge(used, full(b_, used.type(), int64_t{attrs_.dropout_threshold()}));
    return reshape(cast(keeps, wide_) / (1 - attrs_.dropout), matrix());
  }

  const AttentionAttrs attrs_;
  const AttentionSizes n_;
  const int64_t m_;  // heads of queries that share a head of keys
  const DType narrow_, wide_;
  Builder b_;
  Values in_;
  Value scores_, masked_, kept_;  // [b, g, m, t, s]
};

}  // namespace

Program attention_program(Types in, const AttentionAttrs& attrs) { return AttentionWriter(in, attrs).forward(); }

Program attention_grad_program(Types in, const AttentionAttrs& attrs) { return AttentionWriter(in, attrs).backward(); }

}  // namespace lockstep
