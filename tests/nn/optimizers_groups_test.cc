#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/optimizers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

using RuleKind = Optimizer::Kind;

const std::vector<std::string> kNetPaths = {"embedding", "hidden/w", "hidden/b", "head/w"};
const std::vector<Type> kNetTypes = {{f32, {5, 2}}, {f32, {2, 3}}, {f32, {3}}, {f32, {3, 4}}};

std::vector<Array> net_params() {
  std::vector<Array> out;
  for (size_t i = 0; i < kNetTypes.size(); ++i) out.push_back(random::normal(random::key(i), kNetTypes[i].shape));
  return out;
}

std::vector<Array> net_grads() {
  return tree_map([](const Array& p) { return cos(3 * p); }, net_params());
}

Update net_update(const Optimizer& o) {
  return update(o, kNetPaths, net_params(), net_grads(), create_state(o, kNetPaths, net_params()));
}

void expect_equal_bits(const Array& a, const Array& b) { EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()); }

TEST(Groups, RateIsAFactorOfTheSchedule) {
  const Optimizer o{.kind = RuleKind::sgd, .schedule = {.peak = 0.5}, .groups = {{.pattern = "*/w", .rate = 0.25}}};
  const Update next = net_update(o);
  for (size_t i = 0; i < 4; ++i)
    expect_equal_bits(next.params[i], net_params()[i] - (i == 1 || i == 3 ? 0.125 : 0.5) * net_grads()[i]);
}

TEST(Groups, EachRateGivesTheUpdateOfThatRate) {
  for (const RuleKind kind : {RuleKind::momentum, RuleKind::nesterov, RuleKind::adam, RuleKind::adamw, RuleKind::lion,
                              RuleKind::adafactor, RuleKind::muon}) {
    SCOPED_TRACE(to_string(kind));
    const auto with = [&](double rate, std::vector<ParameterGroup> groups) {
      return net_update({.kind = kind, .schedule = {.peak = rate}, .weight_decay = 0.1, .groups = std::move(groups)});
    };
    const Update some = with(0.25, {{.pattern = "h*", .rate = 0.5}}), whole = with(0.25, {}), half = with(0.125, {});
    for (size_t i = 0; i < 4; ++i) expect_equal_bits(some.params[i], (i == 0 ? whole : half).params[i]);
  }
}

TEST(Groups, WeightDecayReplacesTheDefaultAndNoDecay) {
  for (const RuleKind kind : {RuleKind::sgd, RuleKind::adam, RuleKind::adamw, RuleKind::lion, RuleKind::adafactor}) {
    SCOPED_TRACE(to_string(kind));
    const auto with = [&](double decay, std::vector<std::string> no_decay, std::vector<ParameterGroup> groups) {
      return net_update({.kind = kind,
                         .schedule = {.peak = 0.1},
                         .weight_decay = decay,
                         .no_decay = std::move(no_decay),
                         .groups = std::move(groups)});
    };
    const Update grouped =
        with(0.2, {"*/b"}, {{.pattern = "hidden/b", .weight_decay = 0.3}, {.pattern = "embedding", .weight_decay = 0}});
    const Update none = with(0, {}, {}), usual = with(0.2, {}, {}), more = with(0.3, {}, {});
    expect_equal_bits(grouped.params[0], none.params[0]);
    expect_equal_bits(grouped.params[1], usual.params[1]);
    expect_equal_bits(grouped.params[2], more.params[2]);
    expect_equal_bits(grouped.params[3], usual.params[3]);
  }
}

