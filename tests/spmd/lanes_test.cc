// Programs on the lanes of the process, however many: results equal those on one lane. Also run with
// LOCKSTEP_CPU_LANES=2 and 4.
#include "lane/lane.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "base/throws.h"
#include "sharding/lanes.h"

namespace lockstep {
namespace {

NamedSharding on_mesh(const PartitionSpec& spec) { return {make_mesh({{"data", 4}, {"model", 2}}), spec}; }

std::vector<float> values_of(const Array& x) { return x.to_vector<float>(); }

void expect_near(const Array& got, const Array& wanted, double tolerance = 1e-5) {
  const std::vector<float> a = values_of(got), b = values_of(wanted);
  ASSERT_EQ(got.shape(), wanted.shape());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(OnLanes, ShardedProductsEqualUnsharded) {
  const Array x = random::normal(random::key(1), {10, 6}), w = random::normal(random::key(2), {6, 7});
  const auto f = [](Array a, Array b) { return tanh(dot(a, b)); };
  const Array wanted = f(x, w);
  const std::vector<PartitionSpec> specs = {P(), P("data"), P({}, "model"), P("model", "data"), P({"data", "model"})};
  for (const PartitionSpec& a : specs)
    for (const PartitionSpec& b : specs)
      for (const PartitionSpec& c : specs) {
        SCOPED_TRACE(to_string(a) + " " + to_string(b) + " " + to_string(c));
        const Array got = jit(f, {.in_shardings = {on_mesh(a), on_mesh(b)}, .out_shardings = {on_mesh(c)}})(x, w);
        expect_near(got, wanted);
        EXPECT_EQ(got.sharding(), on_mesh(c));
      }
}

TEST(OnLanes, SchedulesArePrintedByLane) {
  const auto f = jit([](Array x) { return tanh(x); }, {.in_shardings = {on_mesh(P("data"))}});
  const std::string text = f.schedule(zeros({8}));
  for (int64_t lane = 0; lane < local_lane_count(); ++lane)
    EXPECT_EQ(text.find(fmt::format("lane {}:\n", lane)) != text.npos, local_lane_count() > 1) << text;
  EXPECT_NE(text.find("tanh"), text.npos) << text;
}

TEST(OnLanes, ResultsFeedTheNextCallAndDonatedStateIsReused) {
  struct State {
    Array w, m;
  };
  const auto step = [](State s, Array x) {
    const Array g = grad([&](Array w) { return mean(square(dot(x, w))); })(s.w);
    const Array m = 0.9f * s.m + g;
    return State{s.w - 0.1f * m, m};
  };
  const Array w = random::normal(random::key(1), {6, 7}), x = random::normal(random::key(2), {11, 6});
  State plain{w, zeros_like(w)};
  State spread = device_put(State{w + 0.f, zeros_like(w)}, on_mesh(P("model")));
  const auto compiled = jit(step, {.donate = {0}, .out_shardings = {on_mesh(P("model"))}});
  const Array rows = device_put(x, on_mesh(P("data")));
  for (int i = 0; i < 5; ++i) {
    plain = step(plain, x);
    const State old = spread;
    spread = compiled(spread, rows);
    EXPECT_THROWS(old.w.to_vector<float>(), Error, "was donated");
  }
  EXPECT_EQ(compiled.compiled(), 1u);
  expect_near(spread.w, plain.w);
  expect_near(spread.m, plain.m);
}

TEST(OnLanes, SharedMemorySurvivesDonation) {
  const auto f = jit([](Array x) { return x + 1.f; }, {.donate = {0}, .out_shardings = {on_mesh(P("data"))}});
  const Array first = f(device_put(zeros({9}), on_mesh(P("data"))));
  const Array same = device_put(first, on_mesh(P("data")));  // shares the memory
  const Array second = f(first);
  EXPECT_EQ(values_of(second), std::vector<float>(9, 2.f));
  EXPECT_EQ(values_of(same), std::vector<float>(9, 1.f));
}

TEST(OnLanes, AddressableShardsAreViewsOfPieces) {
  const Array x = jit([](Array a) { return a * 2.f; }, {.out_shardings = {on_mesh(P("data", "model"))}})(
      device_put(reshape(arange(24.f), {6, 4}), on_mesh(P("data"))));
  for (const Shard& shard : addressable_shards(x)) {
    const std::vector<float> got = values_of(shard.data);
    size_t k = 0;
    for (int64_t i = shard.index[0].begin; i < shard.index[0].end; ++i)
      for (int64_t j = shard.index[1].begin; j < shard.index[1].end; ++j)
        EXPECT_EQ(got[k++], static_cast<float>(2 * (4 * i + j)));
  }
}

TEST(OnLanes, ExplainReportsShardingsReasonsAndCommunication) {
  const auto f =
      jit([](Array x, Array w) { return sum(dot(x, w)); }, {.in_shardings = {on_mesh(P("data")), on_mesh(P())}});
  const std::string text = f.explain(ones({8, 3}), ones({3, 5}));
  if (local_lane_count() == 1) {
    EXPECT_EQ(text, "one lane: nothing is sharded, no communication\n");
    return;
  }
  for (const char* part : {" lanes: data ", "f32[8,3]", "P('data')", "input 0", "einsum", "lane_all_reduce"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(LaneGrids, ContainAxesThatCrossLanes) {
  const auto grid = [](const Shape& shape, std::vector<std::string> names, int64_t lanes) {
    std::vector<Device> made;
    for (int64_t i = 0; i < count(shape); ++i) made.push_back({.id = static_cast<int>(i)});
    return lane_grid(Mesh(made, shape, std::move(names)), lanes).axes;
  };
  using Axes = std::vector<LaneAxis>;
  EXPECT_EQ(grid({8}, {"a"}, 2), (Axes{{"a", 2, 4}}));
  EXPECT_EQ(grid({2, 4}, {"a", "b"}, 2), (Axes{{"a", 2, 1}}));
  EXPECT_EQ(grid({2, 4}, {"a", "b"}, 4), (Axes{{"a", 2, 1}, {"b", 2, 2}}));
  EXPECT_EQ(grid({1, 6}, {"a", "b"}, 3), (Axes{{"b", 3, 2}}));
  EXPECT_EQ(grid({2, 3}, {"a", "b"}, 3), Axes());  // a block of two devices ends inside "b"
  EXPECT_EQ(grid({7}, {"a"}, 2), Axes());
}

TEST(LaneRanges, AreUnionsOfDeviceRanges) {
  const LaneGrid g{{{"x", 2, 4}, {"y", 3, 1}}};
  EXPECT_EQ(lane_range(g, {"x"}, 10, 0), (Range{0, 6}));  // 8 devices: 2, 2, 1, 1 and 1, 1, 1, 1
  EXPECT_EQ(lane_range(g, {"x"}, 10, 1), (Range{6, 10}));
  EXPECT_EQ(lane_range(g, {"y"}, 2, 2), (Range{2, 2}));
  EXPECT_EQ(lane_group(g, {"y"}, 4), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(lane_group(g, {"x"}, 4), (std::vector<int64_t>{1, 4}));
}

}  // namespace
}  // namespace lockstep
