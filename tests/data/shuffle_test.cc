#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "lockstep/loader.h"

namespace lockstep {
namespace {

std::vector<int64_t> order(int64_t n, uint64_t seed, int64_t epoch, int64_t positions = -1) {
  const Shuffle shuffle(n, seed, epoch);
  std::vector<int64_t> examples;
  for (int64_t position = 0; position < (positions < 0 ? n : positions); ++position)
    examples.push_back(shuffle(position));
  return examples;
}

// How far counts are from being equal: the z-score of a chi-square test.
double z_score(const std::vector<int64_t>& counts) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const int64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    chi_square += off * off / expected;
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  return std::abs(chi_square - freedom) / std::sqrt(2 * freedom);
}
constexpr double kMaxZScore = 5;

TEST(Shuffle, IsAPermutation) {
  std::vector<int64_t> sizes = {60000, 65280, 65281, 65535, 65536, 65537, 65521, 99991};
  for (int64_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (int64_t n = 512; n <= 32768; n *= 2) sizes.insert(sizes.end(), {n - 1, n, n + 1});
  for (const int64_t n : sizes) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      std::vector<bool> seen(static_cast<size_t>(n));
      for (const int64_t example : order(n, seed, n % 7)) {
        ASSERT_TRUE(example >= 0 && example < n) << n;
        ASSERT_FALSE(seen[static_cast<size_t>(example)]) << example << " of " << n << " appears twice";
        seen[static_cast<size_t>(example)] = true;
      }
    }
  }
}

// Golden values: a run resumed by another version or on another machine must continue in the same order.
TEST(Shuffle, NeverChanges) {
  using Order = std::vector<int64_t>;
  EXPECT_EQ(order(10, 0, 0), (Order{3, 9, 2, 6, 7, 1, 0, 8, 5, 4}));
  EXPECT_EQ(order(10, 0, 1), (Order{5, 1, 9, 2, 3, 8, 4, 6, 0, 7}));
  EXPECT_EQ(order(10, 1, 0), (Order{3, 2, 5, 0, 1, 4, 7, 6, 8, 9}));
  EXPECT_EQ(order(60000, 7, 3, 10), (Order{42758, 21942, 26150, 25280, 48620, 36419, 46075, 28937, 41424, 44485}));
  EXPECT_EQ(order(3000000000, 0xfedcba9876543210, 1000000, 10),
            (Order{1440124194, 2353231990, 1295827032, 633607923, 615140599, 1468046053, 229465204, 932013040,
                   1227804388, 2666253360}));
}

TEST(Shuffle, LargestSetsStayInRange) {
  constexpr int64_t kN = std::numeric_limits<int64_t>::max();
  for (const int64_t position : {int64_t{0}, kN / 2, kN - 1}) {
    const int64_t example = Shuffle(kN, 3, 4)(position);
    EXPECT_GE(example, 0);
    EXPECT_LT(example, kN);
  }
}

TEST(Shuffle, SeedsAndEpochsGiveDifferentOrders) {
  constexpr int64_t kN = 1000;
  std::vector<std::vector<int64_t>> orders;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{1} << 63})
    for (const int64_t epoch : {0, 1, 2, 1000}) orders.push_back(order(kN, seed, epoch));
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      int64_t same = 0;
      for (size_t position = 0; position < kN; ++position) same += orders[i][position] == orders[k][position];
      EXPECT_LT(same, 12) << i << " and " << k << ": chance gives one position in common";
    }
  }
}

TEST(Shuffle, AllOrdersOfSmallSetsAreEquallyLikely) {
  for (const int64_t n : {2, 3, 4, 5}) {
    std::map<std::vector<int64_t>, int64_t> counts;
    int64_t orders = 1;
    for (int64_t i = 2; i <= n; ++i) orders *= i;
    for (int64_t i = 0; i < 200 * orders; ++i) ++counts[order(n, static_cast<uint64_t>(i % 8), i / 8)];
    ASSERT_EQ(static_cast<int64_t>(counts.size()), orders);
    std::vector<int64_t> flat;
    for (const auto& [permutation, times] : counts) flat.push_back(times);
    EXPECT_LT(z_score(flat), kMaxZScore) << n;
  }
}

TEST(Shuffle, EveryExampleAppearsAtEveryPosition) {
  for (const int64_t n : {10, 17, 32}) {
    std::vector<int64_t> counts(static_cast<size_t>(n * n));
    for (int64_t epoch = 0; epoch < 2000; ++epoch) {
      const std::vector<int64_t> examples = order(n, 5, epoch);
      for (int64_t position = 0; position < n; ++position)
        ++counts[static_cast<size_t>(position * n + examples[static_cast<size_t>(position)])];
    }
    EXPECT_LT(z_score(counts), kMaxZScore) << n;
  }
}

TEST(Shuffle, PositionsInOneEpochAreUniform) {
  constexpr int64_t kN = 60000, kCells = 100;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<int64_t> examples = order(kN, 0, epoch);
    std::vector<int64_t> counts(kCells * kCells);  // of (hundredth of the position, hundredth of the example)
    for (int64_t position = 0; position < kN; ++position)
      ++counts[static_cast<size_t>(position * kCells / kN * kCells +
                                   examples[static_cast<size_t>(position)] * kCells / kN)];
    EXPECT_LT(z_score(counts), kMaxZScore);
  }
}

TEST(Shuffle, DistancesBetweenNeighborsAreUniform) {
  constexpr int64_t kN = 60000, kCells = 64;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<int64_t> examples = order(kN, 11, epoch);
    for (const int64_t apart : {1, 2, 245}) {  // 245: the next row of the network
      std::vector<int64_t> counts(kCells);     // of distances between examples at neighboring positions
      for (int64_t position = 0; position + apart < kN; ++position) {
        const int64_t distance =
            examples[static_cast<size_t>(position + apart)] - examples[static_cast<size_t>(position)] + kN;
        ++counts[static_cast<size_t>(distance % kN * kCells / kN)];
      }
      EXPECT_LT(z_score(counts), kMaxZScore) << apart;
    }
  }
}

// Bits of examples do not depend on bits of their positions, so a set with a periodic order of classes is well mixed.
TEST(Shuffle, BitsOfPositionAndExampleAreIndependent) {
  constexpr int64_t kN = 1 << 16;
  const std::vector<int64_t> examples = order(kN, 2, 9);
  for (int from = 0; from < 16; ++from) {
    for (int to = 0; to < 16; ++to) {
      int64_t equal = 0;
      for (int64_t position = 0; position < kN; ++position)
        equal += ((position >> from) & 1) == ((examples[static_cast<size_t>(position)] >> to) & 1);
      EXPECT_LT(std::abs(equal - kN / 2), 5 * 128) << from << " " << to;  // the standard deviation is 128
    }
  }
}

}  // namespace
}  // namespace lockstep
