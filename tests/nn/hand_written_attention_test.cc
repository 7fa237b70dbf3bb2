// Attention as users write it: that it is recognized, that results and gradients stay the same, and what is not
// recognized.
#include <cmath>
#include <map>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using Attend = Array (*)(const Array& q, const Array& k, const Array& v);

double scale_of(const Array& q) { return 1 / std::sqrt(double(q.shape(-1))); }
Array causal(int64_t t) { return reshape(arange(t), {t, 1}) >= arange(t); }

// ---- q, k, v: [b, t, h, e]

Array einsums(const Array& q, const Array& k, const Array& v) {
  const Array scores = astype(einsum("bthe,bshe->bhts", q, k), f32) * scale_of(q);
  const Array weights = astype(softmax(where(causal(q.shape(1)), scores, -1e30f)), q.dtype());
  return einsum("bhts,bshe->bthe", weights, v);
}

// The heads before the tokens, products with a batch, the scale on the queries, tril() of ones.
Array products(const Array& q, const Array& k, const Array& v) {
  const auto heads = [](const Array& x) { return transpose(x, {0, 2, 1, 3}); };
  const int64_t t = q.shape(1);
  const Array scores = matmul(heads(q * scale_of(q)), swapaxes(heads(k), -1, -2));
  const Array mask = reshape(tril(ones({t, t})), {1, 1, t, t});
  const Array weights = softmax(where(mask == 0, -INFINITY, scores));
  return heads(matmul(weights, heads(v)));
}

// Batch and heads merged; a bias; the scale after the mask; a softmax by hand.
Array merged(const Array& q, const Array& k, const Array& v) {
  const int64_t b = q.shape(0), t = q.shape(1), h = q.shape(2), e = q.shape(3);
  const auto heads = [&](const Array& x) { return reshape(transpose(x, {0, 2, 1, 3}), {b * h, t, e}); };
  const Array bias = where(tril(ones({t, t}, boolean)), 0.f, -1e9f);
  Array x = reshape(matmul(heads(q), swapaxes(heads(k), 1, 2)), {b, h, t, t}) + astype(bias, q.dtype());
  x = reshape(x / std::sqrt(double(e)), {b * h, t, t});
  const Array powers = exp(x - max(x, -1, {.keepdims = true}));
  const Array y = matmul(powers / sum(powers, -1, {.keepdims = true}), heads(v));
  return transpose(reshape(y, {b, h, t, e}), {0, 2, 1, 3});
}

Array without_mask(const Array& q, const Array& k, const Array& v) {
  return einsum("bhqk,bkhd->bqhd", softmax(einsum("bqhd,bkhd->bhqk", q, k) * scale_of(q)), v);
}

// A soft limit of the scores, and a window of 5 keys.
Array limited(const Array& q, const Array& k, const Array& v) {
  const int64_t t = q.shape(1);
  const Array i = reshape(arange(t), {t, 1}), j = reshape(arange(t), {1, t});
  const Array scores = tanh(einsum("bqhd,bkhd->bhqk", q, k) * scale_of(q) / 20.0) * 20.0;
  return einsum("bhqk,bkhd->bqhd", softmax(where(logical_and(i >= j, i - j < 5), scores, -INFINITY)), v);
}

// Two heads of queries share one of keys; one-sided: the values come first.
Array shared_heads(const Array& q, const Array& k, const Array& v) {
  const int64_t b = q.shape(0), t = q.shape(1), h = q.shape(2), e = q.shape(3);
  const Array grouped = reshape(q, {b, t, h / 2, 2, e});
  const auto half = [&](const Array& x) { return slice(x, {0, 0, 0, 0}, {b, t, h / 2, e}); };
  const Array scores = einsum("bsge,btgme->bgmts", half(k), grouped) * scale_of(q);
  const Array weights = softmax(where(causal(t), scores, -1e10f));
  return reshape(einsum("bsge,bgmts->btgme", half(v), weights), {b, t, h, e});
}

const std::map<std::string, Attend> kForms = {{"einsums", einsums}, {"products", products},
                                              {"merged", merged},   {"without_mask", without_mask},
                                              {"limited", limited}, {"shared_heads", shared_heads}};

