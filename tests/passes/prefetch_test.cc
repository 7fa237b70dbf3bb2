// Asynchronous gathers and scatters: they start before the layer they overlap with, and results are the same bits.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/collectives_text.h"
#include "passes/traffic.h"

namespace lockstep {
namespace {

// Layers whose weights, two pieces of [32, 64], are gathered where they are used.
Program gathered_layers(size_t n, bool transposed = false) {
  Builder b;
  Value x = b.input({f32, {64, 64}});
  Values weights;
  for (size_t i = 0; i < n; ++i) weights.push_back(b.input({f32, transposed ? Shape{64, 32} : Shape{32, 64}}));
  for (const Value& w : weights) {
    const Value piece = transposed ? transpose(w, {1, 0}) : w;
    x = tanh(einsum("ij,jk->ik", x, lane_all_gather(piece, kData, {32, 32})));
  }
  return b.take(Values{x});
}

TEST(Prefetch, GatherOfTheNextLayerStartsBeforeThisProduct) {
  EXPECT_EQ(
      ops_of(scheduled(gathered_layers(3))),
      Lines({"lane_all_gather data 1", "lane_all_gather_start data 1", "einsum", "tanh", "lane_all_gather_start data 1",
             "lane_all_gather_done", "einsum", "tanh", "lane_all_gather_done", "einsum", "tanh"}));
}

TEST(Prefetch, PrefetchIsTheDistanceOfGathers) {
  EXPECT_EQ(ops_of(prefetched(gathered_layers(3), 2)),
            Lines({"lane_all_gather data 1", "lane_all_gather_start data 1", "lane_all_gather_start data 1", "einsum",
                   "tanh", "lane_all_gather_done", "einsum", "tanh", "lane_all_gather_done", "einsum", "tanh"}));
  const Program p = gathered_layers(3);
  EXPECT_EQ(prefetched(p, 0), p);
}

TEST(Prefetch, ViewsOfOperandsMoveAlong) {
  EXPECT_EQ(ops_of(scheduled(gathered_layers(2, true))),
            Lines({"transpose", "lane_all_gather data 1", "transpose", "lane_all_gather_start data 1", "einsum", "tanh",
                   "lane_all_gather_done", "einsum", "tanh"}));
}

TEST(Prefetch, GatherStartsAfterItsOperand) {
  Builder b;
  const Value x = b.input({f32, {64, 64}}), w = b.input({f32, {32, 64}});
  const Value y = einsum("ij,jk->ik", x, x);
  const Value all = lane_all_gather(exp(w), kData, {32, 32});
  EXPECT_EQ(ops_of(scheduled(b.take(Values{einsum("ij,jk->ik", y, all)}))),
            Lines({"einsum", "exp", "lane_all_gather data 1", "einsum"}));
}

// The gradient of a layer is scattered only while the next cotangent is computed,
// because the full gradient lives as long.
TEST(Prefetch, ScatterOverlapsWithTheNextProduct) {
  Builder b;
  const Value x = b.input({f32, {64, 64}});
  Values gradients;
  Value ct = x;
  for (int layer = 0; layer < 3; ++layer) {
    if (layer > 0) ct = einsum("ij,jk->ik", ct, x);
    gradients.push_back(lane_reduce_scatter(einsum("ij,ik->jk", x, ct), kData, {32, 32}, PendingReduction::sum));
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

// Updated pieces are gathered while other parameters are updated.
TEST(Prefetch, GathersOfResultsEndWithTheProgram) {
  Builder b;
  const Value w = b.input({f32, {32, 64}}), v = b.input({f32, {32, 64}});
  Values out;
  for (const Value& each : {w, v}) out.push_back(lane_all_gather(tanh(each), kData, {32, 32}));
  EXPECT_EQ(ops_of(scheduled(b.take(out))),
            Lines({"tanh", "lane_all_gather_start data 1", "tanh", "lane_all_gather data 1", "lane_all_gather_done"}));
}

// ZeRO 3: the gathers of all weights but the first layer's overlap with products, and so do the scatters of all
// gradients but the last.
TEST(Prefetch, FullyShardedTrainingStepOverlapsCommunication) {
  const TrainingStep step = fully_sharded_step("mlp", "adam", kTwo);
  const Program p = lower(scheduled(partition(step.program, kTwo, step.placement, 0)));
  std::map<std::string, int> overlapped;  // by op: those with a product between start and done
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const std::string name(p.eqns[i].op->name);
    if (!name.ends_with("_start")) continue;
    bool product = false;
    for (size_t k = i + 1; k < p.eqns.size(); ++k) {
      const Eqn& eqn = p.eqns[k];
      product |= eqn.op->name.starts_with("einsum");
      if (eqn.op->name.ends_with("_done") && eqn.attrs.integer("id") == p.eqns[i].attrs.integer("id")) break;
    }
    overlapped[name] += product;
  }
  EXPECT_GE(overlapped["lane_all_gather_start"], 2) << print(p);
  EXPECT_GE(overlapped["lane_reduce_scatter_start"], 2) << print(p);
  const std::string text = traffic_text(p, kTwo);
  EXPECT_NE(text.find("lane_all_gather data: 1 array, 65.5 KB, 1 step, overlapped\n"), std::string::npos) << text;
  EXPECT_NE(text.find("lane_reduce_scatter data: 1 array, 65.5 KB, 1 step, overlapped\n"), std::string::npos) << text;
}

TEST(Prefetch, DoesNotChangeAFullyShardedStepOnUnevenLanes) {
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
    const CollectiveSchedule schedule =
        schedule_collectives(lane0, {.prefetch = prefetch, .regather = {.keep_within = 0, .min_bytes = 0}});
    EXPECT_GT(schedule.async.size(), 4u);
    EXPECT_GE(schedule.regathers.size(), 1u);
    EXPECT_EQ(schedule.chunks.size(), 2u);  // of the first layer
    const auto change = [&](const Program& lane) { return apply_schedule(lane, schedule); };
    EXPECT_EQ(difference(run_on_lanes(step.program, grid, step.placement, inputs, change), wanted), "");
  }
}

}  // namespace
}  // namespace lockstep
