// What all commands have in common.
#include "lockstep/version.h"
#include "support/program.h"

namespace lockstep {
namespace {

TEST(Cli, PrintsItsVersion) {
  for (const char* spelling : {"version", "--version", "-V"}) {
    const detail::ProcessResult result = run_lockstep({spelling});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "lockstep " LOCKSTEP_VERSION "\n");
  }
}

TEST(Cli, HelpListsCommandsAndFlags) {
  EXPECT_EQ(run_lockstep({"--help"}).exit_code, 0);
  EXPECT_NE(run_lockstep({"--help"}).output.find("fetch and check data sets"), std::string::npos);
  EXPECT_NE(run_lockstep({"data", "fetch", "--help"}).output.find("--dir"), std::string::npos);
}

TEST(Cli, HelpIsACommandToo) {
  const std::string all = run_lockstep({"--help"}).output;
  for (const Words& words : {Words{}, Words{"help"}, Words{"help", "--help"}}) {
    const detail::ProcessResult result = run_lockstep(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, all);
  }
  EXPECT_EQ(run_lockstep({"help", "data", "fetch"}).output, run_lockstep({"data", "fetch", "--help"}).output);
  expect_usage_error({"help", "trian"},
                     "help: no command \"trian\"; did you mean \"train\"? `lockstep --help` lists them");
  expect_usage_error({"train", "help"}, "train: the settings file \"help\" does not exist; `lockstep train --help`");
}

RunningProgram::Result run_in_shell(const std::string& script, const Words& arguments) {
  return RunningProgram(Words{"sh", "-c", script, program_path()} + arguments).wait();
}

TEST(Cli, OutputThatCannotBeWrittenIsAFailure) {
  const std::string said = "lockstep: standard output could not be written: ";
  for (const Words& command : {Words{"version"}, Words{"train", "--print-config"}, Words{"devices"}}) {
    const RunningProgram::Result full = run_in_shell("exec \"$0\" \"$@\" >/dev/full", command);
    EXPECT_EQ(full.exit_code, 1) << command[0];
    EXPECT_EQ(full.err, said + "No space left on device; what it holds is not all\n");
    const RunningProgram::Result closed = run_in_shell("exec \"$0\" \"$@\" >&-", command);
    EXPECT_EQ(closed.exit_code, 1) << command[0];
    EXPECT_EQ(closed.err, said + "Bad file descriptor; what it holds is not all\n");
  }
  // A wrong command line stays one.
  EXPECT_EQ(run_in_shell("exec \"$0\" dta >/dev/full", {}).exit_code, 2);
}

TEST(Cli, ReadersMayGoBeforeTheEnd) {
  const RunningProgram::Result result = run_in_shell("(trap '' PIPE; \"$0\" version; echo $? >&2) | true", {});
  EXPECT_EQ(result.err, "0\n");
}

TEST(Cli, WrongCommandLinesSayWhatToDo) {
  expect_usage_error({"dta"}, "no command \"dta\"; did you mean \"data\"? `lockstep --help` shows what there is");
  expect_usage_error({"xyzzy"}, "no command \"xyzzy\"; `lockstep --help` shows what there is");
  expect_usage_error({"--bogus", "data"}, "no flag --bogus; `lockstep --help` shows what there is");
  expect_usage_error({"data"}, "data: a command is missing; `lockstep data --help` shows what there is");
  expect_usage_error(
      {"data", "fetch", "mnist", "--dri=x"},
      "data fetch: no flag --dri; did you mean \"--dir\"? `lockstep data fetch --help` shows what there is");
  expect_usage_error({"data", "fetch", "mnist", "more"},
                     "data fetch: \"more\" is one argument too many; `lockstep data fetch --help` shows what there is");
  expect_usage_error({"data", "fetch"},
                     "data fetch: NAME is required; `lockstep data fetch --help` shows what there is");
  // Flags after a misspelt command belong to the command that was meant.
  expect_usage_error({"trian", "--model", "cnn"},
                     "no command \"trian\"; did you mean \"train\"? `lockstep --help` shows what there is");
  expect_usage_error({"data", "fetsh", "mnist", "--dir", "x"},
                     "data: no command \"fetsh\"; did you mean \"fetch\"? `lockstep data --help` shows what there is");
  expect_usage_error(
      {"data", "fetch", "cifar"},
      "data fetch: NAME: \"cifar\" is not one of mnist, fashion-mnist; `lockstep data fetch --help` shows "
      "what there is");
  // A wrong value is named, not what stands after it.
  expect_usage_error({"render", "slurm", "--nodes", "two", "--", "devices"},
                     "render slurm: --nodes: \"two\" is not a whole number from 1 to 1000000; `lockstep render slurm "
                     "--help` shows what there is");
}

}  // namespace
}  // namespace lockstep
