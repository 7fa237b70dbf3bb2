// lockstep launch with processes that are stopped by SIGSTOP.
#include <signal.h>

#include "cli/launched_shells.h"

namespace lockstep {
namespace {

using shells::last_line;
using shells::launch_words;

// Processes that print their ids, so that the test can stop them.
const char* const kStanding = "echo pid $$ ready >&2; exec sleep 600";

pid_t pid_of(const RunningProgram& program, int process) {
  const std::string err = program.err(), mark = "[" + std::to_string(process) + "] pid ";
  return std::stoi(err.substr(err.find(mark) + mark.size()));
}

// `timeout` must be long enough to stop all of them on a busy machine.
void expect_end_of_stopped(const std::vector<int>& victims, const std::string& timeout, const std::string& cause) {
  RunningProgram program(launch_words({"-n", "2", "--heartbeat-timeout", timeout, "--grace", "60"}, kStanding));
  ASSERT_TRUE(program.says("[0] pid") && program.says("[1] pid"));
  for (const int victim : victims) ::kill(pid_of(program, victim), SIGSTOP);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  for (const int victim : victims) {
    EXPECT_TRUE(contains(result.err, "lockstep launch: process " + std::to_string(victim) +
                                         " is stopped (SIGSTOP); the job ends unless it is resumed within " + timeout +
                                         " s: kill -CONT " + std::to_string(pid_of(program, victim)) + "\n"))
        << result.err;
  }
  EXPECT_TRUE(contains(last_line(result.err), cause)) << result.err;
}

TEST(Launch, StoppedProcessEndsTheJob) { expect_end_of_stopped({1}, "0.2", "process 1 was stopped by SIGSTOP for "); }

TEST(Launch, JobOfStoppedProcessesEnds) {
  expect_end_of_stopped({0, 1}, "2", "processes 0 and 1 were stopped by SIGSTOP for ");
}

TEST(Launch, ProcessThatContinuesInTimeIsNotAFailure) {
  RunningProgram program(launch_words({"-n", "2"}, "echo pid $$ ready >&2; read x < /dev/null; exec sleep 0.5"));
  ASSERT_TRUE(program.says("[0] pid") && program.says("[1] pid"));
  const pid_t victim = pid_of(program, 1);
  ::kill(victim, SIGSTOP);
  ASSERT_TRUE(program.says("process 1 is stopped (SIGSTOP)"));
  ::kill(victim, SIGCONT);
  ASSERT_TRUE(program.says("process 1 resumed after "));
  EXPECT_EQ(program.wait().exit_code, 0);
}

TEST(Launch, SingleProcessMayBeStopped) {
  RunningProgram program(launch_words({"-n", "1", "--heartbeat-timeout", "0.05"}, kStanding));
  ASSERT_TRUE(program.says("[0] pid"));
  ::kill(pid_of(program, 0), SIGSTOP);
  ASSERT_TRUE(program.says("process 0 is stopped (SIGSTOP); resume it with kill -CONT "));
  ::kill(pid_of(program, 0), SIGCONT);
  ASSERT_TRUE(program.says("process 0 resumed after "));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
}

}  // namespace
}  // namespace lockstep
