#include "lockstep/optimizers.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn.h"

namespace lockstep {
namespace {

using OptimizerKind = Optimizer::Kind;

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

struct Params {
  std::vector<nn::Dense> dense;
  Array scale;
};

// Pseudo-random numbers, the same on every machine.
double number(size_t i, int64_t step) {
  return std::sin(static_cast<double>(i * 37 + 11) * (1.3 + 0.7 * static_cast<double>(step)));
}

using Leaves = std::vector<std::vector<double>>;

Leaves values(int64_t step, double scale) {
  Leaves out{std::vector<double>(6), std::vector<double>(2), std::vector<double>(3)};
  size_t i = 0;
  for (auto& leaf : out)
    for (double& x : leaf) x = scale * number(i++, step);
  return out;
}

Params arrays(const Leaves& l, DType dtype) {
  const auto make = [&](const std::vector<double>& v, const Shape& shape) {
    return astype(Array::from(v, shape), dtype);
  };
  return {{{make(l[0], {3, 2}), make(l[1], {2})}}, make(l[2], {3})};
}

// The reference implementation in doubles, element by element.
struct Reference {
  Leaves params, first, second;
  int64_t steps = 0;

  void update(const Optimizer& o, Leaves grads, const std::vector<bool>& decayed) {
    double squares = 0;
    for (const auto& leaf : grads)
      for (double g : leaf) squares += g * g;
    const double norm = std::sqrt(squares);
    const double rate = o.schedule.at(steps++);
    const auto t = static_cast<double>(steps);
    for (size_t l = 0; l < grads.size(); ++l)
      for (size_t i = 0; i < grads[l].size(); ++i) {
        double g = grads[l][i], &p = params[l][i], &m = first[l][i], &v = second[l][i];
        const double before = p;
        if (o.clip_norm > 0 && norm > o.clip_norm) g *= o.clip_norm / norm;
        if (decayed[l] && o.kind != OptimizerKind::adamw && o.kind != OptimizerKind::lion) g += o.weight_decay * p;
        switch (o.kind) {
          case OptimizerKind::sgd:
            p -= rate * g;
            break;
          case OptimizerKind::momentum:
            m = o.momentum * m + g;
            p -= rate * m;
            break;
          case OptimizerKind::nesterov:
            m = o.momentum * m + g;
            p -= rate * (g + o.momentum * m);
            break;
          case OptimizerKind::adam:
          case OptimizerKind::adamw:
            m = o.beta1 * m + (1 - o.beta1) * g;
            v = o.beta2 * v + (1 - o.beta2) * g * g;
            p -= rate * (m / (1 - std::pow(o.beta1, t))) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.epsilon);
            if (decayed[l] && o.kind == OptimizerKind::adamw) p -= rate * o.weight_decay * before;
            break;
          case OptimizerKind::lion: {
            const double mixed = o.beta1 * m + (1 - o.beta1) * g;
            p -= rate * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
            if (decayed[l]) p -= rate * o.weight_decay * before;
            m = o.lion_beta2 * m + (1 - o.lion_beta2) * g;
            break;
          }
          case OptimizerKind::adafactor:
          case OptimizerKind::muon:
            FAIL() << "see optimizers_rules_test.cc";
        }
      }
  }
};

Leaves zeros_of(Leaves l) {
  for (auto& leaf : l) std::fill(leaf.begin(), leaf.end(), 0.0);
  return l;
}

// Compares twelve compiled steps with the reference.
void compare(const Optimizer& o, const std::vector<bool>& decayed = {true, false, false}) {
  for (const DType dtype : {f64, f32}) {
    SCOPED_TRACE(to_string(o.kind) + " " + std::string(name(dtype)));
    const double tolerance = dtype == f64 ? 1e-7 : 2e-6;
    // The norm is always f32, so f64 is exact only without clipping.
    const double exact = dtype == f64 && o.clip_norm == 0 ? 1e-13 : tolerance;
    Reference reference{values(0, 1), zeros_of(values(0, 1)), zeros_of(values(0, 1))};
    Params params = arrays(reference.params, dtype);
    OptimizerState state = create_state(o, params);
    const auto step = jit([&](Params p, OptimizerState s, Params g) { return update(o, p, g, s); }, {.donate = {0, 1}});
    for (int64_t i = 1; i <= 12; ++i) {
      const Leaves grads = values(i, i % 3 == 0 ? 0.01 : 1);
      reference.update(o, grads, decayed);
      std::tie(params, state) = step(params, state, arrays(grads, dtype));
    }
    const std::vector<Array> leaves = tree_leaves(params);
    for (size_t l = 0; l < leaves.size(); ++l) {
      EXPECT_EQ(leaves[l].dtype(), dtype);
      EXPECT_ELEMENTS(leaves[l], reference.params[l], exact);
      if (!state.first.empty()) EXPECT_ELEMENTS(state.first[l], reference.first[l], 10 * exact);
      if (!state.second.empty()) EXPECT_ELEMENTS(state.second[l], reference.second[l], exact);
    }
    EXPECT_EQ(state.step.type(), (Type{i32, {}}));
    EXPECT_EQ(state.step.item<int>(), 12);
  }
}

class EachKind : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EachKind,
                         testing::Values(OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov,
                                         OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::lion));

