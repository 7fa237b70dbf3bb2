#include "comm/world.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/in_process.h"
#include "lockstep/runtime.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(World, BelongsToARuntime) {
  Runtime joined, alone;
  {
    const RuntimeScope scope(joined);
    World& world = World::current();
    const auto lanes = static_cast<int>(world.local_lanes());
    auto comms = in_process_comms(2 * lanes);
    World::Membership member{.process_count = 2};
    for (int i = 0; i < lanes; ++i) member.lanes.push_back(std::move(comms[static_cast<size_t>(i)]));
    world.join(std::move(member));
    const RuntimeScope inner(alone);
    EXPECT_TRUE(World::current().is_single_process());
  }
  const RuntimeScope scope(joined);
  EXPECT_EQ(World::current().process_count(), 2);
  World::current().leave();
  EXPECT_TRUE(World::current().is_single_process());
}

TEST(World, EndOfWarmupShortensTimeouts) {
  World world;
  const auto local_lanes = static_cast<int>(world.local_lanes());
  auto comms = in_process_comms(2 * local_lanes);
  for (const auto& comm : comms) comm->set_timeout(300s);
  World::Membership member{.process_count = 2, .timeout_after_warmup = 60s};
  for (int i = 0; i < local_lanes; ++i) member.lanes.push_back(std::move(comms[static_cast<size_t>(i)]));
  world.join(std::move(member));
  std::vector<int> all(static_cast<size_t>(2 * local_lanes));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);

  const Comm& before = world.group(0, {0}, "before");
  EXPECT_EQ(before.timeout(), 300s);
  world.end_warmup();
  const Comm& after = world.group(0, {0}, "before");
  EXPECT_EQ(&after, &before);
  EXPECT_EQ(before.timeout(), 60s);
  Comm& all_lanes = world.group(0, all, "all");
  EXPECT_EQ(all_lanes.timeout(), 60s);
  EXPECT_EQ(all_lanes.split({0}, "later")->timeout(), 60s);

  all_lanes.set_timeout(5s);
  world.end_warmup();  // has no effect the second time
  EXPECT_EQ(all_lanes.timeout(), 5s);
  world.leave();
}

TEST(World, RecorderHasTheOperationsOfEveryLane) {
  World world;
  const auto local_lanes = static_cast<int>(world.local_lanes());
  auto comms = in_process_comms(2 * local_lanes);
  auto recorder = std::make_shared<FlightRecorder>(local_lanes, local_lanes);
  World::Membership member{.process_index = 1, .process_count = 2, .recorder = recorder};
  std::vector<int> all, own;
  for (int i = 0; i < 2 * local_lanes; ++i) all.push_back(i);
  for (int i = 0; i < local_lanes; ++i) {
    own.push_back(local_lanes + i);
    member.lanes.push_back(std::move(comms[static_cast<size_t>(local_lanes + i)]));
  }
  world.join(std::move(member));
  std::vector<std::thread> lanes;
  for (int i = 0; i < local_lanes; ++i) lanes.emplace_back([&, i] { world.group(i, own, "own").barrier(); });
  for (std::thread& lane : lanes) lane.join();
  for (const auto& lane : recorder->lanes()) {
    const std::vector<const FlightGroup*> groups = lane->groups();
    ASSERT_EQ(groups.size(), 2u) << "lane " << lane->lane();
    EXPECT_EQ(groups[0]->lanes(), all);
    EXPECT_EQ(groups[1]->lanes(), own);
    ASSERT_FALSE(lane->records().empty()) << "lane " << lane->lane();
    EXPECT_EQ(lane->records().back().outcome, FlightRecord::Outcome::done);
  }
  world.leave();
}

TEST(World, DerivedCommsAreNotifiedOfAbortAndLeave) {
  World world;
  std::string reason;
  bool left = false;
  world.set_derived_comms({.abort = [&](const std::string& why) { reason = why; }, .leave = [&] { left = true; }});
  world.abort("a process has ended");
  EXPECT_EQ(reason, "a process has ended");
  EXPECT_FALSE(left);
  world.leave();
  EXPECT_TRUE(left);
}

TEST(World, EndOfWarmupWithASingleProcessDoesNothing) {
  World world;
  world.end_warmup();
  EXPECT_TRUE(world.is_single_process());
}

}  // namespace
}  // namespace lockstep