struct Operands {
  Array q, k, v;
};
Operands operands(const Shape& shape, DType dtype = f32) {
  const auto draw = [&](uint64_t seed) { return astype(random::normal(random::key(seed), shape), dtype); };
  return {draw(1), draw(2), draw(3)};
}

bool has_row(const std::string& program, const std::string& row) {
  return program.find("= " + row + " ") != std::string::npos || program.find("= " + row + "[") != std::string::npos;
}
// Whether a function computes no softmax of its own.
template <class F, class... Args>
bool recognizes(const F& f, const Args&... args) {
  const std::string with = jit(f).program(args...), without = jit(f, {.recognize = false}).program(args...);
  EXPECT_FALSE(has_row(without, "attention"));
  return has_row(with, "attention") && !has_row(with, "exp");
}

double largest_of(const Array& x) { return max(abs(astype(x, f64))).item<double>(); }
// The largest difference, relative to the largest element.
double difference(const Array& a, const Array& b) {
  return largest_of(astype(a, f64) - astype(b, f64)) / std::max(largest_of(b), 1e-3);
}

// A loss whose gradient differs from element to element.
template <class F>
auto weighted_loss(const F& f) {
  return [f](Operands x) {
    const Array y = astype(f(x.q, x.k, x.v), f32);
    return sum(y * sin(reshape(arange(static_cast<float>(y.size())), y.shape())));
  };
}

template <class F>
void expect_same_results(const F& attend, const Operands& x, double tolerance) {
  const auto f = [&](Operands in) { return attend(in.q, in.k, in.v); };
  EXPECT_LE(difference(jit(f)(x), jit(f, {.recognize = false})(x)), tolerance);
  const auto gradient = grad(weighted_loss(attend));
  const Operands with = jit(gradient)(x), without = jit(gradient, {.recognize = false})(x);
  EXPECT_LE(difference(with.q, without.q), tolerance);
  EXPECT_LE(difference(with.k, without.k), tolerance);
  EXPECT_LE(difference(with.v, without.v), tolerance);
}

TEST(HandWrittenAttention, IsRecognizedInAllForms) {
  for (const auto& [name, attend] : kForms) {
    SCOPED_TRACE(name);
    const Operands x = operands({2, 17, 4, 8});
    EXPECT_TRUE(recognizes(attend, x.q, x.k, x.v)) << jit(attend).program(x.q, x.k, x.v);
    EXPECT_TRUE(recognizes(grad(weighted_loss(attend)), x));
    EXPECT_TRUE(has_row(jit(attend).lowered(x.q, x.k, x.v), "attention"));
  }
}

TEST(HandWrittenAttention, HasTheSameResultsAndGradients) {
  for (const auto& [name, attend] : kForms)
    for (const int64_t tokens : {1, 17, 129})
      for (const int64_t features : {5, 64}) {
        SCOPED_TRACE(name + " of " + std::to_string(tokens) + " tokens, " + std::to_string(features) + " features");
        expect_same_results(attend, operands({2, tokens, 2, features}), 1e-5);
        expect_same_results(attend, operands({2, tokens, 2, features}, bf16), 4e-2);
      }
}

TEST(HandWrittenAttention, NeverStoresTheScores) {
  constexpr int64_t kTokens = 512;
  const Operands x = operands({1, kTokens, 4, 16});
  const auto gradient = grad(weighted_loss(einsums));
  const int64_t scores = 4 * kTokens * kTokens * int64_t{sizeof(float)};
  EXPECT_LT(jit(gradient).work_bytes(x)[0], scores / 4);
  EXPECT_GT(jit(gradient, {.recognize = false}).work_bytes(x)[0], scores);
}

// ---- inside other transforms

// One example: [t, h, e].
Array of_example(const Array& q, const Array& k, const Array& v) {
  const Array scores = einsum("the,she->hts", q, k) * scale_of(q);
  return einsum("hts,she->the", softmax(where(causal(q.shape(0)), scores, -INFINITY)), v);
}
// One head of one example: [t, e].
Array of_head(const Array& q, const Array& k, const Array& v) {
  const Array scores = matmul(q, swapaxes(k, 0, 1)) * scale_of(q);
  return matmul(softmax(where(causal(q.shape(0)), scores, -INFINITY)), v);
}

