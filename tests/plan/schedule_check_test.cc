// check() rejects schedules that read values before they are written or after they are overwritten.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#include "plan/cuda/schedule.h"

namespace lockstep::detail {
namespace {

constexpr const char* kTwoPhases = R"(kernel(%0:f32[8], %1:f32[8]) {
  phase {
    %2:f32[8] = neg %0
  }
  phase {
    %3:f32[8] over %0 = add %2 %1
  }
  return %3
}
)";

TEST(ScheduleCheck, AcceptsValuesThatOverwriteWhatIsNoLongerRead) {
  EXPECT_EQ(print(parse_kernel(kTwoPhases, {})), kTwoPhases);
}

TEST(ScheduleCheck, TasksOfAPhaseAreIndependent) {
  KernelSchedule kernel = parse_kernel(kTwoPhases, {});
  kernel.phases = {{0, 1}};
  EXPECT_THROWS(check(kernel), Error, "schedule: tasks 0 and 1 of one phase depend on each other");
}

TEST(ScheduleCheck, PhasesAreInOrder) {
  KernelSchedule kernel = parse_kernel(kTwoPhases, {});
  kernel.phases = {{1}, {0}};
  EXPECT_THROWS(check(kernel), Error, "add reads %2, which is not written yet or was overwritten");
}

TEST(ScheduleCheck, EveryTaskIsInOnePhase) {
  KernelSchedule kernel = parse_kernel(kTwoPhases, {});
  kernel.phases = {{0}};
  EXPECT_THROWS(check(kernel), Error, "schedule: a task has no phase");
  kernel.phases = {{0}, {0, 1}};
  EXPECT_THROWS(check(kernel), Error, "schedule: task 0 is not in exactly one phase");
  kernel.phases = {{0}, {1}, {2}};
  EXPECT_THROWS(check(kernel), Error, "schedule: task 2 is not in exactly one phase");
}

TEST(ScheduleCheck, OperandsAreNotOverwritten) {
  EXPECT_THROWS(parse_kernel(R"(kernel(%0:f32[8]) {
  %1:f32[8] over %0 = neg %0
  %2:f32[8] = neg %0
  return %1 %2
})",
                             {}),
                Error, "schedule: neg reads %0, which is not written yet or was overwritten");
}

TEST(ScheduleCheck, ReturnedValuesAreNotOverwritten) {
  EXPECT_THROWS(parse_kernel(R"(kernel(%0:f32[8]) {
  %1:f32[8] = neg %0
  %2:f32[8] over %1 = neg %1
  return %1 %2
})",
                             {}),
                Error, "schedule: the kernel returns %1, which is not written or was overwritten");
}

}  // namespace
}  // namespace lockstep::detail
#endif
