#include "plan/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace lockstep {
namespace {

bool alive_together(const ArenaBlock& a, const ArenaBlock& b) { return a.first <= b.last && b.first <= a.last; }
bool overlap(const ArenaBlock& a, const ArenaBlock& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST(AssignOffsets, NoBlocksNeedNoMemory) {
  std::vector<ArenaBlock> none;
  EXPECT_EQ(assign_offsets(none), 0);
}

TEST(AssignOffsets, BlocksWithDisjointLifetimesShareMemory) {
  std::vector<ArenaBlock> blocks{{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 9}};
  EXPECT_EQ(assign_offsets(blocks), 1024);
  for (const ArenaBlock& b : blocks) EXPECT_EQ(b.offset, 0);
}

TEST(AssignOffsets, ChainNeedsTwoBlocks) {
  std::vector<ArenaBlock> blocks;
  for (int t = 0; t < 10; ++t) blocks.push_back({640, t, t + 1});
  EXPECT_EQ(assign_offsets(blocks), 2 * 640);
}

TEST(AssignOffsets, SmallBlocksFillGaps) {
  // The second large block is above the first; the small one fits where the first was.
  std::vector<ArenaBlock> blocks{{4096, 0, 2}, {2048, 1, 5}, {64, 3, 5}};
  EXPECT_EQ(assign_offsets(blocks), 4096 + 2048);
  EXPECT_LT(blocks[2].offset, 4096);
}

TEST(AssignOffsets, RandomBlocksNeverOverlapWhileAlive) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaBlock> blocks;
    const int n = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < n; ++i) {
      const int first = static_cast<int>(random() % 30);
      blocks.push_back({static_cast<int64_t>(random() % 5000), first, first + static_cast<int>(random() % 10)});
    }
    const int64_t total = assign_offsets(blocks);
    int64_t sum = 0;
    for (const ArenaBlock& a : blocks) {
      EXPECT_EQ(a.offset % 64, 0);
      EXPECT_LE(a.offset + a.bytes, total);
      sum += (a.bytes + 63) / 64 * 64;
      for (const ArenaBlock& b : blocks)
        EXPECT_FALSE(&a != &b && alive_together(a, b) && overlap(a, b)) << "round " << round;
    }
    EXPECT_LE(total, sum);
  }
}

// The lowest offset at which a block fits, found by trying.
int64_t lowest_fit(const std::vector<ArenaBlock>& placed, const ArenaBlock& block) {
  ArenaBlock at = block;
  const auto taken = [&] {
    return std::any_of(placed.begin(), placed.end(),
                       [&](const ArenaBlock& other) { return alive_together(at, other) && overlap(at, other); });
  };
  for (at.offset = 0; taken();) at.offset += 64;
  return at.offset;
}

TEST(AssignOffsets, LargerBlocksComeFirstIntoTheLowestGap) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<ArenaBlock> blocks;
    for (int i = static_cast<int>(random() % 40); i >= 0; --i) {
      const int first = static_cast<int>(random() % 30), last = first + static_cast<int>(random() % 30);
      blocks.push_back({static_cast<int64_t>(64 * (random() % (random() % 2 ? 4 : 20))), first,
                        random() % 8 == 0 ? std::numeric_limits<int>::max() : last});
    }
    std::stable_sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    assign_offsets(blocks);
    std::vector<ArenaBlock> placed;
    for (const ArenaBlock& block : blocks) {
      ASSERT_EQ(block.offset, lowest_fit(placed, block)) << "round " << round;
      placed.push_back(block);
    }
  }
}

// The values that a gradient keeps: the first is needed last.
TEST(AssignOffsets, ManyBlocksThatLiveTogetherLieSideBySide) {
  constexpr int kBlocks = 200000;
  std::vector<ArenaBlock> blocks;
  for (int i = 0; i < kBlocks; ++i) blocks.push_back({12, i, 2 * kBlocks - i});
  EXPECT_EQ(assign_offsets(blocks), 64 * kBlocks);
}

}  // namespace
}  // namespace lockstep
