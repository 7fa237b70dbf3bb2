// The selection of tiles for matrix products on a GPU. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include "ops/cuda/gemm_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "ops/cuda/cost_model.h"

namespace lockstep {
namespace {

constexpr int kProcessors = 132;
constexpr int64_t kShared = 227 << 10;

TEST(GemmChoice, FewTilesAreSplitAlongK) {
  const auto choice = choose_tiles({.m = 128, .n = 10, .k = 1024}, kProcessors, kShared);
  ASSERT_TRUE(choice);
  EXPECT_GT(choice->tile.splits, 1);
  EXPECT_LE(choice->blocks(), kProcessors);
}

TEST(GemmChoice, ManyTilesAreNotSplit) {
  const auto choice = choose_tiles({.m = 4096, .n = 4096, .k = 128}, kProcessors, kShared);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->tile.splits, 1);
}

TEST(GemmChoice, FewerProcessorsGetFewerAndLargerTiles) {
  const GemmSpec g{.m = 1024, .n = 1024, .k = 128};
  const auto all = choose_tiles(g, kProcessors, kShared), share = choose_tiles(g, 74, kShared);
  ASSERT_TRUE(all && share);
  EXPECT_LE(all->tiles, kProcessors);
  EXPECT_LE(share->tiles, 74);
}

// Thread blocks that wait for each other must all be resident, and shared memory is limited.
TEST(GemmChoice, StaysWithinProcessorsAndSharedMemory) {
  std::mt19937 random(20261115);
  const auto below = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int i = 0; i < 2000; ++i) {
    const GemmSpec g{.dtype = i % 3 == 0 ? DType::f32 : DType::bf16,
                     .m = below(2000),
                     .n = below(2000),
                     .k = below(5000),
                     .transpose_a = random() % 2 == 0,
                     .transpose_b = random() % 2 == 0};
    const auto processors = static_cast<int>(below(200));
    const auto some = [&] {
      return g.dtype == DType::bf16 && random() % 2 == 0 ? GemmOperand::rounded : GemmOperand::read;
    };
    const GemmSources sources{some(), some()};
    for (const int64_t shared : {48 << 10, 99 << 10, 163 << 10, 227 << 10}) {
      SCOPED_TRACE(fmt::format("{} x {} x {} on {} processors with {} bytes", g.m, g.n, g.k, processors, shared));
      const auto choice = choose_tiles(g, processors, shared, sources);
      ASSERT_TRUE(choice);
      EXPECT_LE(choice->shared_bytes, shared);
      EXPECT_TRUE(std::has_single_bit(static_cast<uint64_t>(choice->tile.splits)));
      EXPECT_TRUE(choice->tile.splits == 1 || choice->blocks() <= processors) << choice->tile.splits;
      EXPECT_GE(choice->tile.stages, 2);
      EXPECT_GE(choice->tiles * choice->tile.tall * choice->tile.wide, g.m * g.n);
    }
  }
}

// For a tile of 16 x 16 and 128 elements of the sum.
TEST(GemmChoice, RoundedOperandsTakeTwiceTheSharedMemory) {
  const auto bytes = [](bool ta, bool tb, GemmSources sources) {
    const GemmSpec g{.dtype = DType::bf16, .m = 16, .n = 16, .k = 128, .transpose_a = ta, .transpose_b = tb};
    const auto choice = choose_tiles(g, kProcessors, kShared, sources);
    EXPECT_EQ(choice->tile.tall * choice->tile.wide * choice->tile.splits, 256);
    return choice->shared_bytes;
  };
  const GemmSources a{.a = GemmOperand::rounded}, b{.b = GemmOperand::rounded},
      both{GemmOperand::rounded, GemmOperand::rounded};
  EXPECT_EQ(bytes(false, false, a), 16 * (128 + 8) * 4 + 128 * (16 + 8) * 2);
  EXPECT_EQ(bytes(false, false, b), 16 * (128 + 8) * 2 + 128 * (16 + 4) * 4);
  EXPECT_EQ(bytes(true, true, a), 128 * (16 + 4) * 4 + 16 * (128 + 8) * 2);
  EXPECT_EQ(bytes(true, true, b), 128 * (16 + 8) * 2 + 16 * (128 + 8) * 4);
  EXPECT_EQ(bytes(true, false, both), 2 * 128 * (16 + 4) * 4);
}