TEST(Groups, LastMatchApplies) {
  const Optimizer o{.groups = {{.pattern = "*", .rate = 0.5, .weight_decay = 0.1},
                               {.pattern = "head/*", .frozen = true},
                               {.pattern = "*/b", .rate = 3}}};
  const std::vector<ParameterRule> rules = rules_of(o, kNetPaths, kNetTypes);
  EXPECT_EQ(rules[0].rate, 0.5);
  EXPECT_EQ(rules[0].weight_decay, 0.1);
  EXPECT_EQ(rules[2].rate, 3);
  EXPECT_EQ(rules[2].weight_decay, 0);
  EXPECT_TRUE(rules[3].frozen);
  EXPECT_FALSE(rules[2].frozen);
}

TEST(Groups, FrozenParametersKeepTheirBitsAndHaveNoState) {
  for (const RuleKind kind : {RuleKind::sgd, RuleKind::momentum, RuleKind::adam, RuleKind::adamw, RuleKind::lion,
                              RuleKind::adafactor, RuleKind::muon}) {
    SCOPED_TRACE(to_string(kind));
    const Optimizer o{.kind = kind,
                      .schedule = {.peak = 0.1},
                      .weight_decay = 0.1,
                      .clip_norm = 1,
                      .groups = {{.pattern = "*", .frozen = true}, {.pattern = "head/*"}}};
    for (const StateArray& each : state_arrays(o, kNetPaths, kNetTypes)) EXPECT_EQ(each.parameter, 3u) << each.name;
    std::vector<Array> params = net_params();
    OptimizerState state = create_state(o, kNetPaths, params);
    const auto step = jit(
        [&](const std::vector<Array>& p, const OptimizerState& s) {
          const Update next = update(o, kNetPaths, p, tree_map([](const Array& x) { return cos(3 * x); }, p), s);
          return std::pair{next.params, next.state};
        },
        {.donate = {0, 1}});
    for (int i = 0; i < 5; ++i) std::tie(params, state) = step(params, state);
    const std::vector<Array> before = net_params();
    for (size_t i = 0; i < 3; ++i) expect_equal_bits(params[i], before[i]);
    EXPECT_NE(params[3].to_vector<float>(), before[3].to_vector<float>());
  }
}

TEST(Groups, FrozenParametersDoNotCountInTheClipNorm) {
  const Optimizer o{
      .kind = RuleKind::sgd, .schedule = {.peak = 1}, .clip_norm = 1, .groups = {{.pattern = "a", .frozen = true}}};
  const std::vector<Array> params{zeros({1}), zeros({2})}, grads{array({1e6f}), array({3.f, 4.f})};
  const Update next = update(o, {"a", "b"}, params, grads, create_state(o, {"a", "b"}, params));
  EXPECT_ELEMENTS(next.params[1], {-0.6, -0.8}, 1e-7);
}

TEST(Groups, ChooseTheOptimizer) {
  const Optimizer o{
      .kind = RuleKind::adamw,
      .schedule = {.peak = 0.1},
      .groups = {{.pattern = "hidden/*", .kind = RuleKind::sgd}, {.pattern = "head/w", .kind = RuleKind::lion}}};
  const auto all = [](RuleKind kind) { return net_update({.kind = kind, .schedule = {.peak = 0.1}}); };
  const Update mixed = net_update(o);
  expect_equal_bits(mixed.params[0], all(RuleKind::adamw).params[0]);
  expect_equal_bits(mixed.params[1], all(RuleKind::sgd).params[1]);
  expect_equal_bits(mixed.params[2], all(RuleKind::sgd).params[2]);
  expect_equal_bits(mixed.params[3], all(RuleKind::lion).params[3]);
  EXPECT_EQ(mixed.state.first.size(), 2u);
  EXPECT_EQ(mixed.state.second.size(), 1u);
}

