#include "lockstep/precision.h"

#include <cmath>
#include <limits>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"
#include "lockstep/nn.h"
#include "lockstep/optimizers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

TEST(Precision, HasNamesAndShortNames) {
  for (const char* name : {"float32", "bfloat16", "float16", "float8"}) EXPECT_EQ(to_string(precision_of(name)), name);
  EXPECT_EQ(precision_of("f32").compute, f32);
  EXPECT_EQ(precision_of("bf16").compute, bf16);
  EXPECT_EQ(precision_of("f16").compute, f16);
  EXPECT_EQ(precision_of("fp32").compute, f32);
  EXPECT_EQ(precision_of("fp16").compute, f16);
  EXPECT_TRUE(precision_of("f16").loss_scaling);
  EXPECT_FALSE(precision_of("bf16").loss_scaling);
  EXPECT_ERROR(
      precision_of("float17"),
      "precision: unknown value \"float17\"; choose float32, bfloat16, float16 or float8; did you mean \"float16\"?");
  EXPECT_ERROR(precision_of("int8"), "choose float32, bfloat16, float16 or float8");
  EXPECT_EQ(to_string(Precision{.compute = f64}), "float64");
}

TEST(LossScale, IsEmptyWithoutScaling) {
  const LossScale none = create_loss_scale({});
  EXPECT_TRUE(tree_leaves(none).empty());
  const Array loss = 3.f;
  EXPECT_EQ(scaled(none, loss).node(), loss.node());
  EXPECT_TEXT(unscaled(none, {astype(array({1.f, 2.f}), bf16)})[0], "f32[2] [1, 2]");
  EXPECT_TRUE(tree_leaves(adjusted({}, none, Array(true))).empty());
}

TEST(LossScale, MultipliesTheLossAndDividesTheGradients) {
  const LossScale state = create_loss_scale(precision_of("float16"));
  EXPECT_EQ(state.scale[0].type(), (Type{f32, {}}));
  EXPECT_EQ(state.finite_steps[0].type(), (Type{i32, {}}));
  EXPECT_TEXT(scaled(state, Array(2.f)), "f32[] 131072");
  const std::vector<Array> grads = unscaled(state, {array({65536.f}), astype(array({32768.f}), f16)});
  EXPECT_TEXT(grads[0], "f32[1] [1]");
  EXPECT_TEXT(grads[1], "f32[1] [0.5]");
  EXPECT_EQ(unscaled(state, {ones({1}, f64)})[0].dtype(), f64);
}

// The scale after each step.
std::vector<double> scales(const Precision& p, const std::string& finite) {
  LossScale state = create_loss_scale(p);
  const auto next = jit([&](LossScale s, Array ok) { return adjusted(p, s, ok); });
  std::vector<double> out;
  for (const char c : finite) {
    state = next(state, Array::from(std::vector<bool>{c == '+'}, {}));
    EXPECT_EQ(state.scale[0].type(), (Type{f32, {}}));
    EXPECT_EQ(state.finite_steps[0].type(), (Type{i32, {}}));
    out.push_back(state.scale[0].item<double>());
  }
  return out;
}

TEST(LossScale, HalvesImmediatelyAndGrowsAfterTheInterval) {
  const Precision p{
      .compute = f16, .loss_scaling = true, .initial_scale = 8, .growth_interval = 3, .largest_scale = 32};
  EXPECT_EQ(scales(p, "++-+++-++-+++"), (std::vector<double>{8, 8, 4, 4, 4, 8, 4, 4, 4, 2, 2, 2, 4}));
}

TEST(LossScale, StaysBetweenOneAndTheLargest) {
  const Precision p{
      .compute = f16, .loss_scaling = true, .initial_scale = 4, .growth_interval = 1, .largest_scale = 12};
  EXPECT_EQ(scales(p, "+++-----+"), (std::vector<double>{8, 12, 12, 6, 3, 1.5, 1, 1, 2}));
}

TEST(LossScale, InvalidValuesAreRejected) {
  const auto create = [](Precision p) {
    p.loss_scaling = true;
    return create_loss_scale(p);
  };
  EXPECT_ERROR(create({.factor = 1}), "loss scaling: the factor is 1; it must be greater than 1");
  EXPECT_ERROR(
      create({.initial_scale = 0.5}),
      "loss scaling: initial_scale is 0.5 and largest_scale 16777216; give an initial scale from 1 to the largest");
  EXPECT_ERROR(create({.initial_scale = 64, .largest_scale = 32}), "initial_scale is 64 and largest_scale 32");
  EXPECT_ERROR(create({.growth_interval = 0}), "loss scaling: growth_interval is 0");
}

