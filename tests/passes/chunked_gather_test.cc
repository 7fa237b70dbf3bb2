// Large weights and gradients in chunks: what is divided along which dimension, the
// programs as text, and equal results.
#include "passes/chunked_gather.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/conv.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/collectives_text.h"
#include "passes/lanes_difference.h"
#include "passes/traffic.h"

namespace lockstep {
namespace {

constexpr ChunkOptions kHalves{
    .chunks_per_piece = 1, .min_bytes = 1, .min_bytes_per_lane = 1, .min_extent = 2};  // on two lanes

std::string chunked(const Program& p, const ChunkOptions& options = kHalves) {
  const Program out = apply_chunks(p, choose_chunks(p, options));
  check(out);
  return print(out);
}

// The example of the header with small arrays.
TEST(ChunkedGather, WeightsAreGatheredAlongTheFreeDimensionOfAProduct) {
  Builder b;
  const Value x = b.input({f32, {2, 8}}), w = b.input({f32, {4, 8}});
  EXPECT_EQ(chunked(b.take(Values{einsum("bi,io->bo", x, lane_all_gather(w, kData, {4, 4}))})),
            R"(program(%0:f32[2,8], %1:f32[4,8]) {
  %2:f32[4,4] = slice[limits=[4,4], starts=[0,0], strides=[1,1]] %1
  %3:f32[8,4] = lane_all_gather[axes="data", counts=[4,4], index=0] %2
  %4:f32[4,4] = slice[limits=[4,8], starts=[0,4], strides=[1,1]] %1
  %5:f32[8,4] = lane_all_gather[axes="data", counts=[4,4], index=0] %4
  %6:f32[2,4] = einsum[spec="bi,io->bo"] %0 %3
  %7:f32[] = full[dtype=f32, shape=[], value=0.0]
  %8:f32[2,8] = pad[hi=[0,4], interior=[0,0], lo=[0,0]] %6 %7
  %9:f32[2,4] = einsum[spec="bi,io->bo"] %0 %5
  %10:i32[] = full[dtype=i32, shape=[], value=0]
  %11:i32[] = full[dtype=i32, shape=[], value=4]
  %12:f32[2,8] = update_slice[batch_dims=0] %8 %9 %10 %11
  return %12
}
)");
}

TEST(ChunkedGather, ProductsAreAddedIfTheDividedDimensionIsReduced) {
  Builder b;
  const Value dy = b.input({f32, {2, 8}}), w = b.input({f32, {4, 8}});
  EXPECT_EQ(chunked(b.take(Values{einsum("bo,io->bi", dy, lane_all_gather(w, kData, {4, 4}))})),
            R"(program(%0:f32[2,8], %1:f32[4,8]) {
  %2:f32[4,4] = slice[limits=[4,4], starts=[0,0], strides=[1,1]] %1
  %3:f32[8,4] = lane_all_gather[axes="data", counts=[4,4], index=0] %2
  %4:f32[4,4] = slice[limits=[4,8], starts=[0,4], strides=[1,1]] %1
  %5:f32[8,4] = lane_all_gather[axes="data", counts=[4,4], index=0] %4
  %6:f32[2,4] = slice[limits=[2,4], starts=[0,0], strides=[1,1]] %0
  %7:f32[2,8] = einsum[spec="bo,io->bi"] %6 %3
  %8:f32[2,4] = slice[limits=[2,8], starts=[0,4], strides=[1,1]] %0
  %9:f32[2,8] = einsum[spec="bo,io->bi"] %8 %5
  %10:f32[2,8] = add %7 %9
  return %10
}
)");
}

