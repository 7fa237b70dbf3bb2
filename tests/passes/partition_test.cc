// One program over many lanes: the same results as on one, and the collectives that are owed and no more.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/lane_ops.h"
#include "ops/reduce.h"
#include "passes/on_lanes.h"
#include "passes/random_program.h"
#include "passes/reshard.h"

namespace lockstep {
namespace {

const LaneGrid kTwo{{{"data", 2, 1}}};
const LaneGrid kGrid{{{"data", 2, 1}, {"model", 2, 1}}};

// The collectives of a lane's program, one line each: `lane_all_reduce data f32[4,3]`.
std::vector<std::string> collectives(const Program& p) {
  std::vector<std::string> out;
  for (const Eqn& eqn : p.eqns) {
    if (!eqn.op->meets) continue;
    std::string line = std::string(eqn.op->name) + " " + eqn.attrs.get<std::string>("axes");
    for (ValueId id : eqn.in) line += " " + to_string(p.types[id]);
    out.push_back(line);
  }
  return out;
}

using Lines = std::vector<std::string>;

Lines collectives_of(const Program& p, const LaneGrid& grid, const Said& in, const Said& out, int64_t lane = 0) {
  return collectives(partition(p, grid, place(p, grid, in, out), lane));
}

const LaneCuts kRows{{"data"}, {}}, kWhole{{}, {}}, kColumns{{}, {"data"}};

Program dense_gradient() {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), ct = b.input({f32, {8, 5}});
  return b.take(Values{einsum("bi,bo->io", x, ct)});
}

TEST(Partition, BatchCutNeedsNothingForwardsAndOneSumBackwards) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), w = b.input({f32, {3, 5}});
  const Program forward = b.take(Values{tanh(einsum("bi,io->bo", x, w))});
  EXPECT_EQ(collectives_of(forward, kTwo, {kRows, kWhole}, {}), Lines());
  EXPECT_EQ(collectives_of(dense_gradient(), kTwo, {kRows, kRows}, {kWhole}), Lines({"lane_all_reduce data f32[3,5]"}));
}

TEST(Partition, SumThatIsToBeCutIsScattered) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), ct = b.input({f32, {8, 6}});
  const Program p = b.take(Values{einsum("bi,bo->io", x, ct)});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {kRows}), Lines({"lane_reduce_scatter data f32[4,6]"}));
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {kColumns}), Lines({"lane_reduce_scatter data f32[6,4]"}));
}

TEST(Partition, ParametersThatLieCutAreGatheredBeforeUse) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), w = b.input({f32, {4, 6}});
  const Program p = b.take(Values{einsum("bi,io->bo", x, w)});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {kRows}), Lines({"lane_all_gather data f32[2,6]"}));
}

TEST(Partition, TensorParallelBlockOwesOneSum) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), up = b.input({f32, {4, 6}}), down = b.input({f32, {6, 4}});
  const Program p = b.take(Values{einsum("bh,ho->bo", tanh(einsum("bi,ih->bh", x, up)), down)});
  const LaneCuts columns{{}, {"model"}}, rows{{"model"}, {}};
  EXPECT_EQ(collectives_of(p, kGrid, {kRows, columns, rows}, {kRows}), Lines({"lane_all_reduce model f32[4,4]"}));
}

TEST(Partition, SumMovesThroughLinearOpsAndMergesWithItsLike) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), ct = b.input({f32, {8, 5}}), y = b.input({f32, {8, 3}});
  const Value sum = add(einsum("bi,bo->io", x, ct), einsum("bi,bo->io", y, ct));
  const Program p = b.take(Values{mul(sum, full_like(sum, 0.125))});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows, kRows}, {kWhole}), Lines({"lane_all_reduce data f32[3,5]"}));
}

TEST(Partition, ReplicatedEvaluationOwesOneScalar) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), w = b.input({f32, {3, 5}});
  const Program p = b.take(Values{reduce_sum(tanh(einsum("bi,io->bo", x, w)), {0, 1})});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kWhole}, {}), Lines({"lane_all_reduce data f32[]"}));
}