TEST(Groups, MuonUpdatesHiddenMatricesOnly) {
  const auto kinds = [](const Optimizer& o) {
    std::vector<RuleKind> out;
    for (const ParameterRule& rule : rules_of(o, kNetPaths, kNetTypes)) out.push_back(rule.kind);
    return out;
  };
  using Kinds = std::vector<RuleKind>;
  Optimizer o{.kind = RuleKind::muon, .adam_rate = 0.5};
  EXPECT_EQ(kinds(o), (Kinds{RuleKind::adamw, RuleKind::muon, RuleKind::adamw, RuleKind::adamw}));
  o.groups = {{.pattern = "head/*", .rate = 3, .kind = RuleKind::muon},
              {.pattern = "hidden/*", .kind = RuleKind::adamw}};
  EXPECT_EQ(kinds(o), (Kinds{RuleKind::adamw, RuleKind::adamw, RuleKind::adamw, RuleKind::muon}));
  const std::vector<ParameterRule> rules = rules_of(o, kNetPaths, kNetTypes);
  EXPECT_EQ(rules[0].rate, 0.5);
  EXPECT_EQ(rules[1].rate, 0.5);
  EXPECT_EQ(rules[3].rate, 3);
  o.groups = {{.pattern = "hidden/*", .kind = RuleKind::muon}};
  EXPECT_ERROR(kinds(o), "group: \"hidden/*\" chooses muon for hidden/b, which is f32[3]; muon updates matrices");
  o.groups = {};
  o.not_muon = {};
  EXPECT_EQ(kinds(o), (Kinds{RuleKind::muon, RuleKind::muon, RuleKind::adamw, RuleKind::muon}));
}

TEST(Groups, InvalidGroupsAreRejected) {
  const auto with = [](std::vector<ParameterGroup> groups) { return Optimizer{.groups = std::move(groups)}; };
  EXPECT_ERROR(create_state(with({{.pattern = "hiden/*"}}), kNetPaths, net_params()),
               "group: \"hiden/*\" matches no parameter;");
  EXPECT_ERROR(rules_of(with({{.pattern = "hidden/v"}}), kNetPaths, kNetTypes),
               "group: \"hidden/v\" matches no parameter; did you mean \"hidden/w\"? the parameters are embedding, "
               "hidden/w, hidden/b, head/w");
  EXPECT_ERROR(rules_of(with({{.pattern = "hidden/w"}, {.pattern = "hidden/*"}}), kNetPaths, kNetTypes),
               "group: \"hidden/w\" has no effect: later groups match all of its parameters");
  EXPECT_ERROR(rules_of(with({{.pattern = "*", .frozen = true}}), kNetPaths, kNetTypes),
               "group: all 4 parameters are frozen, so there is nothing to train");
  EXPECT_ERROR(check(with({{.pattern = ""}})), "group: the pattern is empty");
  EXPECT_ERROR(check(with({{.pattern = "*", .rate = -1}})), "group: \"*\": the rate factor is -1");
  EXPECT_ERROR(check(with({{.pattern = "*", .rate = std::nan("")}})), "group: \"*\": the rate factor is nan");
  EXPECT_ERROR(check(with({{.pattern = "*", .weight_decay = -0.5}})), "group: \"*\": the weight decay is -0.5");
  EXPECT_ERROR(check(Optimizer{.momentum = 2, .groups = {{.pattern = "*", .kind = RuleKind::momentum}}}),
               "optimizer: momentum is 2");
}

