// `lockstep train` and `lockstep eval` as users run them: what they print, write and return.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cli/training.h"
#include "train/config.h"

namespace lockstep {
namespace {

// Returns the number after a word.
double number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  EXPECT_NE(at, std::string::npos) << word << " in " << text;
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + word.size(), nullptr);
}

TEST(Train, LearnsAndPrintsTheAccuracyLast) {
  const RunningProgram::Result result = train({"--epochs", "4", "--expect", "test_accuracy>=0.9", "--strict"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(number_after(result.out, "mlp test accuracy "), 90) << result.out;
  expect_contains(result.out, " % after 48 steps (4 epochs) in ");
  EXPECT_TRUE(result.out.ends_with(" s\n") && lines_of(result.out).size() == 1) << result.out;
  expect_lacks(result.err, "alarm");
  // What is trained before the first step; the evaluation of the last step once.
  expect_contains(result.err, "training   48 steps: 4 epochs of 12 steps, batch size 50\n");
  EXPECT_EQ(result.err.find("test_accuracy", result.err.find("step 48/48  test_loss") + 40), std::string::npos)
      << result.err;
}

TEST(Train, PrintsTheScheduleOfTheStepAndWritesNothing) {
  const TempDir dir;
  const Words flags = {"--print-schedule", "--platform", "cpu", "--checkpoint-dir", dir.path() + "/run"};
  const RunningProgram::Result result = train(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(result.out.starts_with("a step of 50 examples:\n")) << result.out;
  // The rows of the step: images are gathered, multiplied by the weights of three layers, and so on.
  for (const char* part : {"gather u8[600,28,28]@in", "einsum_fused f32[50,784]@", "f32[784,256]@in0"})
    expect_contains(result.out, part);
  EXPECT_FALSE(FileSystem::real().exists(dir.path() + "/run"));

  // It neither reads nor moves the checkpoints of another run.
  ASSERT_EQ(train({"--steps", "2", "--quiet", "--checkpoint-dir", dir.path() + "/run"}).exit_code, 0);
  EXPECT_EQ(train(flags + Words{"--resume", "none", "--seed", "3"}).exit_code, 0);
  EXPECT_EQ(list_checkpoints(dir.path() + "/run"), std::vector<int64_t>{2});
}

TEST(Train, PrintsTheScheduleWithoutTheDataSet) {
  const TempDir empty;
  const RunningProgram::Result result =
      RunningProgram({program_path(), "train", "--print-schedule", "--platform", "cpu", "--dataset", "fashion-mnist",
                      "--data-dir", empty.path(), "--devices", "2", "--accumulate", "2"})
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("a micro-batch of 64 examples:\n")) << result.out;
  expect_contains(result.out, "u8[60000,28,28]@in");
  expect_contains(result.out, "\nthe update:\n");
}

TEST(Train, QuietPrintsOnlyTheResult) {
  const RunningProgram::Result result = train({"--steps", "24", "--quiet"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(lines_of(result.out).size(), 1u) << result.out;
}

// The command with redirections of a shell, such as "2>/dev/full".
Words redirected(const Words& command, const std::string& streams) {
  return Words{"sh", "-c", "exec \"$0\" \"$@\" " + streams} + command;
}

TEST(Train, ContinuesWhenStderrIsNotWritable) {
  for (const char* streams : {"2>/dev/full", "2>&-"}) {
    const TempDir dir;
    const Words flags = {"--steps", "3", "--checkpoint-dir", dir.path()};
    const auto run = [&](const Words& more) {
      return RunningProgram(redirected(train_command(flags + more), streams)).wait();
    };
    const RunningProgram::Result result = run({});
    EXPECT_EQ(result.exit_code, 0) << streams;
    expect_contains(result.out, " % after 3 steps ");
    EXPECT_EQ(list_checkpoints(dir.path()), std::vector<int64_t>{3});
    EXPECT_EQ(run({"--expect", "loss<0"}).exit_code, 3) << streams;  // resumes the run
    EXPECT_EQ(run({"--resume", "none", "--quiet"}).exit_code, 0) << streams;
    EXPECT_EQ(run({"--batch-size", "0"}).exit_code, 2) << streams;
  }
}

// As with `| head`.
TEST(Train, SavedRunContinuesWithoutAReader) {
  const TempDir dir;
  const auto piped = [&](const Words& flags) {
    const Words command = train_command(Words{"--log-every", "1"} + flags);
    return RunningProgram(
               Words{"bash", "-c", "\"$@\" 2>&1 | grep -m 1 '^step 3/' > /dev/null; exit ${PIPESTATUS[0]}", "bash"} +
               command)
        .wait();
  };
  EXPECT_EQ(piped({"--steps", "100", "--eval-every", "100", "--checkpoint-dir", dir.path() + "/run"}).exit_code, 0);
  EXPECT_EQ(list_checkpoints(dir.path() + "/run"), std::vector<int64_t>{100});
  EXPECT_EQ(piped({"--steps", "1000000"}).exit_code, 141);  // its result would be lost
}

TEST(Train, ResultThatCannotBeWrittenIsAFailure) {
  const RunningProgram::Result result =
      RunningProgram(redirected(train_command({"--steps", "1", "--quiet"}), ">/dev/full")).wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.err.ends_with("lockstep: cannot write to standard output; the output is incomplete\n"))
      << result.err;
}

TEST(Train, LogEverySetsTheIntervalOfLines) {
  const RunningProgram::Result result = train({"--steps", "6", "--log-every", "2"});
  for (const char* line : {"\nstep 1/6  loss ", "\nstep 2/6  loss ", "\nstep 4/6  loss ", "\nstep 6/6  loss "})
    expect_contains(result.err, line);
  for (const char* line : {"\nstep 3/6", "\nstep 5/6"}) expect_lacks(result.err, line);
}

TEST(Train, UnmetExpectationIsExitCode3WithBothValues) {
  const RunningProgram::Result result =
      train({"--steps", "2", "--expect", "test_accuracy>=0.99", "--expect", "loss<100", "--expect=test_loss<0.001"});
  EXPECT_EQ(result.exit_code, 3);
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_GE(lines.size(), 2u);
  const std::string &accuracy = lines[lines.size() - 2], &loss = lines.back();
  EXPECT_LT(number_after(accuracy, "lockstep: expected test_accuracy>=0.99, but test_accuracy is "), 0.99);
  EXPECT_GT(number_after(loss, "lockstep: expected test_loss<0.001, but test_loss is "), 0.001);
  expect_contains(result.out, "mlp test accuracy ");
}

TEST(Train, ReasonOfAFailureIsTheLastLine) {
  const ProcessResult result = run_lockstep(
      {"train", "--no-save", "--dataset", "synthetic", "--steps", "1", "--quiet", "--expect", "test_accuracy>=0.99"});
  EXPECT_EQ(result.exit_code, 3);
  const std::vector<std::string> lines = lines_of(result.output);
  ASSERT_EQ(lines.size(), 2u) << result.output;
  expect_contains(lines[0], "mlp test accuracy ");
  expect_contains(lines[1], "lockstep: expected test_accuracy>=0.99, but test_accuracy is ");
}

TEST(Train, AlarmNamesTheLayerAndTrainingContinues) {
  const RunningProgram::Result result = train({"--steps", "15", "--optimizer", "sgd", "--learning-rate", "1e30"});
  EXPECT_EQ(result.exit_code, 0);
  const std::string alarm =
      "alarm: loss is nan at step 2; the first parameter without a finite gradient is dense/0/w; ";
  expect_contains(result.err, alarm);
  EXPECT_EQ(result.err.find(alarm), result.err.rfind(alarm)) << "printed twice:\n" << result.err;
  expect_contains(result.out, "after 15 steps");
}

TEST(Train, StrictStopsAtTheAlarmAndKeepsThePreviousCheckpoint) {
  const TempDir dir;
  const RunningProgram::Result result = train({"--steps", "15", "--optimizer", "sgd", "--learning-rate", "1e30",
                                               "--strict", "--checkpoint-dir", dir.path(), "--checkpoint-every", "1"});
  EXPECT_EQ(result.exit_code, 1);
  expect_contains(result.err, "is dense/0/w; lower --learning-rate");
  expect_contains(result.err, "lockstep: --strict ended the run at step 2 of 15\n");
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(list_checkpoints(dir.path()), std::vector<int64_t>{1});
  const RunningProgram::Result quiet =
      train({"--steps", "15", "--optimizer", "sgd", "--learning-rate", "1e30", "--strict", "--quiet"});
  EXPECT_EQ(quiet.exit_code, 1);
  EXPECT_TRUE(quiet.err.starts_with("lockstep: alarm: loss is nan at step 2; ")) << quiet.err;
  EXPECT_EQ(lines_of(quiet.err).size(), 2u) << quiet.err;
}

TEST(Train, MistypedDataFolderIsTheSameErrorWhenStreamed) {
  const TempDir dir;
  const std::string folder = dir.path() + "/mistyped";
  for (const char* stream : {"on", "off"}) {
    const RunningProgram::Result result = RunningProgram({program_path(), "train", "--no-save", "--dataset", "mnist",
                                                          "--data-dir", folder, "--stream", stream, "--steps", "1"})
                                              .wait();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    expect_contains(result.err, "lockstep: data: " + folder + " has no train-images-idx3-ubyte (raw or .gz); ");
    EXPECT_FALSE(FileSystem::real().exists(folder)) << stream;
  }
}

TEST(Train, ConfigurationIsKeptAndRepeatsTheRun) {
  const TempDir dir;
  const std::string first = dir.path() + "/first", second = dir.path() + "/second", yaml = dir.path() + "/run.yaml";
  const std::string text =
      fmt::format("dataset: {}\nbatch_size: 40\nsteps: 100\ndropout: 0.25\nschedule: constant\n", small_dataset());
  FileSystem::real().write(yaml, std::vector<uint8_t>(text.begin(), text.end()));
  const RunningProgram::Result run =
      RunningProgram({program_path(), "train", yaml, "--epochs", "1", "--learning-rate=0.002", "--checkpoint-dir",
                      first, "--log-dir", dir.path() + "/log"})
          .wait();
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_contains(run.out, "after 15 steps (1 epoch)");  // the flag overrides the file
  const std::string kept = read_text(first + "/config.yaml");
  EXPECT_EQ(kept, read_text(dir.path() + "/log/config.yaml"));
  const TrainConfig config = parse_yaml(kept, "config.yaml");
  EXPECT_EQ(config.batch_size, 40);
  EXPECT_EQ(config.epochs, 1);
  EXPECT_EQ(config.learning_rate, 0.002);
  EXPECT_EQ(config.dropout, 0.25);

  const RunningProgram::Result again =
      RunningProgram({program_path(), "train", first + "/config.yaml", "--checkpoint-dir", second}).wait();
  ASSERT_EQ(again.exit_code, 0) << again.err;
  expect_same_result(second, first);
}

TEST(Train, DevicesDoNotChangeTheResult) {
  const TempDir dir;
  for (const char* devices : {"1", "3", "8"})
    ASSERT_EQ(train({"--steps", "14", "--devices", devices, "--dropout", "0.1", "--checkpoint-dir",
                     dir.path() + "/" + devices})
                  .exit_code,
              0);
  expect_same_weights(dir.path() + "/3", dir.path() + "/1");
  expect_same_weights(dir.path() + "/8", dir.path() + "/1");
}

TEST(Train, AccumulationIsCloseToTheFullBatch) {
  const TempDir dir;
  for (const char* pieces : {"1", "4"})
    ASSERT_EQ(train({"--steps", "12", "--optimizer", "momentum", "--learning-rate", "0.01", "--accumulate", pieces,
                     "--checkpoint-dir", dir.path() + "/" + pieces})
                  .exit_code,
              0);
  const Checkpoint whole = load_checkpoint(checkpoint_path(dir.path() + "/1", 12));
  const Checkpoint pieces = load_checkpoint(checkpoint_path(dir.path() + "/4", 12));
  double furthest = 0, moved = 0;
  for (size_t i = 0; i < whole.arrays.size(); ++i) {
    const auto& [name, array] = whole.arrays[i];
    ASSERT_EQ(pieces.arrays[i].first, name);
    if (!name.starts_with("params/")) continue;
    const std::vector<float> a = array.to_vector<float>(), b = pieces.arrays[i].second.to_vector<float>();
    for (size_t j = 0; j < a.size(); ++j) {
      furthest = std::max(furthest, std::abs(static_cast<double>(a[j]) - b[j]));
      moved = std::max(moved, std::abs(static_cast<double>(a[j])));
    }
  }
  EXPECT_GT(moved, 0.1);
  EXPECT_LT(furthest, 1e-5);
}

TEST(Train, MemoryLimitRematerializesOrEndsTheRunBeforeItBegins) {
  const TempDir dir;
  const Words flags = text_flags() + Words{"--steps", "3"};
  const auto limited = [&](const std::string& name, const Words& more) {
    return train(flags + more + Words{"--checkpoint-dir", dir.path() + "/" + name});
  };
  ASSERT_EQ(limited("stored", {}).exit_code, 0);
  const auto fits = limited("fits", {"--memory-limit", "2.5M"});
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  expect_contains(fits.err, "MiB, more than the memory_limit of 2.5 MiB: blocks are rematerialized (remat), with ");
  expect_same_weights(dir.path() + "/fits", dir.path() + "/stored");
  for (const Words& more : {Words{"--memory-limit", "1M"}, Words{"--memory-limit", "2.5M", "--remat", "none"}}) {
    const auto large = limited("large", more);
    EXPECT_EQ(large.exit_code, 2);
    expect_contains(large.err, "lockstep: train: a step of 50 examples needs ");
    EXPECT_FALSE(FileSystem::real().exists(dir.path() + "/large"));
  }
}

TEST(Train, CheckpointsHaveThePrintedAccuracy) {
  const TempDir dir;
  const RunningProgram::Result run = train({"--steps", "20", "--eval-every", "7", "--checkpoint-dir", dir.path()});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_contains(run.err, "checkpoints are in " + dir.path() + "\n");
  const size_t last = run.err.rfind("test_loss ");
  ASSERT_NE(last, std::string::npos);
  const double loss = number_after(run.err.substr(last), "test_loss ");
  const double accuracy = number_after(run.err.substr(last), "test_accuracy ");

  for (const char* batch : {"1000", "33"}) {
    const RunningProgram::Result eval =
        RunningProgram({program_path(), "eval", dir.path(), "--devices", "2", "--batch-size", batch}).wait();
    ASSERT_EQ(eval.exit_code, 0) << eval.err;
    EXPECT_NEAR(number_after(eval.out, "test_loss "), loss, 6e-5);
    EXPECT_EQ(number_after(eval.out, "test_accuracy "), accuracy);
    expect_contains(eval.out, "examples 100\n");
  }

  // A finished run prints its result again and does not train.
  const RunningProgram::Result again = train({"--steps", "20", "--checkpoint-dir", dir.path(), "--expect", "loss<3",
                                              "--expect", "test_accuracy>0.01", "--expect", "grad_norm<1000"});
  EXPECT_EQ(again.exit_code, 3) << again.err;
  expect_contains(again.err, "lockstep: all 20 steps are already complete; nothing left to train\n");
  expect_contains(again.err, "expected grad_norm<1000, but grad_norm was not measured: the run was already complete\n");
  expect_lacks(again.err, "expected loss");
  EXPECT_EQ(again.out.substr(0, again.out.find(" in ")), run.out.substr(0, run.out.find(" in ")));
}

TEST(Eval, DataOfAnotherShapeOrWithMoreClassesIsRejected) {
  const TempDir dir;
  ASSERT_EQ(train({"--steps", "2", "--checkpoint-dir", dir.path() + "/run"}).exit_code, 0);
  const std::string images = dir.path() + "/images", labels = dir.path() + "/labels";
  const auto eval = [&] { return run_lockstep({"eval", dir.path() + "/run", "--dataset", images + "," + labels}); };
  FileSystem::real().write(images, encode_idx({{2, 3, 4}, std::vector<uint8_t>(24)}));
  FileSystem::real().write(labels, encode_idx({{2}, {1, 2}}));
  const ProcessResult shape = eval();
  EXPECT_EQ(shape.exit_code, 1);
  expect_contains(shape.output, "f32[784,256]");
  expect_contains(shape.output, "f32[12,256]");
  FileSystem::real().write(images, encode_idx({{2, 28, 28}, std::vector<uint8_t>(2 * 784)}));
  FileSystem::real().write(labels, encode_idx({{2}, {1, 12}}));
  const ProcessResult classes = eval();
  EXPECT_EQ(classes.exit_code, 1);
  EXPECT_EQ(
      classes.output,
      "lockstep: eval: the data has 13 classes but the model has 10; select the model's data set with --dataset\n");
}

TEST(Inspect, VerifyNamesTheDamagedShardOfARun) {
  const TempDir dir;
  ASSERT_EQ(train({"--steps", "3", "--checkpoint-dir", dir.path()}).exit_code, 0);
  const auto json = nlohmann::json::parse(run_lockstep({"inspect", dir.path(), "--json"}).output);
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["config"]["batch_size"], "50");
  EXPECT_EQ(json["arrays"][0]["name"], "params/dense/0/w");
  EXPECT_TRUE(json["metrics"].contains("test_accuracy"));
  EXPECT_EQ(run_lockstep({"inspect", dir.path(), "--verify"}).exit_code, 0);
  const std::string shard = json["shards"][0]["file"];
  flip_byte(checkpoint_path(dir.path(), 3) + "/" + shard);
  const ProcessResult damaged = run_lockstep({"inspect", dir.path(), "--verify"});
  EXPECT_EQ(damaged.exit_code, 1);
  expect_contains(damaged.output, shard);
}

// The steps of the rows of metrics.csv with a loss, and of the matching rows of metrics.jsonl.
std::vector<int64_t> csv_steps(const std::string& dir) {
  std::vector<int64_t> out;
  const std::vector<std::string> lines = lines_of(read_text(dir + "/metrics.csv"));
  EXPECT_TRUE(!lines.empty() && lines[0].starts_with("step,time,loss,accuracy,")) << dir;
  const auto commas = std::count(lines[0].begin(), lines[0].end(), ',');
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), ','), commas) << lines[i];
    const size_t loss = lines[i].find(',', lines[i].find(',') + 1) + 1;
    if (lines[i][loss] != ',') out.push_back(std::stoll(lines[i]));  // not an evaluation
  }
  return out;
}
std::vector<int64_t> jsonl_steps(const std::string& dir, const std::string& kind) {
  std::vector<int64_t> out;
  for (const std::string& line : lines_of(read_text(dir + "/metrics.jsonl"))) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(object.is_object()) << line;
    if (object.is_object() && object["kind"] == kind) out.push_back(object["step"]);
  }
  return out;
}

