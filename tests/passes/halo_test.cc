// Images sharded along their rows and columns: windows read halos from the neighbors' shards, and no image is gathered.
#include <gtest/gtest.h>

#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/lane_ops.h"
#include "ops/ops.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/on_lanes.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

const LaneGrid kHaloLanes{{{"rows", 2, 1}}};
const LaneGrid kFourLanes{{{"rows", 4, 1}}};
const LaneGrid kSquare{{{"rows", 2, 1}, {"columns", 2, 1}}};
const LaneSpec kByRows{{}, {"rows"}, {}, {}}, kByBoth{{}, {"rows"}, {"columns"}, {}}, kUncut{{}, {}, {}, {}};

using Lines = std::vector<std::string>;

// The equations of a lane without those that only move elements of a lane.
Lines work_of(const Program& all, const LaneGrid& grid, const LaneConstraints& in, const LaneConstraints& out,
              int64_t lane) {
  const Program p = drop_dead(all);
  const Program local = partition(p, grid, place(p, grid, in, out), lane);
  Lines lines;
  for (const Eqn& eqn : local.eqns) {
    if (eqn.op->view || eqn.op == &concatenate_op || eqn.op == &full_op) continue;
    std::string line(eqn.op->name);
    for (const ValueId id : eqn.in) line += " " + to_string(local.types[id]);
    if (eqn.attrs.find("pad")) line += " pad " + to_string(eqn.attrs.ints("pad"));
    lines.push_back(line);
  }
  return lines;
}

Program conv_and_pool() {
  Builder b;
  const Value x = b.input({f32, {2, 8, 6, 3}}), w = b.input({f32, {3, 3, 3, 4}});
  return b.take(Values{max_pool(conv2d(x, w, {.pad = {1, 1, 1, 1}}), {.window = {2, 2}, .stride = {2, 2}})});
}

TEST(Halo, NeighborsExchangeBordersAndTilesNeedNone) {
  EXPECT_EQ(work_of(conv_and_pool(), kHaloLanes, {kByRows, kUncut}, {kByRows}, 0),
            Lines({"lane_all_to_all f32[36]", "conv2d f32[2,5,6,3] f32[3,3,3,4] pad [1, 0, 1, 1]",
                   "max_pool f32[2,4,6,4] pad [0, 0, 0, 0]"}));
  EXPECT_EQ(work_of(conv_and_pool(), kHaloLanes, {kByRows, kUncut}, {kByRows}, 1),
            Lines({"lane_all_to_all f32[36]", "conv2d f32[2,5,6,3] f32[3,3,3,4] pad [0, 1, 1, 1]",
                   "max_pool f32[2,4,6,4] pad [0, 0, 0, 0]"}));
  // Lanes in the middle have two neighbors.
  EXPECT_EQ(work_of(conv_and_pool(), kFourLanes, {kByRows, kUncut}, {kByRows}, 1),
            Lines({"lane_all_to_all f32[72]", "conv2d f32[2,4,6,3] f32[3,3,3,4] pad [0, 0, 1, 1]",
                   "max_pool f32[2,2,6,4] pad [0, 0, 0, 0]"}));
}

TEST(Halo, CornersComeWithTheSecondDimension) {
  EXPECT_EQ(
      work_of(conv_and_pool(), kSquare, {kByBoth, kUncut}, {}, 3),
      Lines({"lane_all_to_all f32[18]", "lane_all_to_all f32[30]", "conv2d f32[2,5,4,3] f32[3,3,3,4] pad [0, 1, 0, 1]",
             "lane_all_gather f32[3,2,4,4]", "max_pool f32[2,4,6,4] pad [0, 0, 0, 0]"}));
}

// Windows whose shards do not have the boundaries of x, or that reach beyond the neighbor, are gathered as before.
TEST(Halo, OtherWindowsAreGathered) {
  Builder b;
  const Value x = b.input({f32, {1, 8, 4, 1}}), w = b.input({f32, {3, 1, 1, 1}}), wide = b.input({f32, {7, 1, 1, 1}});
  const Program valid = b.finish(Values{conv2d(x, w, {})});
  EXPECT_EQ(work_of(valid, kHaloLanes, {kByRows, kUncut, kUncut}, {kUncut}, 0),
            Lines({"lane_all_gather f32[4,1,4,1]", "conv2d f32[1,8,4,1] f32[3,1,1,1] pad [0, 0, 0, 0]"}));
  const Program far = b.finish(Values{conv2d(x, wide, {.pad = {3, 3, 0, 0}})});
  EXPECT_EQ(work_of(far, kFourLanes, {kByRows, kUncut, kUncut}, {kUncut}, 0)[0], "lane_all_gather f32[2,1,4,1]");
  const Program strided = b.finish(Values{conv2d(x, w, {.stride = {2, 1}, .pad = {1, 0, 0, 0}})});
  EXPECT_EQ(work_of(strided, kHaloLanes, {kByRows, kUncut, kUncut}, {kByRows}, 1),
            Lines({"lane_all_to_all f32[0]", "conv2d f32[1,5,4,1] f32[3,1,1,1] pad [0, 0, 0, 0]"}));
}

