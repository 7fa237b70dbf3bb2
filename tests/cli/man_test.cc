// The manual pages cover every command and flag, and groff formats them without a warning.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "base/file.h"
#include "base/os/process.h"
#include "base/runtime_settings.h"
#include "support/program.h"
#include "train/config.h"

namespace lockstep {
namespace {

const std::string& pages() {
  static const TempDir dir;
  static const std::string folder = [] {
    const ProcessResult result = run_lockstep({"man", dir.path() + "/new/man1"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return dir.path() + "/new/man1";
  }();
  return folder;
}

// A page as text of 80 columns, with all spaces as one.
std::string formatted(const std::string& name) {
  const auto result = RunningProgram({"groff", "-man", "-Tutf8", "-wall", "-P-c", pages() + "/" + name + ".1"}).wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "") << name;
  const std::string text = std::regex_replace(result.out, std::regex(".\b"), "");  // bold and underlined letters
  return std::regex_replace(std::regex_replace(text, std::regex("−"), "-"), std::regex("\\s+"), " ");
}

bool has_groff() { return !find_program("groff").empty(); }

TEST(ManPages, EveryCommandHasAPage) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(pages())) found.insert(entry.path().filename());
  for (const std::string name : {
#define COMMAND(name, title) "lockstep-" #name ".1",
#include "cli/commands.def"
#undef COMMAND
           "lockstep.1", "lockstep-data-fetch.1", "lockstep-render-slurm.1"})
    EXPECT_TRUE(found.contains(name)) << name;
  EXPECT_FALSE(found.contains("lockstep-man.1")) << "a hidden command";
}

TEST(ManPages, AreFormattedWithoutWarnings) {
  if (!has_groff()) GTEST_SKIP() << "groff is not installed; install groff-base";
  Words command = {"groff", "-man", "-Tutf8", "-wall", "-z"};
  for (const auto& entry : std::filesystem::directory_iterator(pages())) command.push_back(entry.path());
  const ProcessResult result = run_process(command, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
}

TEST(ManPages, TrainHasEverySettingAndItsExitCodes) {
  if (!has_groff()) GTEST_SKIP() << "groff is not installed; install groff-base";
  const std::string text = formatted("lockstep-train");
  for (const ConfigKey& key : config_keys()) EXPECT_NE(text.find(key.flag()), text.npos) << key.flag();
  for (const char* part :
       {"LOCKSTEP-TRAIN(1)", "NAME lockstep-train - ", "SYNOPSIS lockstep train [OPTIONS]", "EXIT STATUS 0 Success.",
        "128 + N Stopped by signal N", "EXAMPLES lockstep train", "SEE ALSO lockstep(1)"})
    EXPECT_NE(text.find(part), text.npos) << part << " in\n" << text;
}

TEST(ManPages, TheProgramHasItsCommandsAndVariables) {
  if (!has_groff()) GTEST_SKIP() << "groff is not installed; install groff-base";
  const std::string text = formatted("lockstep");
  for (const detail::RuntimeSetting& each : detail::runtime_settings())
    EXPECT_NE(text.find(std::string(each.variable)), text.npos) << each.variable;
  for (const char* part : {"TRAINING COMMANDS train Train", "lockstep help COMMAND describes a command.",
                           "lockstep-train(1)", "launch Start"})
    EXPECT_NE(text.find(part), text.npos) << part << " in\n" << text;
  EXPECT_NE(formatted("lockstep-launch").find("lockstep launch [OPTIONS] -- COMMAND"), std::string::npos);
}

TEST(ManPages, AFolderIsNeeded) {
  expect_usage_error({"man"}, "man: DIR is required; see `lockstep man --help`");
  const TempDir dir;
  std::ofstream(dir.path() + "/file") << "x";
  const ProcessResult result = run_lockstep({"man", dir.path() + "/file/man1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("Not a directory"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace lockstep