TEST_P(EachKind, MatchesTheReference) { compare({.kind = GetParam(), .schedule = {.peak = 0.01}}); }

TEST_P(EachKind, FollowsItsSchedule) {
  compare({.kind = GetParam(),
           .schedule = {.kind = Schedule::Kind::warmup_cosine, .peak = 0.05, .warmup_steps = 4, .total_steps = 10}});
  compare(
      {.kind = GetParam(), .schedule = {.kind = Schedule::Kind::exponential, .peak = 0.05, .decay = 0.5, .every = 3}});
}

TEST_P(EachKind, DecaysWeightsButNotBiasesAndScales) {
  compare({.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1});
}

TEST_P(EachKind, NoDecayPatternsExcludeParameters) {
  compare({.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1, .no_decay = {}}, {true, true, true});
  compare({.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1, .no_decay = {"dense/*"}},
          {false, false, true});
}

TEST_P(EachKind, ClipsByTheNormOverAllParameters) {
  compare({.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1, .clip_norm = 0.5});
}

TEST_P(EachKind, MatchesTheReferenceWithOtherHyperparameters) {
  compare({.kind = GetParam(),
           .schedule = {.peak = 0.02},
           .momentum = 0.5,
           .beta1 = 0,
           .beta2 = 0.9,
           .epsilon = 1e-3,
           .weight_decay = 0.3,
           .lion_beta2 = 0.5});
}

TEST_P(EachKind, EagerAndCompiledAgreeBitwise) {
  const Optimizer o{.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1, .clip_norm = 1};
  const Params params = arrays(values(0, 1), f32), grads = arrays(values(1, 1), f32);
  const OptimizerState state = create_state(o, params);
  const auto step = [&](Params p, Params g, OptimizerState s) { return update(o, p, g, s); };
  const auto eager = step(params, grads, state), compiled = jit(step)(params, grads, state);
  EXPECT_EQ(eager.first.dense[0].w.to_vector<float>(), compiled.first.dense[0].w.to_vector<float>());
  EXPECT_EQ(eager.first.scale.to_vector<float>(), compiled.first.scale.to_vector<float>());
}

// Top-level lines of the lowered program whose result has this type.
int makers(const std::string& text, const std::string& type) {
  int found = 0;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.rfind("  %", 0) == 0 && line.substr(0, line.find(" = ")).find(type) != std::string::npos) ++found;
    begin = end + 1;
  }
  return found;
}

TEST_P(EachKind, IsOnePassOverEachParameter) {
  const Optimizer o{.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1};
  const Params params{{{zeros({30, 20}), zeros({20})}}, zeros({7})};
  const auto step = jit([&](Params p, Params g, OptimizerState s) { return update(o, p, g, s); });
  const std::string text = step.lowered(params, params, create_state(o, params));
  for (const char* type : {"f32[30,20]", "f32[20]", "f32[7]"}) EXPECT_EQ(makers(text, type), 1) << text;
}