TEST(HandWrittenAttention, IsRecognizedInABatch) {
  const Operands x = operands({3, 9, 2, 8});
  const auto batched = vmap(of_example);
  EXPECT_TRUE(recognizes(batched, x.q, x.k, x.v));
  expect_same_results(batched, x, 1e-5);
  const auto by_head = vmap(vmap(of_head, {.in_axes = {1, 1, 1}, .out_axes = 1}));
  EXPECT_TRUE(recognizes(by_head, x.q, x.k, x.v));
  expect_same_results(by_head, x, 1e-5);
  EXPECT_LE(difference(by_head(x.q, x.k, x.v), einsums(x.q, x.k, x.v)), 1e-5);
  // Gradients of single examples.
  const auto of_each = vmap([](Array q, Array k, Array v) {
    return grad(weighted_loss(of_example))(Operands{q, k, v}).q;
  });
  EXPECT_TRUE(recognizes(of_each, x.q, x.k, x.v));
  EXPECT_LE(difference(jit(of_each)(x.q, x.k, x.v), jit(of_each, {.recognize = false})(x.q, x.k, x.v)), 1e-5);
}

// Layers that share a mask from outside.
template <class Layers>
void expect_recognized_layers(const Layers& layers) {
  const Operands x = operands({2, 9, 2, 8});
  EXPECT_TRUE(recognizes(layers, x.q, x.k, x.v));
  EXPECT_TRUE(recognizes(grad(weighted_loss(layers)), x));
  expect_same_results(layers, x, 1e-5);
}
Array masked_by(const Array& mask, const Array& q, const Array& k, const Array& v) {
  const Array scores = einsum("bthe,bshe->bhts", q, k) * scale_of(q);
  return einsum("bhts,bshe->bthe", softmax(where(mask, scores, -1e9f)), v);
}

TEST(HandWrittenAttention, IsRecognizedInLoopsAndRematerializedBlocks) {
  expect_recognized_layers([](Array q, Array k, Array v) {
    const Array mask = causal(q.shape(1));
    const Array weights = arange(3.f);
    return scan(
               [&](Array x, Array weight) {
                 return std::pair{x + weight * masked_by(mask, x, k, v), Nothing{}};
               },
               q, weights)
        .first;
  });
  expect_recognized_layers([](Array q, Array k, Array v) {
    const Array mask = causal(q.shape(1));
    const auto block = remat([&](Array x) { return x + masked_by(mask, x, k, v); });
    return block(block(q));
  });
}

TEST(HandWrittenAttention, IsRecognizedWithAMaskThatWasComputedBefore) {
  const Array of_bools = tril(ones({9, 9}, boolean));
  expect_recognized_layers([&](Array q, Array k, Array v) { return masked_by(of_bools, q, k, v); });
  const Array of_halves = reshape(tril(ones({9, 9}, bf16)), {1, 1, 9, 9});
  expect_recognized_layers([&](Array q, Array k, Array v) { return masked_by(of_halves != 0, q, k, v); });
  const Array hidden = triu(ones({9, 9}), 1);
  expect_recognized_layers([&](Array q, Array k, Array v) { return masked_by(hidden == 0, q, k, v); });
}

TEST(HandWrittenAttention, IsRecognizedOnDevices) {
  const Operands x = operands({2, 9, 4, 8});
  const auto f = shard_map([](Array q, Array k, Array v) { return einsums(q, k, v); },
                           {.mesh = make_mesh({{"data", 2}, {"heads", 2}}),
                            .in_specs = {P("data", {}, "heads"), P("data", {}, "heads"), P("data", {}, "heads")},
                            .out_specs = {P("data", {}, "heads")}});
  EXPECT_TRUE(recognizes(f, x.q, x.k, x.v));
  expect_same_results(f, x, 1e-5);
  EXPECT_LE(difference(jit(f)(x.q, x.k, x.v), einsums(x.q, x.k, x.v)), 1e-5);
}

TEST(HandWrittenAttention, IsRecognizedOutsideOfJit) {
  const Operands x = operands({2, 9, 2, 8});
  const auto gradient = grad(weighted_loss(einsums));
  EXPECT_LE(difference(gradient(x).k, jit(gradient, {.recognize = false})(x).k), 1e-5);
  EXPECT_TRUE(has_row(program_text(gradient, x), "attention_grad"));
}

