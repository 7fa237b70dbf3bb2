#include "lockstep/gpt.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"
#include "lockstep/optimizers.h"
#include "nn/host_layers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

// GPT-2's form and Llama's form, small.
GptConfig gpt2_form() { return {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 8, .hidden = 12}; }
GptConfig llama_form() {
  return {.vocabulary = 11,
          .context = 8,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .width = 8,
          .head_width = 4,
          .hidden = 12,
          .norm = GptConfig::Norm::rms,
          .position = GptConfig::Position::rotary,
          .feed_forward = GptConfig::FeedForward::swiglu,
          .bias = false,
          .tied = false,
          .rope_base = 100,
          .norm_epsilon = 1e-6};
}

// Parameters with larger values than the initial ones, so that every part matters; biases and scales too.
Gpt random_gpt(const GptConfig& config, uint64_t seed) {
  int64_t leaf = 0;
  return tree_map(
      [&](const Array& a) {
        return a + 0.3f * random::normal(random::key(seed + static_cast<uint64_t>(leaf++)), a.shape());
      },
      create_gpt(config, random::key(seed)));
}

Array some_tokens(int64_t batch, int64_t length, uint64_t seed = 9) {
  return random::randint(random::key(seed), {batch, length}, 0, 11);
}

host::Row norm_of(const GptConfig& c, const nn::TransformerNorm& norm, const host::Row& x) {
  const host::Row scale = norm.scale.to_vector<double>();
  if (c.norm == GptConfig::Norm::rms) return host::rms_norm(x, scale, c.norm_epsilon);
  return host::layer_norm(x, scale, norm.bias ? norm.bias->to_vector<double>() : host::Row(x.size()), c.norm_epsilon);
}

host::Row activated(const GptConfig& c, const nn::FeedForward& layer, const host::Row& x) {
  host::Row up = host::linear(layer.up, x);
  const host::Row gate = layer.gate ? host::linear(*layer.gate, x) : host::Row();
  for (size_t i = 0; i < up.size(); ++i) {
    const double u = up[i];
    if (layer.gate)
      up[i] = gate[i] * host::sigmoid(gate[i]) * u;
    else if (c.feed_forward == GptConfig::FeedForward::gelu_exact)
      up[i] = u * 0.5 * (1 + std::erf(u / std::sqrt(2.0)));
    else
      up[i] = u * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
  }
  return host::linear(layer.down, up);
}

// Head `index` of a row of heads, rotated if the positions are rotary.
host::Row head_at(const GptConfig& c, const host::Row& row, int64_t index, int64_t position, bool rotated) {
  const auto e = static_cast<size_t>(c.blocks().head_width), begin = static_cast<size_t>(index) * e;
  const host::Row head(row.begin() + static_cast<std::ptrdiff_t>(begin),
                       row.begin() + static_cast<std::ptrdiff_t>(begin + e));
  return rotated && c.position == GptConfig::Position::rotary ? host::rotate(head, position, c.rope_base) : head;
}

host::Rows attended(const GptConfig& c, const nn::TransformerBlock& block, const host::Rows& x) {
  host::Rows qkv, out;
  for (const host::Row& row : x)
    qkv.push_back(host::linear(block.attention.qkv, norm_of(c, block.attention_norm, row)));
  const int64_t kv_heads = c.blocks().kv_heads;
  for (size_t t = 0; t < x.size(); ++t) {
    host::Row heads;
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t k = c.heads + h / (c.heads / kv_heads);
      host::Rows keys, values;
      for (size_t s = 0; s <= t; ++s) {
        keys.push_back(head_at(c, qkv[s], k, static_cast<int64_t>(s), true));
        values.push_back(head_at(c, qkv[s], k + kv_heads, 0, false));
      }
      const host::Row y = host::attend(head_at(c, qkv[t], h, static_cast<int64_t>(t), true), keys, values,
                                       std::vector<bool>(keys.size(), true));
      heads.insert(heads.end(), y.begin(), y.end());
    }
    out.push_back(host::linear(block.attention.projection, heads));
  }
  return out;
}

