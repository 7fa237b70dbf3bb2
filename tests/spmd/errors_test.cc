// Errors of per-device code.
#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

Mesh ij_mesh() { return make_mesh({{"i", 4}, {"j", 2}}); }

Array same(Array x) { return x; }

auto mapped(PartitionSpec in, PartitionSpec out) {
  return shard_map(same, {.mesh = ij_mesh(), .in_specs = {std::move(in)}, .out_specs = {std::move(out)}});
}

// Runs f on each device, with its argument sharded by "i" along the first dimension.
template <class F>
auto per_device(F f) {
  return shard_map(f, {.mesh = ij_mesh(), .in_specs = {P("i")}, .out_specs = {P("i")}});
}

TEST(ShardMapErrors, UnknownMeshAxis) {
  const Array x = zeros({8, 4});
  EXPECT_THROWS(mapped(P("k"), P())(x), Error, "k");
  EXPECT_THROWS(mapped(P("k"), P())(x), Error, "i");  // lists the axes
  EXPECT_THROWS(mapped(P(), P("k"))(x), Error, "k");
  EXPECT_THROWS(shard_map(same, {.mesh = ij_mesh(), .in_specs = {P()}, .out_specs = {P()}, .axes = {"k"}})(x), Error,
                "k");
}

TEST(ShardMapErrors, AxisUsedTwiceInASpec) {
  const Array x = zeros({8, 4});
  EXPECT_THROWS(mapped(P("i", "i"), P())(x), Error, "i");
  EXPECT_THROWS(mapped(P(), P({"j", "j"}))(x), Error, "j");
}

TEST(ShardMapErrors, SpecLongerThanTheRank) {
  EXPECT_THROWS(mapped(P("i", {}, "j"), P())(zeros({8, 4})), Error,
                "shard_map: argument 0 is f32[8,4], of rank 2, but its spec P('i', None, 'j') has 3 entries");
  EXPECT_THROWS(mapped(P(), P({}, {}, "j"))(zeros({8, 4})), Error, "shard_map: result 0 is f32[8,4], of rank 2");
}

