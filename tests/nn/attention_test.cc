#include <cmath>
#include <limits>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/transformer.h"
#include "nn/differences.h"
#include "nn/host_layers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

Array heads(uint64_t seed, const Shape& shape) { return astype(random::normal(random::key(seed), shape), f64); }

// One head of one example: [tokens, features].
host::Rows head_of(const Array& x, int64_t example, int64_t head) {
  const host::Rows rows = host::rows_of(x);
  host::Rows out;
  for (int64_t t = 0; t < x.shape(1); ++t)
    out.push_back(rows[static_cast<size_t>((example * x.shape(1) + t) * x.shape(2) + head)]);
  return out;
}

// visible(example, query, key) -> bool.
template <class Visible>
std::vector<double> reference(const Array& q, const Array& k, const Array& v, const Visible& visible) {
  std::vector<double> out;
  for (int64_t b = 0; b < q.shape(0); ++b)
    for (int64_t t = 0; t < q.shape(1); ++t)
      for (int64_t h = 0; h < q.shape(2); ++h) {
        const int64_t shared = h / (q.shape(2) / k.shape(2));
        std::vector<bool> seen;
        for (int64_t s = 0; s < k.shape(1); ++s) seen.push_back(visible(b, t, s));
        const host::Row y =
            host::attend(head_of(q, b, h)[static_cast<size_t>(t)], head_of(k, b, shared), head_of(v, b, shared), seen);
        out.insert(out.end(), y.begin(), y.end());
      }
  return out;
}

TEST(Attention, MatchesPlainLoops) {
  const Array q = heads(1, {2, 3, 4, 6}), k = heads(2, {2, 5, 4, 6}), v = heads(3, {2, 5, 4, 2});
  const auto all = [](auto...) { return true; };
  EXPECT_EQ(nn::attention(q, k, v).shape(), (Shape{2, 3, 4, 2}));
  EXPECT_ELEMENTS(nn::attention(q, k, v), reference(q, k, v, all), 1e-12);
  EXPECT_ELEMENTS(nn::attention(q, k, v, {.causal = true}),
                  reference(q, k, v, [](int64_t, int64_t t, int64_t s) { return s <= t; }), 1e-12);
  EXPECT_ELEMENTS(nn::attention(q * 3.0, k, v, {.scale = 1 / (3 * std::sqrt(6.0))}), reference(q, k, v, all), 1e-12);
}

TEST(Attention, GroupedHeadsMatchPlainLoops) {
  const Array q = heads(1, {2, 3, 6, 4}), k = heads(2, {2, 3, 2, 4}), v = heads(3, {2, 3, 2, 4});
  EXPECT_ELEMENTS(nn::attention(q, k, v, {.causal = true}),
                  reference(q, k, v, [](int64_t, int64_t t, int64_t s) { return s <= t; }), 1e-12);
}

TEST(Attention, GroupedHeadsEqualRepeatedHeads) {
  const Array q = astype(heads(1, {2, 5, 6, 4}), f32), k = astype(heads(2, {2, 5, 2, 4}), f32),
              v = astype(heads(3, {2, 5, 2, 4}), f32);
  EXPECT_ELEMENTS(nn::attention(q, k, v, {.causal = true}),
                  nn::attention(q, repeat(k, 3, 2), repeat(v, 3, 2), {.causal = true}).to_vector<double>(), 1e-6);
}

TEST(Attention, OffsetLengthsAndMaskRestrictTheKeys) {
  const Array q = heads(1, {2, 2, 2, 4}), k = heads(2, {2, 5, 2, 4}), v = heads(3, {2, 5, 2, 4});
  const auto f = jit([](Array a, Array b, Array c, Array offset) {
    return nn::attention(a, b, c, {.causal = true, .offset = offset});
  });
  for (const int offset : {0, 2, 3})
    EXPECT_ELEMENTS(f(q, k, v, Array(offset)),
                    reference(q, k, v, [&](int64_t, int64_t t, int64_t s) { return s <= offset + t; }), 1e-12);
  const std::vector<int32_t> lengths{4, 1};
  EXPECT_ELEMENTS(
      nn::attention(q, k, v, {.lengths = Array::from(lengths, {2})}),
      reference(q, k, v, [&](int64_t b, int64_t, int64_t s) { return s < lengths[static_cast<size_t>(b)]; }), 1e-12);
  const Array odd = (arange(5) % 2) == 1;
  EXPECT_ELEMENTS(nn::attention(q, k, v, {.lengths = 4, .mask = odd}),
                  reference(q, k, v, [](int64_t, int64_t, int64_t s) { return s == 1 || s == 3; }), 1e-12);
}