TEST(Train, LogFilesHaveEveryStepOnceAlsoAfterAResume) {
  const TempDir dir;
  const std::string log = dir.path() + "/log", run = dir.path() + "/run";
  const Words flags = {"--log-dir", log,          "--checkpoint-dir", run,         "--checkpoint-every",
                       "4",         "--schedule", "constant",         "--loggers", "+csv,+tensorboard"};
  ASSERT_EQ(train(flags + Words{"--steps", "14"}).exit_code, 0);
  std::vector<int64_t> wanted;
  for (int64_t step = 1; step <= 14; ++step) wanted.push_back(step);
  EXPECT_EQ(csv_steps(log), wanted);
  EXPECT_EQ(jsonl_steps(log, "step"), wanted);
  EXPECT_EQ(jsonl_steps(log, "evaluation"), (std::vector<int64_t>{12, 14}));
  const auto names = FileSystem::real().list(log);
  EXPECT_EQ(std::count_if(names.begin(), names.end(),
                          [](const std::string& name) { return name.starts_with("events.out.tfevents."); }),
            1);

  // As after a crash between checkpoints: the steps after step 12 are repeated.
  FileSystem::real().remove_tree(checkpoint_path(run, 14));
  ASSERT_EQ(train(flags + Words{"--steps", "18"}).exit_code, 0);
  for (int64_t step = 15; step <= 18; ++step) wanted.push_back(step);
  EXPECT_EQ(csv_steps(log), wanted);
  EXPECT_EQ(jsonl_steps(log, "step"), wanted);
  EXPECT_EQ(jsonl_steps(log, "evaluation"), (std::vector<int64_t>{12, 18}));
}

}  // namespace
}  // namespace lockstep
