#include "lane/gpu_deadline.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

TEST(GpuDeadline, ParsesTheTimeoutInSeconds) {
  EXPECT_EQ(parse_gpu_timeout({}).count(), 1800);
  EXPECT_EQ(parse_gpu_timeout("7").count(), 7);
  EXPECT_EQ(parse_gpu_timeout("0.25").count(), 0.25);
  for (const char* wrong : {"", "0", "-3", "soon", "5 s", "inf", "nan", "1e10"})
    EXPECT_THROWS(parse_gpu_timeout(wrong), Error, "; set it to the number of seconds to wait for a GPU");
}

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
