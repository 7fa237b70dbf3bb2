// Gathers and scatters in two steps: begun before the layer that computes meanwhile, the same bits.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/meetings.h"
#include "passes/traffic.h"

namespace lockstep {
namespace {

// Layers whose weights, two pieces of [32, 64], are put together where they are used.
Program gathered_layers(size_t n, bool turned = false) {
  Builder b;
  Value x = b.input({f32, {64, 64}});
  Values weights;
  for (size_t i = 0; i < n; ++i) weights.push_back(b.input({f32, turned ? Shape{64, 32} : Shape{32, 64}}));
  for (const Value& w : weights) {
    const Value piece = turned ? transpose(w, {1, 0}) : w;
    x = tanh(einsum("ij,jk->ik", x, lane_all_gather(piece, kData, {32, 32})));
  }
  return b.take(Values{x});
}

TEST(Prefetch, GatherOfTheNextLayerBeginsBeforeThisOneComputes) {
  EXPECT_EQ(
      ops_of(scheduled(gathered_layers(3))),
      Lines({"lane_all_gather data 1", "lane_all_gather_start data 1", "einsum", "tanh", "lane_all_gather_start data 1",
             "lane_all_gather_done", "einsum", "tanh", "lane_all_gather_done", "einsum", "tanh"}));
}

TEST(Prefetch, PrefetchSaysHowFarAheadGathersBegin) {
  EXPECT_EQ(ops_of(prefetched(gathered_layers(3), 2)),
            Lines({"lane_all_gather data 1", "lane_all_gather_start data 1", "lane_all_gather_start data 1", "einsum",
                   "tanh", "lane_all_gather_done", "einsum", "tanh", "lane_all_gather_done", "einsum", "tanh"}));
  const Program p = gathered_layers(3);
  EXPECT_EQ(prefetched(p, 0), p);
}

TEST(Prefetch, ViewsOfWhatIsGatheredComeAlong) {
  EXPECT_EQ(ops_of(scheduled(gathered_layers(2, true))),
            Lines({"transpose", "lane_all_gather data 1", "transpose", "lane_all_gather_start data 1", "einsum", "tanh",
                   "lane_all_gather_done", "einsum", "tanh"}));
}

TEST(Prefetch, GatherDoesNotBeginBeforeItsOperandIsThere) {
  Builder b;
  const Value x = b.input({f32, {64, 64}}), w = b.input({f32, {32, 64}});
  const Value y = einsum("ij,jk->ik", x, x);
  const Value all = lane_all_gather(exp(w), kData, {32, 32});
  EXPECT_EQ(ops_of(scheduled(b.take(Values{einsum("ij,jk->ik", y, all)}))),
            Lines({"einsum", "exp", "lane_all_gather data 1", "einsum"}));
}

// The gradient of a layer is scattered while the cotangent of the one before is computed, and no longer: it is whole
// meanwhile.
TEST(Prefetch, ScatterIsUnderWayWhileTheNextProductComputes) {
  Builder b;
  const Value x = b.input({f32, {64, 64}});
  Values gradients;
  Value ct = x;
  for (int layer = 0; layer < 3; ++layer) {
    if (layer > 0) ct = einsum("ij,jk->ik", ct, x);
    gradients.push_back(lane_reduce_scatter(einsum("ij,ik->jk", x, ct), kData, {32, 32}, Owed::sum));
  }
  Values out;
  for (const Value& g : gradients) out.push_back(tanh(g));
  const Program p = b.take(out);
  EXPECT_EQ(ops_of(scheduled(p)),
            Lines({"einsum", "lane_reduce_scatter_start data 1", "einsum", "lane_reduce_scatter_done", "einsum",
                   "lane_reduce_scatter_start data 1", "einsum", "lane_reduce_scatter_done", "einsum",
                   "lane_reduce_scatter_start data 1", "tanh", "tanh", "lane_reduce_scatter_done", "tanh"}));
  EXPECT_EQ(prefetched(p, 0), p);
}

// Updated pieces are put together while other parameters are updated.
TEST(Prefetch, GathersOfResultsEndWithTheProgram) {
  Builder b;
  const Value w = b.input({f32, {32, 64}}), v = b.input({f32, {32, 64}});
  Values out;
  for (const Value& each : {w, v}) out.push_back(lane_all_gather(tanh(each), kData, {32, 32}));
  EXPECT_EQ(ops_of(scheduled(b.take(out))),
            Lines({"tanh", "lane_all_gather_start data 1", "tanh", "lane_all_gather data 1", "lane_all_gather_done"}));
}

// ZeRO 3: of the three layers' weights all but the first are on their way while another layer multiplies, and so are
// all gradients but the last.
TEST(Prefetch, FullyShardedTrainingStepTalksWhileItComputes) {
  const TrainingStep step = fully_sharded_step("mlp", "adam", kTwo);
  const Program p = lower(scheduled(partition(step.program, kTwo, step.placement, 0)));
  std::map<std::string, int> behind;  // by what is done in two steps: those with a product in between
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const std::string name(p.eqns[i].op->name);
    if (!name.ends_with("_start")) continue;
    bool product = false;
    for (size_t k = i + 1; k < p.eqns.size(); ++k) {
      const Eqn& eqn = p.eqns[k];
      product |= eqn.op->name.starts_with("einsum");
      if (eqn.op->name.ends_with("_done") && eqn.attrs.integer("id") == p.eqns[i].attrs.integer("id")) break;
    }
    behind[name] += product;
  }
  EXPECT_GE(behind["lane_all_gather_start"], 2) << print(p);
  EXPECT_GE(behind["lane_reduce_scatter_start"], 2) << print(p);
  const std::string text = traffic_text(p, kTwo);
  EXPECT_NE(text.find("lane_all_gather data: 1 array, 65.5 KB, 1 step, overlapped\n"), std::string::npos) << text;
  EXPECT_NE(text.find("lane_reduce_scatter data: 1 array, 65.5 KB, 1 step, overlapped\n"), std::string::npos) << text;
}

TEST(Prefetch, ChangesNoBitOfAFullyShardedStepOnUnequalLanes) {
  const LaneGrid grid{{{"data", 3, 1}}};
  const TrainingStep step = fully_sharded_step("mlp", "momentum", grid);
  std::mt19937 random(2);
  HostArrays inputs;
  for (const Type& type : step.program.input_types()) {
    inputs.emplace_back(type);
    for (int64_t i = 0; i < inputs.back().size(); ++i)
      inputs.back().set(i, type.dtype == i32 ? random() % 10 : 0.01 * (random() % 10));
  }
  const std::vector<HostArrays> wanted = run_on_lanes(step.program, grid, step.placement, inputs);
  const Program lane0 = partition(step.program, grid, step.placement, 0);
  for (const size_t prefetch : {1, 3}) {
    const Schedule schedule = decide(lane0, {.prefetch = prefetch, .regather = {.keep = 0, .least_bytes = 0}});
    EXPECT_GT(schedule.flights.size(), 4u);
    EXPECT_GE(schedule.again.size(), 1u);
    EXPECT_EQ(schedule.pieces.size(), 2u);  // of the first layer
    const auto change = [&](const Program& lane) { return apply(lane, schedule); };
    EXPECT_EQ(difference(run_on_lanes(step.program, grid, step.placement, inputs, change), wanted), "");
  }
}

}  // namespace
}  // namespace lockstep
