#include <gtest/gtest.h>

#include "jobs/local/state.h"

namespace lockstep {
namespace {

TEST(LocalEvents, TheNewestAreKept) {
  LocalJob job;
  const auto add = [&](size_t number) {
    add_event(job, {JobTime(), false, "job", "Number", std::to_string(number), {}});
  };
  for (size_t i = 0; i < kMaxEvents; ++i) add(i);
  ASSERT_EQ(job.events.size(), kMaxEvents);
  EXPECT_EQ(job.events.front().message, "0");
  add(kMaxEvents);
  ASSERT_EQ(job.events.size(), kMaxEvents);
  EXPECT_EQ(job.events.front().message, "1");
  EXPECT_EQ(job.events.back().message, std::to_string(kMaxEvents));
}

}  // namespace
}  // namespace lockstep