// The logits of one sequence.
host::Rows reference_logits(const GptConfig& c, const Gpt& gpt, const std::vector<int64_t>& tokens) {
  const host::Rows table = host::rows_of(gpt.token_embedding);
  host::Rows x;
  for (int64_t token : tokens) x.push_back(table[static_cast<size_t>(token)]);
  const auto add = [](host::Row& to, const host::Row& more) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
  };
  for (size_t t = 0; gpt.position_embedding && t < x.size(); ++t) add(x[t], host::rows_of(*gpt.position_embedding)[t]);
  for (const nn::TransformerBlock& block : gpt.blocks) {
    const host::Rows y = attended(c, block, x);
    for (size_t t = 0; t < x.size(); ++t) add(x[t], y[t]);
    for (host::Row& row : x) add(row, activated(c, block.feed_forward, norm_of(c, block.feed_forward_norm, row)));
  }
  host::Rows logits;
  for (const host::Row& row : x) {
    const host::Row y = norm_of(c, gpt.norm, row);
    logits.push_back(host::linear(host::rows_of(gpt.output ? *gpt.output : transpose(gpt.token_embedding)), {}, y));
  }
  return logits;
}

TEST(Gpt, MatchesPlainLoops) {
  GptConfig exact = gpt2_form(), no_bias = gpt2_form();
  exact.feed_forward = GptConfig::FeedForward::gelu_exact;
  no_bias.bias = false;
  for (const GptConfig& config : {gpt2_form(), exact, no_bias, llama_form()}) {
    const Gpt gpt = tree_map([](const Array& a) { return astype(a, f64); }, random_gpt(config, 1));
    const Array tokens = some_tokens(2, 5);
    const std::vector<int64_t> flat = tokens.to_vector<int64_t>();
    host::Rows wanted = reference_logits(config, gpt, {flat.begin(), flat.begin() + 5});
    for (const host::Row& row : reference_logits(config, gpt, {flat.begin() + 5, flat.end()})) wanted.push_back(row);
    const Array logits = apply(config, gpt, tokens, {.compute = f64});
    EXPECT_EQ(logits.type(), (Type{f64, {2, 5, 11}}));
    EXPECT_ELEMENTS(logits, host::flat(wanted), 1e-10);
  }
}

TEST(Gpt, DecodingTokenByTokenEqualsApply) {
  for (const GptConfig& config : {gpt2_form(), llama_form()}) {
    const Gpt gpt = random_gpt(config, 1);
    const Array tokens = some_tokens(3, 8), whole = apply(config, gpt, tokens, {});
    const auto step = jit([&](Gpt g, Array token, Array position,
                              GptCache cache) { return decode(config, g, token, position, cache, {}); },
                          {.donate = {3}});
    GptCache cache = create_cache(config, 3);
    for (int32_t t = 0; t < 8; ++t) {
      Array logits;
      std::tie(logits, cache) = step(gpt, slice(tokens, {0, t}, {3, t + 1}), Array::from<int32_t>({t}, {}), cache);
      EXPECT_ELEMENTS(logits, slice(whole, {0, t}, {3, t + 1}).to_vector<double>(), 1e-5);
    }
    EXPECT_EQ(step.compiled(), 1U);
  }
}

