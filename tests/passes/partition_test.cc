// One program over many lanes: the same results as on one lane, and exactly the required collectives.
#include <gtest/gtest.h>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/lane_ops.h"
#include "ops/norm.h"
#include "ops/random_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/lanes_difference.h"
#include "passes/reshard.h"

namespace lockstep {
namespace {

const LaneGrid kTwo{{{"data", 2, 1}}};
const LaneGrid kGrid{{{"data", 2, 1}, {"model", 2, 1}}};

// The collectives of a lane's program, one line each: `lane_all_reduce data f32[4,3]`.
std::vector<std::string> collectives(const Program& p) {
  std::vector<std::string> out;
  for (const Eqn& eqn : p.eqns) {
    if (!eqn.op->is_collective()) continue;
    std::string line = std::string(eqn.op->name) + " " + eqn.attrs.get<std::string>("axes");
    for (ValueId id : eqn.in) line += " " + to_string(p.types[id]);
    out.push_back(line);
  }
  return out;
}

using Lines = std::vector<std::string>;

Lines collectives_of(const Program& p, const LaneGrid& grid, const LaneConstraints& in, const LaneConstraints& out,
                     int64_t lane = 0) {
  return collectives(partition(p, grid, place(p, grid, in, out), lane));
}

const LaneSpec kRows{{"data"}, {}}, kWhole{{}, {}}, kColumns{{}, {"data"}};

Program dense_gradient() {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), ct = b.input({f32, {8, 5}});
  return b.take(Values{einsum("bi,bo->io", x, ct)});
}

TEST(Partition, BatchCutNeedsOneSumInTheBackwardPass) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), w = b.input({f32, {3, 5}});
  const Program forward = b.take(Values{tanh(einsum("bi,io->bo", x, w))});
  EXPECT_EQ(collectives_of(forward, kTwo, {kRows, kWhole}, {}), Lines());
  EXPECT_EQ(collectives_of(dense_gradient(), kTwo, {kRows, kRows}, {kWhole}), Lines({"lane_all_reduce data f32[3,5]"}));
}

// dx keeps the cut of its rows; dscale and dbias are sums over rows.
TEST(Partition, GradientOfANormSumsOverItsCutRows) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), scale = b.input({f32, {3}}), bias = b.input({f32, {3}});
  const Program forward = b.take(Values{layer_norm(x, scale, bias, 1e-5)[0]});
  const Program p = drop_dead(joint(forward, {true, true, true}));
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, LaneSpec{{}}, LaneSpec{{}}, kRows}, {}),
            Lines({"lane_all_reduce data f32[3]", "lane_all_reduce data f32[3]"}));
}

TEST(Partition, SumWithACutResultIsScattered) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), ct = b.input({f32, {8, 6}});
  const Program p = b.take(Values{einsum("bi,bo->io", x, ct)});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {kRows}), Lines({"lane_reduce_scatter data f32[4,6]"}));
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {kColumns}), Lines({"lane_reduce_scatter data f32[6,4]"}));
}

TEST(Partition, CutParametersAreGatheredBeforeUse) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), w = b.input({f32, {4, 6}});
  const Program p = b.take(Values{einsum("bi,io->bo", x, w)});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {kRows}), Lines({"lane_all_gather data f32[2,6]"}));
}

TEST(Partition, TensorParallelBlockNeedsOneSum) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), up = b.input({f32, {4, 6}}), down = b.input({f32, {6, 4}});
  const Program p = b.take(Values{einsum("bh,ho->bo", tanh(einsum("bi,ih->bh", x, up)), down)});
  const LaneSpec columns{{}, {"model"}}, rows{{"model"}, {}};
  EXPECT_EQ(collectives_of(p, kGrid, {kRows, columns, rows}, {kRows}), Lines({"lane_all_reduce model f32[4,4]"}));
}

TEST(Partition, SumMovesThroughLinearOpsAndMergesWithOthers) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), ct = b.input({f32, {8, 5}}), y = b.input({f32, {8, 3}});
  const Value sum = add(einsum("bi,bo->io", x, ct), einsum("bi,bo->io", y, ct));
  const Program p = b.take(Values{mul(sum, full_like(sum, 0.125))});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows, kRows}, {kWhole}), Lines({"lane_all_reduce data f32[3,5]"}));
}

TEST(Partition, ReplicatedEvaluationReducesOneScalar) {
  Builder b;
  const Value x = b.input({f32, {8, 3}}), w = b.input({f32, {3, 5}});
  const Program p = b.take(Values{reduce_sum(tanh(einsum("bi,io->bo", x, w)), {0, 1})});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kWhole}, {}), Lines({"lane_all_reduce data f32[]"}));
}

TEST(Partition, CutMovesBetweenDimensionsByAnAllToAll) {
  Builder b;
  const Value x = b.input({f32, {8, 6}});
  const Program p = b.take(Values{tanh(x)});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows}, {kColumns}), Lines({"lane_all_to_all data f32[24]"}));
}

