#include "comm/world.h"

#include <gtest/gtest.h>

#include "comm/in_process.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(World, SettledGroupsWaitLess) {
  World world;
  const auto lanes_here = static_cast<int>(world.lanes_here());
  auto comms = in_process_comms(2 * lanes_here);
  for (const auto& comm : comms) comm->set_timeout(300s);
  World::Membership member{.process_count = 2, .settled_timeout = 60s};
  for (int i = 0; i < lanes_here; ++i) member.lanes.push_back(std::move(comms[static_cast<size_t>(i)]));
  world.join(std::move(member));
  std::vector<int> all(static_cast<size_t>(2 * lanes_here));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);

  const Comm& before = world.group(0, {0}, "before");
  EXPECT_EQ(before.timeout(), 300s);
  world.settle();
  const Comm& after = world.group(0, {0}, "before");
  EXPECT_EQ(&after, &before);
  EXPECT_EQ(before.timeout(), 60s);
  Comm& everybody = world.group(0, all, "all");
  EXPECT_EQ(everybody.timeout(), 60s);
  EXPECT_EQ(everybody.split({0}, "later")->timeout(), 60s);

  everybody.set_timeout(5s);
  world.settle();  // once is enough
  EXPECT_EQ(everybody.timeout(), 5s);
  world.leave();
}

TEST(World, WhatDependsOnItIsToldOfItsEnd) {
  World world;
  std::string reason;
  bool left = false;
  world.set_dependent({.abort = [&](const std::string& why) { reason = why; }, .leave = [&] { left = true; }});
  world.abort("a process is gone");
  EXPECT_EQ(reason, "a process is gone");
  EXPECT_FALSE(left);
  world.leave();
  EXPECT_TRUE(left);
}

TEST(World, AloneThereIsNothingToSettle) {
  World world;
  world.settle();
  EXPECT_TRUE(world.alone());
}

}  // namespace
}  // namespace lockstep