TEST(Gpt, PaddedPromptContinuesLikeApply) {
  for (const GptConfig& config : {gpt2_form(), llama_form()}) {
    const Gpt gpt = random_gpt(config, 1);
    const Array tokens = some_tokens(2, 6), whole = apply(config, gpt, tokens, {});
    const auto read = jit([&](Gpt g, Array prompt, Array length, GptCache cache) {
      return prefill(config, g, prompt, length, cache, {});
    });
    for (const int32_t length : {1, 4}) {
      // The rest of the prompt is padding.
      const Array padding = full({2, 6 - length}, 7, i32);
      const Array prompt = concatenate({slice(tokens, {0, 0}, {2, length}), padding}, 1);
      auto [first, cache] = read(gpt, prompt, Array::from<int32_t>({length}, {}), create_cache(config, 2));
      EXPECT_ELEMENTS(first, at(whole, length - 1, 1).to_vector<double>(), 1e-5);
      // Two tokens at once.
      const Array two = slice(tokens, {0, length}, {2, length + 2});
      EXPECT_ELEMENTS(decode(config, gpt, two, length, cache, {}).first,
                      slice(whole, {0, length}, {2, length + 2}).to_vector<double>(), 1e-5);
    }
    EXPECT_EQ(read.compiled(), 1U);
  }
}

TEST(Gpt, LaterTokensDoNotChangeEarlierLogits) {
  for (const GptConfig& config : {gpt2_form(), llama_form()}) {
    const Gpt gpt = random_gpt(config, 1);
    const Array tokens = some_tokens(2, 8),
                changed = concatenate({slice(tokens, {0, 0}, {2, 5}), some_tokens(2, 3, 77)}, 1);
    ASSERT_NE(tokens.to_vector<int>(), changed.to_vector<int>());
    const auto f = jit([&](Gpt g, Array t) { return apply(config, g, t, {}); });
    const Array a = f(gpt, tokens), b = f(gpt, changed);
    EXPECT_EQ(slice(a, {0, 0}, {2, 5}).to_vector<float>(), slice(b, {0, 0}, {2, 5}).to_vector<float>());
    EXPECT_NE(a.to_vector<float>(), b.to_vector<float>());
  }
}

TEST(Gpt, GroupedHeadsEqualRepeatedHeads) {
  const GptConfig grouped = llama_form();
  GptConfig full_heads = grouped;
  full_heads.kv_heads = 4;
  const Gpt gpt = random_gpt(grouped, 1);
  Gpt repeated = gpt;
  for (nn::TransformerBlock& block : repeated.blocks) {
    const std::vector<Array> parts = split_at(block.attention.qkv.w, {16, 24}, 1);
    const auto twice = [](const Array& w) { return reshape(repeat(reshape(w, {8, 2, 4}), 2, 1), {8, 16}); };
    block.attention.qkv.w = concatenate({parts[0], twice(parts[1]), twice(parts[2])}, 1);
  }
  EXPECT_ELEMENTS(apply(full_heads, repeated, some_tokens(2, 6), {}),
                  apply(grouped, gpt, some_tokens(2, 6), {}).to_vector<double>(), 1e-5);
}

int64_t parameters_of(const GptConfig& config) {
  const auto form = detail::trace_call(
                        "count", [&](Array key) { return create_gpt(config, key); }, random::key(0))
                        .result;
  int64_t n = 0;
  detail::for_each_array(form, [&](const Array& a) { n += a.size(); });
  return n;
}

