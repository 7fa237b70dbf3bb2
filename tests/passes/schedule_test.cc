// All-reduces in buckets, with separate start and done: fewer collectives, the same bits, one order on all lanes.
#include "passes/schedule.h"

#include <gtest/gtest.h>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/collectives_text.h"
#include "passes/random_placement.h"
#include "passes/random_program.h"
#include "passes/traffic.h"

namespace lockstep {
namespace {

TEST(Schedule, DataParallelTrainingStepHasOneAllReduce) {
  for (const int64_t lanes : {2, 3})
    for (const char* optimizer : {"sgd", "momentum", "adam"}) {
      const LaneGrid grid{{{"data", lanes, 1}}};
      const TrainingStep step = data_parallel_step("mlp", optimizer, grid);
      const CollectiveSchedule schedule = schedule_collectives(partition(step.program, grid, step.placement, 0));
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const Program local = partition(step.program, grid, step.placement, lane);
        EXPECT_EQ(collectives_in(local).size(), 8u)
            << optimizer;  // 6 gradients, the loss, and the count of correct answers
        const Program p = apply_schedule(local, schedule);
        EXPECT_EQ(collectives_in(p), Lines({"lane_all_reduce data 8"})) << optimizer << "\n" << print(p);
        EXPECT_EQ(collectives_in(lower(p)), Lines({"lane_all_reduce data 8"})) << optimizer;
      }
    }
}

TEST(Schedule, TrafficOfATrainingStepIsItsGradients) {
  const TrainingStep step = data_parallel_step("mlp", "sgd", kTwo);
  const Program p = scheduled(partition(step.program, kTwo, step.placement, 0));
  EXPECT_EQ(traffic(p, kTwo), (Traffic{4 * (784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10) + 8, 2}));
  EXPECT_EQ(traffic_text(p, kTwo), "lane_all_reduce data: 8 arrays, 0.9 MB, 2 steps\n");
}

// The last layer's gradients are reduced while those of the earlier layers are computed.
TEST(Schedule, LargeGradientsAreReducedWhileOthersAreComputed) {
  const TrainingStep step = data_parallel_step("mlp1024", "adam", kTwo);
  const Program p = scheduled(partition(step.program, kTwo, step.placement, 0));
  const Lines ops = ops_of(p);
  const auto start = std::find_if(ops.begin(), ops.end(),
                                  [](const std::string& op) { return op.starts_with("lane_all_reduce_start"); });
  const auto done = std::find(ops.begin(), ops.end(), "lane_all_reduce_done");
  ASSERT_NE(done, ops.end()) << print(p);
  EXPECT_GT(std::count(start, done, "einsum"), 0) << print(p);
  EXPECT_NE(traffic_text(p, kTwo).find(", overlapped\n"), std::string::npos);
}

// ---- buckets

// Gradients of n layers, each [16, 16] f32 (1 KiB), reduced when all are computed; then used in order.
Program layers(size_t n, PendingReduction last_kind = PendingReduction::sum) {
  Builder b;
  const Value x = b.input({f32, {16, 16}});
  Values gradients, outputs;
  Value ct = x;
  for (size_t i = 0; i < n; ++i) {
    ct = einsum("ij,jk->ik", ct, x);
    gradients.push_back(ct);
  }
  for (size_t i = 0; i < n; ++i)
    outputs.push_back(tanh(sum_over_data(gradients[i], i + 1 == n ? last_kind : PendingReduction::sum)));
  return b.take(outputs);
}

TEST(Schedule, AllReducesWithoutUsesBetweenAreCombined) {
  EXPECT_EQ(ops_of(scheduled(layers(3))),
            Lines({"einsum", "einsum", "einsum", "lane_all_reduce data 3", "tanh", "tanh", "tanh"}));
}

TEST(Schedule, BucketsFillInReadyOrderAndOverlapWithComputation) {
  EXPECT_EQ(ops_of(scheduled(layers(3), 2048)),
            Lines({"einsum", "einsum", "lane_all_reduce_start data 2", "einsum", "lane_all_reduce_start data 1",
                   "lane_all_reduce_done", "tanh", "tanh", "lane_all_reduce_done", "tanh"}));
}

TEST(Schedule, LargeOperandGetsItsOwnBucket) {
  EXPECT_EQ(collectives_in(scheduled(layers(2), 1)),
            Lines({"lane_all_reduce_start data 1", "lane_all_reduce_start data 1", "lane_all_reduce_done",
                   "lane_all_reduce_done"}));
}

TEST(Schedule, LargeOperandDoesNotCloseTheOpenBucket) {
  Builder b;
  const Value x = b.input({f32, {4}}), large = b.input({f32, {64}}), y = b.input({f32, {4}});
  const Values sums{sum_over_data(x), sum_over_data(large), sum_over_data(y)};
  EXPECT_EQ(collectives_in(scheduled(b.take(sums), 64)), Lines({"lane_all_reduce data 2", "lane_all_reduce data 1"}));
}

TEST(Schedule, KindsAndAxesAreNotMixed) {
  EXPECT_EQ(collectives_in(scheduled(layers(3, PendingReduction::max))),
            Lines({"lane_all_reduce_start data 2", "lane_all_reduce_start data 1", "lane_all_reduce_done",
                   "lane_all_reduce_done"}));
  Builder b;
  const Value x = b.input({f32, {4}}), y = b.input({f32, {4}});
  const Value a = sum_over_data(x), c = lane_all_reduce({y}, {{"model"}, 0}, PendingReduction::sum)[0];
  EXPECT_EQ(collectives_in(scheduled(b.take(Values{a, c}))),
            Lines({"lane_all_reduce data 1", "lane_all_reduce model 1"}));
}

TEST(Schedule, ArraysOfSeveralTypesShareABucket) {
  Builder b;
  const Value x = b.input({f32, {4}}), n = b.input({i32, {}}), h = b.input({bf16, {3}});
  const Values sums{sum_over_data(x), sum_over_data(n), sum_over_data(h)};
  EXPECT_EQ(collectives_in(scheduled(b.take(sums))), Lines({"lane_all_reduce data 3"}));
}

TEST(Schedule, DependentAllReduceComesLater) {
  Builder b;
  const Value x = b.input({f32, {4}}), y = b.input({f32, {4}});
  const Value through = sum_over_data(tanh(sum_over_data(x)));
  const Value straight = sum_over_data(sum_over_data(y));
  EXPECT_EQ(ops_of(scheduled(b.take(Values{through, straight}))),
            Lines({"lane_all_reduce data 2", "tanh", "lane_all_reduce data 2"}));
}

TEST(Schedule, UseBeforeTheNextOperandClosesABucket) {
  Builder b;
  const Value x = b.input({f32, {4}});
  const Value first = reduce_max(sum_over_data(x), {0});
  const Value second = sum_over_data(reduce_prod(x, {0}));
  EXPECT_EQ(ops_of(scheduled(b.take(Values{first, second}))),
            Lines({"lane_all_reduce data 1", "reduce_max", "reduce_prod", "lane_all_reduce data 1"}));
}

TEST(Schedule, SmallUsesOfResultsAreDelayed) {
  Builder b;
  const Value x = b.input({f32, {4}}), n = b.input({f32, {4}});
  const Value mean = div(sum_over_data(x), n);
  const Value product = reduce_prod(x, {0});
  EXPECT_EQ(ops_of(scheduled(b.take(Values{mean, sum_over_data(product)}))),
            Lines({"reduce_prod", "lane_all_reduce data 2", "div"}));
}

TEST(Schedule, LargeUsesOfResultsStay) {
  Builder b;
  const Value x = b.input({f32, {64, 64}});
  const Value use = tanh(sum_over_data(x));
  const Value product = reduce_prod(x, {0});
  EXPECT_EQ(ops_of(scheduled(b.take(Values{use, sum_over_data(product)}))),
            Lines({"lane_all_reduce data 1", "tanh", "reduce_prod", "lane_all_reduce data 1"}));
}

// SGD reduces each gradient times the rate, and subtracts it before it multiplies the next.
TEST(Schedule, EquationsThatOnlyProduceOperandsMoveUp) {
  Builder b;
  const Value x = b.input({f32, {64, 64}});
  const Value g1 = einsum("ij,jk->ik", x, x), g2 = einsum("ij,kj->ik", x, x);
  Values out;
  for (const Value& g : {g1, g2}) out.push_back(sub(x, sum_over_data(mul(full_like(g, 0.1), g))));
  EXPECT_EQ(ops_of(scheduled(b.take(out))),
            Lines({"einsum", "full", "mul", "einsum", "full", "mul", "lane_all_reduce data 2", "sub", "sub"}));
}

TEST(Schedule, OtherCollectivesStay) {
  Builder b;
  const Value x = b.input({f32, {4}}), w = b.input({f32, {2}});
  const Value y = tanh(x);
  const Value all = lane_all_to_all(w, kData, {1, 1}, {1, 1});
  const Value sum = sum_over_data(x);
  EXPECT_EQ(ops_of(scheduled(b.take(Values{y, all, sum}))),
            Lines({"lane_all_reduce_start data 1", "tanh", "lane_all_to_all data 1", "lane_all_reduce_done"}));
}

TEST(Schedule, ProgramWithoutCollectivesIsUnchanged) {
  Builder b;
  const Program p = b.take(Values{tanh(b.input({f32, {4}}))});
  EXPECT_EQ(scheduled(p), p);
}

// 5 rows on 2 lanes are 3 and 2: the buckets must not depend on the lane.
TEST(Schedule, UnevenLanesHaveTheSameCollectives) {
  const LaneGrid grid{{{"data", 2, 1}, {"model", 2, 1}}};
  Builder b;
  const Value x = b.input({f32, {4, 5}}), ct = b.input({f32, {4, 3}});
  const Program p = b.take(Values{einsum("bi,bo->io", x, ct), einsum("bi,bo->io", tanh(x), ct), reduce_sum(ct, {0})});
  const LaneSpec both{{"data"}, {"model"}}, rows{{"data"}, {}}, result{{"model"}, {}};
  const Placement placement = place(p, grid, {both, rows}, {result, result, LaneSpec(1)});
  std::vector<Program> lanes;
  for (int64_t lane = 0; lane < 4; ++lane) lanes.push_back(partition(p, grid, placement, lane));
  // Two products of lane 1 (24 bytes each) and the sum fit 60 bytes; those of lane 0 (36 each) do not.
  ASSERT_NE(schedule_collectives(lanes[0], {.bucket_bytes = 60}), schedule_collectives(lanes[1], {.bucket_bytes = 60}));
  const CollectiveSchedule schedule = schedule_collectives(lanes[0], {.bucket_bytes = 60});
  for (const Program& lane : lanes)
    EXPECT_EQ(collectives_in(apply_schedule(lane, schedule)), collectives_in(apply_schedule(lanes[0], schedule)));
}

// exp, tanh and the sum must not become one group: it would depend on the second collective and feed the first.
TEST(Schedule, FusionKeepsTheOrderOfCollectives) {
  Builder b;
  const Value x = b.input({f32, {4}}), y = b.input({f32, {4}});
  const Value e = exp(x);
  const Value first = sum_over_data(tanh(e)), second = sum_over_data(y, PendingReduction::max);
  const Program p = lower(b.take(Values{first, add(e, second)}));
  Lines kinds;
  for (const Eqn& eqn : p.eqns)
    if (eqn.op->is_collective()) kinds.push_back(eqn.attrs.get<std::string>("kind"));
  EXPECT_EQ(kinds, Lines({"sum", "max"}));
}

// ---- running

TEST(Schedule, DoesNotChangeRandomPrograms) {
  size_t merged = 0, split = 0, async = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const RandomProgram r = RandomPrograms(seed, false).make();
    RandomPlacement random(seed);
    const LaneGrid grid = random.grid();
    LaneConstraints in, out;
    for (ValueId id : r.program.inputs) in.push_back(random.lane_spec(grid, r.program.types[id].shape));
    for (ValueId id : r.program.outputs) out.push_back(random.lane_spec(grid, r.program.types[id].shape));
    const Program p = simplify(inline_bodies(r.program, Inline::early));
    const Placement placement = place(p, grid, in, out);
    const std::vector<HostArrays> wanted = run_on_lanes(p, grid, placement, r.inputs);
    const Program lane0 = partition(p, grid, placement, 0);
    for (const int64_t bucket_bytes : {int64_t{4} << 20, int64_t{24}}) {
      const CollectiveSchedule schedule = schedule_collectives(lane0, {.bucket_bytes = bucket_bytes});
      for (const Bucket& bucket : schedule.buckets) {
        merged += bucket.members.size() > 1;
        split += bucket.done != bucket.start;
      }
      async += schedule.async.size();
      std::string wrong;
      try {
        check(apply_schedule(lane0, schedule));
        wrong = difference(run_on_lanes(p, grid, placement, r.inputs,
                                        [&](const Program& lane) { return apply_schedule(lane, schedule); }),
                           wanted);
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << print(apply_schedule(lane0, schedule));
    }
  }
  EXPECT_GT(merged, 50u);
  EXPECT_GT(split, 50u);
  EXPECT_GT(async, 50u);
}

TEST(Schedule, DoesNotChangeATrainingStepOnUnevenLanes) {
  const LaneGrid grid{{{"data", 3, 1}}};  // 43, 43 and 42 rows
  const TrainingStep step = data_parallel_step("mlp", "adam", grid);
  std::mt19937 random(1);
  HostArrays inputs;
  for (const Type& type : step.program.input_types()) {
    inputs.emplace_back(type);
    for (int64_t i = 0; i < inputs.back().size(); ++i)
      inputs.back().set(i, type.dtype == i32 ? random() % 10 : 0.01 * (random() % 10));
  }
  const std::vector<HostArrays> wanted = run_on_lanes(step.program, grid, step.placement, inputs);
  const Program lane0 = partition(step.program, grid, step.placement, 0);
  for (const int64_t bucket_bytes : {int64_t{4} << 20, int64_t{64} << 10, int64_t{1}}) {
    const CollectiveSchedule schedule = schedule_collectives(lane0, {.bucket_bytes = bucket_bytes});
    const auto change = [&](const Program& lane) { return apply_schedule(lane, schedule); };
    EXPECT_EQ(difference(run_on_lanes(step.program, grid, step.placement, inputs, change), wanted), "");
  }
}

// A plan on one of two lanes that share their groups.
struct Lane {
  Lane(const Program& p, LaneComms& comms, int64_t lane)
      : plan(lower(p), pool, {.comm = [&comms, lane](const std::string& axes) { return comms.of(lane, axes); }}) {}
  Pool pool{{.threads = 1}};
  Plan plan;
};

// Operands that are used later, are outputs or are inputs keep their values; a plan can run several times.
TEST(Schedule, OperandsKeepTheirValuesDuringAnAllReduce) {
  Builder b;
  const Value x = b.input({f32, {4}});
  const Value doubled = add(x, x), other = mul(doubled, x);
  const Values sums = lane_all_reduce({x, doubled, doubled}, kData, PendingReduction::sum);
  const Value later = mul(doubled, exp(other));
  const Program p = scheduled(b.take(Values{sums[0], add(sums[1], later), sums[2], doubled}));
  ASSERT_EQ(collectives_in(p), Lines({"lane_all_reduce_start data 3", "lane_all_reduce_done"}));
  LaneComms comms(kTwo, false);
  std::vector<std::thread> threads;
  for (int64_t lane = 0; lane < 2; ++lane)
    threads.emplace_back([&, lane] {
      Lane l(p, comms, lane);
      for (int run = 0; run < 3; ++run) {
        std::vector<float> in(4, static_cast<float>(lane + 1)), out[4];
        for (auto& o : out) o.resize(4);
        const void* from[] = {in.data()};
        void* to[] = {out[0].data(), out[1].data(), out[2].data(), out[3].data()};
        l.plan.run(from, to);
        const float own = in[0];
        EXPECT_EQ(in, std::vector<float>(4, static_cast<float>(lane + 1)));
        EXPECT_EQ(out[0], std::vector<float>(4, 3));
        EXPECT_NEAR(out[1][3], 6 + 2 * own * std::exp(2 * own * own), 1e-2);
        EXPECT_EQ(out[2], std::vector<float>(4, 6));
        EXPECT_EQ(out[3], std::vector<float>(4, 2 * own));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

Kernel failing_kernel(const KernelSpec&) {
  return [](const void* const*, void* const*) { throw std::runtime_error("the kernel failed"); };
}
std::vector<Type> same_type(Types in, const Attrs&) { return {in[0]}; }
constinit const Op failing_op = {.name = "failing", .type = same_type, .cpu = failing_kernel};

// A lane fails between start and done: the others get the failure, and no lane writes to freed memory.
TEST(Schedule, FailureBetweenStartAndDoneReachesAllLanes) {
  const auto program = [](bool fails) {
    Builder b;
    const Value x = b.input({f32, {1024}});
    const Value y = fails ? emit(failing_op, {x}) : tanh(x);
    return scheduled(b.take(Values{y, sum_over_data(x)}));
  };
  ASSERT_EQ(ops_of(program(true)), Lines({"lane_all_reduce_start data 1", "failing", "lane_all_reduce_done"}));
  LaneComms comms(kTwo, false);
  std::string failures[2];
  std::vector<std::thread> threads;
  for (int64_t lane = 0; lane < 2; ++lane)
    threads.emplace_back([&, lane] {
      Lane l(program(lane == 0), comms, lane);
      for (int run = 0; run < 2 && failures[lane].empty(); ++run) {
        std::vector<float> in(1024, 1.f), y(1024), sum(1024);
        const void* from[] = {in.data()};
        void* to[] = {y.data(), sum.data()};
        try {
          l.plan.run(from, to);
        } catch (const std::exception& error) {
          failures[lane] = error.what();
          comms.abort(error.what());
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures[0], "the kernel failed");
  EXPECT_NE(failures[1], "");
}

// ---- traffic

TEST(Traffic, FollowsTheRingModel) {
  const LaneGrid grid{{{"data", 4, 1}}};
  Builder b;
  const Value x = b.input({f32, {8, 25}});
  const Value reduced = sum_over_data(x);
  const Value scattered = lane_reduce_scatter(x, kData, {2, 2, 2, 2}, PendingReduction::sum);
  const Value gathered = lane_all_gather(scattered, kData, {2, 2, 2, 2});
  const Program p = b.take(Values{reduced, gathered, tanh(x)});
  EXPECT_EQ(traffic_text(p, grid),
            "lane_all_reduce data: 1 array, 1.2 KB, 6 steps\n"
            "lane_reduce_scatter data: 1 array, 600 B, 3 steps\n"
            "lane_all_gather data: 1 array, 600 B, 3 steps\n");
  EXPECT_EQ(traffic(p, grid), (Traffic{2400, 12}));
}

}  // namespace
}  // namespace lockstep
