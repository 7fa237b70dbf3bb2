// The commands of the pages work and print what the pages show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>

#include "guides/guide.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

using namespace guides;

class Guide : public testing::TestWithParam<std::string> {};

TEST_P(Guide, CommandsWorkAndPrintWhatItShows) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "built without the control plane, which jobs of several processes need";
#endif
  const std::string path = LOCKSTEP_SOURCE_DIR "/" + GetParam();
  const std::vector<Step> steps = read_guide(read_text(path));
  ASSERT_FALSE(steps.empty()) << path;
  const bool has_mnist = run_lockstep({"data", "verify", "mnist"}).exit_code == 0;
  const std::vector<Outcome> outcomes = run_guide(steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].needs_mnist && !has_mnist) continue;
    const std::string where = path + ":" + std::to_string(steps[i].line) + ": " + steps[i].command;
    const bool code_is_shown = i + 1 < steps.size() && steps[i + 1].command == "echo $?";
    EXPECT_TRUE(code_is_shown || outcomes[i].exit_code == 0) << where << "\nexit code " << outcomes[i].exit_code << "\n"
                                                             << outcomes[i].output;
    std::vector<std::string> printed;
    std::istringstream in(outcomes[i].output);
    for (std::string line; std::getline(in, line);) printed.push_back(line);
    for (const std::string& shown : steps[i].shown)
      EXPECT_TRUE(shown == "..." || std::any_of(printed.begin(), printed.end(),
                                                [&](const std::string& line) { return is_shown_as(line, shown); }))
          << where << "\nshows:  " << shown << "\nprinted:\n"
          << outcomes[i].output;
  }
}

// README.md and every page of docs/ that has commands to run, or blocks that cannot be read: their test fails.
std::vector<std::string> pages_with_commands() {
  std::vector<std::string> out;
  for (const std::string& page : all_pages()) {
    if (page == "CONTRIBUTING.md" || page == "CHANGELOG.md") continue;
    try {
      if (read_guide(read_text(LOCKSTEP_SOURCE_DIR "/" + page)).empty()) continue;
    } catch (const std::runtime_error&) {
    }
    out.push_back(page);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Pages, Guide, testing::ValuesIn(pages_with_commands()), [](const auto& p) {
  std::string name = p.param.substr(0, p.param.rfind('.'));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

TEST(GuideReader, RunsOnlyWhatIsMarked) {
  const std::vector<Step> steps = read_guide(
      "text\n```\n$ no\n```\n```console\n$ no\n```\n```sh\n$ one \\\n  more\nout\n\n...\n$ two\n```\n"
      "$ no\n```sh mnist\n$ three\n```\n");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].command, "one \\\n  more");
  EXPECT_EQ(steps[0].shown, (std::vector<std::string>{"out", "..."}));
  EXPECT_EQ(steps[0].line, 9);
  EXPECT_FALSE(steps[0].needs_mnist);
  EXPECT_EQ(steps[1].command, "two");
  EXPECT_TRUE(steps[1].shown.empty());
  EXPECT_EQ(steps[2].command, "three");
  EXPECT_TRUE(steps[2].needs_mnist);
}

TEST(GuideReader, BlocksThatCannotBeRunAreRejected) {
  EXPECT_THROW(read_guide("```sh\n```\n"), std::runtime_error);
  EXPECT_THROW(read_guide("```sh\nlockstep train\n```\n"), std::runtime_error);
  EXPECT_THROW(read_guide("```sh\n$ lockstep train\n"), std::runtime_error);
}

TEST(GuideReader, NumbersThatChangeAreNotCompared) {
  EXPECT_TRUE(is_shown_as("a-worker-0   0/1     Completed   0          12s", "a-worker-0 0/1 Completed   0   108m"));
  EXPECT_FALSE(is_shown_as("a-worker-1   0/1     Completed   0          12s", "a-worker-0 0/1 Completed   0   108m"));
  EXPECT_FALSE(is_shown_as("a-worker-0   0/1     Error       0          12s", "a-worker-0 0/1 Completed   0   108m"));
  EXPECT_TRUE(is_shown_as("startTime: \"2026-11-15T10:58:30Z\"", "startTime: \"2024-12-18T16:47:28Z\""));
  EXPECT_TRUE(is_shown_as("uid: 15f1db77-3326-405d-95e6-3d9a0d581611", "uid: 00000000-1111-4222-8333-444444444444"));
  EXPECT_TRUE(is_shown_as("accuracy 92.96 % in 7.8 s", "accuracy 91.00 % in 12.25 s"));
  EXPECT_FALSE(is_shown_as("16 devices", "8 devices"));
  EXPECT_TRUE(is_shown_as("one two three", "one ... three"));
  EXPECT_TRUE(is_shown_as("one two three", "...two..."));
  EXPECT_FALSE(is_shown_as("one two three", "two..."));
  EXPECT_FALSE(is_shown_as("one", "one...one"));
}

}  // namespace
}  // namespace lockstep
