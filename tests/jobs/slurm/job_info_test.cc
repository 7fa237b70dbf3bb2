// Parsing of real output of Slurm's programs.
#include "jobs/slurm/job_info.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

JobTime time_at(int64_t seconds) { return JobTime(std::chrono::seconds(seconds)); }

const char* const kRunning =
    "JobId=4 JobName=b UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901756 Nice=0 Account=(null) "
    "QOS=(null) "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:01 TimeLimit=00:10:00 TimeMin=N/A SubmitTime=1794741260 EligibleTime=1794741260 "
    "StartTime=1794741261 EndTime=1794741861 Deadline=N/A Partition=main ReqNodeList=(null) ExcNodeList=(null) "
    "NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumTasks=2 Command=/a b/JobState=X.sh WorkDir=/tmp \n";

TEST(SlurmJobInfo, RunningJobIsParsed) {
  EXPECT_EQ(
      parse_scontrol(kRunning),
      (SlurmJobInfo{
          .state = "RUNNING", .reason = "None", .restarts = 2, .started = time_at(1794741261), .nodes = "n[1-2]"}));
}

TEST(SlurmJobInfo, PendingJobHasNoStartTime) {
  const auto info = parse_scontrol(
      "JobId=4 JobState=PENDING Reason=BeginTime Restarts=1 ExitCode=0:0 StartTime=1794741261 EndTime=1794741861 "
      "NodeList= "
      "NumNodes=2");
  EXPECT_EQ(info, (SlurmJobInfo{.state = "PENDING", .reason = "BeginTime", .restarts = 1}));
  EXPECT_EQ(stage_of(*info), SlurmStage::waiting);
}

TEST(SlurmJobInfo, EndedJobHasItsExitCodeAndEndTime) {
  const auto info = parse_scontrol(
      "JobId=4 JobState=FAILED Reason=NonZeroExitCode Restarts=0 ExitCode=0:9 StartTime=1794741261 EndTime=1794741862 "
      "NodeList=n1");
  EXPECT_EQ(info, (SlurmJobInfo{.state = "FAILED",
                                .reason = "NonZeroExitCode",
                                .exit_code = 137,
                                .started = time_at(1794741261),
                                .ended = time_at(1794741862),
                                .nodes = "n1"}));
  EXPECT_EQ(stage_of(*info), SlurmStage::failed);
}

TEST(SlurmJobInfo, OtherOutputIsNotAJob) {
  EXPECT_EQ(parse_scontrol(""), std::nullopt);
  EXPECT_EQ(parse_scontrol("slurm_load_jobs error: Invalid job id specified"), std::nullopt);
}

TEST(SlurmJobInfo, SacctIsParsedWithAndWithoutRestarts) {
  EXPECT_EQ(parse_sacct("CANCELLED by 1000|0:15|1794741261|1794741862|n[1-2]|3\nsecond|\n"),
            (SlurmJobInfo{.state = "CANCELLED",
                          .restarts = 3,
                          .exit_code = 143,
                          .started = time_at(1794741261),
                          .ended = time_at(1794741862),
                          .nodes = "n[1-2]"}));
  EXPECT_EQ(parse_sacct("COMPLETED|0:0|1794741261|1794741862|n1\n"),
            (SlurmJobInfo{
                .state = "COMPLETED", .started = time_at(1794741261), .ended = time_at(1794741862), .nodes = "n1"}));
  EXPECT_EQ(parse_sacct("PENDING|0:0|Unknown|Unknown|None assigned|0\n"), (SlurmJobInfo{.state = "PENDING"}));
  EXPECT_EQ(parse_sacct(""), std::nullopt);
  EXPECT_EQ(parse_sacct("Slurm accounting storage is disabled\n"), std::nullopt);
}

TEST(SlurmJobInfo, EveryStateHasAStage) {
  const auto stage = [](const char* state) { return stage_of({.state = state}); };
  for (const char* state : {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"})
    EXPECT_EQ(stage(state), SlurmStage::waiting) << state;
  for (const char* state : {"RUNNING", "COMPLETING", "SUSPENDED", "UNKNOWN_FUTURE_STATE"})
    EXPECT_EQ(stage(state), SlurmStage::running) << state;
  for (const char* state : {"FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED", "PREEMPTED"})
    EXPECT_EQ(stage(state), SlurmStage::failed) << state;
  EXPECT_EQ(stage("COMPLETED"), SlurmStage::succeeded);
}

TEST(SlurmTaskExitCodes, AreParsedFromSrunMessages) {
  EXPECT_EQ(parse_task_exit_codes("lockstep: tasks 7: Killed\n"
                                  "srun: error: 127.0.0.1: tasks 0-1,4: Exited with exit code 75\n"
                                  "srun: error: n2: task 2: Segmentation fault (core dumped)\n"
                                  "srun: error: n2: task 3: Killed\n"
                                  "srun: error: n2: task 9: something new\n"
                                  "srun: error: n2: task x-: Killed\n"
                                  "srun: launch/slurm: _step_signal: Terminating StepId=6.0\n"),
            (std::map<int, int>{{0, 75}, {1, 75}, {2, 139}, {3, 137}, {4, 75}}));
  EXPECT_TRUE(parse_task_exit_codes("").empty());
  std::string ranges = "n1: tasks 0-1048575";
  for (int i = 0; i < 3000; ++i) ranges += ",0-1048575";
  EXPECT_TRUE(parse_task_exit_codes(ranges + ": Killed\n").empty());
}

TEST(SlurmTaskExitCodes, OutputIsSplitByAttempt) {
  const std::string text = "a\nlockstep: attempt 0\nb\nlockstep: attempt 1\nc\nlockstep: attempt 10\nd\n";
  EXPECT_EQ(output_of_attempt(text, 0), "lockstep: attempt 0\nb\n");
  EXPECT_EQ(output_of_attempt(text, 1), "lockstep: attempt 1\nc\nlockstep: attempt 10\nd\n");
  EXPECT_EQ(output_of_attempt(text, 10), "lockstep: attempt 10\nd\n");
  EXPECT_EQ(output_of_attempt(text, 2), "");
}

TEST(SlurmJobInfo, IsRestoredFromJson) {
  const SlurmJobInfo info = *parse_scontrol(kRunning);
  EXPECT_EQ(job_info_from_json(job_info_to_json(info)), info);
  EXPECT_EQ(job_info_from_json(job_info_to_json({})), SlurmJobInfo());
}

}  // namespace
}  // namespace lockstep
