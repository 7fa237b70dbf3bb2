// The real program, run as a user runs it.
#include <cstdlib>

#include "base/throws.h"
#include "data/digits.h"
#include "data/process.h"
#include "lockstep/version.h"

namespace lockstep::detail {
namespace {

ProcessResult lockstep(std::vector<std::string> arguments) {
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // the leak check of a sanitized child takes seconds at every exit
  arguments.insert(arguments.begin(), std::string(LOCKSTEP_BINARY_DIR) + "/lockstep");
  return run_process(arguments, std::chrono::seconds(60));
}

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& message) {
  const ProcessResult result = lockstep(arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "lockstep: " + message + "\n");
}

TEST(Cli, PrintsItsVersion) {
  for (const char* spelling : {"version", "--version"}) {
    const ProcessResult result = lockstep({spelling});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "lockstep " LOCKSTEP_VERSION "\n");
  }
}

TEST(Cli, HelpListsCommandsAndFlags) {
  EXPECT_EQ(lockstep({"--help"}).exit_code, 0);
  EXPECT_NE(lockstep({"--help"}).output.find("fetch and check data sets"), std::string::npos);
  EXPECT_NE(lockstep({"data", "fetch", "--help"}).output.find("--dir"), std::string::npos);
}

TEST(Cli, WrongCommandLinesSayWhatToDo) {
  expect_usage_error({}, "a command is missing; `lockstep --help` shows what there is");
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
}

TEST(Cli, UnknownDataSetListsTheKnown) {
  const ProcessResult result = lockstep({"data", "fetch", "cifar"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("cifar not in {mnist,fashion-mnist}"), std::string::npos) << result.output;
}

TEST(Cli, VerifyOfAnEmptyFolderFailsAndNamesTheRemedy) {
  const TempDir dir;
  const ProcessResult result = lockstep({"data", "verify", "mnist", "--dir", dir.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("mnist train-images-idx3-ubyte  missing\n"), std::string::npos) << result.output;
  EXPECT_NE(
      result.output.find("lockstep: 4 of the 4 files of mnist are missing or wrong; `lockstep data fetch mnist --dir " +
                         dir.path() + "` brings them\n"),
      std::string::npos)
      << result.output;
}

TEST(Cli, FetchIntoAnImpossibleFolderFailsBeforeDownloading) {
  const TempDir dir;
  FileSystem::real().write(dir.path() + "/file", std::vector<uint8_t>{1});
  const ProcessResult result = lockstep({"data", "fetch", "mnist", "--dir", dir.path() + "/file/sub"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output, "lockstep: create folder " + dir.path() +
                               "/file/sub: Not a directory; a part of the path is a file; check the path\n");
}

}  // namespace
}  // namespace lockstep::detail