TEST(Attention, RestrictionsWithoutAMaskEqualThoseWithOne) {
  const Array q = heads(1, {2, 7, 4, 6}), k = heads(2, {2, 9, 2, 6}), v = heads(3, {2, 9, 2, 5});
  const Array segments = array({{0, 0, 1, 1, 1, 2, 7}, {3, 3, 3, 3, 3, 3, 3}}),
              key_segments = array({{0, 0, 0, 1, 1, 2, 2, 2, 2}, {0, 3, 3, 3, 1, 1, 3, 3, 3}});
  const Array factors = heads(4, {2, 7, 4, 5});
  for (const nn::AttentionOptions& options : {
           nn::AttentionOptions{.causal = true, .window = 3, .offset = 2},
           nn::AttentionOptions{.window = 4, .softcap = 1.5},
           nn::AttentionOptions{.segments = segments, .key_segments = key_segments},
           nn::AttentionOptions{.causal = true,
           .scale = 2,
           .lengths = array({4, 0}),
           .segments = segments,
           .key_segments = key_segments},
       }) {
    nn::AttentionOptions masked = options;
    masked.mask = ones({1}, boolean);
    EXPECT_ELEMENTS(nn::attention(q, k, v, options), nn::attention(q, k, v, masked).to_vector<double>(), 1e-12);
    const auto gradients = [&](const nn::AttentionOptions& o) {
      const auto [dq, dk, dv] =
          grad<0, 1, 2>([&](Array a, Array b, Array c) { return sum(factors * nn::attention(a, b, c, o)); })(q, k, v);
      return concatenate({flatten(dq), flatten(dk), flatten(dv)}, 0);
    };
    EXPECT_ELEMENTS(gradients(options), gradients(masked).to_vector<double>(), 1e-12);
  }
}

TEST(Attention, SegmentsOfKeysAreThoseOfTheQueriesByDefault) {
  const Array x = heads(1, {1, 4, 1, 2}), segments = array({{0, 0, 5, 5}});
  EXPECT_ELEMENTS(nn::attention(x, x, x, {.segments = segments}),
                  reference(x, x, x, [](int64_t, int64_t t, int64_t s) { return t / 2 == s / 2; }), 1e-12);
}

TEST(Attention, ResultsForPartsOfTheKeysCombine) {
  const Array q = heads(1, {2, 3, 2, 4}), k = heads(2, {2, 6, 2, 4}), v = heads(3, {2, 6, 2, 4});
  const auto part = [&](int64_t begin, int64_t end) {
    return dot_product_attention(q, slice(k, {0, begin}, {2, end}), slice(v, {0, begin}, {2, end}));
  };
  const auto [first, first_log] = part(0, 2);
  const auto [second, second_log] = part(2, 6);
  const auto [whole, whole_log] = dot_product_attention(q, k, v);
  const auto weight = [&](const Array& part_log) {
    return expand_dims(transpose(exp(part_log - whole_log), {0, 2, 1}), 3);
  };
  EXPECT_ELEMENTS(first * weight(first_log) + second * weight(second_log), whole.to_vector<double>(), 1e-12);
  EXPECT_ELEMENTS(logaddexp(first_log, second_log), whole_log.to_vector<double>(), 1e-12);
}

TEST(Attention, DropoutHasExactGradients) {
  const Array q = heads(1, {1, 5, 2, 3}), k = heads(2, {1, 6, 1, 3}), v = heads(3, {1, 6, 1, 2});
  const nn::Mode mode{.training = true, .key = random::key(3)};
  const auto loss = [&](const Array& a, const Array& b, const Array& c) {
    return sum(square(nn::attention(a, b, c, {.dropout = 0.4}, mode)));
  };
  expect_gradient([&](Array x) { return loss(x, k, v); }, q);
  expect_gradient([&](Array x) { return loss(q, x, v); }, k);
  expect_gradient([&](Array x) { return loss(q, k, x); }, v);
}

// A key for each example drops what a loop over the examples drops.
TEST(Attention, BatchOfDropoutKeysMatchesLoop) {
  const Array q = heads(1, {3, 1, 4, 2, 3}), keys = random::split(random::key(5), 3);
  const auto one = [](Array x, Array key) {
    return dot_product_attention(x, x, x, {.causal = true, .dropout = 0.5, .dropout_key = key}).first;
  };
  const Array all = vmap(one)(q, keys);
  for (int32_t i = 0; i < 3; ++i)
    EXPECT_ELEMENTS(take(all, i, 0), one(take(q, i, 0), take(keys, i, 0)).to_vector<double>(), 1e-12);
}

