// ShardingPlan: the shardings of each parameter, its gradient and its optimizer state, and the plans that are rejected.
#include "lockstep/sharding_plan.h"

#include <gtest/gtest.h>
#include <lockstep/train.h>

#include "base/throws.h"
#include "train/eight_devices.h"

namespace lockstep {
namespace {

const std::vector<std::string> kParameterPaths = {"dense/0/w", "dense/0/b", "dense/1/w", "dense/1/b", "scale"};
const std::vector<Type> kParameterTypes = {{f32, {784, 256}}, {f32, {256}}, {f32, {256, 10}}, {f32, {10}}, {f32, {}}};

Mesh mesh(int64_t data, int64_t model) { return make_mesh({{"data", data}, {"model", model}}); }

std::vector<ParameterSpecs> specs(const ShardingPlan& plan, const Mesh& on = mesh(4, 2)) {
  return specs_of(plan, on, kParameterPaths, kParameterTypes);
}

std::vector<PartitionSpec> params(const ShardingPlan& plan, const Mesh& on = mesh(4, 2)) {
  std::vector<PartitionSpec> out;
  for (const ParameterSpecs& each : specs(plan, on)) out.push_back(each.param);
  return out;
}

TEST(ShardingPlan, DataParallelReplicatesEverything) {
  for (const ParameterSpecs& each : specs(data_parallel())) EXPECT_EQ(each, ParameterSpecs());
}

TEST(ShardingPlan, ZeroShardsStateThenGradientsThenParameters) {
  const PartitionSpec sharded = P("data");
  for (int zero = 0; zero <= 3; ++zero) {
    const std::vector<ParameterSpecs> all = specs({.zero = zero});
    EXPECT_EQ(all[0].state, zero >= 1 ? sharded : P()) << zero;
    EXPECT_EQ(all[0].grad, zero >= 2 ? sharded : P()) << zero;
    EXPECT_EQ(all[0].param, zero >= 3 ? sharded : P()) << zero;
    EXPECT_EQ(all[4], ParameterSpecs()) << "a scalar cannot be sharded";
  }
  EXPECT_EQ(fsdp(), (ShardingPlan{.zero = 3}));
}

TEST(ShardingPlan, DataAxisShardsTheLargestUnshardedDimension) {
  const ShardingPlan both{.rules = {{"dense/0/w", P("model")}, {"dense/1/w", P({}, "model")}}, .zero = 3};
  EXPECT_EQ(params(both),
            (std::vector<PartitionSpec>{P("model", "data"), P("data"), P("data", "model"), P("data"), P()}));
  // The first of equally large dimensions.
  EXPECT_EQ(specs_of(fsdp(), mesh(8, 1), {"w"}, {{f32, {9, 9}}})[0].param, P("data"));
  EXPECT_EQ(specs_of(fsdp(), mesh(8, 1), {"w"}, {{f32, {3, 9}}})[0].param, P({}, "data"));
  // Unchanged: too small for the axis; already sharded along it; the axis has one device.
  EXPECT_EQ(specs_of(fsdp(), mesh(8, 1), {"b"}, {{f32, {7}}})[0].param, P());
  EXPECT_EQ(specs_of({.rules = {{"w", P({}, "data")}}, .zero = 3}, mesh(4, 2), {"w"}, {{f32, {64, 8}}})[0].param,
            P({}, "data"));
  EXPECT_EQ(specs_of(fsdp(), mesh(1, 8), {"w"}, {{f32, {64, 8}}})[0].param, P());
}

TEST(ShardingPlan, LastMatchingRuleApplies) {
  EXPECT_EQ(params(tensor_parallel({{"*/w", P({}, "model")}, {"dense/1/w", P("model")}})),
            (std::vector<PartitionSpec>{P({}, "model"), P(), P("model"), P(), P()}));
  // An exception that replicates one parameter.
  EXPECT_EQ(params(tensor_parallel({{"*/w", P({}, "model")}, {"dense/1/w", P()}}))[2], P());
  EXPECT_THROWS(params(tensor_parallel({{"dense/1/w", P("model")}, {"*/w", P({}, "model")}})), Error,
                "plan: rule \"dense/1/w=model\" has no effect: later rules match all of its parameters, and the last "
                "match applies; move it after them, or remove it");
}

TEST(ShardingPlan, SeveralAxesMayShardOneDimension) {
  EXPECT_EQ(params(tensor_parallel({{"dense/0/w", P({}, {"data", "model"})}}))[0], P({}, {"data", "model"}));
  // The data axis may have another name.
  const Mesh rows = make_mesh({{"rows", 4}, {"model", 2}});
  EXPECT_EQ(specs_of(fsdp("rows"), rows, kParameterPaths, kParameterTypes)[0].param, P("rows"));
}

TEST(ShardingPlan, RulesRoundTripThroughText) {
  const auto read = [](std::string_view text) { return parse_sharding_rule(text); };
  EXPECT_EQ(read("dense*/w=,model"), (ShardingRule{"dense*/w", P({}, "model")}));
  EXPECT_EQ(read(" */w = data + model , "), (ShardingRule{"*/w", P({"data", "model"}, {})}));
  EXPECT_EQ(read("b="), (ShardingRule{"b", P()}));
  for (const char* text : {"dense*/w=,model", "w=data+model", "b=", "c=,,x"}) EXPECT_EQ(to_string(read(text)), text);
  EXPECT_THROWS(
      read("dense*/w"), Error,
      "shard: \"dense*/w\" has no =; write PATTERN=AXES, the axes of each dimension separated by commas, such "
      "as 'dense*/w=,model'");
  EXPECT_THROWS(read("=model"), Error, "shard: \"=model\" has no pattern; write PATTERN=AXES");
  EXPECT_THROWS(read("w=data+"), Error, "shard: \"w=data+\" has a + without an axis; write PATTERN=AXES");
}

TEST(ShardingPlan, WrongRulesAreNamedWithTheRemedy) {
  const auto with = [](const char* rule) { params({.rules = {parse_sharding_rule(rule)}}); };
  EXPECT_THROWS(with("dense/0/w=,modle"), Error,
                "plan: rule \"dense/0/w=,modle\" uses axis \"modle\", but the axes of the mesh are \"data\", "
                "\"model\"; did you mean \"model\"? use one of them");
  EXPECT_THROWS(with("dense/0/w=model,model"), Error,
                "plan: rule \"dense/0/w=model,model\" uses axis \"model\" twice; an axis can shard only one dimension");
  EXPECT_THROWS(with("dens/0/w=model"), Error,
                "plan: rule \"dens/0/w=model\" matches no parameter; did you mean \"dense/0/w\"? the parameters are "
                "\"dense/0/w\", \"dense/0/b\"");
  EXPECT_THROWS(
      with("dense/0/*=,model"), Error,
      "plan: rule \"dense/0/*=,model\" has entries for 2 dimensions, but dense/0/b is f32[256]; shorten the rule, or "
      "narrow its pattern");
}

TEST(ShardingPlan, WrongPlansAreRejected) {
  EXPECT_THROWS(specs({.zero = 4}), Error,
                "plan: zero is 4; give 0 (nothing), 1 (optimizer state), 2 (and gradients) or 3 (and parameters)");
  EXPECT_THROWS(specs(data_parallel("rows")), Error,
                "plan: the mesh Mesh('data': 4, 'model': 2) has no axis \"rows\" to shard the batch; add this axis, or "
                "set data_axis");
  EXPECT_THROWS(specs({.rules = {{"dense/0/w", P().with_unreduced({"model"})}}}), Error,
                "plan: rule \"dense/0/w=\" has a pending sum over \"model\"");
  EXPECT_THROWS(specs_of(tensor_parallel({{"b", P({"data", "model"})}}), mesh(4, 2), {"b"}, {{f32, {7}}}), Error,
                "plan: rule \"b=data+model\" splits dimension 0 of b, f32[7], into 8 shards, but it has only 7 "
                "elements; shard another dimension, or exclude this parameter from the rule");
}

TEST(ShardingPlan, IsDescribedPerParameter) {
  EngineOptions options;
  options.mesh = mesh(4, 2);
  options.plan = {.rules = {{"dense/0/w", P({}, "model")}}, .zero = 1};
  const std::string text = Engine(find_model("mlp"), options).describe();
  for (const char* part : {"data parallel over 'data' (4 devices), parameters sharded by 1 rule, optimizer state "
                           "sharded over 'data' (zero "
                           "1)\n",
                           "sharding          optimizer state\n", "784.0 KiB  P(None, 'model')  P('data', 'model')\n",
                           "512 B  P()               P('data')\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

}  // namespace
}  // namespace lockstep
