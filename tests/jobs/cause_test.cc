#include "jobs/cause.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "lockstep/distributed.h"

namespace lockstep {
namespace {

constexpr ExitStatus kSuccess, kRetry{.code = 75}, kFailed{.code = 1}, kKilled{.signal = SIGKILL},
    kAborted{.signal = SIGABRT};

ProcessExit exit_of(int process, ExitStatus exit_status, int round, const std::string& last_line = "",
                    bool signalled = false) {
  return {.process = process,
          .exit_status = exit_status,
          .signalled = signalled,
          .round = round,
          .seconds = 12.34,
          .last_line = last_line};
}

// The process that caused the failure; -1: none.
int cause_of(const std::vector<ProcessExit>& exits) {
  const auto cause = find_cause(exits);
  return cause ? exits[*cause].process : -1;
}

TEST(FindCause, NoneIfAllSucceed) { EXPECT_EQ(cause_of({exit_of(1, kSuccess, 1), exit_of(0, kSuccess, 2)}), -1); }

TEST(FindCause, SkipsProcessesThatExitWithTheRetryCode) {
  EXPECT_EQ(cause_of({exit_of(0, kRetry, 1), exit_of(1, kFailed, 2)}), 1);
  EXPECT_EQ(cause_of({exit_of(2, kRetry, 1), exit_of(0, kSuccess, 1), exit_of(1, kKilled, 2)}), 1);
  EXPECT_EQ(cause_of({exit_of(1, kKilled, 1), exit_of(0, kRetry, 2)}), 1);
}

TEST(FindCause, IsTheFirstIfAllExitWithTheRetryCode) {
  EXPECT_EQ(cause_of({exit_of(1, kRetry, 1), exit_of(0, kRetry, 2)}), 1);
}

TEST(FindCause, SkipsSignalledProcesses) {
  EXPECT_EQ(cause_of({exit_of(0, {.signal = SIGTERM}, 1, "", true), exit_of(1, kFailed, 2)}), 1);
}

TEST(FindCause, PrefersAKilledProcessWithinARound) {
  EXPECT_EQ(cause_of({exit_of(0, kFailed, 1), exit_of(1, kKilled, 1)}), 1);
  EXPECT_EQ(cause_of({exit_of(0, kFailed, 1), exit_of(1, kAborted, 2)}), 0);
}

TEST(FindCause, SkipsAProcessThatNamesAnother) {
  EXPECT_EQ(cause_of({exit_of(0, kFailed, 1, "lockstep: process 1 (host a), step 3: disk full"),
                      exit_of(1, kFailed, 2, "lockstep: write x: disk full")}),
            1);
  EXPECT_EQ(cause_of({exit_of(0, kFailed, 1, "lockstep: process 0 (host a): disk full"), exit_of(1, kFailed, 2)}), 0);
  EXPECT_EQ(cause_of({exit_of(0, kFailed, 1, "process 1 of 2, process x"), exit_of(1, kFailed, 2)}), 0);
}

TEST(FindCause, DescriptionCountsTheOtherProcesses) {
  const auto text = [](const std::vector<ProcessExit>& exits) { return describe_cause(exits, *find_cause(exits)); };
  EXPECT_EQ(
      text({exit_of(1, kKilled, 1), exit_of(0, kRetry, 2), exit_of(2, kRetry, 2)}),
      "process 1 was killed by SIGKILL (out of memory? check dmesg) after 12.3 s; the others stopped because of it");
  EXPECT_EQ(text({exit_of(1, kFailed, 1), exit_of(0, kRetry, 2)}),
            "process 1 ended with exit code 1 after 12.3 s; the other one stopped because of it");
  EXPECT_EQ(text({exit_of(0, kFailed, 1), exit_of(1, kFailed, 1)}),
            "process 0 ended with exit code 1 after 12.3 s, and so did another one");
  EXPECT_EQ(text({exit_of(0, kFailed, 1), exit_of(1, kFailed, 1), exit_of(2, kFailed, 1), exit_of(3, kRetry, 1)}),
            "process 0 ended with exit code 1 after 12.3 s, and so did 2 others; another one stopped because of it");
  EXPECT_EQ(
      text({exit_of(2, {.signal = SIGSEGV}, 1), exit_of(0, kSuccess, 1), exit_of(1, kRetry, 1), exit_of(3, kRetry, 1)}),
      "process 2 was killed by SIGSEGV (it crashed) after 12.3 s; 2 others stopped because of it");
  EXPECT_EQ(text({exit_of(0, kAborted, 1)}),
            "process 0 was killed by SIGABRT (it aborted: see its last lines) after 12.3 s");
  EXPECT_EQ(text({exit_of(0, {.signal = SIGXCPU}, 1)}),
            "process 0 was killed by SIGXCPU (CPU time limit exceeded) after 12.3 s");
}

TEST(FindCause, DescriptionNamesTheProcessThatTheOthersName) {
  const std::vector<ProcessExit> exits = {exit_of(1, kRetry, 1, "lockstep: process 0 (host a), step 3: lost"),
                                          exit_of(2, kRetry, 2, "lockstep: process 0 (host a), step 3: lost"),
                                          exit_of(0, kKilled, 3, "step 3", true)};
  EXPECT_EQ(describe_cause(exits, *find_cause(exits)),
            "process 0 was lost or hung, according to process 1, which ended with exit code 75 after 12.3 s");
}

TEST(FindCause, DescriptionNamesTheNetwork) {
  const std::string line =
      "lockstep: process 0 (host a), step 3: all_reduce 5 on \"world\": process 0 (host a) waited 60 s for data of the "
      "other ranks, which have all started the operation; check the network between the hosts";
  const std::vector<ProcessExit> exits = {exit_of(1, kRetry, 1, line), exit_of(0, kRetry, 2, line)};
  EXPECT_EQ(describe_cause(exits, *find_cause(exits)),
            "the network between the hosts failed, according to process 1, which ended with exit code 75 after 12.3 s");
}

TEST(FindCause, DescriptionNamesAMissingProcessOrTheCoordinator) {
  const auto text = [](const std::string& line) {
    const std::vector<ProcessExit> exits = {exit_of(1, kRetry, 1, line)};
    return describe_cause(exits, *find_cause(exits));
  };
  const std::string rest = " was lost or hung, according to process 1, which ended with exit code 75 after 12.3 s";
  EXPECT_EQ(text("lockstep: register: process 1 cannot reach process 0 (the coordinator at 127.0.0.1:5): in 1 s: x"),
            "process 0" + rest);
  EXPECT_EQ(
      text("lockstep: register: timeout after 5 min: 2 of 4 processes have registered; missing: process 3, process 2"),
      "process 3" + rest);
}

TEST(FindCause, IsTheStoppedProcess) {
  ProcessExit stopped = exit_of(1, kRetry, 3, "", true);
  stopped.stopped_by = SIGSTOP;
  stopped.stopped_for = 10.24;
  ProcessExit other = stopped;
  other.process = 0;
  const auto text = [](const std::vector<ProcessExit>& exits) { return describe_cause(exits, *find_cause(exits)); };
  EXPECT_EQ(text({exit_of(0, kRetry, 1, "lockstep: process 1 (host a): lost"), stopped}),
            "process 1 was stopped by SIGSTOP for 10.2 s; the other one stopped because of it");
  EXPECT_EQ(text({stopped, other, exit_of(2, {.signal = SIGTERM}, 3, "", true)}),
            "processes 0 and 1 were stopped by SIGSTOP for 10.2 s; another one stopped because of it");
  EXPECT_EQ(cause_of({exit_of(0, kFailed, 1), stopped}), 0);
}

TEST(Restart, HelpsOnlyAfterLossesAndCrashes) {
  for (const ExitStatus& exit_status :
       {kRetry, kKilled, kAborted, ExitStatus{.signal = SIGSEGV}, ExitStatus{.signal = SIGBUS}})
    EXPECT_TRUE(restart_may_help(exit_status)) << exit_status.code << " " << exit_status.signal;
  for (const ExitStatus& exit_status : {kFailed, ExitStatus{.code = 2}, ExitStatus{.code = 3}, ExitStatus{.code = 143},
                                        ExitStatus{.signal = SIGTERM}, ExitStatus{.signal = SIGINT}})
    EXPECT_FALSE(restart_may_help(exit_status)) << exit_status.code << " " << exit_status.signal;
}

}  // namespace
}  // namespace lockstep
