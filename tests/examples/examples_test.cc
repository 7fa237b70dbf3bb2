// Runs every program of examples/ as a user would and looks at what it prints.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string text;  // both streams
};

Outcome run(const std::string& name, const std::string& arguments) {
  const std::string command = "'" LOCKSTEP_BINARY_DIR "/examples/" + name + "' " + arguments + " 2>&1 </dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  Outcome outcome;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::set<std::string> sources() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_SOURCE_DIR "/examples"))
    if (entry.path().extension() == ".cc") names.insert(entry.path().stem());
  return names;
}

// The first number after `words`, which must be there.
double number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << "no \"" << words << "\" in\n" << text;
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + words.size());
}

TEST(Examples, AreShort) {
  for (const std::string& name : sources()) {
    std::ifstream file(LOCKSTEP_SOURCE_DIR "/examples/" + name + ".cc");
    std::stringstream text;
    text << file.rdbuf();
    const std::string lines = text.str();
    EXPECT_LE(std::count(lines.begin(), lines.end(), '\n'), name == "linear_regression" ? 30 : 80) << name;
  }
}

TEST(Examples, LinearRegressionFindsTheLine) {
  const Outcome r = run("linear_regression", "");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NEAR(number_after(r.text, "weight "), 3, 0.02);
  EXPECT_NEAR(number_after(r.text, "bias "), 2, 0.02);
}

// Programs that train on images share their flags and what they print.
class Training : public testing::TestWithParam<std::string> {};

TEST_P(Training, PrintsTimeAndAccuraciesOfEveryEpoch) {
  const Outcome r = run(GetParam(), "--data synthetic --epochs 1");
  EXPECT_EQ(r.code, 0) << r.text;
  const std::regex epoch(
      R"(Epoch (\d+) in \d+\.\d+ sec\nTraining set accuracy (\d\.\d+)\nTest set accuracy (\d\.\d+)\n)");
  int seen = 0;
  for (auto it = std::sregex_iterator(r.text.begin(), r.text.end(), epoch); it != std::sregex_iterator();
       ++it, ++seen) {
    EXPECT_EQ(std::stoi((*it)[1]), seen);
    for (int group : {2, 3}) {
      EXPECT_GT(std::stod((*it)[static_cast<size_t>(group)]), 0.2) << r.text;  // ten classes: guessing gives 0.1
      EXPECT_LE(std::stod((*it)[static_cast<size_t>(group)]), 1.0);
    }
  }
  EXPECT_EQ(seen, 1) << r.text;
}

TEST_P(Training, NoEpochsPrintNothing) {
  const Outcome r = run(GetParam(), "--data synthetic --epochs 0");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(r.text, "");
}

TEST_P(Training, WrongFlagsAreOneLineAndAFailure) {
  const auto fails = [](const std::string& arguments, const std::string& part) {
    const Outcome r = run(GetParam(), arguments);
    EXPECT_EQ(r.code, 1) << arguments << '\n' << r.text;
    EXPECT_NE(r.text.find(part), std::string::npos) << arguments << '\n' << r.text;
    EXPECT_EQ(std::count(r.text.begin(), r.text.end(), '\n'), 1) << r.text;
  };
  fails("--epoch 1", "--epoch");
  fails("--epochs", "--epochs");
  fails("--epochs many", "many");
  fails("--epochs 1x", "1x");
  fails("extra", "extra");
  fails("--data nothing", "there is no data set named \"nothing\"");
  fails("--data mnist --data-dir /nonexistent", "/nonexistent");
}

std::vector<std::string> training_programs() {
  std::vector<std::string> out;
  for (const std::string& name : sources())
    if (name != "linear_regression") out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Programs, Training, testing::ValuesIn(training_programs()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace lockstep