// ---- other lengths and types

TEST(HandWrittenAttention, MayHaveMoreKeysThanQueries) {
  const auto f = [](Array q, Array k, Array v) {
    const int64_t t = q.shape(1), s = k.shape(1);
    return masked_by(tril(ones({t, s}, boolean), s - t), q, k, v);
  };
  const Operands x{operands({2, 4, 2, 8}).q, operands({2, 7, 2, 8}).k, operands({2, 7, 2, 8}).v};
  EXPECT_TRUE(recognizes(f, x.q, x.k, x.v));
  expect_same_results(f, x, 1e-5);
  // The first queries would see no key.
  EXPECT_FALSE(recognizes(f, x.k, x.q, x.q));
}

TEST(HandWrittenAttention, MayMixTypes) {
  const Operands x = operands({2, 9, 2, 8}, bf16);
  const auto in_f32 = [](Array q, Array k, Array v) {
    const Array weights = softmax(einsum("bthe,bshe->bhts", astype(q, f32), astype(k, f32)));
    return einsum("bhts,bshe->bthe", astype(weights, bf16), v);
  };
  EXPECT_TRUE(recognizes(in_f32, x.q, x.k, x.v));
  expect_same_results(in_f32, x, 4e-2);
  const auto wide_values = [](Array q, Array k, Array v) {
    const Array weights = softmax(astype(einsum("bthe,bshe->bhts", q, k), f32));
    return astype(einsum("bhts,bshe->bthe", weights, astype(v, f32)), bf16);
  };
  EXPECT_TRUE(recognizes(wide_values, x.q, x.k, x.v));
  expect_same_results(wide_values, x, 4e-2);
}

// ---- what stays as it is

TEST(HandWrittenAttention, StaysIfScoresOrWeightsAreResults) {
  const Operands x = operands({2, 9, 2, 8});
  const auto f = [](Array q, Array k, Array v) {
    const Array scores = einsum("bthe,bshe->bhts", q, k), weights = softmax(scores);
    return std::tuple{einsum("bhts,bshe->bthe", weights, v), max(weights), sum(scores)};
  };
  EXPECT_FALSE(recognizes(f, x.q, x.k, x.v));
}

TEST(HandWrittenAttention, StaysWithOtherMasksAndWeights) {
  const Operands x = operands({2, 9, 2, 8});
  // The mask is data.
  EXPECT_FALSE(recognizes([](Array mask, Array q, Array k, Array v) { return masked_by(mask, q, k, v); }, causal(9),
                          x.q, x.k, x.v));
  const auto changed = [](const std::function<Array(Array scores)>& weights_of) {
    return [weights_of](Array q, Array k, Array v) {
      return einsum("bhts,bshe->bthe", weights_of(einsum("bthe,bshe->bhts", q, k)), v);
    };
  };
  const std::map<std::string, std::function<Array(Array)>> others = {
      {"dropout", [](Array s) { return softmax(s) * astype(random::bernoulli(random::key(1), 0.9, s.shape()), f32); }},
      {"a visible score", [](Array s) { return softmax(where(causal(9), s, -10.f)); }},
      {"strictly earlier keys",
       [](Array s) {
         return softmax(where(tril(ones({9, 9}, boolean), -1), s, -1e9f));
       }},
      {"along the queries", [](Array s) { return softmax(s, 2); }},
      {"no sum", [](Array s) { return exp(s - max(s, -1, {.keepdims = true})); }},
      {"no maximum", [](Array s) { return exp(s) / sum(exp(s), -1, {.keepdims = true}); }},
      {"a bias", [](Array s) { return softmax(s + arange(9.f)); }},
      {"a checkerboard", [](Array s) { return softmax(where((arange(9) % 2) == 0, s, -1e9f)); }},
      {"a scale for each head", [](Array s) {
         return softmax(s * reshape(arange(2.f), {2, 1, 1}));
       }}};
  for (const auto& [name, weights_of] : others) EXPECT_FALSE(recognizes(changed(weights_of), x.q, x.k, x.v)) << name;
}

}  // namespace
}  // namespace lockstep
