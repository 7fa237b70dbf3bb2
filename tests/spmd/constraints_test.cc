// with_sharding_constraint on one lane and on several, and the errors of contradictory shardings. Also run
// with LOCKSTEP_CPU_LANES=2 and 4.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "array/near.h"
#include "lane/lane.h"

namespace lockstep {
namespace {

Mesh mesh() { return make_mesh({{"data", 4}, {"model", 2}}); }
NamedSharding on(const PartitionSpec& spec) { return {mesh(), spec}; }

std::vector<float> values(const Array& x) { return x.to_vector<float>(); }

Array numbers() { return reshape(arange(24.f), {6, 4}); }

TEST(WithShardingConstraint, KeepsValuesAndSetsTheSharding) {
  const auto f = jit([](Array x) { return with_sharding_constraint(x * 2.f, on(P("data"))); });
  const Array y = f(numbers());
  EXPECT_EQ(values(y), values(numbers() * 2.f));
  EXPECT_EQ(y.sharding(), on(P("data")));
}

TEST(WithShardingConstraint, PropagatesToResults) {
  const auto f = jit([](Array x) { return tanh(with_sharding_constraint(x, on(P("data"))) + 1.f); });
  EXPECT_EQ(f(numbers()).sharding(), on(P("data")));
}

TEST(WithShardingConstraint, PartitionsAFunctionWithoutOtherShardings) {
  const auto f = jit([](Array x, Array w) { return sum(with_sharding_constraint(dot(x, w), on(P("data")))); });
  const std::string text = f.explain(ones({8, 3}), ones({3, 5}));
  if (local_lane_count() > 1) {
    for (const char* part : {"with_sharding_constraint at constraints_test.cc:", "P('data')", "lane_all_reduce"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_EQ(f(ones({8, 3}), ones({3, 5})).item<float>(), 120.f);
}

TEST(WithShardingConstraint, ContradictingConstraintsReshard) {
  const auto f = jit(
      [](Array x) {
        const Array rows = with_sharding_constraint(x, on(P("data")));
        const Array columns = with_sharding_constraint(rows, on(P({}, "data")));
        return std::pair{columns * 2.f, with_sharding_constraint(columns, on(P("model"))) + rows};
      },
      {.in_shardings = {on(P("model"))}, .out_shardings = {on(P("model", "data"))}});
  const auto [a, b] = f(numbers());
  EXPECT_EQ(values(a), values(numbers() * 2.f));
  EXPECT_EQ(values(b), values(numbers() * 2.f));
  EXPECT_EQ(a.sharding(), on(P("model", "data")));
}

// out_shardings override a constraint on the same value inside the function, and the sharding of an argument.
TEST(WithShardingConstraint, IsOverriddenByOutShardings) {
  const auto f = jit(
      [](Array x) {
        return std::pair{x, with_sharding_constraint(x, on(P({}, "data")))};
      },
      {.in_shardings = {on(P("model"))}, .out_shardings = {on(P("data"))}});
  const auto [x, y] = f(numbers());
  for (const Array& each : {x, y}) {
    EXPECT_EQ(each.sharding(), on(P("data")));
    EXPECT_EQ(values(each), values(numbers()));
    for (const Shard& shard : addressable_shards(each))
      EXPECT_EQ(shard.data.shape(), (Shape{shard.index[0].size(), shard.index[1].size()}));
  }
  if (local_lane_count() > 1) {
    EXPECT_NE(f.explain(numbers()).find("from output 0"), std::string::npos) << f.explain(numbers());
  }
}

TEST(WithShardingConstraint, HoldsInGradientsBatchesAndRemat) {
  const auto loss = [](Array w, Array x) {
    const auto layer = remat([](Array v, Array u) { return tanh(with_sharding_constraint(dot(u, v), on(P("data")))); });
    return mean(square(layer(w, x)));
  };
  const Array w = random::normal(random::key(1), {3, 5}), x = random::normal(random::key(2), {7, 3});
  const auto plain = [](Array v, Array u) { return mean(square(tanh(dot(u, v)))); };
  EXPECT_ELEMENTS(jit(grad(loss))(w, x), grad(plain)(w, x).to_vector<double>(), 1e-6);
  const Array many = random::normal(random::key(3), {4, 7, 3});
  const auto mapped = [&](auto f) { return vmap([&, f](Array u) { return f(w, u); }); };
  EXPECT_ELEMENTS(jit(mapped(loss))(many), mapped(plain)(many).to_vector<double>(), 1e-6);
}

TEST(WithShardingConstraint, IsFreeOnOneLane) {
  if (local_lane_count() > 1) GTEST_SKIP() << "several lanes";
  const auto f = jit([](Array x) { return tanh(with_sharding_constraint(x + 1.f, on(P("data")))); });
  EXPECT_EQ(f.lowered(numbers()), jit([](Array x) { return tanh(x + 1.f); }).lowered(numbers()));
}

TEST(WithShardingConstraint, InsideShardMapMayNameTheOtherAxes) {
  const auto f = shard_map([](Array x) { return with_sharding_constraint(x * 2.f, on(P({}, "model"))); },
                           {.mesh = mesh(), .in_specs = {P("data")}, .out_specs = {P("data")}, .axes = {"data"}});
  EXPECT_EQ(values(jit(f)(ones({8, 4}))), std::vector<float>(32, 2.f));
}

TEST(ShardMap, IsPartitionedByItsSpecs) {
  const auto f = jit(
      shard_map([](Array x) { return x * 2.f; }, {.mesh = mesh(), .in_specs = {P("data")}, .out_specs = {P("data")}}));
  EXPECT_EQ(values(f(ones({8, 4}))), std::vector<float>(32, 2.f));
  if (local_lane_count() > 1) {
    const std::string text = f.explain(ones({8, 4}));
    EXPECT_NE(text.find("P('data')"), std::string::npos) << text;
    EXPECT_EQ(text.find("lane_all"), std::string::npos) << text;
  }
}

// In the gradient of a filter, the devices of a lane become channel groups; elsewhere they are images.
TEST(ShardMap, ConvolutionsCommunicateNoActivations) {
  const auto squares = [](Array w, Array x) {
    return mean(square(conv2d(relu(conv2d(x, w, {.padding = "SAME"})), transpose(w, {0, 1, 3, 2}))));
  };
  const auto step = jit(shard_map(
      [squares](Array w, Array x) {
        return grad([squares](Array v, Array u) { return pmean(squares(v, u), {"data", "model"}); })(w, x);
      },
      {.mesh = mesh(), .in_specs = {P(), P({"data", "model"})}, .out_specs = {P()}}));
  const Array w = random::normal(random::key(1), {3, 3, 2, 5}), x = random::normal(random::key(2), {16, 6, 6, 2});
  EXPECT_ELEMENTS(step(w, x), grad(squares)(w, x).to_vector<double>(), 1e-4);
  if (local_lane_count() > 1) {
    const std::string text = step.explain(w, x);
    for (const char* move : {"lane_all_gather", "lane_all_to_all"})
      EXPECT_EQ(text.find(move), std::string::npos) << text;
    EXPECT_NE(text.find("lane_all_reduce"), std::string::npos) << text;
  }
}

TEST(ConstraintErrors, UnknownAxis) {
  EXPECT_THROWS(with_sharding_constraint(numbers(), on(P("rows"))), Error,
                "sharding: P('rows') names axis \"rows\", which is not in Mesh('data': 4, 'model': 2)");
}

TEST(ConstraintErrors, SpecLongerThanTheRank) {
  EXPECT_THROWS(jit([](Array x) { return with_sharding_constraint(x, on(P({}, "data"))); })(arange(3.f)), Error,

                "sharding: P(None, 'data') has 2 entries, but [3] has 1 dimensions");
}

TEST(ConstraintErrors, EmptySharding) {
  EXPECT_THROWS(with_sharding_constraint(numbers(), NamedSharding()), Error,
                "with_sharding_constraint: the sharding is empty; create it with NamedSharding(mesh, spec)");
  EXPECT_THROWS(with_sharding_constraint(Array(), on(P())), Error, "with_sharding_constraint: the array is empty");
}

TEST(ConstraintErrors, AxisOfPerDeviceCode) {
  const auto f = shard_map([](Array x) { return with_sharding_constraint(x, on(P("data"))); },
                           {.mesh = mesh(), .in_specs = {P("data")}, .out_specs = {P("data")}});
  EXPECT_THROWS(f(numbers()), Error, "dimension 0");
  EXPECT_THROWS(
      f(ones({8, 4})), Error,
      "with_sharding_constraint: P('data') names axis \"data\", but this code runs per device along that axis");
}

// The message of what f throws.
template <class F>
std::string message(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing is thrown";
}

TEST(ConstraintErrors, TwoConstraintsOfDifferentMeshes) {
  const NamedSharding other(make_mesh({{"rows", 8}}), P("rows"));
  const int made = __LINE__ + 1, first = made + 1;
  const auto f = jit([&](Array x) {
    const Array y = with_sharding_constraint(x, on(P("data")));
    return with_sharding_constraint(y + 1.f, other);
  });
  EXPECT_EQ(message([&] { f(numbers()); }),
            "constraints_test.cc:" + std::to_string(made) +
                ": jit: with_sharding_constraint at constraints_test.cc:" + std::to_string(first) +
                " uses P('data') on mesh data=4,model=2, but with_sharding_constraint at constraints_test.cc:" +
                std::to_string(first + 1) +
                " uses P('rows') on mesh rows=8; a compiled function runs on one mesh: use the same Mesh for both "
                "shardings");
}

TEST(ConstraintErrors, ConstraintAndJitShardingsOfDifferentMeshes) {
  std::vector<Device> turned = devices();
  std::reverse(turned.begin(), turned.end());
  const NamedSharding other(make_mesh({{"data", 4}, {"model", 2}}, turned), P("data"));
  // Inside another function's body too.
  const auto g = [&](Array x, Array) { return remat([&](Array y) { return device_put(y, other); })(x); };
  const int line = __LINE__ + 1;
  const auto f = jit(g, {.in_shardings = {NamedSharding(), on(P())}});
  std::string names;
  for (const Device& device : turned) names += (names.empty() ? "" : ",") + to_string(device);
  EXPECT_EQ(message([&] { f(numbers(), numbers()); }),
            "constraints_test.cc:" + std::to_string(line) +
                ": jit: in_shardings[1] at constraints_test.cc:" + std::to_string(line) +
                " uses P() on mesh data=4,model=2, but device_put at constraints_test.cc:" + std::to_string(line - 2) +
                " uses P('data') on mesh data=4,model=2 on " + names +
                "; a compiled function runs on one mesh: use the same Mesh for both shardings");
}

TEST(ConstraintErrors, InAndOutShardingsOfDifferentMeshes) {
  const auto f = jit([](Array x) { return x + 1.f; },
                     {.in_shardings = {on(P("data"))}, .out_shardings = {{make_mesh({"rows"}), P("rows")}}});
  EXPECT_THROWS(f(numbers()), Error, "out_shardings[0] at constraints_test.cc:");
}

}  // namespace
}  // namespace lockstep
