#include "jobs/run_program.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "base/file.h"
#include "base/throws.h"
#include "support/program.h"

namespace lockstep {
namespace {

TEST(RunProgram, ReturnsBothStreamsAndTheExitCode) {
  const ProgramResult result = run_program({"bash", "-c", "echo out; echo err >&2; exit 3"});
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST(RunProgram, WritesTheInputAndClosesIt) {
  const std::string input(1 << 20, 'x');  // more than a pipe buffers
  EXPECT_EQ(run_program({"cat"}, input).out, input);
  EXPECT_EQ(run_program({"cat"}).out, "");
  EXPECT_EQ(run_program({"true"}, input).code, 0);  // a program that does not read its input
}

TEST(RunProgram, ReturnsTheSignalAsExitCode) {
  EXPECT_EQ(run_program({"bash", "-c", "kill -SEGV $$"}).code, 128 + SIGSEGV);
}

TEST(RunProgram, ArgumentsAreNotInterpretedByAShell) {
  EXPECT_EQ(run_program({"printf", "<%s>", "$(id) 'a'"}).out, "<$(id) 'a'>");
}

TEST(RunProgram, KillsTheProgramAndItsChildrenAtTheDeadline) {
  const TempDir dir;
  const std::string file = dir.path() + "/pid";
  EXPECT_THROWS(run_program({"bash", "-c", "sleep 1000 & echo $! >$0; wait", file}, "", std::chrono::seconds(2)),
                IoError,
                "run bash: it did not end within 2 s and was killed; check that the service it contacts responds");
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(file);
  ASSERT_FALSE(bytes.empty());
  EXPECT_TRUE(is_gone_soon(std::stoi(std::string(bytes.begin(), bytes.end()))));
}

TEST(RunProgram, MissingProgramsAreRejected) {
  EXPECT_THROWS(run_program({"no-such-program"}), Error,
                "run a program: \"no-such-program\" was not found on the PATH; install it, or correct the PATH");
  EXPECT_THROWS(run_program({"/no/such"}), Error,
                "run a program: \"/no/such\" is not an executable file; correct its path");
}

}  // namespace
}  // namespace lockstep