TEST(Attention, QueriesThatSeeNothingGetZerosAndFiniteGradients) {
  const Array q = heads(1, {1, 2, 1, 2}), k = heads(2, {1, 3, 1, 2}), v = heads(3, {1, 3, 1, 2});
  const Array mask = array({{0, 0, 0}, {1, 0, 0}});
  const auto loss = [&](Array a, Array b, Array c) {
    return sum(square(nn::attention(a, b, c, {.mask = mask}) + 1.0));
  };
  const Array y = nn::attention(q, k, v, {.mask = mask});
  EXPECT_ELEMENTS(slice(y, {0, 0}, {1, 1}), {0, 0}, 0);
  const auto [dq, dk, dv] = grad<0, 1, 2>(loss)(q, k, v);
  for (const Array& g : {dq, dk, dv}) EXPECT_TRUE(all(isfinite(g)).item<bool>());
  EXPECT_ELEMENTS(nn::attention(q, k, v, {.lengths = 0}), {0, 0, 0, 0}, 0);
}

TEST(Attention, GradientsMatchFiniteDifferences) {
  const Array q = heads(1, {1, 3, 2, 2}), k = heads(2, {1, 3, 1, 2}), v = heads(3, {1, 3, 1, 2});
  const Array factors = heads(4, {1, 3, 2, 2});
  const auto loss = [&](const Array& a, const Array& b, const Array& c) {
    return sum(factors * nn::attention(a, b, c, {.causal = true}));
  };
  expect_gradient([&](Array x) { return loss(x, k, v); }, q);
  expect_gradient([&](Array x) { return loss(q, x, v); }, k);
  expect_gradient([&](Array x) { return loss(q, k, x); }, v);
}

TEST(Attention, LowPrecisionHasItsSoftmaxInF32) {
  const Array q = heads(1, {1, 8, 2, 16}), k = heads(2, {1, 8, 2, 16}), v = heads(3, {1, 8, 2, 16});
  const auto low = [](const Array& x) { return astype(x, bf16); };
  const Array y = nn::attention(low(q), low(k), low(v));
  EXPECT_EQ(y.dtype(), bf16);
  EXPECT_ELEMENTS(y, nn::attention(q, k, v).to_vector<double>(), 0.05);
}

TEST(Attention, DropoutKeepsTheMeanOfTheWeights) {
  // All values are 1, so a result is the sum of the weights that were kept.
  const Array q = astype(heads(1, {8, 16, 4, 2}), f32), v = ones({8, 16, 4, 2});
  const nn::Mode mode{.training = true, .key = random::key(3)};
  const Array y = nn::attention(q, q, v, {.dropout = 0.5, .site = 2}, mode);
  EXPECT_NEAR(mean(y).item<double>(), 1, 0.05);
  EXPECT_GT(standard_deviation(y).item<double>(), 0.1);
  EXPECT_NE(y.to_vector<float>(), nn::attention(q, q, v, {.dropout = 0.5, .site = 3}, mode).to_vector<float>());
  EXPECT_ELEMENTS(nn::attention(q, q, v, {.dropout = 0.5}), std::vector<double>(8 * 16 * 4 * 2, 1.0), 1e-5);
}

TEST(Attention, InvalidValuesAreRejected) {
  const Array q = ones({2, 3, 4, 6}), k = ones({2, 5, 3, 6});
  EXPECT_ERROR(nn::attention(ones({3, 4, 6}), k, k), "each must be [batch, tokens, heads, features]");
  EXPECT_ERROR(nn::attention(q, k, ones({2, 4, 3, 6})), "q, k, v are [2, 3, 4, 6], [2, 5, 3, 6], [2, 4, 3, 6]");
  EXPECT_ERROR(nn::attention(q, k, k), "4 heads of queries share 3 heads of keys; the second must divide the first");
  EXPECT_ERROR(nn::attention(q, astype(q, bf16), q), "q, k, v are f32, bf16 and f32");
  EXPECT_ERROR(nn::attention(q, q, q, {.scale = -1}), "the scale is -1");
  EXPECT_ERROR(nn::attention(q, q, q, {.lengths = ones({3}, i32)}), "lengths is i32[3]; it must be integers");
  EXPECT_ERROR(nn::attention(q, q, q, {.causal = true, .offset = 0.5f}), "the offset is f32[]");
  EXPECT_ERROR(nn::attention(q, q, q, {.mask = ones({7, 1, 2, 3, 3})}), "does not broadcast");
  EXPECT_ERROR(nn::attention(q, q, q, {.window = -2}), "the window is -2; it must be a number of keys");
  EXPECT_ERROR(nn::attention(q, q, q, {.softcap = -1}), "the softcap is -1; it must be a positive number");
  EXPECT_ERROR(nn::attention(q, q, q, {.dropout = 1}), "the dropout is 1; it must be at least 0 and less than 1");
  EXPECT_ERROR(nn::attention(q, q, q, {.dropout = 0.5}, {.training = true}), "training with dropout without a key");
  EXPECT_ERROR(nn::attention(q, q, q, {.segments = ones({2, 4}, i32)}), "segments is i32[2,4]; it must be integers");
  EXPECT_ERROR(nn::attention(q, ones({2, 5, 4, 6}), ones({2, 5, 4, 6}), {.segments = ones({2, 3}, i32)}),
               "key_segments is i32[2,3]; it must be integers, one per key");
  EXPECT_ERROR(nn::attention(q, q, q, {.key_segments = ones({2, 3}, i32)}), "key_segments without segments");
}

