// while_loop in per-device code, and vmap with spmd_axis_name. Also run with LOCKSTEP_CPU_LANES=2 and 4.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "array/near.h"

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

namespace lockstep {
namespace {

Mesh ring_of(int64_t n) { return make_mesh({{"i", n}}); }

// Doubles a device's shard until the sum over all devices is large: all devices run the same number of rounds.
Array double_until(const Array& x, const Array& limit) {
  return while_loop([limit](Array v) { return psum(sum(v), "i") < limit; }, [](Array v) { return v * 2; }, x);
}

TEST(WhileLoopOnDevices, ConditionMayBeASumOverDevices) {
  for (int64_t n : {1, 2, 4}) {
    const auto f = shard_map(double_until, {.mesh = ring_of(n), .in_specs = {P("i"), P()}, .out_specs = {P("i")}});
    const Array x = array({1, 2, 3, 4});
    EXPECT_TEXT(f(x, 70), "i32[4] [8, 16, 24, 32]");
    EXPECT_TEXT(jit(f)(x, 70), "i32[4] [8, 16, 24, 32]");
    EXPECT_TEXT(jit(f)(x, 3), "i32[4] [1, 2, 3, 4]");
  }
}

// Each device runs its own number of rounds; the result varies although the initial carry does not.
TEST(WhileLoopOnDevices, ConditionMayDifferBetweenDevices) {
  const auto count = [](Array x) {
    const Array n = while_loop([x](Array i) { return sum(x) > i * i; }, [](Array i) { return i + 1; }, Array(0));
    return reshape(n, {1});
  };
  const auto f = shard_map(count, {.mesh = ring_of(4), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_TEXT(jit(f)(array({0, 1, 10, 100})), "i32[4] [0, 1, 4, 10]");
  // The sum of all shards goes once around the ring, in as many rounds as there are devices.
  const auto ring = [](Array x) {
    const auto step = [](std::tuple<Array, Array, Array> s) {
      const auto [k, part, total] = s;
      const Array next = ppermute(part, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
      return std::tuple{k + 1, next, total + next};
    };
    const auto more = [](std::tuple<Array, Array, Array> s) { return std::get<0>(s) < axis_size("i") - 1; };
    return std::get<2>(while_loop(more, step, std::tuple{Array(0), x, x}));
  };
  const auto g = shard_map(ring, {.mesh = ring_of(4), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_TEXT(jit(g)(array({1, 2, 3, 4})), "i32[4] [10, 10, 10, 10]");
}

TEST(WhileLoopOnDevices, RunsOnShardedArguments) {
  const NamedSharding rows(make_mesh({{"data", 4}}), P("data"));
  const auto normalize = [](Array x) {
    return while_loop([](Array v) { return max(v) > 1.f; }, [](Array v) { return v * 0.5f; }, x);
  };
  const Array x = arange(8.f), wanted = normalize(x);
  const Array got = jit(normalize, {.in_shardings = {rows}, .out_shardings = {rows}})(x);
  EXPECT_EQ(got.to_vector<float>(), wanted.to_vector<float>());
}

TEST(SwitchCaseOnDevices, IndexMayDifferBetweenDevices) {
  const auto f = [](Array x) {
    const auto branches =
        std::tuple{[](Array v) { return v; }, [](Array v) { return v * v; }, [](Array v) { return -v; }};
    return switch_case(axis_index("i"), branches, x);
  };
  const auto g = shard_map(f, {.mesh = ring_of(4), .in_specs = {P("i")}, .out_specs = {P("i")}});
  EXPECT_TEXT(jit(g)(array({5, 6, 7, 8})), "i32[4] [5, 36, -7, -8]");
  const auto slope = grad([g](Array x) { return sum(g(x)); });
  EXPECT_TEXT(slope(array({5.f, 6.f, 7.f, 8.f})), "f32[4] [1, 12, -1, -1]");
}

// ---- vmap with spmd_axis_name

const Mesh& data_and_model() {
  static const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  return mesh;
}

TEST(SpmdAxisName, ShardsTheBatchOfConstrainedValues) {
  const auto f = [](Array x) {
    return with_sharding_constraint(x * 2.f, NamedSharding(data_and_model(), P("model"))) + 1.f;
  };
  const Array x = reshape(arange(8.f), {2, 4});
  const auto plain = vmap(f), sharded = vmap(f, {.spmd_axis_name = "data"});
  const std::string text = program_text(sharded, x), open = program_text(plain, x);
  EXPECT_NE(text.find("axes=\"data;model\""), std::string::npos) << text;
  EXPECT_NE(open.find("axes=\"*;model\""), std::string::npos) << open;
  EXPECT_EQ(text.find("batch_axis"), std::string::npos) << text;
  EXPECT_EQ(jit(sharded)(x).to_vector<float>(), jit(f)(x).to_vector<float>());
  // Nested: each vmap adds its own axis. A value that is not batched gets none.
  const auto both = vmap(vmap(f, {.spmd_axis_name = "data"}));
  EXPECT_NE(program_text(both, reshape(x, {1, 2, 4})).find("axes=\"*;data;model\""), std::string::npos);
  const auto shared = [f](Array a, Array b) { return f(a) + b; };
  const std::string one =
      program_text(vmap(shared, {.in_axes = {std::nullopt, 0}, .spmd_axis_name = "data"}), ones({4}), ones({2, 4}));
  EXPECT_NE(one.find("axes=\"model\""), std::string::npos) << one;
  EXPECT_EQ(one.find("batch_axis"), std::string::npos) << one;
}

TEST(SpmdAxisName, ReachesNestedProgramsAndGradients) {
  const auto f = [](Array x) {
    const auto step = [](Array c, Nothing none) {
      return std::pair{with_sharding_constraint(c * 2.f, NamedSharding(data_and_model(), P("model"))), none};
    };
    return scan(step, x, Nothing{}, {.length = 3}).first;
  };
  const Array x = reshape(arange(8.f), {2, 4});
  const auto sharded = vmap(f, {.spmd_axis_name = "data"});
  EXPECT_NE(program_text(sharded, x).find("axes=\"data;model\""), std::string::npos);
  EXPECT_EQ(jit(sharded)(x).to_vector<float>(), (x * 8.f).to_vector<float>());
  const auto slope = vmap(grad([f](Array v) { return sum(f(v)); }), {.spmd_axis_name = "data"});
  EXPECT_EQ(jit(slope)(x).to_vector<float>(), std::vector<float>(8, 8.f));
}

TEST(SpmdAxisName, ExplainsItsErrors) {
  const auto f = [](Array x) { return with_sharding_constraint(x, NamedSharding(data_and_model(), P("model"))); };
  EXPECT_ERROR(jit(vmap(f, {.spmd_axis_name = "model"}))(ones({2, 4})),
               "vmap: spmd_axis_name \"model\" shards the batch, but P('model') in the function names that axis, too; "
               "remove it there");
  EXPECT_ERROR(jit(vmap(f, {.spmd_axis_name = "rows"}))(ones({2, 4})), "rows");
}

}  // namespace
}  // namespace lockstep