TEST(Partition, CutMovesFromOneDimensionToAnotherByAnExchange) {
  Builder b;
  const Value x = b.input({f32, {8, 6}});
  const Program p = b.take(Values{tanh(x)});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows}, {kColumns}), Lines({"lane_all_to_all data f32[24]"}));
}

TEST(Partition, WhatIsSaidStaysAndTheRestFollowsWithReasons) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), w = b.input({f32, {4, 6}});
  const Program p = b.take(Values{tanh(einsum("bi,io->bo", x, w))});
  const Placement backwards = place(p, kTwo, {}, {kRows});
  EXPECT_EQ(backwards.cuts[p.inputs[0]], kRows);
  EXPECT_EQ(backwards.cuts[p.inputs[1]], kWhole);
  EXPECT_EQ(backwards.reasons[p.outputs[0]], "output 0");
  EXPECT_EQ(backwards.reasons[p.inputs[0]], "equation 0 (einsum)");
  const Placement held = place(p, kTwo, {kWhole}, {kRows});
  EXPECT_EQ(held.cuts[p.inputs[0]], kWhole);
}

// A random grid of at most 7 lanes, and random cuts of a value on it.
class RandomCuts {
 public:
  explicit RandomCuts(uint32_t seed) : random_(seed) {}

  LaneGrid grid() {
    static const std::vector<LaneGrid> grids = {{{{"x", 2, 1}}},
                                                {{{"x", 2, 3}}},
                                                {{{"x", 3, 1}}},
                                                {{{"x", 4, 2}}},
                                                {{{"x", 7, 1}}},
                                                {{{"x", 2, 1}, {"y", 2, 1}}},
                                                {{{"x", 3, 1}, {"y", 2, 2}}}};
    return grids[random_() % grids.size()];
  }
  std::optional<LaneCuts> cuts(const LaneGrid& grid, const Shape& shape) {
    if (random_() % 3 == 0) return std::nullopt;
    LaneCuts out(shape.size());
    if (shape.empty()) return out;
    std::vector<LaneAxis> axes = grid.axes;
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const LaneAxis& axis : axes)
      if (random_() % 3 != 0) out[random_() % shape.size()].push_back(axis.name);
    return out;
  }

 private:
  std::mt19937 random_;
};

std::string difference_on_lanes(const RandomProgram& r, uint32_t seed) {
  RandomCuts random(seed);
  const LaneGrid grid = random.grid();
  Said in, out;
  for (ValueId id : r.program.inputs) in.push_back(random.cuts(grid, r.program.types[id].shape));
  for (ValueId id : r.program.outputs) out.push_back(random.cuts(grid, r.program.types[id].shape));
  const HostArrays wanted = eager(r.program, r.inputs);
  // As it is traced: bodies first, so that their equations can be cut too.
  const Program p = simplify(inline_bodies(r.program, Inline::early));
  const Placement placement = place(p, grid, in, out);
  const std::vector<HostArrays> got = run_on_lanes(p, grid, placement, r.inputs);
  for (size_t k = 0; k < wanted.size(); ++k) {
    for (size_t lane = 0; lane < got.size(); ++lane) {
      const IndexBox box =
          lane_box(grid, placement.cuts[p.outputs[k]], wanted[k].type.shape, static_cast<int64_t>(lane));
      const HostArray piece = cut_out(wanted[k], box);
      if (piece.type != got[lane][k].type) return fmt::format("output {} on lane {} has another type", k, lane);
      for (int64_t i = 0; i < piece.size(); ++i) {
        const double a = got[lane][k].get(i), b = piece.get(i);
        if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 4 * r.error[k]) continue;
        return fmt::format("element {} of output {} on lane {} is {}, wanted {}, within {}", i, k, lane, a, b,
                           4 * r.error[k]);
      }
    }
  }
  return "";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kPrograms = 1000;
#else
constexpr uint32_t kPrograms = 10000;
#endif

TEST(Partition, ResultsAreThoseOfOneLane) {
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const RandomProgram r = RandomPrograms(seed, false).make();
    std::string wrong;
    try {
      wrong = difference_on_lanes(r, seed);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << print(r.program);
  }
}

}  // namespace
}  // namespace lockstep