// The largest dimension is sharded, so the weights are stored transposed. So is the piece of the gradient: its chunks
// are transposed one by one.
TEST(ChunkedGather, GradientsAreScatteredInChunks) {
  Builder b;
  const Value x = b.input({f32, {2, 8}}), dy = b.input({f32, {2, 8}});
  const Value whole = transpose(einsum("bi,bo->io", x, dy), {1, 0});
  const Value part = transpose(lane_reduce_scatter(whole, kData, {4, 4}, PendingReduction::sum), {1, 0});
  EXPECT_EQ(chunked(b.take(Values{tanh(part)})),
            R"(program(%0:f32[2,8], %1:f32[2,8]) {
  %2:f32[2,4] = slice[limits=[2,4], starts=[0,0], strides=[1,1]] %0
  %3:f32[4,8] = einsum[spec="bi,bo->io"] %2 %1
  %4:f32[8,4] = transpose[permutation=[1,0]] %3
  %5:f32[4,4] = lane_reduce_scatter[axes="data", counts=[4,4], index=0, kind="sum"] %4
  %6:f32[2,4] = slice[limits=[2,8], starts=[0,4], strides=[1,1]] %0
  %7:f32[4,8] = einsum[spec="bi,bo->io"] %6 %1
  %8:f32[4,4] = transpose[permutation=[1,0]] %5
  %9:f32[] = full[dtype=f32, shape=[], value=0.0]
  %10:f32[8,4] = pad[hi=[4,0], interior=[0,0], lo=[0,0]] %8 %9
  %11:f32[8,4] = transpose[permutation=[1,0]] %7
  %12:f32[4,4] = lane_reduce_scatter[axes="data", counts=[4,4], index=0, kind="sum"] %11
  %13:f32[4,4] = transpose[permutation=[1,0]] %12
  %14:i32[] = full[dtype=i32, shape=[], value=4]
  %15:i32[] = full[dtype=i32, shape=[], value=0]
  %16:f32[8,4] = update_slice[batch_dims=0] %10 %13 %14 %15
  %17:f32[8,4] = tanh %16
  return %17
}
)");
}

// Views and casts are of pieces, and sums of 16-bit products are taken in f32.
TEST(ChunkedGather, CastsAreOfPieces) {
  Builder b;
  const Value dy = b.input({bf16, {2, 8}}), w = b.input({f32, {8, 4}});
  const Value all = lane_all_gather(transpose(cast(w, bf16), {1, 0}), kData, {4, 4});
  const Program p = b.take(Values{einsum("bo,io->bi", dy, all)});
  EXPECT_EQ(ops_of(apply_chunks(p, choose_chunks(p, kHalves))),
            Lines({"cast", "transpose",                                     // dead
                   "slice", "cast", "transpose", "lane_all_gather data 1",  // the first piece
                   "slice", "cast", "transpose", "lane_all_gather data 1",  // the second
                   "slice", "einsum", "cast", "slice", "einsum", "cast", "add", "cast"}));
}

Program layer(const Shape& x, const Shape& w) {
  Builder b;
  const Value in = b.input({f32, x}), part = b.input({f32, w});
  return b.take(Values{einsum("bi,io->bo", in, lane_all_gather(part, kData, {w[0], w[0]}))});
}

TEST(ChunkedGather, AreAboutAPartOfWhatALaneHolds) {
  const Program p = layer({2, 64}, {32, 64});  // 16 KiB when whole
  const auto pieces = [&](int64_t per_lane, int64_t least, int64_t share = 1) {
    const std::vector<ChunkedCollective> out = choose_chunks(
        p, {.chunks_per_piece = per_lane, .min_bytes = least, .min_bytes_per_lane = share, .min_extent = 2});
    return out.empty() ? 1 : out[0].chunks;
  };
  EXPECT_EQ(pieces(1, 1), 2);
  EXPECT_EQ(pieces(4, 1), 8);
  EXPECT_EQ(pieces(4, 4096), 4);
  EXPECT_EQ(pieces(4, 8192), 2);
  EXPECT_EQ(pieces(4, 8193), 1);
  EXPECT_EQ(pieces(4, 1, 2048), 4);
  EXPECT_EQ(pieces(4, 1, 4097), 1);
  EXPECT_EQ(pieces(1000, 1), 32);  // of two columns each
  EXPECT_EQ(choose_chunks(p, {.chunks_per_piece = 4, .min_bytes = 1, .min_bytes_per_lane = 1, .min_extent = 2}),
            (std::vector<ChunkedCollective>{{0, 1, 8}}));
}

TEST(ChunkedGather, SmallWeightsGoAsTheyAre) {
  EXPECT_EQ(choose_chunks(layer({64, 256}, {128, 255})), std::vector<ChunkedCollective>{});
  EXPECT_EQ(choose_chunks(layer({64, 256}, {128, 256})).size(), 1u);
}

