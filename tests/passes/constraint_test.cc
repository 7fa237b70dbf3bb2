// Sharding annotations inside a program: what follows from them, and which moves they cause.
#include <gtest/gtest.h>

#include "ops/conv.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/lanes_difference.h"

namespace lockstep {
namespace {

const LaneGrid kTwoLanes{{{"data", 2, 1}}};
const LaneSpec kShardedRows{{"data"}, {}}, kShardedColumns{{}, {"data"}}, kReplicated{{}, {}};

using Lines = std::vector<std::string>;

using DimAxes = std::optional<std::vector<std::string>>;  // of a dimension; nullopt: open
const DimAxes kSharded = Lines{"data"}, kUnsharded = Lines{};

Value rows(Value x) { return constrain(x, {"data=2", {kSharded, kUnsharded}, "with_sharding_constraint", "a.cc:7"}); }
Value columns(Value x) {
  return constrain(x, {"data=2", {kUnsharded, kSharded}, "with_sharding_constraint", "a.cc:8"});
}
Value whole(Value x) {
  return constrain(x, {"data=2", {kUnsharded, kUnsharded}, "with_sharding_constraint", "a.cc:9"});
}

Lines collectives_under(const Program& p, const LaneConstraints& in = {}, const LaneConstraints& out = {}) {
  const Program local = partition(p, kTwoLanes, place(p, kTwoLanes, in, out), 0);
  Lines lines;
  for (const Eqn& eqn : local.eqns) {
    if (eqn.op->is_collective()) lines.push_back(fmt::format("{} {}", eqn.op->name, to_string(local.types[eqn.in[0]])));
    EXPECT_FALSE(eqn.op->annotation) << print(local);
  }
  return lines;
}

TEST(Constraint, PropagatesToOperandsAndUsers) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), w = b.input({f32, {4, 6}});
  const Program p = b.take(Values{tanh(rows(einsum("bi,io->bo", x, w)))});
  const Placement placement = place(p, kTwoLanes, {}, {});
  EXPECT_EQ(placement.lane_specs[p.inputs[0]], kShardedRows);
  EXPECT_EQ(placement.lane_specs[p.inputs[1]], kReplicated);
  EXPECT_EQ(placement.lane_specs[p.outputs[0]], kShardedRows);
  EXPECT_EQ(placement.reasons[p.eqns[1].out[0]], "with_sharding_constraint at a.cc:7");
  EXPECT_EQ(placement.reasons[p.outputs[0]], "equation 2 (tanh)");
  EXPECT_EQ(collectives_under(p), Lines());
}

TEST(Constraint, CausesAMoveIfTheValueIsCutDifferently) {
  const auto of_rows = [](Value (*constraint)(Value)) {
    Builder b;
    return collectives_under(b.take(Values{constraint(tanh(b.input({f32, {8, 6}})))}), {kShardedRows});
  };
  EXPECT_EQ(of_rows(columns), Lines({"lane_all_to_all f32[24]"}));
  EXPECT_EQ(of_rows(whole), Lines({"lane_all_gather f32[4,6]"}));
  EXPECT_EQ(of_rows(rows), Lines());
}

TEST(Constraint, ConstraintOfAConstraintIsAMove) {
  Builder b;
  const Program p = b.take(Values{columns(rows(b.input({f32, {8, 6}})))});
  EXPECT_EQ(collectives_under(p), Lines({"lane_all_to_all f32[24]"}));
  EXPECT_EQ(place(p, kTwoLanes, {}, {}).lane_specs[p.inputs[0]], kShardedRows);
}

TEST(Constraint, ConflictInAnOpIsResolvedByAMove) {
  Builder b;
  const Value x = b.input({f32, {8, 6}}), y = b.input({f32, {8, 6}});
  const Program p = b.take(Values{add(rows(x), columns(y))});
  EXPECT_EQ(collectives_under(p), Lines({"lane_all_to_all f32[24]"}));
}

