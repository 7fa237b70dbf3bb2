#include "data/process.h"

#include <fstream>
#include <thread>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;

TEST(Process, ReturnsExitCodeAndOutput) {
  const ProcessResult result = run_process({"sh", "-c", "echo out; echo err >&2; exit 7"}, 10s);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.output, "out\nerr\n");
}

TEST(Process, ArgumentsAreNotInterpretedByAShell) {
  EXPECT_EQ(run_process({"echo", "$HOME; `x` 'y'"}, 10s).output, "$HOME; `x` 'y'\n");
}

TEST(Process, StandardInputIsEmpty) { EXPECT_EQ(run_process({"cat"}, 10s).exit_code, 0); }

TEST(Process, SignalBecomesCodeAbove128) {
  EXPECT_EQ(run_process({"sh", "-c", "kill -TERM $$"}, 10s).exit_code, 128 + 15);
}

TEST(Process, KeepsTheEndOfLongOutput) {
  const ProcessResult result =
      run_process({"sh", "-c", "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"}, 60s);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_LE(result.output.size(), 64u * 1024);
  EXPECT_TRUE(result.output.ends_with("line 39999\n"));
}

TEST(Process, MissingProgramIsAnIoError) {
  EXPECT_THROWS(run_process({"/nowhere/program"}, 1s), IoError, "run /nowhere/program: No such file or directory");
}

// The state letter of a process; 'X' if it does not exist.
char state_of(const std::string& pid) {
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string number, name;
  char state = 'X';
  stat >> number >> name >> state;
  return state;
}

bool dies(const std::string& pid) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (std::chrono::steady_clock::now() < end) {
    if (const char state = state_of(pid); state == 'X' || state == 'Z') return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(Process, DeadlineKillsTheProcessGroup) {
  const ProcessResult result = run_process({"sh", "-c", "sleep 1000 & echo $!; wait"}, 200ms);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + 9);
  EXPECT_TRUE(dies(result.output.substr(0, result.output.find('\n')))) << result.output;
}

TEST(Process, GrandchildrenAreKilled) {
  const ProcessResult result = run_process({"sh", "-c", "sleep 1000 & echo $!"}, 10s);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(dies(result.output.substr(0, result.output.find('\n')))) << result.output;
}

TEST(Process, FindsProgramsOnThePath) {
  EXPECT_TRUE(find_program("sh").ends_with("/sh"));
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_EQ(find_program("no-such-program-here"), "");
  EXPECT_EQ(find_program("/no/such/program"), "");
}

}  // namespace
}  // namespace lockstep::detail