// A filter is small compared to its images: concatenating those would cost more than it saves.
TEST(ChunkedGather, NotIfResultsAreLargerThanWeights) {
  EXPECT_EQ(choose_chunks(layer({9, 8}, {4, 8}), kHalves), std::vector<ChunkedCollective>{});
  EXPECT_EQ(choose_chunks(layer({8, 8}, {4, 8}), kHalves).size(), 1u);
  Builder b;
  const Value x = b.input({f32, {9, 8}}), dy = b.input({f32, {9, 8}});
  const Program p =
      b.take(Values{lane_reduce_scatter(einsum("bi,bo->io", x, dy), kData, {4, 4}, PendingReduction::sum)});
  EXPECT_EQ(choose_chunks(p, kHalves), std::vector<ChunkedCollective>{});
}

TEST(ChunkedGather, NotIfTheFullArrayIsUsed) {
  const auto decided = [](const auto& use) {
    Builder b;
    const Value x = b.input({f32, {2, 8}}), all = lane_all_gather(b.input({f32, {4, 8}}), kData, {4, 4});
    return choose_chunks(b.take(use(x, all)), kHalves).size();
  };
  const auto product = [](Value x, Value all) { return einsum("bi,io->bo", x, all); };
  EXPECT_EQ(decided([&](Value x, Value all) { return Values{product(x, all)}; }), 1u);
  EXPECT_EQ(decided([&](Value x, Value all) { return Values{product(x, all), einsum("bo,io->bi", x, all)}; }), 1u);
  EXPECT_EQ(decided([&](Value x, Value all) { return Values{product(x, all), all}; }), 0u);
  EXPECT_EQ(decided([&](Value x, Value all) { return Values{product(x, all), tanh(all)}; }), 0u);
  EXPECT_EQ(decided([&](Value, Value all) { return Values{einsum("ij,jk->ik", all, all)}; }), 0u);
  // A gradient that is also used before it is scattered.
  Builder b;
  const Value x = b.input({f32, {2, 8}}), whole = einsum("bi,bo->io", x, x);
  const Program p = b.take(Values{lane_reduce_scatter(whole, kData, {4, 4}, PendingReduction::sum), whole});
  EXPECT_EQ(choose_chunks(p, kHalves), std::vector<ChunkedCollective>{});
}

// One chunk is gathered while the previous one is multiplied; one chunk of a
// gradient is scattered while the next is computed.
TEST(ChunkedGather, CollectivesOverlapWithProducts) {
  Builder b;
  const Value x = b.input({f32, {64, 64}}), dy = b.input({f32, {64, 128}}), w = b.input({f32, {32, 128}});
  const Value y = einsum("bi,io->bo", x, lane_all_gather(w, kData, {32, 32}));
  const Value dw = lane_reduce_scatter(einsum("bi,bo->io", x, dy), kData, {32, 32}, PendingReduction::sum);
  const Program p = b.take(Values{y, dw});
  Lines got;
  for (const std::string& line : ops_of(apply_schedule(p, schedule_collectives(p, {.chunks = kHalves}))))
    if (line.starts_with("lane_") || line == "einsum") got.push_back(line);
  EXPECT_EQ(got, Lines({"lane_all_gather data 1", "lane_all_gather_start data 1", "einsum", "lane_all_gather_done",
                        "einsum", "einsum", "lane_reduce_scatter_start data 1", "einsum", "lane_reduce_scatter_done",
                        "lane_reduce_scatter_start data 1", "lane_reduce_scatter_done"}));
}

// ---- running

// A layer and its gradients with randomly sharded weights. All numbers are small integers, so that sums are exact in
// any order, also in 16 bits.
struct RandomLayer {
  Program program;
  LaneGrid grid;
  Placement placement;
  HostArrays inputs;

