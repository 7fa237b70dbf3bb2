#include "cluster/job_attempts.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string described(const std::vector<JobAttempt>& jobs) {
  std::string out;
  for (const JobAttempt& job : jobs)
    out += fmt::format("{}={}{} ", job.id, job.attempt, job.may_repeat ? " may repeat" : "");
  return out;
}

TEST(JobAttempts, AreListedFromTheInnermostSupervisorOutwards) {
  EXPECT_EQ(described(job_attempts({})), "");
  const std::string outer = job_variable({}, "job-1", "2");
  const std::string inner = job_variable({{"LOCKSTEP_JOB", outer}}, "launch-a:b", "0");
  EXPECT_EQ(inner, "job-1:2 launch-a:b:0");
  EXPECT_EQ(described(job_attempts({{"LOCKSTEP_JOB", inner}})), "launch-a:b=0 job-1=2 ");
}

TEST(JobAttempts, OfSlurmAreItsRestartsOfAStep) {
  EXPECT_EQ(described(job_attempts({{"SLURM_JOB_ID", "17"}})), "slurm-17=0 may repeat ");
  EXPECT_EQ(described(job_attempts({{"SLURM_JOB_ID", "17"},
                                    {"SLURM_STEP_ID", "3"},
                                    {"SLURM_CLUSTER_NAME", "main"},
                                    {"SLURM_RESTART_COUNT", "2"},
                                    {"LOCKSTEP_JOB", "launch-x:1"}})),
            "launch-x=1 slurm-main-17.3=2 may repeat ");
}

TEST(JobAttempts, IgnoreEntriesThatAreNotJobs) {
  EXPECT_EQ(described(job_attempts({{"LOCKSTEP_JOB", "  x :1 y: :  a:1 "}})), "a=1 ");
}

TEST(JobAttempts, APodIsAReplicaOnlyInAJob) {
  EXPECT_FALSE(is_in_job_pod({{"JOB_COMPLETION_INDEX", "0"}}));            // a local job
  EXPECT_FALSE(is_in_job_pod({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}));  // a notebook
  EXPECT_TRUE(is_in_job_pod({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"JOB_COMPLETION_INDEX", "0"}}));
  EXPECT_TRUE(
      is_in_job_pod({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"COORDINATOR_ADDRESS", "a"}, {"PROCESS_ID", "0"}}));
}

}  // namespace
}  // namespace lockstep
