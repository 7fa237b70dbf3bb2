#include "base/os/run_program.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "base/file.h"
#include "base/throws.h"
#include "support/program.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(RunProgram, ReturnsBothStreamsAndTheExitCode) {
  const ProgramResult result = run_program({"bash", "-c", "echo out; echo err >&2; exit 3"});
  EXPECT_EQ(result.code, 3);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST(RunProgram, MergedStreamsKeepTheOrderOfTheWrites) {
  const ProgramResult result = run_program({"sh", "-c", "echo a; echo b >&2; echo c"}, {.merge_streams = true});
  EXPECT_EQ(result.out, "a\nb\nc\n");
  EXPECT_EQ(result.err, "");
}

TEST(RunProgram, WritesTheInputAndClosesIt) {
  const std::string input(1 << 20, 'x');  // more than a pipe buffers
  EXPECT_EQ(run_program({"cat"}, {.input = input}).out, input);
  EXPECT_EQ(run_program({"cat"}).out, "");
  EXPECT_EQ(run_program({"true"}, {.input = input}).code, 0);  // a program that does not read its input
}

TEST(RunProgram, ReadsBothStreamsAtOnce) {
  const ProgramResult result = run_program({"sh", "-c", "head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero"});
  EXPECT_EQ(result.out.size(), 1000000u);
  EXPECT_EQ(result.err.size(), 1000000u);
}

TEST(RunProgram, ReturnsTheSignalAsExitCode) {
  EXPECT_EQ(run_program({"bash", "-c", "kill -SEGV $$"}).code, 128 + SIGSEGV);
}

TEST(RunProgram, ArgumentsAreNotInterpretedByAShell) {
  EXPECT_EQ(run_program({"printf", "<%s>", "$(id) 'a'"}).out, "<$(id) 'a'>");
}

TEST(RunProgram, KeepsTheEndOfLongOutput) {
  const ProgramResult result =
      run_program({"sh", "-c", "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"},
                  {.max_output = 64 * 1024, .keep_tail = true});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.size(), 64u * 1024);
  EXPECT_TRUE(result.out.ends_with("line 39999\n"));
}

TEST(RunProgram, KillsProgramsThatPrintTooMuch) {
  EXPECT_THROWS(run_program({"sh", "-c", "while :; do echo line; done"}, {.max_output = 100'000}), IoError,
                "run sh: it printed more than 100000 bytes and was killed; request less");
}

TEST(RunProgram, KillsTheProgramAndItsChildrenAtTheDeadline) {
  const TempDir dir;
  const std::string file = dir.path() + "/pid";
  EXPECT_THROWS(run_program({"bash", "-c", "sleep 1000 & echo $! >$0; wait", file}, {.deadline = 2s}), IoError,
                "run bash: it did not end within 2 s and was killed; check that the service it contacts responds");
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(file);
  ASSERT_FALSE(bytes.empty());
  EXPECT_TRUE(is_gone_soon(std::stoi(std::string(bytes.begin(), bytes.end()))));
}

TEST(RunProgram, MayReturnWhatWasPrintedUntilTheDeadline) {
  const ProgramResult result =
      run_program({"sh", "-c", "sleep 1000 & echo $!; wait"}, {.deadline = 200ms, .return_at_deadline = true});
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_TRUE(is_gone_soon(std::stoi(result.out)));
}

TEST(RunProgram, ChildrenThatTheProgramLeavesAreKilled) {
  const ProgramResult result = run_program({"sh", "-c", "sleep 1000 & echo $!"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(is_gone_soon(std::stoi(result.out)));
}

TEST(RunProgram, ProcessesThatLeftTheGroupAreNotWaitedFor) {
  const ProgramResult result = run_program({"sh", "-c", "setsid sleep 1000 & echo $!"}, {.deadline = 30s});
  EXPECT_FALSE(result.timed_out);
  ::kill(std::stoi(result.out), SIGKILL);
}

TEST(RunProgram, MissingProgramsAreRejected) {
  EXPECT_THROWS(run_program({"no-such-program"}), Error,
                "run a program: \"no-such-program\" was not found on the PATH; install it, or correct the PATH");
  EXPECT_THROWS(run_program({"/no/such"}), Error,
                "run a program: \"/no/such\" is not an executable file; correct its path");
}

}  // namespace
}  // namespace lockstep