TEST(StateArrays, NameEveryArrayOfTheState) {
  const auto names = [](const Optimizer& o) {
    std::string out;
    for (const StateArray& each : state_arrays(o, kNetPaths, kNetTypes))
      out += (out.empty() ? "" : " ") + each.name + ":" + to_string(each.type);
    return out;
  };
  EXPECT_EQ(names({.kind = RuleKind::sgd}), "");
  EXPECT_EQ(names({.kind = RuleKind::adamw}),
            "first/embedding:f32[5,2] first/hidden/w:f32[2,3] first/hidden/b:f32[3] first/head/w:f32[3,4] "
            "second/embedding:f32[5,2] second/hidden/w:f32[2,3] second/hidden/b:f32[3] second/head/w:f32[3,4]");
  EXPECT_EQ(names({.kind = RuleKind::lion}),
            "first/embedding:f32[5,2] first/hidden/w:f32[2,3] first/hidden/b:f32[3] first/head/w:f32[3,4]");
  EXPECT_EQ(names({.kind = RuleKind::adafactor}),
            "second/hidden/b:f32[3] second_rows/embedding:f32[5] second_rows/hidden/w:f32[2] second_rows/head/w:f32[3] "
            "second_columns/embedding:f32[2] second_columns/hidden/w:f32[3] second_columns/head/w:f32[4]");
  EXPECT_EQ(names({.kind = RuleKind::muon}),
            "first/embedding:f32[5,2] first/hidden/w:f32[2,3] first/hidden/b:f32[3] first/head/w:f32[3,4] "
            "second/embedding:f32[5,2] second/hidden/b:f32[3] second/head/w:f32[3,4]");
}

TEST(StateArrays, AreTheLeavesOfTheState) {
  for (const RuleKind kind : {RuleKind::sgd, RuleKind::adamw, RuleKind::lion, RuleKind::adafactor, RuleKind::muon}) {
    const Optimizer o{.kind = kind};
    const std::vector<StateArray> list = state_arrays(o, kNetPaths, kNetTypes);
    const OptimizerState state = net_update(o).state;
    std::vector<Array> leaves = tree_leaves(state);
    ASSERT_EQ(leaves.size(), list.size() + 1);
    for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(leaves[i + 1].type(), list[i].type);
    const OptimizerState again = make_state(list, leaves[0], {leaves.begin() + 1, leaves.end()});
    EXPECT_EQ(tree_flatten(again).size(), tree_flatten(state).size());
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_EQ(tree_flatten(again)[i].first, tree_flatten(state)[i].first);
      EXPECT_EQ(tree_flatten(again)[i].second.to_vector<double>(), leaves[i].to_vector<double>());
    }
  }
}

TEST(StateArrays, SpecsLackTheDroppedDimension) {
  const Optimizer o{.kind = RuleKind::adafactor};
  const std::vector<StateArray> list = state_arrays(o, {"w", "b"}, {{f32, {2, 3, 4, 8}}, {f32, {8}}});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].dropped, std::nullopt);
  EXPECT_EQ(state_spec(list[0], P("x")), P("x"));
  const PartitionSpec spec{{"a", {}, "b", "c"}};
  EXPECT_EQ(list[1].name, "second_rows/w");
  EXPECT_EQ(list[1].type.shape, (Shape{2, 3, 4}));
  EXPECT_EQ(state_spec(list[1], spec), (PartitionSpec{{"a", {}, "b"}}));
  EXPECT_EQ(list[2].type.shape, (Shape{2, 3, 8}));
  EXPECT_EQ(state_spec(list[2], spec), (PartitionSpec{{"a", {}, "c"}}));
  EXPECT_EQ(state_spec(list[2], P("a")), P("a"));
  EXPECT_EQ(state_spec(list[2], P()), P());
}

TEST(StateArrays, StateOfOtherPathsIsRejected) {
  const Optimizer o{.kind = RuleKind::muon};
  const std::vector<Array> params = net_params();
  EXPECT_ERROR(
      update(o, kNetPaths, params, params, create_state(o, params)),
      "update: 1 second moments, expected 3; give one per parameter, and the state that create_state() returned");
  const Optimizer adafactor{.kind = RuleKind::adafactor};
  OptimizerState state = create_state(adafactor, kNetPaths, params);
  std::swap(state.second_rows[0], state.second_rows[1]);
  EXPECT_ERROR(update(adafactor, kNetPaths, params, params, state),
               "update: second_rows/embedding is [2], expected [5]; give the state that create_state() returned for");
  EXPECT_ERROR(create_state(o, {"a"}, params), "create_state: 1 paths, but 4 parameters; give one path per parameter");
}

}  // namespace
}  // namespace lockstep