TEST(Partition, ConstraintsAreKeptAndOtherCutsHaveReasons) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), w = b.input({f32, {4, 6}});
  const Program p = b.take(Values{tanh(einsum("bi,io->bo", x, w))});
  const Placement backwards = place(p, kTwo, {}, {kRows});
  EXPECT_EQ(backwards.lane_specs[p.inputs[0]], kRows);
  EXPECT_EQ(backwards.lane_specs[p.inputs[1]], kWhole);
  EXPECT_EQ(backwards.reasons[p.outputs[0]], "output 0");
  EXPECT_EQ(backwards.reasons[p.inputs[0]], "equation 0 (einsum)");
  const Placement held = place(p, kTwo, {kWhole}, {kRows});
  EXPECT_EQ(held.lane_specs[p.inputs[0]], kWhole);
}

// The types that a lane computes, one line each: `random_bits u32[4,3]`.
Lines results_of(const Program& p, const LaneGrid& grid, const LaneConstraints& in, const LaneConstraints& out,
                 int64_t lane) {
  const Program local = partition(p, grid, place(p, grid, in, out), lane);
  Lines lines;
  for (const Eqn& eqn : local.eqns)
    lines.push_back(fmt::format("{} {}", eqn.op->name, to_string(local.types[eqn.out[0]])));
  return lines;
}

TEST(Partition, LaneComputesOnlyItsPieceOfBitsAndIotas) {
  Builder b;
  const Value key = b.input({u32, {2}});
  const Program p = b.take(Values{random_bits(key, {5, 4}), iota(b, {i32, {5}}, 0)});
  const LaneConstraints cut{kRows, LaneSpec{{"data"}}};
  EXPECT_EQ(results_of(p, kTwo, {}, cut, 0), Lines({"random_bits u32[3,4]", "iota i32[3]"}));
  EXPECT_EQ(results_of(p, kTwo, {}, cut, 1), Lines({"random_bits u32[2,4]", "iota i32[2]"}));
}

Program reshaped(const Shape& from, const Shape& to) {
  Builder b;
  return b.take(Values{tanh(reshape(b.input({f32, from}), to))});
}

TEST(Partition, CutPassesThroughReshapesThatKeepItsBoundaries) {
  EXPECT_EQ(results_of(reshaped({12, 5}, {6, 2, 5}), kTwo, {kRows}, {}, 1),
            Lines({"reshape f32[3,2,5]", "tanh f32[3,2,5]"}));
  EXPECT_EQ(results_of(reshaped({4, 3, 5}, {60}), kTwo, {LaneSpec{{"data"}, {}, {}}}, {}, 1),
            Lines({"reshape f32[30]", "tanh f32[30]"}));
  // The halves of [6, 2] and [4, 3] are the same elements.
  EXPECT_EQ(results_of(reshaped({6, 2}, {4, 3}), kTwo, {kRows}, {}, 1), Lines({"reshape f32[2,3]", "tanh f32[2,3]"}));
  EXPECT_EQ(results_of(reshaped({1, 8}, {8, 1}), kTwo, {kColumns}, {}, 1),
            Lines({"reshape f32[4,1]", "tanh f32[4,1]"}));
}

// 6 rows are split into 3 and 3, but 3 blocks into 2 and 1.
TEST(Partition, CutStopsAtReshapesWhoseBoundariesDiffer) {
  EXPECT_EQ(results_of(reshaped({6, 5}, {3, 2, 5}), kTwo, {kRows}, {}, 1),
            Lines({"lane_all_gather f32[6,5]", "reshape f32[3,2,5]", "tanh f32[3,2,5]"}));
}

TEST(Partition, CutByTwoAxesPassesAsFarAsBoundariesAgree) {
  EXPECT_EQ(results_of(reshaped({8, 5}, {2, 4, 5}), kGrid, {LaneSpec{{"data", "model"}, {}}}, {}, 1),
            Lines({"lane_all_gather f32[4,5]", "reshape f32[1,4,5]", "tanh f32[1,4,5]"}));
}

TEST(Partition, BroadcastOperandMovesInsteadOfTheResult) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), bias = b.input({f32, {4}});
  const Program p = b.take(Values{add(x, broadcast(bias, {8, 4}, {1}))});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, LaneSpec{{"data"}}}, {kRows}), Lines({"lane_all_gather data f32[2]"}));
}

TEST(Partition, RowsWithCutIndicesAreGatheredWithoutCollectives) {
  Builder b;
  const Value images = b.input({u8, {60, 7}}), rows = b.input({i32, {8}});
  const Program p = b.take(Values{gather(images, rows, 0)});
  EXPECT_EQ(collectives_of(p, kTwo, {kWhole, LaneSpec{{"data"}}}, {kRows}), Lines());
}

TEST(Partition, SumOverTwoAxesIsScatteredOverBothAtOnce) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), ct = b.input({f32, {8, 6}});
  const Program p = b.take(Values{einsum("bi,bo->io", x, ct)});
  const LaneSpec both{{"data", "model"}, {}}, apart{{"data"}, {"model"}};
  EXPECT_EQ(collectives_of(p, kGrid, {both, both}, {both}), Lines({"lane_reduce_scatter data,model f32[4,6]"}));
  EXPECT_EQ(collectives_of(p, kGrid, {both, both}, {apart}),
            Lines({"lane_reduce_scatter data f32[4,6]", "lane_reduce_scatter model f32[6,2]"}));
}

