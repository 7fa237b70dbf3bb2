#include "lane/gpu_patience.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

TEST(GpuPatience, LastsAsLongAsItIsTold) {
  EXPECT_EQ(parse_gpu_timeout({}).count(), 1800);
  EXPECT_EQ(parse_gpu_timeout("7").count(), 7);
  EXPECT_EQ(parse_gpu_timeout("0.25").count(), 0.25);
  for (const char* wrong : {"", "0", "-3", "soon", "5 s", "inf", "nan", "1e10"})
    EXPECT_THROWS(parse_gpu_timeout(wrong), Error, "; give the seconds that a GPU may take");
}

// What comes soon is not slept for.
TEST(GpuPatience, RestsBetweenLooks) {
  const GpuPatience patience(std::chrono::seconds(100));
  for (int i = 0; i < 1000; ++i) patience.rest("a GPU");
  EXPECT_FALSE(GpuPatience::is_given_up());
  const GpuPatience tired(std::chrono::seconds(0));
  for (int i = 0; i < 3; ++i) tired.rest("a GPU");
  EXPECT_GE(GpuPatience::Clock::now() - tired.began(), std::chrono::microseconds(150));
}

}  // namespace
}  // namespace lockstep