TEST(Gpt, NamedSizesHaveTheKnownNumbersOfParameters) {
  GptConfig config = gpt_config("char");
  config.vocabulary = 65;
  EXPECT_EQ(parameters_of(config), 10'745'088);
  EXPECT_EQ(parameters_of(gpt_config("124m")), 124'439'808);
  config = gpt_config("char-small");
  config.vocabulary = 65;
  EXPECT_EQ(parameters_of(config), 804'096);
  EXPECT_EQ(gpt_config_names(), (std::vector<std::string>{"char", "char-small", "124m"}));
}

TEST(Gpt, StartsAsGpt2) {
  const GptConfig config{.vocabulary = 100, .context = 64, .layers = 8, .heads = 4, .width = 64};
  const Gpt gpt = create_gpt(config, random::key(1));
  const auto deviation = [](const Array& a) { return standard_deviation(a).item<double>(); };
  EXPECT_NEAR(deviation(gpt.token_embedding), 0.02, 1e-3);
  EXPECT_NEAR(deviation(*gpt.position_embedding), 0.02, 1e-3);
  EXPECT_NEAR(deviation(gpt.blocks[3].attention.qkv.w), 0.02, 1e-3);
  EXPECT_NEAR(deviation(gpt.blocks[3].attention.projection.w), 0.005, 3e-4);
  EXPECT_NEAR(deviation(gpt.blocks[3].feed_forward.down.w), 0.005, 3e-4);
  EXPECT_EQ(gpt.blocks[3].feed_forward.up.b->to_vector<float>(), std::vector<float>(256));
  EXPECT_EQ(gpt.norm.scale.to_vector<float>(), std::vector<float>(64, 1));
  EXPECT_NE(gpt.blocks[0].attention.qkv.w.to_vector<float>(), gpt.blocks[1].attention.qkv.w.to_vector<float>());
  // Nearly uniform predictions.
  const Array tokens = random::randint(random::key(2), {2, 64}, 0, 100);
  const Array labels = random::randint(random::key(3), {2, 64}, 0, 100);
  EXPECT_NEAR(mean(softmax_cross_entropy(apply(config, gpt, tokens, {}), labels)).item<double>(), std::log(100), 0.1);
}

TEST(Gpt, HasReadablePaths) {
  std::vector<std::string> paths;
  for (const auto& [path, leaf] : tree_flatten(create_gpt(llama_form(), random::key(1)))) paths.push_back(path);
  EXPECT_EQ(paths[0], "token_embedding");
  EXPECT_EQ(paths[2], "blocks/0/attention/qkv/w");
  EXPECT_EQ(paths[5], "blocks/0/feed_forward/gate/w");
  EXPECT_EQ(paths.back(), "output");
}

TEST(Gpt, ComputesInTheTypeOfTheMode) {
  const GptConfig config = llama_form();
  const Gpt gpt = random_gpt(config, 1), low = tree_map([](const Array&a) { return astype(a, bf16); }, gpt);
  const Array tokens = some_tokens(2, 6), wanted = apply(config, gpt, tokens, {});
  for (const Gpt& params : {gpt, low}) {
    const Array logits = apply(config, params, tokens, {.compute = bf16});
    EXPECT_EQ(logits.dtype(), bf16);
    EXPECT_ELEMENTS(logits, wanted.to_vector<double>(), 0.3);
  }
  EXPECT_EQ(decode(config, gpt, tokens, 0, create_cache(config, 2, bf16), {.compute = bf16}).first.dtype(), bf16);
}

TEST(Gpt, DropoutIsAppliedOnlyInTraining) {
  GptConfig with = gpt2_form();
  with.dropout = 0.5;
  const Gpt gpt = random_gpt(with, 1);
  const auto logits = [&](const GptConfig& c, const nn::Mode& mode) {
    return apply(c, gpt, some_tokens(2, 6), mode).to_vector<float>();
  };
  const nn::Mode training{.training = true, .key = random::key(3)};
  EXPECT_EQ(logits(with, {}), logits(gpt2_form(), training));
  EXPECT_NE(logits(with, {}), logits(with, training));
  EXPECT_EQ(logits(with, training), logits(with, training));
}

// Trains on one batch and returns the last loss.
float overfit(const GptConfig& config, DType compute, int steps, const NamedSharding& sharding = {}) {
  const Optimizer adamw{.schedule = {.peak = 1e-2}, .weight_decay = 0};
  const auto step = jit([&](Gpt gpt, OptimizerState state, Array x, Array y) {
    const nn::Mode mode{.training = true, .key = random::fold_in(random::key(0), state.step), .compute = compute};
    auto [value, grads] =
        value_and_grad([&](Gpt g) { return mean(softmax_cross_entropy(apply(config, g, x, mode), y)); })(gpt);
    auto [next, next_state] = update(adamw, gpt, grads, state);
    return std::tuple{next, next_state, value};
  });
  Gpt gpt = create_gpt(config, random::key(5));
  OptimizerState state = create_state(adamw, gpt);
  Array x = some_tokens(4, 8, 1), y = some_tokens(4, 8, 2), loss;
  if (sharding.defined()) {
    x = device_put(x, sharding);
    y = device_put(y, sharding);
  }
  for (int i = 0; i < steps; ++i) std::tie(gpt, state, loss) = step(gpt, state, x, y);
  return loss.item<float>();
}

TEST(Gpt, OverfitsOneBatch) {
  GptConfig config = gpt2_form();
  config.width = 32;
  EXPECT_GT(overfit(config, f32, 1), 2.2F);
  EXPECT_LT(overfit(config, f32, 60), 0.3F);
  EXPECT_LT(overfit(config, bf16, 60), 0.4F);
  EXPECT_NEAR(overfit(config, f32, 10, NamedSharding(make_mesh({{"data", 2}}), P("data"))), overfit(config, f32, 10),
              1e-4);
}

TEST(Gpt, InvalidConfigurationsAreRejected) {
  const auto with = [](auto change) {
    GptConfig config = llama_form();
    change(config);
    return config;
  };
  EXPECT_ERROR(check(gpt_config("char")), "gpt: vocabulary is 0; it must be between 1 and 16777216");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.context = -1; })), "gpt: context is -1");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.layers = int64_t{1} << 40; })), "transformer: layers is 1099511627776");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.kv_heads = 3; })),
               "transformer: kv_heads is 3, heads is 4; the first must divide the second");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.head_width = 0, c.width = 10; })),
               "width is 10, heads is 4; heads must divide width, or set head_width");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.head_width = 3; })), "rotary positions need an even number");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.hidden = -2; })), "transformer: hidden is -2");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.dropout = 1; })), "transformer: dropout is 1");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.rope_base = 0; })), "transformer: rope_base is 0");
  EXPECT_ERROR(check(with([](GptConfig& c) { c.norm_epsilon = -1; })), "transformer: norm_epsilon is -1");
  EXPECT_ERROR(gpt_config("chr"), "gpt size: unknown value \"chr\"; choose char, char-small or 124m");
}

