#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "lockstep/loggers.h"

namespace lockstep {
namespace {

TEST(Histogram, EveryValueIsInTheBucketOfItsSize) {
  std::mt19937 bits(7);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int i = 0; i < 5000; ++i) values.push_back(normal(bits) * std::exp(3 * normal(bits)));
  const Histogram histogram = make_histogram(values);
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  double below = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < histogram.limits.size(); ++i) {
    const double limit = histogram.limits[i];
    EXPECT_LT(below, limit);
    const auto inside = std::count_if(values.begin(), values.end(), [&](float v) { return below < v && v <= limit; });
    EXPECT_EQ(histogram.counts[i], inside) << "from " << below << " to " << limit;
    below = limit;
  }
  EXPECT_GT(histogram.counts.front(), 0);
  EXPECT_GT(histogram.counts.back(), 0);
  EXPECT_LT(histogram.limits.size(), 600u);
}

TEST(Histogram, HasTheMomentsOfTheValues) {
  const Histogram histogram = make_histogram(std::vector<float>{-2, 0.5, 0, 3});
  EXPECT_EQ(histogram.count, 4);
  EXPECT_EQ(histogram.min, -2);
  EXPECT_EQ(histogram.max, 3);
  EXPECT_EQ(histogram.sum, 1.5);
  EXPECT_EQ(histogram.sum_of_squares, 13.25);
}

TEST(Histogram, LeavesOutValuesThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Histogram histogram = make_histogram(std::vector<float>{inf, 1, nan, -inf});
  EXPECT_EQ(histogram.count, 1);
  EXPECT_EQ(histogram.sum, 1);
  EXPECT_EQ(histogram.limits, std::vector<double>{1.125});
  EXPECT_EQ(make_histogram(std::vector<float>{nan}).count, 0);
  EXPECT_TRUE(make_histogram({}).limits.empty());
}

TEST(Histogram, TinyValuesShareABucket) {
  const Histogram histogram = make_histogram(std::vector<float>{1e-30f, -1e-30f, 0});
  EXPECT_EQ(histogram.counts, std::vector<int64_t>{3});
  EXPECT_EQ(histogram.limits, std::vector<double>{std::exp2(-40)});
}

TEST(Histogram, TheLargestNumbersAreInTheLastBucket) {
  const float most = std::numeric_limits<float>::max();
  const Histogram histogram = make_histogram(std::vector<float>{most, -most});
  EXPECT_EQ(histogram.count, 2);
  EXPECT_EQ(histogram.limits.back(), most);
  EXPECT_EQ(histogram.counts.front(), 1);
  EXPECT_EQ(histogram.counts.back(), 1);
}

}  // namespace
}  // namespace lockstep