TEST(Constraint, ConstraintOfASumScattersIt) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), ct = b.input({f32, {8, 6}});
  const Program p = b.take(Values{tanh(rows(einsum("bi,bo->io", x, ct)))});
  EXPECT_EQ(collectives_under(p, {kShardedRows, kShardedRows}), Lines({"lane_reduce_scatter f32[4,6]"}));
}

TEST(Constraint, LeavesBatchDimensionsOpen) {
  Builder b;
  const Program one = b.take(Values{tanh(columns(b.input({f32, {8, 6}})))});
  const Program p = batch(one, {true}, 4, {}).program;
  const LaneGrid grid{{{"data", 2, 1}, {"model", 2, 1}}};
  const LaneSpec said{{"model"}, {}, {}}, wanted{{"model"}, {}, {"data"}};
  EXPECT_EQ(place(p, grid, {said}, {}).lane_specs[p.outputs[0]], wanted);
}

TEST(Constraint, BatchOfDevicesAlongAMeshAxisIsCutByThatAxis) {
  Builder b;
  const Program one = b.take(
      Values{constrain(b.input({f32, {6}, {"data"}}), {"data=4,model=2", {{{"model"}}}, "device_put", "a.cc:1"})});
  EXPECT_EQ(
      print(batch(one, {true}, 4, {}, "data").program),
      "program(%0:f32[4,6]) {\n"
      "  %1:f32[4,6] = constrain[at=\"a.cc:1\", axes=\"data;model\", by=\"device_put\", mesh=\"data=4,model=2\"] %0\n"
      "  return %1\n}\n");
}

TEST(Constraint, AppliesToTheCotangent) {
  Builder b;
  const Program p = b.take(Values{rows(b.input({f32, {8, 6}}))});
  const Program both = joint(p, {true});
  ASSERT_EQ(both.eqns.size(), 2u);
  EXPECT_EQ(both.eqns[1].op, both.eqns[0].op);
  EXPECT_EQ(both.eqns[1].attrs, both.eqns[0].attrs);
}

TEST(Constraint, IsRemovedByLoweringAlsoInBodies) {
  Builder b, inner;
  const Program body = inner.take(Values{tanh(rows(inner.input({f32, {8, 6}})))});
  const Value x = b.input({f32, {8, 6}});
  const auto shared = std::make_shared<const Program>(body);
  const Value looped = scan(b, shared, {x}, {}, {}, 3, false)[0];
  const Program p = b.take(Values{rows(tanh(rows(x))), remat(b, shared, {x})[0], looped});
  EXPECT_NE(print(p).find("constrain"), std::string::npos);
  EXPECT_EQ(print(lower(p)).find("constrain"), std::string::npos);
  EXPECT_EQ(print(drop_annotations(p, "data=2")), print(p));
}

// [8, 6, 6, 2] images; each of 4 devices has its own filters: the devices are groups of channels.
TEST(GroupedConvolution, GroupsOfDevicesAreCutAlongThem) {
  Builder b;
  const Value x = b.input({f32, {8, 6, 6, 2}}), w = b.input({f32, {3, 3, 2, 5}});
  const Value y = conv2d(x, w, {.pad = {1, 1, 1, 1}});
  const Program one = b.take(Values{reduce_sum(mul(y, y), {0, 1, 2, 3})});
  const Program gradient = joint(one, {true, true});
  const Program p = simplify(batch(gradient, {true, true, true}, 4, {}).program);
  const LaneSpec images{{"data"}, {}, {}, {}, {}}, scalars{{"data"}};
  EXPECT_EQ(collectives_under(p, {images, images, scalars}, {scalars, images, images}), Lines()) << print(p);
  const Program local = partition(p, kTwoLanes, place(p, kTwoLanes, {images, images, scalars}, {}), 1);
  for (const Eqn& eqn : local.eqns) {
    if (!eqn.op->name.starts_with("conv2d")) continue;
    EXPECT_EQ(eqn.attrs.integer("groups"), 2) << print(local);
  }
}

}  // namespace
}  // namespace lockstep
