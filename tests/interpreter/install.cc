// Runs the tests of a program on InterpreterLanes if LOCKSTEP_TEST_LANE is `interpreter` or `interpreter-device`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/runtime_parts.h"
#include "interpreter/interpreter_lane.h"
#include "plan/lanes.h"

namespace lockstep {
namespace {

class InterpreterLanes : public testing::Environment {
  void SetUp() override {
    const char* const value = std::getenv("LOCKSTEP_TEST_LANE");
    const std::string lane = value ? value : "";
    if (lane.empty()) return;
    ASSERT_TRUE(lane == "interpreter" || lane == "interpreter-device") << "LOCKSTEP_TEST_LANE=" << lane;
    const MemorySpace space = lane == "interpreter" ? MemorySpace::host : MemorySpace::device;
    detail::RuntimeParts::of(Runtime::current())
        .add(std::make_unique<Lanes>(local_lane_count(), [space](int64_t, Pool& pool) {
          return std::make_unique<InterpreterLane>(pool, space);
        }));
  }
};
testing::Environment* const interpreter_lanes = testing::AddGlobalTestEnvironment(new InterpreterLanes);

}  // namespace
}  // namespace lockstep
