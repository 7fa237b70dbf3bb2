// Updates that come as soon as their gradient is there: what moves, and what must wait.
#include "passes/settle.h"

#include <gtest/gtest.h>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/meetings.h"

namespace lockstep {
namespace {

// Backwards through layers whose weights are w [32, 64] on each of two lanes, then an update and a norm of each.
// `clipped`: the updates wait for a sum over lanes of all norms.
Program backwards(size_t layers, bool clipped = false) {
  Builder b;
  Value x = b.input({f32, {64, 64}});
  Values weights, gradients, norms, out;
  for (size_t i = 0; i < layers; ++i) weights.push_back(b.input({f32, {32, 64}}));
  for (const Value& w : weights) {
    gradients.push_back(lane_reduce_scatter(einsum("ij,ik->jk", x, x), kData, {32, 32}, Owed::sum));
    x = einsum("ij,jk->ik", x, lane_all_gather(w, kData, {32, 32}));
  }
  for (const Value& g : gradients) norms.push_back(reduce_sum(mul(g, g), {0, 1}));
  if (clipped) norms = lane_all_reduce(norms, kData, Owed::sum);
  for (size_t i = 0; i < layers; ++i) {
    const Value step = clipped ? mul(gradients[i], broadcast(norms[i], {32, 64}, {})) : gradients[i];
    out.push_back(sub(weights[i], step));
  }
  out.insert(out.end(), norms.begin(), norms.end());
  return b.take(out);
}

Lines settled_ops(const Program& p, const SettleOptions& options) {
  Program out = p;
  out.eqns.clear();
  for (size_t i : settled(p, options)) out.eqns.push_back(p.eqns[i]);
  check(out);
  return ops_of(out);
}

constexpr SettleOptions kAll{.least_bytes = 1};

// The scatter has the time of one product; and the update waits until the weights have been gathered, because it may be
// written over them.
TEST(Settle, UpdatesComeWhenTheirGradientIsThere) {
  EXPECT_EQ(
      settled_ops(backwards(2), kAll),
      Lines({"einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum", "sub",
             "einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum", "sub"}));
  EXPECT_EQ(
      settled_ops(backwards(2), {.least_bytes = 1, .wait = 0}),
      Lines({"einsum", "lane_reduce_scatter data 1", "mul", "reduce_sum", "lane_all_gather data 1", "sub", "einsum",
             "einsum", "lane_reduce_scatter data 1", "mul", "reduce_sum", "lane_all_gather data 1", "sub", "einsum"}));
}

TEST(Settle, WhatWaitsForAllGradientsStays) {
  EXPECT_EQ(settled_ops(backwards(2, true), kAll),
            Lines({"einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum",
                   "einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum",
                   "lane_all_reduce data 2", "broadcast", "mul", "sub", "broadcast", "mul", "sub"}));
}

TEST(Settle, SmallPartsStay) {
  const Program p = backwards(2);
  EXPECT_EQ(settled_ops(p, {.least_bytes = 32 * 64 * 4 + 1}), ops_of(p));
  EXPECT_NE(settled_ops(p, {.least_bytes = 32 * 64 * 4}), ops_of(p));
  EXPECT_EQ(settled_ops(p, {}), ops_of(p));
}

// What an update makes of inputs alone comes with it.
TEST(Settle, WhatIsMadeOfInputsComesAlong) {
  Builder b;
  const Value x = b.input({f32, {64, 64}}), m = b.input({f32, {32, 64}});
  const Value g = lane_reduce_scatter(einsum("ij,ik->jk", x, x), kData, {32, 32}, Owed::sum);
  const Value y = einsum("ij,jk->ik", einsum("ij,jk->ik", x, x), x);
  const Value half = mul(m, full_like(m, 0.5));
  EXPECT_EQ(settled_ops(b.take(Values{y, add(half, g)}), kAll),
            Lines({"einsum", "lane_reduce_scatter data 1", "einsum", "full", "mul", "add", "einsum"}));
}

}  // namespace
}  // namespace lockstep
