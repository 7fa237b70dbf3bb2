// LaneComms within one process: which lanes form a group, and their ranks in it.
#include "plan/lane_comms.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

const LaneGrid kTwoByThree{{{"data", 2, 1}, {"model", 3, 1}}};

TEST(LaneComms, GroupsHaveTheLanesThatDifferAlongTheirAxes) {
  LaneComms comms(kTwoByThree, false);
  for (int64_t lane = 0; lane < 6; ++lane) {
    EXPECT_EQ(comms.of(lane, "data")->size(), 2);
    EXPECT_EQ(comms.of(lane, "data")->rank(), lane / 3);
    EXPECT_EQ(comms.of(lane, "model")->size(), 3);
    EXPECT_EQ(comms.of(lane, "model")->rank(), lane % 3);
    EXPECT_EQ(comms.of(lane, "data,model")->size(), 6);
    EXPECT_EQ(comms.of(lane, "data,model")->rank(), lane);
    EXPECT_EQ(comms.of(lane, "model,data")->rank(), lane % 3 * 2 + lane / 3);
    EXPECT_EQ(comms.of(lane, "model"), comms.of(lane, "model"));
    EXPECT_EQ(comms.of(lane, "model")->name(), "model");
  }
}

TEST(LaneComms, LanesSumWithinTheirGroup) {
  LaneComms comms(kTwoByThree, false);
  std::vector<float> rows(6), columns(6);
  std::vector<std::thread> threads;
  for (int64_t lane = 0; lane < 6; ++lane)
    threads.emplace_back([&, lane] {
      const auto own = static_cast<float>(1 << lane);
      const auto at = static_cast<size_t>(lane);
      comms.of(lane, "model")->all_reduce(&own, &rows[at], 1, f32, Reduction::sum);
      comms.of(lane, "data")->all_reduce(&own, &columns[at], 1, f32, Reduction::sum);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rows, (std::vector<float>{7, 7, 7, 56, 56, 56}));
  EXPECT_EQ(columns, (std::vector<float>{9, 18, 36, 9, 18, 36}));
}

TEST(LaneComms, AbortFailsAllGroups) {
  LaneComms comms(kTwoByThree, false);
  Comm *const first = comms.of(1, "data"), *const last = comms.of(5, "model");
  comms.abort("lane 0 ran out of memory");
  EXPECT_THROWS(first->barrier(), CommAborted, "lane 0 ran out of memory");
  EXPECT_THROWS(last->barrier(), CommAborted, "lane 0 ran out of memory");
}

}  // namespace
}  // namespace lockstep
