// In what tiles products of steps are computed on a GPU. Needs none.
#ifdef LOCKSTEP_WITH_CUDA
#include "ops/cuda/gemm_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace lockstep {
namespace {

constexpr int kProcessors = 132;
constexpr int64_t kShared = 227 << 10;

TEST(GemmChoice, FewTilesAreSharedAlongTheSum) {
  const auto choice = choose_tiles({.m = 128, .n = 10, .k = 1024}, kProcessors, kShared);
  ASSERT_TRUE(choice);
  EXPECT_GT(choice->splits, 1);
  EXPECT_LE(choice->tiles * choice->splits, kProcessors);
}

TEST(GemmChoice, ManyTilesAreNot) {
  const auto choice = choose_tiles({.m = 4096, .n = 4096, .k = 128}, kProcessors, kShared);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->splits, 1);
}

TEST(GemmChoice, AShareOfTheGpuGetsFewerAndLargerTiles) {
  const GemmSpec g{.m = 1024, .n = 1024, .k = 128};
  const auto all = choose_tiles(g, kProcessors, kShared), share = choose_tiles(g, 74, kShared);
  ASSERT_TRUE(all && share);
  EXPECT_LE(all->tiles, kProcessors);
  EXPECT_LE(share->tiles, 74);
}

// Blocks that wait for each other must all be there, and a block has no more memory than there is.
TEST(GemmChoice, NeverTakesMoreThanThereIs) {
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
    for (const int64_t shared : {48 << 10, 99 << 10, 163 << 10, 227 << 10}) {
      SCOPED_TRACE(fmt::format("{} x {} x {} on {} processors with {} bytes", g.m, g.n, g.k, processors, shared));
      const auto choice = choose_tiles(g, processors, shared);
      ASSERT_TRUE(choice);
      EXPECT_LE(choice->shared_bytes, shared);
      EXPECT_TRUE(std::has_single_bit(static_cast<uint64_t>(choice->splits)));
      EXPECT_TRUE(choice->splits == 1 || choice->tiles * choice->splits <= processors) << choice->splits;
      EXPECT_GE(choice->stages, 2);
      EXPECT_GE(choice->tiles * choice->tile.tall * choice->tile.wide, g.m * g.n);
    }
  }
}

}  // namespace
}  // namespace lockstep
#endif