// Convolutions, dilated ones and pools, and all gradients, compared with one lane.
Program stack_of_windows(int64_t rows) {
  Builder b;
  const Value x = b.input({f64, {2, rows, 6, 2}}), w = b.input({f64, {3, 3, 2, 4}}), v = b.input({f64, {3, 2, 1, 4}});
  Value y = conv2d(x, w, {.pad = {1, 1, 1, 1}});
  y = conv2d(mul(y, y), v, {.pad = {2, 2, 1, 0}, .rhs_dilation = {2, 1}, .groups = 4});
  y = add(max_pool(y, {.window = {3, 1}, .stride = {1, 1}, .pad = {1, 1, 0, 0}}),
          sum_pool(y, {.window = {2, 3}, .stride = {1, 1}, .pad = {1, 0, 1, 1}}));
  if (rows % 2 == 0) y = max_pool(y, {.window = {2, 2}, .stride = {2, 2}});
  return b.take(Values{y});
}

void expect_same_on_lanes(const Program& p, const LaneGrid& grid, const LaneConstraints& in) {
  HostArrays inputs;
  for (size_t i = 0; i < p.inputs.size(); ++i)
    inputs.push_back(small_integers(p.types[p.inputs[i]], static_cast<uint32_t>(i + 1)));
  const HostArrays wanted = eager(p, inputs);
  const Placement placement = place(p, grid, in, {});
  const std::vector<HostArrays> got = run_on_lanes(p, grid, placement, inputs);
  for (size_t k = 0; k < wanted.size(); ++k)
    for (size_t lane = 0; lane < got.size(); ++lane) {
      const IndexBox box =
          lane_box(grid, placement.lane_specs[p.outputs[k]], wanted[k].type.shape, static_cast<int64_t>(lane));
      EXPECT_EQ(got[lane][k].values(), slice_box(wanted[k], box).values()) << "output " << k << " on lane " << lane;
    }
}

TEST(Halo, ResultsAndGradientsEqualThoseOfOneLane) {
  for (const int64_t rows : {8, 9, 11, 16}) {
    SCOPED_TRACE(rows);
    const Program forward = stack_of_windows(rows), both = joint(forward, {true, true, true});
    for (const Program& p : {forward, both}) {
      LaneConstraints in{kByRows, kUncut, kUncut};
      for (const LaneGrid& grid : {kHaloLanes, kFourLanes}) expect_same_on_lanes(p, grid, in);
      in[0] = kByBoth;
      expect_same_on_lanes(p, kSquare, in);
    }
  }
}

// A schedule is chosen for lane 0 and applied to all lanes.
TEST(Halo, LanesHaveTheSameEquations) {
  const Program p = joint(stack_of_windows(9), {true, true, true});
  const Placement placement = place(p, kFourLanes, {kByRows, kUncut, kUncut, std::nullopt}, {});
  const auto ops_of = [&](int64_t lane) {
    Lines out;
    for (const Eqn& eqn : partition(p, kFourLanes, placement, lane).eqns) out.emplace_back(eqn.op->name);
    return out;
  };
  for (int64_t lane = 1; lane < 4; ++lane) EXPECT_EQ(ops_of(lane), ops_of(0)) << "lane " << lane;
}

TEST(Halo, GradientsNeedNoGathers) {
  Builder b;
  const Value x = b.input({f32, {2, 8, 6, 3}}), w = b.input({f32, {3, 3, 3, 4}});
  const Program p = joint(b.take(Values{conv2d(x, w, {.pad = {1, 1, 1, 1}})}), {true, true});
  EXPECT_EQ(work_of(p, kHaloLanes, {kByRows, kUncut, kByRows}, {kByRows, kByRows, kUncut}, 0),
            Lines({"lane_all_to_all f32[36]", "conv2d f32[2,5,6,3] f32[3,3,3,4] pad [1, 0, 1, 1]",
                   "lane_all_to_all f32[48]", "conv2d_input_grad f32[2,5,6,4] f32[3,3,3,4] pad [1, 2, 1, 1]",
                   "conv2d_filter_grad f32[2,5,6,3] f32[2,4,6,4] pad [1, 0, 1, 1]", "lane_all_reduce f32[3,3,3,4]"}));
}

}  // namespace
}  // namespace lockstep
