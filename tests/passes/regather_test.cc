// Weights gathered for the forward pass and again for the backward pass.
#include "passes/regather.h"

#include <gtest/gtest.h>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/collectives_text.h"

namespace lockstep {
namespace {

// Layers whose weights, two pieces of [32, 64], are used once in the forward and once in the backward pass.
Program forwards_and_backwards(size_t n, bool transposed = false, bool computed = false) {
  Builder b;
  Value x = b.input({f32, {64, 64}});
  Values pieces, weights;
  for (size_t i = 0; i < n; ++i) pieces.push_back(b.input({f32, {32, 64}}));
  for (const Value& piece : pieces) {
    const Value from = computed ? einsum("ij,jk->ik", piece, b.input({f32, {64, 64}})) : piece;
    const Value all = lane_all_gather(from, kData, {32, 32});
    weights.push_back(transposed ? transpose(all, {1, 0}) : all);
    x = einsum("ij,jk->ik", x, weights.back());
  }
  for (size_t i = n; i-- > 0;) x = einsum("ij,kj->ik", x, weights[i]);
  return b.take(Values{x});
}

std::vector<Regather> chosen(const Program& p, size_t keep) {
  return choose_regathers(p, {.keep_within = keep, .min_bytes = 0});
}

TEST(Regather, FreesWeightsThatTheNextProductsDoNotUse) {
  // gather 0, einsum 1, gather 2, einsum 3, gather 4, einsum 5; backward einsums 6, 7, 8.
  const Program p = forwards_and_backwards(3);
  EXPECT_EQ(chosen(p, 0), (std::vector<Regather>{{2, 7}, {0, 8}}));
  EXPECT_EQ(chosen(p, 2), (std::vector<Regather>{{0, 8}}));
  EXPECT_EQ(chosen(p, 4), std::vector<Regather>{});
  EXPECT_EQ(ops_of(apply_regathers(p, chosen(p, 2))),
            Lines({"lane_all_gather data 1", "einsum", "lane_all_gather data 1", "einsum", "lane_all_gather data 1",
                   "einsum", "einsum", "einsum", "lane_all_gather data 1", "einsum"}));
}

TEST(Regather, ViewsAreRepeatedOnTheNewGather) {
  const Program p = forwards_and_backwards(3, true);
  const Program again = apply_regathers(p, chosen(p, 2));
  check(again);
  const size_t n = again.eqns.size();
  EXPECT_EQ(ops_of(again)[n - 3], "lane_all_gather data 1");
  EXPECT_EQ(again.eqns[n - 2].in, again.eqns[n - 3].out) << print(again);
  EXPECT_EQ(again.eqns[n - 1].in[1], again.eqns[n - 2].out[0]) << print(again);
}

TEST(Regather, KeepsSmallAndComputedArrays) {
  const Program p = forwards_and_backwards(4);
  EXPECT_EQ(choose_regathers(p, {.keep_within = 0, .min_bytes = (64 * 64 * 4) + 1}), std::vector<Regather>{});
  EXPECT_EQ(choose_regathers(p, {.keep_within = 0, .min_bytes = 64 * 64 * 4}).size(), 3u);
  EXPECT_EQ(chosen(forwards_and_backwards(4, false, true), 0), std::vector<Regather>{});
}

// A cast of an input is cheap: the piece is small, the gathered array is not.
TEST(Regather, CastWeightsAreGatheredAgain) {
  Builder b;
  Value x = b.input({bf16, {64, 64}});
  const Value piece = b.input({f32, {32, 64}});
  const Value all = lane_all_gather(cast(piece, bf16), kData, {32, 32});
  x = einsum("ij,jk->ik", x, all);
  for (int i = 0; i < 3; ++i) x = einsum("ij,jk->ik", x, x);
  const Program p = b.take(Values{einsum("ij,kj->ik", x, all)});
  EXPECT_EQ(chosen(p, 2), (std::vector<Regather>{{1, 6}}));
}

TEST(Regather, ProgramWithoutGathersIsUnchanged) {
  Builder b;
  const Value x = b.input({f32, {64, 64}});
  const Program p = b.take(Values{einsum("ij,jk->ik", x, tanh(x))});
  EXPECT_EQ(apply_regathers(p, chosen(p, 0)), p);
}

}  // namespace
}  // namespace lockstep