TEST(ShardMapErrors, UnevenShards) {
  EXPECT_THROWS(mapped(P({}, "i"), P())(zeros({8, 6})), Error, "dimension 1 of [8, 6] is sharded 4 ways by \"i\"");
  EXPECT_THROWS(mapped(P({"i", "j"}), P())(zeros({12, 6})), Error,
                "dimension 0 of [12, 6] is sharded 8 ways by \"i\", \"j\"");
  struct Pair {
    Array a, b;
  };
  const auto f = shard_map([](Pair p) { return p; }, {.mesh = ij_mesh(), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_THROWS(f(Pair{zeros({4}), zeros({7})}), Error, "argument 0, b");
}

// jit allows devices, and so lanes, without rows; per-device code does not.
TEST(ShardMapErrors, MoreDevicesThanRows) {
  EXPECT_THROWS(
      mapped(P("i"), P("i"))(zeros({1, 6})), Error,
      "shard_map: argument 0: dimension 0 of [1, 6] is sharded 4 ways by \"i\"; per-device code needs equal shards, "
      "but 1 is not a multiple of 4; pad the batch, or use jit, which allows uneven shards");
  const NamedSharding cut(ij_mesh(), P("i"));
  const Array one =
      jit([](const Array& x) { return 2 * x; }, {.in_shardings = {cut}, .out_shardings = {cut}})(ones({1, 6}));
  EXPECT_EQ(one.to_vector<float>(), std::vector<float>(6, 2));
}

TEST(ShardMapErrors, CollectivesUnderPlainJit) {
  EXPECT_THROWS(jit([](Array x) { return pmean(x, "i"); })(zeros({8})), Error,
                "pmean: axis \"i\" is not in scope; under plain jit values are global");
  EXPECT_THROWS(jit([](Array x) { return pmean(x, "i"); })(zeros({8})), Error, "use shard_map");
  EXPECT_THROWS(psum(zeros({8}), "i"), Error, "psum: axis \"i\" is not in scope");
  EXPECT_THROWS(axis_index("i"), Error, "axis_index: axis \"i\" is not in scope");
}

TEST(ShardMapErrors, AxisNotInScope) {
  EXPECT_THROWS(per_device([](Array x) { return psum(x, "batch"); })(zeros({8})), Error,
                "psum: axis \"batch\" is not in scope; use one of \"i\", \"j\"");
  const auto f = shard_map([](Array x) { return psum(x, "j"); },
                           {.mesh = ij_mesh(), .in_specs = {P("i")}, .out_specs = {P("i")}, .axes = {"i"}});
  EXPECT_THROWS(f(zeros({8})), Error, "use one of \"i\"");
  // An error leaves no axis in scope.
  EXPECT_THROWS(psum(zeros({8}), "i"), Error, "use shard_map");
  EXPECT_THROWS(per_device([](Array x) { return psum(x, std::vector<std::string>{}); })(zeros({8})), Error,
                "psum: no axis name given");
}

TEST(ShardMapErrors, VaryingResultDeclaredReplicated) {
  EXPECT_THROWS(
      mapped(P("i"), P())(zeros({8})), Error,
      "result 0 is f32[2]{i}, which varies over \"i\", but its spec P() declares it replicated over that axis; "
      "psum or pmean it over \"i\"");
  EXPECT_THROWS(mapped(P("i", "j"), P("i"))(zeros({8, 2})), Error, "varies over \"j\"");
  const auto place = shard_map([](Array x) { return x + axis_index("j"); },
                               {.mesh = ij_mesh(), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_THROWS(place(arange(8)), Error, "varies over \"j\"");
}

TEST(ShardMapErrors, MeshLargerThanTheDevices) {
  EXPECT_THROWS(make_mesh({{"i", 16}}), Error, "16");
  EXPECT_THROWS(make_mesh({{"i", 3}, {"j", 3}}), Error, "9");
  EXPECT_THROWS(shard_map(same, {.mesh = {}, .in_specs = {P()}, .out_specs = {P()}})(zeros({2})), Error,
                "shard_map: no mesh is given");
}

TEST(ShardMapErrors, Permutations) {
  auto permute = [](std::vector<std::pair<int64_t, int64_t>> pairs, AxisNames axes) {
    per_device([=](Array x) { return ppermute(x, axes, pairs); })(zeros({8}));
  };
  for (const AxisNames& axes : {AxisNames("i"), AxisNames{"i", "j"}}) {
    EXPECT_THROWS(permute({{0, 1}, {0, 2}}, axes), Error, "ppermute: source 0 appears twice");
    EXPECT_THROWS(permute({{0, 1}, {2, 1}}, axes), Error, "ppermute: destination 1 appears twice");
    EXPECT_THROWS(permute({{0, 8}}, axes), Error, "valid positions: 0 to");
    EXPECT_THROWS(permute({{-1, 0}}, axes), Error, "valid positions: 0 to");
  }
  EXPECT_THROWS(per_device([](Array x) { return pbroadcast(x, "i", 4); })(zeros({8})), Error,
                "pbroadcast: source 4 is out of range for 4 devices");
}

TEST(ShardMapErrors, WrongNumberOfSpecs) {
  const auto two = [](Array a, Array b) { return a + b; };
  EXPECT_THROWS(shard_map(two, {.mesh = ij_mesh(), .in_specs = {P()}, .out_specs = {P()}})(zeros({2}), zeros({2})),
                Error, "shard_map: 1 in_specs for 2 arguments");
  EXPECT_THROWS(shard_map(same, {.mesh = ij_mesh(), .in_specs = {P()}, .out_specs = {P(), P()}})(zeros({2})), Error,
                "shard_map: 2 out_specs for a result of 1 element");
  const auto three = [](Array a) { return std::tuple{a, a, a}; };
  EXPECT_THROWS(shard_map(three, {.mesh = ij_mesh(), .in_specs = {P()}, .out_specs = {P(), P()}})(zeros({2})), Error,
                "shard_map: 2 out_specs for a result of 3 elements");
}

TEST(ShardMapErrors, DimensionsOfCollectives) {
  EXPECT_THROWS(
      per_device([](Array x) { return psum_scatter(x, "i"); })(zeros({8})), Error,
      "psum_scatter: dimension 0 of f32[2]{i} is scattered over 4 devices; its extent must be 4, or set tiled");
  EXPECT_THROWS(per_device([](Array x) { return psum_scatter(x, "i", {.tiled = true}); })(zeros({8})), Error,
                "a multiple of 4");
  EXPECT_THROWS(per_device([](Array x) { return all_to_all(x, "i", 0, 0); })(zeros({8})), Error,
                "all_to_all: dimension 0");
  EXPECT_THROWS(per_device([](Array x) { return all_to_all(x, "i", 2, 0); })(zeros({8})), Error, "all_to_all: axis 2");
  EXPECT_THROWS(per_device([](Array x) { return all_gather(x, "i", {.axis = 2}); })(zeros({8})), Error,
                "all_gather: axis 2");
  EXPECT_THROWS(per_device([](Array x) { return all_gather(x, "i", {.axis = 1, .tiled = true}); })(zeros({8})), Error,
                "all_gather: axis 1");
}

TEST(PmapErrors, MoreElementsThanDevices) {
  EXPECT_THROWS(pmap(same)(zeros({9, 2})), Error, "pmap: 9 elements along \"devices\" for 8 local devices");
  EXPECT_THROWS(pmap(same)(zeros({9, 2})), Error, "LOCKSTEP_NUM_CPU_DEVICES=9");
  EXPECT_THROWS(pmap([](Array a, Array b) { return a + b; })(zeros({4}), zeros({2})), Error, "4");
}

TEST(ShardMapErrors, AxisNamedTwiceByNesting) {
  EXPECT_THROWS(per_device([](Array x) { return per_device(same)(x); })(zeros({16})), Error,
                "axis \"i\" is already in scope");
  const auto inner = vmap(same, {.axis_name = "i"});
  EXPECT_THROWS(per_device([inner](Array x) { return inner(x); })(zeros({8})), Error, "rename the inner axis");
  EXPECT_THROWS(psum(zeros({8}), "i"), Error, "use shard_map");  // no axis is left in scope
}

}  // namespace
}  // namespace lockstep
