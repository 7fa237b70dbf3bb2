#include "lane/gpu_deadline.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(GpuDeadline, SpinsFirstThenSleepsBetweenPolls) {
  const GpuDeadline spinning(std::chrono::seconds(100));
  for (int i = 0; i < 1000; ++i) spinning.pause_or_throw("a GPU");
  EXPECT_FALSE(GpuDeadline::any_expired());
  const GpuDeadline sleeping(std::chrono::seconds(0));
  for (int i = 0; i < 3; ++i) sleeping.pause_or_throw("a GPU");
  EXPECT_GE(GpuDeadline::Clock::now() - sleeping.began(), std::chrono::microseconds(150));
}

}  // namespace
}  // namespace lockstep
