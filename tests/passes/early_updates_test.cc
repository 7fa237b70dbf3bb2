// Optimizer updates that move up to where their gradient is scattered: which move, and which do not.
#include "passes/early_updates.h"

#include <gtest/gtest.h>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/collectives_text.h"

namespace lockstep {
namespace {

// The backward pass of layers whose weights are w [32, 64] on each of two lanes, then an update and a norm of each.
// `clipped`: the updates depend on a sum over lanes of all norms.
Program backwards(size_t layers, bool clipped = false) {
  Builder b;
  Value x = b.input({f32, {64, 64}});
  Values weights, gradients, norms, out;
  for (size_t i = 0; i < layers; ++i) weights.push_back(b.input({f32, {32, 64}}));
  for (const Value& w : weights) {
    gradients.push_back(lane_reduce_scatter(einsum("ij,ik->jk", x, x), kData, {32, 32}, PendingReduction::sum));
    x = einsum("ij,jk->ik", x, lane_all_gather(w, kData, {32, 32}));
  }
  for (const Value& g : gradients) norms.push_back(reduce_sum(mul(g, g), {0, 1}));
  if (clipped) norms = lane_all_reduce(norms, kData, PendingReduction::sum);
  for (size_t i = 0; i < layers; ++i) {
    const Value step = clipped ? mul(gradients[i], broadcast(norms[i], {32, 64}, {})) : gradients[i];
    out.push_back(sub(weights[i], step));
  }
  out.insert(out.end(), norms.begin(), norms.end());
  return b.take(out);
}

Lines reordered_ops(const Program& p, const EarlyUpdateOptions& options) {
  Program out = p;
  out.eqns.clear();
  for (size_t i : order_updates_early(p, options)) out.eqns.push_back(p.eqns[i]);
  check(out);
  return ops_of(out);
}

constexpr EarlyUpdateOptions kAll{.min_bytes = 1};

// The scatter has the time of one product. The update comes after the weights have been gathered, because it may
// overwrite them.
TEST(EarlyUpdates, UpdatesFollowTheirGradient) {
  EXPECT_EQ(
      reordered_ops(backwards(2), kAll),
      Lines({"einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum", "sub",
             "einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum", "sub"}));
  EXPECT_EQ(
      reordered_ops(backwards(2), {.min_bytes = 1, .scatter_wait = 0}),
      Lines({"einsum", "lane_reduce_scatter data 1", "mul", "reduce_sum", "lane_all_gather data 1", "sub", "einsum",
             "einsum", "lane_reduce_scatter data 1", "mul", "reduce_sum", "lane_all_gather data 1", "sub", "einsum"}));
}

TEST(EarlyUpdates, UpdatesThatDependOnAllGradientsStay) {
  EXPECT_EQ(reordered_ops(backwards(2, true), kAll),
            Lines({"einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum",
                   "einsum", "lane_reduce_scatter data 1", "lane_all_gather data 1", "einsum", "mul", "reduce_sum",
                   "lane_all_reduce data 2", "broadcast", "mul", "sub", "broadcast", "mul", "sub"}));
}

TEST(EarlyUpdates, SmallPiecesStay) {
  const Program p = backwards(2);
  EXPECT_EQ(reordered_ops(p, {.min_bytes = 32 * 64 * 4 + 1}), ops_of(p));
  EXPECT_NE(reordered_ops(p, {.min_bytes = 32 * 64 * 4}), ops_of(p));
  EXPECT_EQ(reordered_ops(p, {}), ops_of(p));
}

TEST(EarlyUpdates, ValuesComputedFromInputsMoveWithTheirUpdate) {
  Builder b;
  const Value x = b.input({f32, {64, 64}}), m = b.input({f32, {32, 64}});
  const Value g = lane_reduce_scatter(einsum("ij,ik->jk", x, x), kData, {32, 32}, PendingReduction::sum);
  const Value y = einsum("ij,jk->ik", einsum("ij,jk->ik", x, x), x);
  const Value half = mul(m, full_like(m, 0.5));
  EXPECT_EQ(reordered_ops(b.take(Values{y, add(half, g)}), kAll),
            Lines({"einsum", "lane_reduce_scatter data 1", "einsum", "full", "mul", "add", "einsum"}));
}

}  // namespace
}  // namespace lockstep