TEST(AllFinite, ChecksEveryElementOfEveryLeaf) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto finite = jit([](std::vector<Array> leaves) { return all_finite(leaves); });
  EXPECT_EQ(finite(std::vector<Array>{ones({2, 3}), ones({2}, f16)}).type(), (Type{boolean, {}}));
  EXPECT_TRUE(static_cast<bool>(finite(std::vector<Array>{ones({2, 3}), ones({2}, f16)})));
  EXPECT_FALSE(static_cast<bool>(finite(std::vector<Array>{ones({2}), array({1.f, inf})})));
  EXPECT_FALSE(static_cast<bool>(finite(std::vector<Array>{array({-inf, 0.f}), ones({2})})));
  EXPECT_FALSE(static_cast<bool>(finite(std::vector<Array>{array({std::nanf(""), 0.f}), ones({2})})));
  // Finite in f32, although its square would overflow.
  EXPECT_TRUE(static_cast<bool>(finite(std::vector<Array>{array({1e30f})})));
  EXPECT_TRUE(static_cast<bool>(all_finite({})));
}

TEST(CastFloating, KeepsIntegers) {
  const std::vector<Array> out = cast_floating({ones({2}), ones({2}, i32), ones({2}, f16)}, bf16);
  EXPECT_EQ(out[0].dtype(), bf16);
  EXPECT_EQ(out[1].dtype(), i32);
  EXPECT_EQ(out[2].dtype(), bf16);
  EXPECT_ERROR(cast_floating({}, i32), "cast_floating: i32 is not a floating-point type");
}

struct State {
  std::vector<Array> params;
  OptimizerState optimizer;
  LossScale scale;
};

// A step as in the trainer.
std::pair<State, Array> step(const Precision& p, const Optimizer& o, const State& s, const Array& x, const Array& y) {
  const auto loss = [&](std::vector<Array> params) {
    const std::vector<Array> low = cast_floating(params, p.compute);
    const Array logits = nn::apply(nn::Dense{low[0], low[1]}, astype(x, p.compute));
    EXPECT_EQ(logits.dtype(), p.compute);
    return scaled(s.scale, mean(softmax_cross_entropy(logits, y)));
  };
  const std::vector<Array> grads = unscaled(s.scale, grad(loss)(s.params));
  const Array finite = all_finite(grads);
  const Update next = update(o, {"w", "b"}, s.params, grads, s.optimizer);
  const auto chosen = [&](const auto& fresh, const auto& old) {
    return tree_map([&](const Array& a, const Array& b) { return where(finite, a, b); }, fresh, old);
  };
  return {{chosen(next.params, s.params), chosen(next.state, s.optimizer), adjusted(p, s.scale, finite)}, finite};
}

TEST(LossScale, OverflowsAreSkippedUntilTheScaleFits) {
  const Precision p = precision_of("float16");
  const Optimizer o{.kind = Optimizer::Kind::adamw, .schedule = {.peak = 0.01}};
  // Inputs of 8: the gradient of a weight is 8 * 0.75 at first, so scales up to 8192 fit f16.
  const Array x = full({4, 3}, 8.f), y = zeros({4}, i32);
  State state{{zeros({3, 4}), zeros({4})}, {}, create_loss_scale(p)};
  state.optimizer = create_state(o, state.params);
  const auto compiled = jit([&](State s) { return step(p, o, s, x, y); }, {.donate = {0}});
  for (const double wanted : {32768, 16384, 8192}) {
    auto [next, finite] = compiled(state);
    EXPECT_FALSE(static_cast<bool>(finite));
    state = next;
    EXPECT_EQ(state.scale.scale[0].item<double>(), wanted);
    EXPECT_EQ(state.params[0].to_vector<float>(), std::vector<float>(12));
    EXPECT_EQ(state.optimizer.first[0].to_vector<float>(), std::vector<float>(12));
    EXPECT_EQ(state.optimizer.step.item<int>(), 0);
  }
  auto [next, finite] = compiled(state);
  EXPECT_TRUE(static_cast<bool>(finite));
  EXPECT_EQ(next.optimizer.step.item<int>(), 1);
  EXPECT_EQ(next.scale.scale[0].item<double>(), 8192);
  EXPECT_EQ(next.scale.finite_steps[0].item<int>(), 1);
  EXPECT_EQ(next.params[0].dtype(), f32);
  EXPECT_GT(next.params[0].to_vector<float>()[0], 0);
  // The unscaled gradient, for any scale: m = 0.1 * -6.
  EXPECT_NEAR(next.optimizer.first[0].to_vector<float>()[0], -0.6, 1e-3);
}

TEST(Precision, LowPrecisionGradientsApproximateF32) {
  const Optimizer o{.kind = Optimizer::Kind::sgd, .schedule = {.peak = 1}};
  const Array x = random::normal(random::key(1), {16, 3}), y = random::randint(random::key(2), {16}, 0, 4);
  const auto params_after = [&](const Precision& p) {
    State state{{zeros({3, 4}), zeros({4})}, {}, create_loss_scale(p)};
    state.optimizer = create_state(o, state.params);
    return step(p, o, state, x, y).first.params[0];
  };
  const std::vector<double> exact = params_after({}).to_vector<double>();
  EXPECT_ELEMENTS(params_after(precision_of("bfloat16")), exact, 5e-3);
  // A scale that fits: the gradients here are well below 1.
  EXPECT_ELEMENTS(params_after({.compute = f16, .loss_scaling = true, .initial_scale = 1024}), exact, 1e-3);
}

}  // namespace
}  // namespace lockstep
