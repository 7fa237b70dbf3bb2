// What users see in a terminal: the bar and the first lines of `lockstep train`, Ctrl-C, colors, and help.
#include "support/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/terminal_style.h"
#include "cli/training.h"

namespace lockstep {
namespace {

const Words kLong = {"--steps", "1000000", "--eval-every", "1000000"};

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TrainInATerminal, ShowsSixLinesAndABarOf80Columns) {
  TerminalProgram program(train_command(kLong), 80);
  ASSERT_TRUE(program.shows("accuracy ")) << program.screen().text();
  ASSERT_TRUE(program.shows("/s")) << program.screen().text();  // the rate
  const std::vector<std::string> lines = program.screen().lines();
  ASSERT_EQ(lines.size(), 7u) << program.screen().text();
  EXPECT_TRUE(lines[0].starts_with("data       ")) << lines[0];
  EXPECT_NE(program.screen().text().find("600 training and 100 test examples of 28 x 28"), std::string::npos);
  const char* const wanted[] = {"model      mlp, 235,146 parameters", "devices    1 device on the CPU (",
                                "training   1000000 steps ", "optimizer  adamw, learning rate 0.001 (cosine), float32",
                                "saved      nothing is saved (--no-save)"};
  for (size_t i = 0; i < std::size(wanted); ++i) EXPECT_TRUE(lines[i + 1].starts_with(wanted[i])) << lines[i + 1];
  for (const char* part : {"epoch ", "▕", "▏", "0%", "/1000000", "loss "})
    EXPECT_NE(lines[6].find(part), std::string::npos) << part << " in " << lines[6];
}

// The echoed ^C does not break the line of the bar.
TEST(TrainInATerminal, InterruptIsAcknowledgedAndLeavesNoBar) {
  const TempDir dir;
  TerminalProgram program(train_command(kLong + Words{"--checkpoint-dir", dir.path() + "/run"}), 80);
  ASSERT_TRUE(program.shows("/1000000  loss")) << program.screen().text();
  program.type("\x03");
  EXPECT_EQ(program.wait(), 130);
  const std::string text = program.screen().text();
  EXPECT_NE(text.find("lockstep: stopping after this step; press Ctrl-C again to quit without saving\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("lockstep: stopped by SIGINT at step "), std::string::npos) << text;
  EXPECT_EQ(count_of(text, "▕"), 0u) << text;
  EXPECT_EQ(count_of(text, "^C"), 0u) << text;
  EXPECT_EQ(list_checkpoints(dir.path() + "/run").size(), 1u);
}

// A step that takes minutes, so that the second interrupt arrives during it.
TEST(TrainInATerminal, SecondInterruptSaysWhatIsLost) {
  const TempDir dir;
  TerminalProgram program(
      train_command(kLong + Words{"--eval-every", "1", "--eval-batch", "1", "--checkpoint-dir", dir.path() + "/run"}),
      80);
  ASSERT_TRUE(program.shows("loss")) << program.screen().text();
  program.type("\x03\x03");
  EXPECT_EQ(program.wait(), 130);
  const std::string text = program.screen().text();
  EXPECT_NE(text.find("press Ctrl-C again"), std::string::npos) << text;
  // Unless the run had ended by itself in between.
  if (text.find("stopped by SIGINT at step") == std::string::npos) {
    EXPECT_NE(text.find("lockstep: quit without saving; the steps since the last checkpoint are lost\n"),
              std::string::npos)
        << text;
  }
}

TEST(TrainInATerminal, BarFollowsTheWidth) {
  TerminalProgram program(train_command(kLong), 120);
  ASSERT_TRUE(program.shows("/s  "));  // the rate
  program.resize(30);
  ASSERT_TRUE(program.shows([](const Screen& screen) {
    return !screen.lines().empty() && display_width(screen.lines().back()) < 30;
  })) << program.screen().text();
  EXPECT_EQ(count_of(program.screen().text(), "▕"), 0u) << program.screen().text();
}

TEST(TrainInATerminal, DumbTerminalAndNoColorHaveNoEscapes) {
  for (const std::pair<std::string, std::string>& variable :
       {std::pair<std::string, std::string>{"TERM", "dumb"}, {"NO_COLOR", "1"}}) {
    TerminalProgram program(train_command({"--steps", "3"}), 80, {variable});
    EXPECT_EQ(program.wait(), 0);
    EXPECT_EQ(program.output().find("\033[1m"), std::string::npos) << program.output();
    EXPECT_EQ(program.output().find('\033') != std::string::npos, variable.first == "NO_COLOR");
    EXPECT_NE(program.screen().text().find("\ndone  step 3/3"), std::string::npos) << program.screen().text();
  }
}

TEST(TrainInATerminal, AsciiWithoutAnUtf8Locale) {
  TerminalProgram program(train_command(kLong), 80, {{"LC_ALL", "C"}});
  ASSERT_TRUE(program.shows("loss "));
  for (const char c : program.output()) ASSERT_GE(static_cast<signed char>(c), 0);
}

// A restart does not print the first lines again.
TEST(TrainInATerminal, LaunchShowsTheBarOfProcess0) {
  TerminalProgram program(Words{program_path(), "launch", "-n", "2", "--"} +
                              Words{"train", "--dataset", small_dataset(), "--batch-size", "50", "--no-save"} + kLong,
                          100);
  ASSERT_TRUE(program.shows("/1000000  loss")) << program.screen().text();
  const std::string text = program.screen().text();
  EXPECT_EQ(count_of(text, "] model      mlp"), 1u) << text;
  EXPECT_EQ(count_of(text, "[1]"), 0u) << text;
  program.type("\x03");
  EXPECT_EQ(program.wait(), 130);
  EXPECT_EQ(count_of(program.screen().text(), "▕"), 0u) << program.screen().text();
  EXPECT_NE(program.screen().text().find("[0] lockstep: stopping after this step"), std::string::npos)
      << program.screen().text();
}

TEST(Train, VerbosePrintsTheTableOfParameters) {
  const RunningProgram::Result plain = train({"--steps", "1"}), verbose = train({"--steps", "1", "--verbose"});
  EXPECT_EQ(plain.err.find("dense/0/w"), std::string::npos) << plain.err;
  expect_contains(verbose.err, "memory        parameters");
  expect_contains(verbose.err, "  dense/0/w  f32[784,256]");
}

TEST(Colors, ErrorsAreRedOnATerminalOnly) {
  TerminalProgram colored({program_path(), "train", "--batch-size", "0"}, 80);
  EXPECT_EQ(colored.wait(), 2);
  EXPECT_TRUE(colored.output().starts_with("\033[1;31mlockstep:\033[0m train: ")) << colored.output();
  const ProcessResult plain = run_lockstep({"train", "--batch-size", "0"});
  EXPECT_TRUE(plain.output.starts_with("lockstep: train: ")) << plain.output;
}

TEST(Colors, HelpHasBoldHeadingsAndBreaksBetweenWords) {
  TerminalProgram program({program_path(), "train", "--help"}, 60);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_NE(program.output().find("\033[1mUsage:\033[0m lockstep train"), std::string::npos) << program.output();
  std::istringstream words(run_lockstep({"train", "--help"}).output), narrow(program.screen().text());
  const auto text_of = [](std::istringstream& in) {
    std::string out;
    for (std::string word; in >> word;) out += word;
    return out;
  };
  // The same words in the same order: none is broken with other characters or lost.
  EXPECT_EQ(text_of(narrow), text_of(words));
  EXPECT_EQ(run_lockstep({"--help"}).output.find('\033'), std::string::npos);
}

TEST(Colors, DoctorMarksItsResult) {
  TerminalProgram program({program_path(), "doctor", "--platform", "cpu"}, 80);
  const int code = program.wait();
  EXPECT_NE(program.output().find("\033[1mlaunchers\033[0m"), std::string::npos) << program.output();
  EXPECT_NE(program.output().find(code == 0 ? "\033[32mno problems found\033[0m" : "\033[1;31m"), std::string::npos)
      << program.output();
}

}  // namespace
}  // namespace lockstep