TEST(Partition, SumIsReducedBeforePiecesAreGathered) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), ct = b.input({f32, {8, 6}});
  const Program p = b.take(Values{einsum("bi,bo->io", x, ct)});
  EXPECT_EQ(collectives_of(p, kGrid, {kRows, LaneSpec{{"data"}, {"model"}}}, {kWhole}),
            Lines({"lane_all_reduce data f32[4,3]", "lane_all_gather model f32[3,4]"}));
}

TEST(Partition, SumWithSeveralUsesIsReducedOnce) {
  Builder b;
  const Value x = b.input({f32, {8, 4}}), ct = b.input({f32, {8, 6}});
  const Value sum = einsum("bi,bo->io", x, ct);
  const Program p = b.take(Values{sum, tanh(sum), reduce_sum(sum, {0, 1})});
  EXPECT_EQ(collectives_of(p, kTwo, {kRows, kRows}, {}), Lines({"lane_all_reduce data f32[4,6]"}));
}

TEST(Partition, OutputMayBeAnInputOrOccurTwice) {
  Builder b;
  const Value x = b.input({f32, {8, 4}});
  const Value y = tanh(x);
  const Program p = b.take(Values{x, y, y, x});
  const Placement placement = place(p, kTwo, {kRows}, {kWhole, kWhole, kRows, kWhole});
  EXPECT_EQ(placement.lane_specs[p.outputs[0]], kRows);
  EXPECT_EQ(placement.lane_specs[p.outputs[2]], kWhole);
  EXPECT_EQ(collectives(partition(p, kTwo, placement, 0)), Lines({"lane_all_gather data f32[4,4]"}));
}

// Programs that random generation rarely produces, with random lane specs.
class Chosen {
 public:
  explicit Chosen(const std::function<Values(Builder&, const Values&)>& f, const std::vector<Type>& types) {
    Builder b;
    Values in;
    for (const Type& t : types) in.push_back(b.input(t));
    r_.program = b.take(f(b, in));
    r_.error.assign(r_.program.outputs.size(), 0);
    for (const Type& t : types) {
      HostArray x(t);
      for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i * 7 % 23));
      r_.inputs.push_back(std::move(x));
    }
  }
  // Integers, so that sums are exact in any order.
  void expect_same_on_lanes() const {
    for (uint32_t seed = 0; seed < 150; ++seed)
      ASSERT_EQ(difference_on_lanes(r_, seed), "") << "seed " << seed << "\n" << print(r_.program);
  }

 private:
  RandomProgram r_;
};

TEST(Partition, BitsAndIotasDoNotDependOnCuts) {
  Chosen(
      [](Builder& b, const Values& v) {
        return Values{random_bits(v[0], {5, 4, 3}), random_bits(v[1], {6, 2}), iota(b, {i64, {7, 3}}, 0),
                      iota(b, {u8, {2, 5, 6}}, 1)};
      },
      {{u32, {2}}, {u32, {3, 2}}})
      .expect_same_on_lanes();
}

TEST(Partition, ReshapesDoNotDependOnCuts) {
  Chosen(
      [](Builder&, const Values& v) {
        const Value a = reshape(neg(v[0]), {3, 4, 5}), c = reshape(neg(v[1]), {24}),
                    d = reshape(neg(v[2]), {4, 3, 1, 2});
        return Values{
            neg(a), neg(c), neg(d), reshape(neg(a), {12, 5}), reshape(neg(c), {1, 6, 4}), reshape(d, {12, 2})};
      },
      {{f32, {12, 5}}, {f32, {4, 2, 3}}, {f32, {6, 4}}})
      .expect_same_on_lanes();
}

TEST(Partition, SumsOverSeveralAxesDoNotDependOnCuts) {
  Chosen(
      [](Builder&, const Values& v) {
        const Value g = einsum("bi,bo->io", v[0], v[1]), h = einsum("bi,bo->io", v[1], v[0]);
        const Value sum = add(g, transpose(h, {1, 0})), top = reduce_max(v[0], {0}),
                    low = reduce_min(mul(v[1], v[1]), {0, 1});
        return Values{g, sum, reduce_sum(sum, {1}), mul(sum, sum), top, low, reduce_max(g, {0, 1})};
      },
      {{f64, {6, 4}}, {f64, {6, 3}}})
      .expect_same_on_lanes();
}

TEST(Partition, EmptyPiecesAreSupported) {
  Chosen(
      [](Builder&, const Values& v) {
        return Values{reduce_max(v[0], {0}),           reduce_min(v[0], {1}),     reduce_sum(v[1], {0}), neg(v[1]),
                      einsum("bi,bo->io", v[0], v[0]), reshape(neg(v[1]), {3, 0})};
      },
      {{f64, {2, 3}}, {f64, {0, 3}}})
      .expect_same_on_lanes();
}

}  // namespace
}  // namespace lockstep
