#include "train/startup.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/terminal_style.h"

namespace lockstep {
namespace {

StartupFacts mnist() {
  return {.dataset = "mnist",
          .train = 60000,
          .test = 10000,
          .example = "28 x 28",
          .model = "mlp",
          .parameters = 235146,
          .devices = 8,
          .threads = 2,
          .mesh = {{"data", 8}},
          .steps = 938,
          .steps_per_epoch = 469,
          .batch_size = 128,
          .optimizer = "adamw",
          .schedule = "cosine",
          .precision = "float32",
          .learning_rate = 1e-3,
          .checkpoint_dir = "run"};
}

// The text of a line without its label.
std::string line_of(const StartupFacts& facts, const std::string& label) {
  std::istringstream lines(startup_text(facts, 0, false));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(label + " ")) return line.substr(11);
  return "no line " + label;
}

TEST(Startup, HasSixLines) {
  EXPECT_EQ(startup_text(mnist(), 79, false),
            "data       mnist: 60,000 training and 10,000 test examples of 28 x 28\n"
            "model      mlp, 235,146 parameters\n"
            "devices    8 virtual devices on the CPU (2 threads), data parallel\n"
            "training   938 steps: 2 epochs of 469 steps, batch size 128\n"
            "optimizer  adamw, learning rate 0.001 (cosine), float32, seed 0\n"
            "saved in   run");
}

TEST(Startup, RunWithoutAFolderSaysSo) {
  StartupFacts facts = mnist();
  facts.checkpoint_dir.clear();
  EXPECT_EQ(line_of(facts, "saved"), "nothing is saved; --run-dir DIR keeps the run");
  facts.no_save = true;
  EXPECT_EQ(line_of(facts, "saved"), "nothing is saved (--no-save)");
  facts.no_save = false;
  facts.log_dir = "log";
  EXPECT_EQ(line_of(facts, "saved"), "nothing is saved, but metrics in log; --run-dir DIR keeps the run");
}

TEST(Startup, DevicesArePlainWords) {
  StartupFacts facts = mnist();
  facts.devices = facts.threads = 1;
  facts.mesh = {{"data", 1}};
  EXPECT_EQ(line_of(facts, "devices"), "1 device on the CPU (1 thread)");
  facts.devices = 16, facts.processes = 2, facts.threads = 4;
  facts.mesh = {{"data", 4}, {"model", 4}};
  facts.rules = 2, facts.zero = 3;
  EXPECT_EQ(line_of(facts, "devices"),
            "16 virtual devices in 2 CPU processes (4 threads each), mesh data=4 model=4, 2 sharding rules, ZeRO 3");
  facts.devices = 2;
  EXPECT_TRUE(line_of(facts, "devices").starts_with("2 devices in 2 CPU processes (4 threads each)"));
  facts = mnist();
  facts.gpu = "NVIDIA H200", facts.gpus = 8;
  EXPECT_EQ(line_of(facts, "devices"), "8 GPUs (NVIDIA H200), data parallel");
  facts.gpus = 1;
  EXPECT_EQ(line_of(facts, "devices"), "8 virtual devices on 1 GPU (NVIDIA H200), data parallel");
  facts.processes = 8;
  EXPECT_EQ(line_of(facts, "devices"), "8 GPUs in 8 processes (NVIDIA H200), data parallel");
}

TEST(Startup, LengthIsInStepsAndEpochs) {
  StartupFacts facts = mnist();
  facts.steps = 100;
  EXPECT_EQ(line_of(facts, "training"), "100 steps (0.213 epochs), batch size 128");
  facts.steps = 1000;
  EXPECT_EQ(line_of(facts, "training"), "1000 steps (2.1 epochs), batch size 128");
  facts.steps = 469, facts.accumulate = 4, facts.first_step = 200;
  EXPECT_EQ(line_of(facts, "training"), "469 steps: 1 epoch of 469 steps, batch size 128 in 4 parts, from step 200");
}

TEST(Startup, DataSetsAreCounted) {
  StartupFacts facts = mnist();
  facts.dataset.clear(), facts.example.clear(), facts.validation = 6000;
  EXPECT_EQ(line_of(facts, "data"), "60,000 training, 6,000 validation and 10,000 test examples");
  facts.validation = facts.test = 0;
  EXPECT_EQ(line_of(facts, "data"), "60,000 training examples");
}

TEST(Startup, LongTextContinuesBetweenWords) {
  StartupFacts facts = mnist();
  facts.processes = 4, facts.mesh = {{"data", 4}, {"model", 2}}, facts.rules = 12, facts.zero = 2;
  std::istringstream lines(startup_text(facts, 79, false));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(display_width(line), 79u) << line;
  EXPECT_EQ(count, 7u);
  EXPECT_NE(startup_text(facts, 79, false).find("\n           model=2, 12 sharding rules, ZeRO 2\n"), std::string::npos)
      << startup_text(facts, 79, false);
}

TEST(Startup, NamesFromOutsideAreEscaped) {
  StartupFacts facts = mnist();
  facts.dataset = "text:\033[31m";
  EXPECT_EQ(line_of(facts, "data"), "text:\\x1b[31m: 60,000 training and 10,000 test examples of 28 x 28");
}

TEST(Startup, LabelsAreBoldWithColor) {
  EXPECT_TRUE(startup_text(mnist(), 79, true).starts_with("\033[1mdata\033[0m       mnist: "));
}

}  // namespace
}  // namespace lockstep