  explicit RandomLayer(uint32_t seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(random() % (hi - lo + 1)); };
    const auto any = [&](const auto& list) { return list[random() % list.size()]; };
    grid = any(std::vector<LaneGrid>{{{{"data", 2, 1}}},
                                     {{{"data", 3, 1}}},
                                     {{{"data", 4, 2}}},
                                     {{{"data", 7, 1}}},
                                     {{{"data", 2, 1}, {"model", 2, 1}}}});
    const int64_t rows = pick(1, 4), in = pick(4, 13), out = pick(4, 13);
    const bool transposed = random() % 2, narrow = random() % 3 == 0;
    Builder b;
    const Value x = b.input({f32, {rows, in}}), w = b.input({f32, transposed ? Shape{out, in} : Shape{in, out}});
    const auto used = [&](Value v) { return narrow ? cast(v, bf16) : v; };
    const Value y = einsum(transposed ? "bi,oi->bo" : "bi,io->bo", used(x), used(w));
    const Value ct = minimum(y, full_like(y, 1));
    const Value dx = einsum(transposed ? "bo,oi->bi" : "bo,io->bi", ct, used(w));
    const Value dw = cast(einsum(transposed ? "bi,bo->oi" : "bi,bo->io", used(x), ct), f32);
    program = b.take(Values{cast(y, f32), cast(dx, f32), sub(w, dw)});
    LaneSpec batch(2), weights(2);
    batch[0] = {"data"};
    const size_t at = random() % 2;
    weights[at] = {"data"};
    if (grid.axes.size() > 1 && random() % 2) weights[random() % 2].push_back("model");
    placement = place(program, grid, {batch, weights}, {batch, batch, weights});
    for (const Type& type : program.input_types()) {
      inputs.emplace_back(type);
      for (int64_t i = 0; i < inputs.back().size(); ++i) inputs.back().set(i, static_cast<double>(pick(-1, 1)));
    }
  }
};

TEST(ChunkedGather, DoesNotChangeExactSums) {
  size_t gathers = 0, scatters = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const RandomLayer r(seed);
    const std::vector<HostArrays> wanted = run_on_lanes(r.program, r.grid, r.placement, r.inputs);
    const Program lane0 = partition(r.program, r.grid, r.placement, 0);
    for (const int64_t per_lane : {1, 3}) {
      const CollectiveSchedule schedule = schedule_collectives(
          lane0, {.regather = {.keep_within = 0, .min_bytes = 0},
                  .chunks = {.chunks_per_piece = per_lane, .min_bytes = 1, .min_bytes_per_lane = 1, .min_extent = 2},
                  .early_updates = {.min_bytes = 1}});
      const Program regathered = apply_regathers(lane0, schedule.regathers);
      for (const ChunkedCollective& each : schedule.chunks)
        ++(regathered.eqns[each.eqn].op == &lane_all_gather_op ? gathers : scatters);
      const auto change = [&](const Program& lane) { return apply_schedule(lane, schedule); };
      ASSERT_EQ(difference(run_on_lanes(r.program, r.grid, r.placement, r.inputs, change), wanted), "")
          << "seed " << seed << "\n"
          << print(apply_schedule(lane0, schedule));
    }
  }
  EXPECT_GT(gathers, 200u);
  EXPECT_GT(scatters, 200u);
}

TEST(ChunkedGather, RandomProgramsEqualThoseOnOneLane) {
  const CollectiveScheduleOptions tiny{
      .regather = {.keep_within = 0, .min_bytes = 0},
      .chunks = {.chunks_per_piece = 4, .min_bytes = 1, .min_bytes_per_lane = 1, .min_extent = 2},
      .early_updates = {.min_bytes = 1}};
  for (uint32_t seed = 0; seed < 600; ++seed) {
    const RandomProgram r = RandomPrograms(seed, false).make();
    std::string wrong;
    try {
      wrong = difference_on_lanes(r, seed, &tiny);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << print(r.program);
  }
}

// 784 rows on 3 lanes are 262, 261 and 261.
TEST(ChunkedGather, DividesLargeLayersOfATrainingStepOnUnevenLanes) {
  const LaneGrid grid{{{"data", 3, 1}}};
  const TrainingStep step = fully_sharded_step("mlp", "adam", grid);
  const Program lane0 = partition(step.program, grid, step.placement, 0);
  const CollectiveSchedule schedule = schedule_collectives(lane0);
  ASSERT_EQ(schedule.chunks.size(),
            2u);  // of the first layer, 784 x 256: its weights in the forward pass, and its gradient
  for (const ChunkedCollective& each : schedule.chunks) EXPECT_EQ(each.chunks, 4);  // of 64 columns
  const Program p = apply_schedule(lane0, schedule);
  const std::string text = traffic_text(p, grid);
  EXPECT_NE(text.find("lane_all_gather data: 1 array, 0.1 MB, 2 steps, overlapped\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