TEST(Optimizer, StateHasOnlyTheArraysInUse) {
  const Params params = arrays(values(0, 1), f32);
  const auto sizes = [&](OptimizerKind kind) {
    const OptimizerState s = create_state(Optimizer{.kind = kind}, params);
    return std::pair{s.first.size(), s.second.size()};
  };
  EXPECT_EQ(sizes(OptimizerKind::sgd), (std::pair<size_t, size_t>{0, 0}));
  EXPECT_EQ(sizes(OptimizerKind::momentum), (std::pair<size_t, size_t>{3, 0}));
  EXPECT_EQ(sizes(OptimizerKind::nesterov), (std::pair<size_t, size_t>{3, 0}));
  EXPECT_EQ(sizes(OptimizerKind::adam), (std::pair<size_t, size_t>{3, 3}));
  EXPECT_EQ(sizes(OptimizerKind::adamw), (std::pair<size_t, size_t>{3, 3}));
  EXPECT_EQ(sizes(OptimizerKind::lion), (std::pair<size_t, size_t>{3, 0}));
  EXPECT_EQ(sizes(OptimizerKind::adafactor), (std::pair<size_t, size_t>{0, 2}));
  EXPECT_EQ(sizes(OptimizerKind::muon), (std::pair<size_t, size_t>{3, 2}));
}

TEST(Optimizer, LowPrecisionGradientsAreConvertedToTheParameterType) {
  const Optimizer o{.kind = OptimizerKind::sgd, .schedule = {.peak = 0.5}};
  const std::vector<Array> params{ones({2})}, grads{astype(array({1.f, 2.f}), bf16)};
  const Update next = update(o, {"w"}, params, grads, create_state(o, params));
  EXPECT_TEXT(next.params[0], "f32[2] [0.5, 0]");
}

TEST(Optimizer, GivenNormIsUsed) {
  const Optimizer o{.kind = OptimizerKind::sgd, .schedule = {.peak = 1}, .clip_norm = 1};
  const std::vector<Array> params{zeros({2})}, grads{array({3.f, 4.f})};
  const OptimizerState state = create_state(o, params);
  EXPECT_ELEMENTS(update(o, {"w"}, params, grads, state).params[0], {-0.6, -0.8}, 1e-7);
  EXPECT_ELEMENTS(update(o, {"w"}, params, grads, state, Array(10.f)).params[0], {-0.3, -0.4}, 1e-7);
}

TEST(Optimizer, GradientsUpToTheClipNormAreUnchanged) {
  const Optimizer o{.kind = OptimizerKind::sgd, .schedule = {.peak = 1}, .clip_norm = 5};
  const std::vector<Array> params{zeros({2})};
  const OptimizerState state = create_state(o, params);
  EXPECT_TEXT(update(o, {"w"}, params, {array({3.f, 4.f})}, state).params[0], "f32[2] [-3, -4]");
  EXPECT_TEXT(update(o, {"w"}, params, {array({0.f, 0.f})}, state).params[0], "f32[2] [0, 0]");
}

TEST(GlobalNorm, IsOverAllLeavesInF32) {
  const Array norm = global_norm({array({3.f, 0.f}), astype(array({4.f}), f16), astype(array({12.f}), f64)});
  EXPECT_TEXT(norm, "f32[] 13");
  // 300^2 overflows f16.
  EXPECT_TEXT(global_norm({astype(array({300.f, 400.f}), f16)}), "f32[] 500");
  EXPECT_TEXT(global_norm({}), "f32[] 0");
}