// Every row of tiles reads all of the weights: with many rows it is cheaper to round them once in advance.
TEST(GemmChoice, RoundingIsWorthwhileForFewRows) {
  const GemmSources b{.b = GemmOperand::rounded};
  const auto is_worth_it = [&](int64_t m, int64_t n, bool tb) {
    return is_worth_rounding({.dtype = DType::bf16, .m = m, .n = n, .k = n, .transpose_b = tb}, kProcessors, kShared,
                             b);
  };
  for (const bool tb : {false, true}) {
    EXPECT_TRUE(is_worth_it(128, 256, tb));
    EXPECT_TRUE(is_worth_it(128, 1024, tb));
    EXPECT_FALSE(is_worth_it(1024, 1024, tb));
  }
  EXPECT_TRUE(is_worth_rounding({.dtype = DType::bf16, .m = 128, .n = 256, .k = 784}, kProcessors, kShared, b));
}

// Each pass takes two dependent loads. A choice that computes the operand in one pass is preferred, even if fewer
// splits would need fewer partial sums.
TEST(GemmChoice, ComputedOperandsAreComputedInOnePass) {
  const GemmSpec g{.dtype = DType::bf16, .m = 128, .n = 1024, .k = 784};
  const auto held = [&](GemmOperand a) {
    const std::optional<GemmChoice> choice = choose_tiles(g, kProcessors, kShared, {a, GemmOperand::rounded});
    const CudaTile& tile = choice->tile;
    const int64_t stages = (g.k + tile.deep - 1) / tile.deep;
    return tile.tall * ((stages + tile.splits - 1) / tile.splits) * tile.deep;
  };
  EXPECT_LE(held(GemmOperand::computed), cost_model::kComputedAtOnce);
  EXPECT_GT(held(GemmOperand::read), cost_model::kComputedAtOnce);
}

TEST(GemmChoice, FixedTileIsLaidOutLikeTheSameTileChosen) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const GemmSpec g{.dtype = dtype, .m = 128, .n = 1024, .k = 784};
    const auto chosen = choose_tiles(g, kProcessors, kShared);
    ASSERT_TRUE(chosen);
    for (const bool given : {true, false}) {  // the depth and the stages are given or chosen
      CudaTile tile = chosen->tile;
      if (!given) tile.deep = tile.stages = 0;
      const auto fixed = choose_tiles(g, kProcessors, kShared, {}, 0, tile);
      ASSERT_TRUE(fixed);
      EXPECT_EQ(fixed->tile, chosen->tile);
      EXPECT_EQ(fixed->tiles, chosen->tiles);
      EXPECT_EQ(fixed->shared_bytes, chosen->shared_bytes);
      EXPECT_EQ(fixed->nanoseconds, chosen->nanoseconds);
    }
  }
}

TEST(GemmChoice, EveryTileOfTheCostModelCanBeFixed) {
  for (const CudaTile& tile : cost_model::kGemmTiles) {
    const auto fixed = choose_tiles({.m = 128, .n = 128, .k = 512}, kProcessors, kShared, {}, 0, tile);
    ASSERT_TRUE(fixed);
    EXPECT_EQ(fixed->tile.tall, tile.tall);
    EXPECT_EQ(fixed->tile.wide, tile.wide);
    EXPECT_EQ(fixed->tiles, 128 * 128 / (tile.tall * tile.wide));
  }
}

TEST(GemmChoice, FixedTilesThatDoNotFitAreRejected) {
  const GemmSpec g{.m = 1024, .n = 1024, .k = 1024};
  const auto fits = [&](const CudaTile& tile, int64_t shared = kShared, GemmSources sources = {}) {
    return choose_tiles(g, kProcessors, shared, sources, 0, tile).has_value();
  };
  const CudaTile large{.tall = 128, .wide = 128, .warp_rows = 4, .warp_cols = 4};
  const auto changed = [&](auto change) {
    CudaTile tile = large;
    change(tile);
    return tile;
  };
  EXPECT_TRUE(fits(large));
  EXPECT_FALSE(fits(large, 64 << 10));
  EXPECT_FALSE(fits(large, kShared, {.a = GemmOperand::computed}));                      // 512 KiB of the operand
  EXPECT_FALSE(fits(changed([](CudaTile& tile) { tile.splits = 4; })));                  // 256 thread blocks
  EXPECT_FALSE(fits(changed([](CudaTile& tile) { tile.splits = 3; })));                  // no power of two
  EXPECT_FALSE(fits(changed([](CudaTile& tile) { tile.tall = 96; })));                   // no kernel
  EXPECT_FALSE(fits(changed([](CudaTile& tile) { tile.deep = 12; })));                   // the tensor cores add up 8
  EXPECT_FALSE(fits(changed([](CudaTile& tile) { tile.stages = 1; })));                  // nothing to prefetch into
  EXPECT_FALSE(fits(changed([](CudaTile& tile) { tile.stages = 6, tile.deep = 64; })));  // 408 KiB
}

}  // namespace
}  // namespace lockstep
#endif
