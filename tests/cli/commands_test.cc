// Commands that need no training: their output, and their messages about wrong flags.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "lockstep/checkpoint.h"
#include "lockstep/create.h"
#include "support/program.h"
#include "train/config.h"

namespace lockstep {
namespace {

void write_file(const std::string& path, const std::string& text) {
  FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
}

constexpr const char* kTrainHelp = "; see `lockstep train --help`";

TEST(TrainCommand, PrintsItsConfiguration) {
  const ProcessResult result = run_lockstep({"train", "--print-config"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, to_yaml({}));
}

TEST(TrainCommand, EveryFlagSetsItsKey) {
  for (const ConfigKey& key : config_keys()) {
    const bool is_switch = std::holds_alternative<config::Switch TrainConfig::*>(key.member);
    const std::string initial = text_of({}, key);
    const std::string value = is_switch ? "true" : initial.empty() ? "x" : initial;
    TrainConfig wanted;
    ASSERT_EQ(assign(wanted, key, value), "");
    // Some values are rejected after parsing, because they need other settings.
    const ProcessResult result =
        run_lockstep(is_switch ? std::vector<std::string>{"train", "--print-config", key.flag()}
                               : std::vector<std::string>{"train", "--print-config", key.flag(), value});
    if (result.exit_code == 0) {
      EXPECT_EQ(result.output, to_yaml(wanted)) << key.flag();
    } else {
      EXPECT_NE(result.output.find("lockstep: train: " + std::string(key.name) + ": "), std::string::npos)
          << key.flag() << result.output;
    }
  }
}

TEST(TrainCommand, FlagsOverrideTheFile) {
  const TempDir dir;
  const std::string file = dir.path() + "/run.yaml";
  write_file(file, "batch-size: 64\nmodel: cnn\nsteps: 7\nstrict: true\nexpect: [loss<1]\n");
  TrainConfig wanted;
  wanted.batch_size = 32;
  wanted.model = "cnn";
  wanted.epochs = 3;
  wanted.expect = {"test_accuracy>=0.9", "loss<2"};
  wanted.learning_rate = 0.25;
  const ProcessResult result = run_lockstep({"train", "--config", file, "--batch-size", "32", "--epochs=3",
                                             "--strict=false", "--expect", "test_accuracy>=0.9", "--expect=loss<2",
                                             "--learning-rate", "0.5", "--learning-rate", "0.25", "--print-config"});
  EXPECT_EQ(result.output, to_yaml(wanted));
}

TEST(TrainCommand, ShardFlagsAccumulateAndKeepTheirCommas) {
  TrainConfig wanted;
  wanted.mesh = "data=4,model=2";
  wanted.shard = {"dense/0/w=,model", "dense/1/w=model"};
  wanted.zero = 1;
  const ProcessResult result = run_lockstep({"train", "--mesh", "data=4,model=2", "--shard", "dense/0/w=,model",
                                             "--shard=dense/1/w=model", "--zero", "1", "--print-config"});
  EXPECT_EQ(result.output, to_yaml(wanted));
}

TEST(TrainCommand, WrongFlagsAreUsageErrors) {
  expect_usage_error({"train", "--batchsize", "3"},
                     "train: unknown flag --batchsize; did you mean \"--batch-size\"? see `lockstep train --help`");
  expect_usage_error({"train", "--lr", "3"},
                     "train: unknown flag --lr; did you mean \"--learning-rate\"? see `lockstep train --help`");
  expect_usage_error({"train", "--batch-size", "many"},
                     std::string("train: --batch-size: \"many\" is not a whole number of at least 1") + kTrainHelp);
  expect_usage_error({"train", "--learning-rate", "-1"},
                     std::string("train: --learning-rate: \"-1\" is not a number above 0") + kTrainHelp);
  expect_usage_error({"train", "--zero", "4"},
                     std::string("train: --zero: \"4\" is not a whole number from 0 to 3") + kTrainHelp);
  expect_usage_error({"train", "--shard", "dense*/w"},
                     "train: shard: \"dense*/w\" has no =; write PATTERN=AXES, the axes "
                     "of each dimension separated by commas, such as 'dense*/w=,model'");
  expect_usage_error({"train", "--steps", "5", "--epochs", "5"},
                     "train: command line: both steps (5) and epochs (5) are given; keep only one");
  expect_usage_error({"train", "--loggers", "csv", "--checkpoint-dir", "x"},
                     "train: loggers: csv writes a file; set log_dir");
  const ProcessResult model = run_lockstep({"train", "--print-schedule", "--model", "resnet"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_NE(model.output.find("train: model: "), std::string::npos) << model.output;
}

TEST(TrainCommand, ErrorsInFilesNameTheLine) {
  const TempDir dir;
  const std::string file = dir.path() + "/run.yaml";
  write_file(file, "model: mlp\nlr: 1\n");
  expect_usage_error(
      {"train", "--config", file},
      "train: " + file + ":2: unknown key \"lr\"; did you mean \"learning_rate\"? see `lockstep train --help`");
  const ProcessResult missing = run_lockstep({"train", "--config", dir.path() + "/none.yaml"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.output.find("none.yaml: No such file or directory"), std::string::npos) << missing.output;
}

TEST(DevicesCommand, PrintsLocalAndGlobalDevices) {
  const ProcessResult result = run_lockstep({"devices", "--devices", "3"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output,
            "# Local devices: [ 3 ], [cpu(id=0), cpu(id=1), cpu(id=2)]\n"
            "# Global devices:[ 3 ], [cpu(id=0), cpu(id=1), cpu(id=2)]\n");
}

TEST(DevicesCommand, RejectsInvalidDeviceCounts) {
  for (const char* wrong : {"0", "-1", "two", "3x", "131073"})
    expect_usage_error({"devices", "--devices", wrong},
                       "devices: --devices: \"" + std::string(wrong) +
                           "\" is not auto, all or a number from 1 to 131072; see `lockstep devices --help`");
}

TEST(AllreduceCommand, AllReducesAOneFromEveryDevice) {
  const ProcessResult result = run_lockstep({"allreduce", "--devices", "8"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "Total devices: 8  |  Devices per task: 8\nProcess 0 has y=[8.]\n");
}

TEST(AllreduceCommand, BenchPrintsALinePerSize) {
  const ProcessResult result = run_lockstep({"allreduce", "--devices", "4", "--bench", "--max-size", "1KiB"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part : {"busbw GB/s\n", " 4 B  ", " 16 B  ", " 64 B  ", " 256 B  ", " 1 KiB  "})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << "\n" << result.output;
  EXPECT_EQ(result.output.find("4 KiB"), std::string::npos) << result.output;
  EXPECT_EQ(run_lockstep({"allreduce", "--max-size", "1KiB"}).exit_code, 2);
}

TEST(AllreduceCommand, RejectsInvalidSizes) {
  for (const char* wrong : {"-1", "0", "3", "2TiB", "18446744073709551615", "99999999EiB", "1.5MiB", "much", ""})
    expect_usage_error({"allreduce", "--bench", "--max-size", wrong},
                       "allreduce: --max-size: \"" + std::string(wrong) +
                           "\" is not a size from 4B to 1TiB, such as 1MiB; see `lockstep allreduce --help`");
}

TEST(EvalCommand, RejectsInvalidBatchSizes) {
  for (const char* wrong : {"0", "-1", "2.5", "many", "99999999999999999999"})
    expect_usage_error({"eval", "run", "--batch-size", wrong},
                       "eval: --batch-size: \"" + std::string(wrong) +
                           "\" is not a whole number from 1 to 2147483647; see `lockstep eval --help`");
}

TEST(InspectCommand, ShowsTheNewestCheckpointOfAFolder) {
  const TempDir dir;
  Checkpoint checkpoint;
  checkpoint.cursor = {2, 30};
  checkpoint.seed = 9;
  checkpoint.arrays = {{"params/dense/0/w", ones({3, 4})}, {"params/dense/0/b", ones({4})}};
  checkpoint.config = {{"model", "mlp"}};
  checkpoint.metrics = {{"test_accuracy", 0.5}};
  for (const int64_t step : {5, 7}) {
    checkpoint.step = step;
    save_checkpoint(dir.path(), checkpoint);
  }
  const std::string newest = checkpoint_path(dir.path(), 7);
  const ProcessResult text = run_lockstep({"inspect", dir.path(), "--verify"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(text.output.starts_with(newest + "\n")) << text.output;
  for (const char* part :
       {"step 7, epoch 2, example 30, seed 9\n", "other steps here: 5\n", "  params\n    dense\n      0\n", "f32[3,4]",
        "48 B\n", "2 arrays, 64 B\n", "sha256 ", "  ok\n", "  test_accuracy 0.5\n", "  model: mlp\n"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << "\n" << text.output;

  const auto json = nlohmann::json::parse(run_lockstep({"inspect", newest, "--json"}).output);
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["cursor"]["sample"], 30);
  EXPECT_EQ(json["other_steps"].size(), 0u);
  EXPECT_EQ(json["verified"], false);
  EXPECT_EQ(json["arrays"][0]["name"], "params/dense/0/w");
  EXPECT_EQ(json["arrays"][0]["shape"], (std::vector<int>{3, 4}));
  EXPECT_EQ(json["metrics"]["test_accuracy"], 0.5);
  EXPECT_EQ(json["config"]["model"], "mlp");

  const std::string name = json["shards"][0]["file"], shard = newest + "/" + name;
  std::vector<uint8_t> bytes = FileSystem::real().read_file(shard);
  bytes.back() ^= 1;
  FileSystem::real().write(shard, bytes);
  EXPECT_EQ(run_lockstep({"inspect", newest}).exit_code, 0);
  const ProcessResult damaged = run_lockstep({"inspect", newest, "--verify"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_NE(damaged.output.find(name), std::string::npos) << damaged.output;
}

TEST(InspectCommand, FolderWithoutACheckpointIsAnError) {
  const TempDir dir;
  const ProcessResult result = run_lockstep({"inspect", dir.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find(dir.path()), std::string::npos) << result.output;
}

TEST(CompletionCommand, RejectsUnknownShells) {
  const ProcessResult result = run_lockstep({"completion", "tcsh"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("\"tcsh\" is not one of bash, zsh, fish"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace lockstep