TEST(Matches, StarMatchesAnySequence) {
  EXPECT_TRUE(matches("*/b", "dense/0/b"));
  EXPECT_FALSE(matches("*/b", "b"));
  EXPECT_TRUE(matches("dense/*/w", "dense/0/w"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a/b/b/c"));
  EXPECT_FALSE(matches("a*b", "a/b/c"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("**a", "ba"));
}

TEST(Optimizer, NamesRoundTrip) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw", "lion", "adafactor", "muon"})
    EXPECT_EQ(to_string(optimizer_kind(name)), name);
  EXPECT_EQ(optimizer_kind("nesterov"), OptimizerKind::nesterov);
  EXPECT_ERROR(
      optimizer_kind("adm"),
      "optimizer: unknown value \"adm\"; choose sgd, momentum, nesterov, adam, adamw, lion, adafactor or muon; did you "
      "mean \"adam\"?");
  EXPECT_ERROR(optimizer_kind("lamb"), "choose sgd, momentum, nesterov, adam, adamw, lion, adafactor or muon");
}

TEST(Optimizer, InvalidValuesAreRejected) {
  EXPECT_ERROR(check(Optimizer{.schedule = {.peak = -1}}), "schedule: the peak rate is -1");
  EXPECT_ERROR(check(Optimizer{.kind = OptimizerKind::momentum, .momentum = 1}),
               "optimizer: momentum is 1; it must be at least 0 and less than 1");
  EXPECT_ERROR(check(Optimizer{.beta1 = -0.1}), "optimizer: beta1 is -0.1");
  EXPECT_ERROR(check(Optimizer{.beta2 = 1}), "optimizer: beta2 is 1");
  EXPECT_ERROR(check(Optimizer{.epsilon = -1}), "optimizer: the epsilon is -1; it must be 0 or a positive number");
  EXPECT_ERROR(check(Optimizer{.weight_decay = -0.1}), "optimizer: the weight decay is -0.1");
  EXPECT_ERROR(check(Optimizer{.clip_norm = -1}), "optimizer: the clip norm is -1");
  EXPECT_ERROR(check(Optimizer{.kind = OptimizerKind::lion, .lion_beta2 = 1}), "optimizer: lion_beta2 is 1");
  EXPECT_ERROR(check(Optimizer{.kind = OptimizerKind::lion, .beta1 = 1}), "optimizer: beta1 is 1");
  EXPECT_ERROR(check(Optimizer{.kind = OptimizerKind::muon, .muon_momentum = -1}), "optimizer: muon_momentum is -1");
  EXPECT_ERROR(check(Optimizer{.kind = OptimizerKind::muon, .beta2 = 2}), "optimizer: beta2 is 2");
  EXPECT_ERROR(check(Optimizer{.kind = OptimizerKind::muon, .adam_rate = -1}), "optimizer: the adam_rate is -1");
  check(Optimizer{.kind = OptimizerKind::sgd, .momentum = 5, .lion_beta2 = 5, .muon_momentum = 5});  // not used
}

TEST(Optimizer, MismatchedArgumentsAreRejected) {
  const Optimizer o{.kind = OptimizerKind::adam};
  const std::vector<Array> params{zeros({2, 3}), zeros({3})};
  const OptimizerState state = create_state(o, params);
  EXPECT_ERROR(update(o, {"w", "b"}, params, {zeros({2, 3})}, state), "update: 1 gradients, expected 2");
  EXPECT_ERROR(update(o, {"w"}, params, params, state), "update: 1 paths, expected 2");
  EXPECT_ERROR(update(o, {"w", "b"}, params, {zeros({2, 3}), zeros({1})}, state),
               "update: the gradient of b is [1], but the parameter is [3]; the shapes must be equal");
  EXPECT_ERROR(
      update(o, {"w", "b"}, params, params, create_state(Optimizer{.kind = OptimizerKind::sgd}, params)),
      "update: 0 first moments, expected 2; give one per parameter, and the state that create_state() returned");
  EXPECT_ERROR(update(o, {"w", "b"}, params, params, create_state(Optimizer{.kind = OptimizerKind::momentum}, params)),
               "update: 0 second moments, expected 2");
  EXPECT_ERROR(create_state(o, std::vector<Array>{zeros({2}, bf16)}),
               "create_state: a parameter is bf16[2]; use f32 or f64 parameters");
  EXPECT_ERROR(create_state(Optimizer{.beta1 = 2}, params), "optimizer: beta1 is 2");
}

}  // namespace
}  // namespace lockstep
