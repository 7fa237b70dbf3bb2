// check_condition: what `lockstep wait --for=condition=...` waits for.
#include <gtest/gtest.h>

#include "jobs/show.h"

namespace lockstep {
namespace {

Job job_with(const std::vector<std::pair<std::string, bool>>& conditions) {
  Job job;
  for (const auto& [type, status] : conditions) job.status.conditions.push_back({type, status, "", "", {}, {}});
  return job;
}

TEST(CheckCondition, IsMetWhenTheJobHasIt) {
  const Job running = job_with({{"Created", true}, {"Running", true}, {"Restarting", false}});
  EXPECT_EQ(check_condition(running, "Running", true), ConditionResult::met);
  EXPECT_EQ(check_condition(running, "Restarting", false), ConditionResult::met);
}

TEST(CheckCondition, MayStillBeMetUntilTheJobHasFinished) {
  const Job running = job_with({{"Created", true}, {"Running", true}});
  EXPECT_EQ(check_condition(running, "Running", false), ConditionResult::not_yet);
  EXPECT_EQ(check_condition(running, "Succeeded", true), ConditionResult::not_yet);
  EXPECT_EQ(check_condition(running, "Suspended", false), ConditionResult::not_yet);
}

TEST(CheckCondition, AFinishedJobDoesNotChangeAnyMore) {
  const Job failed = job_with({{"Created", true}, {"Running", false}, {"Failed", true}});
  EXPECT_EQ(check_condition(failed, "Failed", true), ConditionResult::met);
  EXPECT_EQ(check_condition(failed, "Failed", false), ConditionResult::never);
  EXPECT_EQ(check_condition(failed, "Running", true), ConditionResult::never);
  EXPECT_EQ(check_condition(failed, "Running", false), ConditionResult::met);
  EXPECT_EQ(check_condition(failed, "Succeeded", true), ConditionResult::never);
  EXPECT_EQ(check_condition(failed, "Succeeded", false), ConditionResult::met);
}

}  // namespace
}  // namespace lockstep
