// Behavior that all commands share: version, help, output errors, wrong command lines.
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "lockstep/version.h"
#include "support/program.h"

namespace lockstep {
namespace {

TEST(Cli, PrintsItsVersion) {
  for (const char* spelling : {"version", "--version", "-V"}) {
    const ProcessResult result = run_lockstep({spelling});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "lockstep " LOCKSTEP_VERSION "\n");
  }
}

TEST(Cli, HelpListsCommandsAndFlags) {
  EXPECT_EQ(run_lockstep({"--help"}).exit_code, 0);
  EXPECT_NE(run_lockstep({"--help"}).output.find("download and verify data sets"), std::string::npos);
  EXPECT_NE(run_lockstep({"data", "fetch", "--help"}).output.find("--dir"), std::string::npos);
}

TEST(Cli, HelpIsAlsoACommand) {
  const std::string all = run_lockstep({"--help"}).output;
  for (const Words& words : {Words{}, Words{"help"}, Words{"help", "--help"}}) {
    const ProcessResult result = run_lockstep(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, all);
  }
  EXPECT_EQ(run_lockstep({"help", "data", "fetch"}).output, run_lockstep({"data", "fetch", "--help"}).output);
  for (const char* command : {"train", "data", "launch", "logs", "devices"}) {
    const ProcessResult result = run_lockstep({command, "help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_EQ(result.output, run_lockstep({command, "--help"}).output);
  }
  expect_usage_error({"help", "trian"},
                     "help: unknown command \"trian\"; did you mean \"train\"? see `lockstep --help`");
}

TEST(Cli, FileNamedHelpIsASettingsFile) {
  const TempDir dir;
  std::ofstream(dir.path() + "/help") << "model: cnn\n";
  const RunningProgram::Result result =
      RunningProgram({"sh", "-c", "cd \"$1\" && exec \"$0\" train help --print-config", program_path(), dir.path()})
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("model: cnn\n"), std::string::npos) << result.out;
}

RunningProgram::Result run_in_shell(const std::string& script, const Words& arguments) {
  return RunningProgram(Words{"sh", "-c", script, program_path()} + arguments).wait();
}

TEST(Cli, OutputThatCannotBeWrittenIsAFailure) {
  const std::string message = "lockstep: cannot write to standard output: ";
  for (const Words& command : {Words{"version"}, Words{"train", "--print-config"}, Words{"devices"}}) {
    const RunningProgram::Result full = run_in_shell("exec \"$0\" \"$@\" >/dev/full", command);
    EXPECT_EQ(full.exit_code, 1) << command[0];
    EXPECT_EQ(full.err, message + "No space left on device; the output is incomplete\n");
    const RunningProgram::Result closed = run_in_shell("exec \"$0\" \"$@\" >&-", command);
    EXPECT_EQ(closed.exit_code, 1) << command[0];
    EXPECT_EQ(closed.err, message + "Bad file descriptor; the output is incomplete\n");
  }
  // The exit code of a wrong command line does not change.
  EXPECT_EQ(run_in_shell("exec \"$0\" dta >/dev/full", {}).exit_code, 2);
}

TEST(Cli, ReaderOfThePipeMayExitEarly) {
  const RunningProgram::Result result = run_in_shell("(trap '' PIPE; \"$0\" version; echo $? >&2) | true", {});
  EXPECT_EQ(result.err, "0\n");
}

TEST(Cli, WrongCommandLinesNameTheMistakeAndTheHelp) {
  expect_usage_error({"dta"}, "unknown command \"dta\"; did you mean \"data\"? see `lockstep --help`");
  expect_usage_error({"xyzzy"}, "unknown command \"xyzzy\"; see `lockstep --help`");
  expect_usage_error({"--bogus", "data"}, "unknown flag --bogus; see `lockstep --help`");
  expect_usage_error({"data"}, "data: a command is missing; see `lockstep data --help`");
  expect_usage_error({"data", "fetch", "mnist", "--dri=x"},
                     "data fetch: unknown flag --dri; did you mean \"--dir\"? see `lockstep data fetch --help`");
  expect_usage_error({"data", "fetch", "mnist", "more"},
                     "data fetch: unexpected argument \"more\"; see `lockstep data fetch --help`");
  expect_usage_error({"data", "fetch"}, "data fetch: NAME is required; see `lockstep data fetch --help`");
  // Flags after a misspelt command are not reported as wrong.
  expect_usage_error({"trian", "--model", "cnn"},
                     "unknown command \"trian\"; did you mean \"train\"? see `lockstep --help`");
  expect_usage_error({"data", "fetsh", "mnist", "--dir", "x"},
                     "data: unknown command \"fetsh\"; did you mean \"fetch\"? see `lockstep data --help`");
  expect_usage_error({"data", "fetch", "imagenet"},
                     "data fetch: NAME: \"imagenet\" is not one of mnist, fashion-mnist, cifar10, moby-dick, sotu; see "
                     "`lockstep data fetch --help`");
  // The message names the wrong value, not the words after it.
  expect_usage_error(
      {"render", "slurm", "--nodes", "two", "--", "devices"},
      "render slurm: --nodes: \"two\" is not a whole number from 1 to 1000000; see `lockstep render slurm "
      "--help`");
}

}  // namespace
}  // namespace lockstep