TEST(Gpt, InvalidArgumentsAreRejected) {
  const GptConfig config = gpt2_form();
  const Gpt gpt = create_gpt(config, random::key(1));
  EXPECT_ERROR(apply(config, gpt, ones({2, 3}), {}), "gpt: the tokens are f32[2,3]; give integers [batch, tokens]");
  EXPECT_ERROR(apply(config, gpt, some_tokens(2, 9), {}), "gpt: sequences of 9 tokens; this model takes 1 to 8");
  EXPECT_ERROR(apply(llama_form(), gpt, some_tokens(2, 3), {}),
               "gpt: the parameters have 2 blocks, a position embedding and no output layer, which does not fit");
  GptConfig larger = config;
  larger.vocabulary = 12;
  EXPECT_ERROR(apply(larger, gpt, some_tokens(2, 3), {}),
               "gpt: the token embedding is [11, 8]; the configuration needs [12, 8]");
  EXPECT_ERROR(decode(config, gpt, some_tokens(2, 1), 0, {}, {}), "gpt: the cache has 0 layers, the model 2");
  EXPECT_ERROR(decode(config, gpt, some_tokens(2, 1), 0, create_cache(config, 3), {}),
               "transformer: the cache has keys [3, 8, 2, 4] and values [3, 8, 2, 4]; 1 tokens of 2 sequences need [2, "
               "context, 2, 4]");
  EXPECT_ERROR(decode(config, gpt, some_tokens(2, 1), ones({1}), create_cache(config, 2), {}),
               "gpt: the position is f32[1]");
  EXPECT_ERROR(create_cache(config, 0), "gpt: a cache for 0 sequences");
  EXPECT_ERROR(create_cache(config, 1, i32), "gpt: a cache of i32; choose a floating-point type");
}

}  // namespace
}  // namespace lockstep