TEST(DotProductAttention, InvalidValuesAreRejected) {
  const Array q = ones({2, 3, 4, 6});
  EXPECT_ERROR(dot_product_attention(q, q, ones({2, 3, 3, 6})), "attention: q, k, v are f32[2,3,4,6]");
  EXPECT_ERROR(dot_product_attention(q, q, q, {.scale = -1}), "dot_product_attention: the scale is -1");
  EXPECT_ERROR(dot_product_attention(q, q, q, {.offset = 0.5f}), "dot_product_attention: the offset is f32[]");
  EXPECT_ERROR(dot_product_attention(q, q, q, {.key_segments = ones({2, 3}, i32)}), "without query_segments");
  EXPECT_ERROR(dot_product_attention(q, q, q, {.dropout = 0.5}), "the dropout is 0.5 without a key");
  EXPECT_ERROR(dot_product_attention(q, q, q, {.dropout = 2, .dropout_key = random::key(1)}), "the dropout is 2");
}

TEST(Rotary, MatchesPlainLoops) {
  const Array x = heads(1, {2, 3, 2, 6}), positions = array({4, 0, 9});
  const host::Rows rows = host::rows_of(x);
  const std::vector<int64_t> at{4, 0, 9};
  host::Rows wanted;
  for (size_t i = 0; i < rows.size(); ++i) wanted.push_back(host::rotate(rows[i], at[i / 2 % 3], 100));
  EXPECT_ELEMENTS(nn::rotary(x, positions, 100), host::flat(wanted), 1e-12);
}

TEST(Rotary, ScoresDependOnDistancesOnly) {
  const Array q = astype(heads(1, {1, 4, 2, 8}), f32), k = astype(heads(2, {1, 4, 2, 8}), f32);
  const auto y = [&](int32_t start) {
    const Array positions = arange(start, start + 4);
    return nn::attention(nn::rotary(q, positions), nn::rotary(k, positions), k, {.causal = true});
  };
  EXPECT_ELEMENTS(y(0), y(37).to_vector<double>(), 1e-4);
}

TEST(Rotary, InvalidValuesAreRejected) {
  EXPECT_ERROR(nn::rotary(ones({1, 2, 1, 3}), arange(2)), "with an even number of features");
  EXPECT_ERROR(nn::rotary(ones({1, 2, 1, 4}), arange(3)), "one for each of 2 tokens");
  EXPECT_ERROR(nn::rotary(ones({1, 2, 1, 4}), arange(2), 0), "the base is 0");
}

// The softmax of a query: an infinite score makes NaN of its result, and of no other query's.
TEST(Attention, AnInfiniteScoreMakesNaNOfItsQuery) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t keys : {3, 40, 300})
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const Array q = ones({1, 2, 1, 8}, dtype), v = ones({1, keys, 1, 8}, dtype);
      const Array first = q.at(0, 0, 0, 0).set(astype(Array(inf), dtype));
      const Array k = ones({1, keys, 1, 8}, dtype);
      const auto f = [&](Array x) { return dot_product_attention(x, k, v).first; };
      for (const Array& y : {f(first), jit(f)(first)})
        EXPECT_TEXT(sum(astype(isnan(y), i32), Axes{0, 2, 3}), "i32[2] [8, 0]");
      // One infinite score among finite ones.
      const Array one = zeros({1, keys, 1, 8}, dtype).at(0, keys / 2, 0, 0).set(astype(Array(inf), dtype));
      const auto values_gradient =
          grad([&](Array x) { return sum(astype(dot_product_attention(q, one, x).first, f32)); });
      EXPECT_TEXT(all(isnan(dot_product_attention(q, one, v).first)), "bool[] true");
      EXPECT_TEXT(all(isnan(values_gradient(v))), "bool[] true");
    }
}

}  // namespace
}  // namespace lockstep
