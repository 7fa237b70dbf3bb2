// Messages and exit codes of `lockstep train` for wrong settings, data and folders. Nothing is left behind.
#include <fmt/format.h>

#include "cli/training.h"

namespace lockstep {
namespace {

constexpr const char* kSeeHelp = "; see `lockstep train --help`";

// Expects the run to fail with exactly this message.
void expect_refused(const Words& flags, int exit_code, const std::string& message) {
  const RunningProgram::Result result = train(flags);
  EXPECT_EQ(result.exit_code, exit_code) << message;
  EXPECT_EQ(result.err, "lockstep: " + message + "\n");
  EXPECT_EQ(result.out, "");
}

void write_text(const std::string& path, const std::string& text) {
  FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
}

TEST(TrainErrors, WrongFlags) {
  expect_refused({"--learning_rate", "1"}, 2,
                 "train: unknown flag --learning_rate; did you mean \"--learning-rate\"? see `lockstep train --help`");
  expect_refused({"--setps=5"}, 2,
                 "train: unknown flag --setps; did you mean \"--steps\"? see `lockstep train --help`");
  expect_refused({"--batch-size", "many"}, 2,
                 std::string("train: --batch-size: \"many\" is not a whole number of at least 1") + kSeeHelp);
  expect_refused({"--steps", "1", "--epochs", "1"}, 2,
                 "train: command line: both steps (1) and epochs (1) are given; keep only one");
  expect_refused({"--accumulate", "51"}, 2,
                 "train: accumulate: a batch of 50 examples cannot be split into 51 micro-batches; lower accumulate or "
                 "raise batch_size");
  expect_refused({"--expect", "good"}, 2,
                 "train: expect: \"good\" has no comparison (>=, >, <=, <, ==); write a metric, a comparison and a "
                 "number, such as 'test_accuracy>=0.97'");
  expect_refused({"--expect", "test_acuracy>=0.9"}, 2,
                 "train: expect: unknown metric \"test_acuracy\"; the metrics are loss, accuracy, test_loss, "
                 "test_accuracy, grad_norm, examples_per_second; did you mean \"test_accuracy\"?");
  expect_refused({"--expect", "beauty>=0.9"}, 2,
                 "train: expect: unknown metric \"beauty\"; the metrics are loss, accuracy, test_loss, test_accuracy, "
                 "grad_norm, examples_per_second");
}

TEST(TrainErrors, EmptyValuesAreRejected) {
  for (const char* flag : {"--checkpoint-dir=", "--expect=", "--steps="})
    expect_refused({flag, "--quiet"}, 2, fmt::format("train: {} has no value; give one, or omit the flag", flag));
  EXPECT_FALSE(FileSystem::real().exists("--quiet"));
  for (const char* text : {"", ","})
    expect_refused(
        {"--expect", text}, 2,
        fmt::format("train: --expect: \"{}\" has an empty element; give it a value, or remove it{}", text, kSeeHelp));
  expect_refused({"--expect", "loss<1", "--expect", ""}, 2,
                 std::string("train: --expect: \"\" has an empty element; give it a value, or remove it") + kSeeHelp);
}

TEST(TrainErrors, SwitchesTakeOnlyTrueOrFalse) {
  for (const char* value : {"x", "2", "99999999999999999999"})
    expect_refused(
        {fmt::format("--strict={}", value)}, 2,
        fmt::format("train: --strict: \"{}\" is not true or false; write --strict alone to turn it on", value));
}

TEST(TrainErrors, FlagAtTheEndOfTheLineNeedsAValue) {
  expect_refused({"--learning-rate"}, 2, std::string("train: --learning-rate needs a value") + kSeeHelp);
  expect_refused({"a.yaml", "--config", "b.yaml"}, 2,
                 std::string("train: --config is given more than once; keep one") + kSeeHelp);
}

TEST(TrainErrors, TooManyEpochs) {
  // Twelve steps an epoch.
  expect_refused({"--epochs", "768614336404564651", "--quiet"}, 2,
                 "train: 768614336404564651 epochs of 12 steps overflow the step counter; give at most "
                 "768614336404564650 epochs");
}

TEST(TrainErrors, DevicesThatDoNotFit) {
  for (const char* devices : {"0", "-1", "abc", "131073", "99999999999"})
    expect_refused({"--devices", devices}, 2,
                   fmt::format("train: devices: \"{}\" is not auto, all or a number from 1 to 131072", devices));
  expect_refused({"--devices", "2", "--mesh", "model=2"}, 2,
                 "train: mesh: \"model=2\" has no axis \"data\", which shards the batch; add it, such as data=-1");
  expect_refused({"--devices", "3", "--mesh", "data=4"}, 2,
                 "make_mesh: 'data': 4 needs 4 devices, but only 3 are available; set --devices 4 or "
                 "LOCKSTEP_NUM_CPU_DEVICES=4");
  expect_refused({"--devices", "3", "--expect-devices", "8"}, 2,
                 "train: --expect-devices is 8, but 3 devices are available; nothing was started");
  expect_refused({"--devices", "1", "--expect-devices", "2"}, 2,
                 "train: --expect-devices is 2, but 1 device is available; nothing was started");
}

TEST(TrainErrors, ShardingRulesThatDoNotFitTheModel) {
  expect_refused({"--devices", "2", "--shard", "dens/0/w=data"}, 2,
                 "plan: rule \"dens/0/w=data\" matches no parameter; did you mean \"dense/0/w\"? the parameters are "
                 "\"dense/0/w\", \"dense/0/b\", \"dense/1/w\", \"dense/1/b\", \"dense/2/w\", \"dense/2/b\"");
}

TEST(TrainErrors, DataFolderWithoutEffect) {
  expect_refused({"--data-dir", "d"}, 2,
                 "train: data_dir: \"d\" has no effect with dataset " + small_dataset() + "; remove data_dir");
  expect_refused({"--dataset", "synthetic", "--data-dir", "d"}, 2,
                 "train: data_dir: \"d\" has no effect with dataset synthetic; remove data_dir");
}

TEST(TrainErrors, SettingsWithoutEffectAreReported) {
  const RunningProgram::Result mesh = train({"--steps", "1", "--devices", "8", "--mesh", "data=3"});
  EXPECT_EQ(mesh.exit_code, 0);
  expect_contains(mesh.err,
                  "lockstep: note: the mesh data=3 uses 3 of 8 devices, 5 are idle; data=-1 uses all of "
                  "them\n");
  const RunningProgram::Result zero = train({"--steps", "1", "--devices", "8", "--zero", "3"});
  EXPECT_EQ(zero.exit_code, 0);
  expect_contains(zero.err, "lockstep: note: --zero 3 saves no memory here: all devices along \"data\" share one lane");
  const RunningProgram::Result plain = train({"--steps", "1", "--devices", "8"});
  EXPECT_EQ(plain.err.find("note:"), std::string::npos) << plain.err;
}

TEST(TrainErrors, ConfigurationFilesNameFileAndLine) {
  const TempDir dir;
  const std::string file = dir.path() + "/run.yaml";
  const auto expect_bad = [&](const std::string& text, const std::string& message) {
    write_text(file, text);
    expect_refused({"--config", file}, 2, "train: " + file + message);
  };
  expect_bad("model: mlp\nlearning_rat: 0.1\n",
             ":2: unknown key \"learning_rat\"; did you mean \"learning_rate\"? see `lockstep train --help`");
  expect_bad("batch_size: 12\nsteps: soon\n", ":2: steps: \"soon\" is not a whole number of at least 0");
  expect_bad("steps: [1, 2]\n", ":1: steps is a list; expected a single value, such as `steps: 0`");
  expect_bad("steps: 1\nepochs: 2\n", ": both steps (1) and epochs (2) are given; keep only one");
  expect_bad("seed: 1\nmodel: resnet\n",
             ":2: model: unknown value \"resnet\"; choose mlp, mlp1024, cnn, vit, resnet18 or gpt; did you mean "
             "\"resnet18\"?");
  expect_bad("devices: 0\n", ":1: devices: \"0\" is not auto, all or a number from 1 to 131072");
  // Settings that do not fit the data or the devices.
  expect_bad("devices: 3\nmesh: data=4\n",
             ":2: make_mesh: 'data': 4 needs 4 devices, but only 3 are available; set --devices 4 or "
             "LOCKSTEP_NUM_CPU_DEVICES=4");
  expect_bad("devices: 3\n\nexpect_devices: 8\n",
             ":3: --expect-devices is 8, but 3 devices are available; nothing was started");
  write_text(file, "seed: 1\nbatch_size: 601\n");
  const ProcessResult batch = run_lockstep({"train", file, "--dataset", small_dataset()});
  EXPECT_EQ(batch.exit_code, 2);
  expect_contains(batch.output, "lockstep: train: " + file +
                                    ":2: batch_size is 601, but the training set has 600 examples; use at most 600\n");
  // A flag replaces the file's value, so the error is about the flag.
  write_text(file, "model: resnet\n");
  expect_refused({"--config", file, "--model", "foo"}, 2,
                 "train: model: unknown value \"foo\"; choose mlp, mlp1024, cnn, vit, resnet18 or gpt");
  write_text(file, "model: mlp\nmesh: [1\n");
  const RunningProgram::Result yaml = train({file});
  EXPECT_EQ(yaml.exit_code, 2);
  EXPECT_TRUE(yaml.err.starts_with("lockstep: train: " + file + ":")) << yaml.err;
  expect_contains(yaml.err, ": invalid YAML: ");
  const RunningProgram::Result missing = train({dir.path() + "/none.yaml"});
  EXPECT_EQ(missing.exit_code, 2);
  expect_contains(missing.err, dir.path() + "/none.yaml: No such file or directory; check the path\n");
}

TEST(TrainErrors, MissingOrTooLittleData) {
  const TempDir dir;
  expect_refused({"--batch-size", "601"}, 2,
                 "train: batch_size is 601, but the training set has 600 examples; use at most 600");
  const RunningProgram::Result missing = train({"--dataset", dir.path() + "/images," + dir.path() + "/labels"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.err, "lockstep: open " + dir.path() + "/images: No such file or directory; check the path\n");
  const RunningProgram::Result folder = train({"--dataset", "mnist", "--data-dir", dir.path()});
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_EQ(folder.err,
            fmt::format("lockstep: data: {0} has no train-images-idx3-ubyte (raw or .gz); put the file "
                        "there, run `lockstep data fetch mnist --dir {0}`, or remove the folder setting to use "
                        "the cache\n",
                        dir.path()));
  expect_refused(
      {"--dataset", "mnits"}, 2,
      "train: dataset: unknown data set \"mnits\"; did you mean \"mnist\"? choose mnist, fashion-mnist, "
      "cifar10, moby-dick, sotu, synthetic, give text:PATH, tokens:FILE, images:DIR, npy:X,Y or csv:FILE, or give "
      "two or four IDX files separated by commas");
}

TEST(TrainErrors, FoldersThatAreNotWritable) {
  const TempDir dir;
  const std::string file = dir.path() + "/file";
  write_text(file, "x");
  for (const char* flag : {"--checkpoint-dir", "--log-dir"}) {
    expect_refused(
        {"--steps", "2", flag, file + "/run"}, 1,
        "create folder " + file + "/run: Not a directory; a component of the path is a file; check the path");
    const RunningProgram::Result system = train({"--steps", "2", flag, "/proc/lockstep"});
    EXPECT_EQ(system.exit_code, 1);
    EXPECT_TRUE(system.err.starts_with("lockstep: create folder /proc/lockstep: ")) << system.err;
    EXPECT_EQ(system.out, "");
  }
}

TEST(TrainErrors, CheckpointsOfAnotherRunAreRejected) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  ASSERT_EQ(train({"--steps", "4", "--checkpoint-every", "2", "--checkpoint-dir", run}).exit_code, 0);
  const std::string config = read_text(run + "/config.yaml");
  const auto expect_other = [&](const Words& flags, const std::string& key, const std::string& before,
                                const std::string& now) {
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    expect_refused(Words{"--steps", "8", "--checkpoint-dir", run} + flags, 1,
                   fmt::format("resume: {} was {} when the checkpoint was written and is {} now; use {} {}, or start "
                               "a new run with --resume none or another --checkpoint-dir",
                               key, before, now, flag, before));
  };
  expect_other({"--model", "cnn"}, "model", "mlp", "cnn");
  expect_other({"--optimizer", "sgd"}, "optimizer", "adamw", "sgd");
  expect_other({"--batch-size", "60"}, "batch_size", "50", "60");
  expect_other({"--seed", "3"}, "seed", "0", "3");
  expect_other({"--dataset", "synthetic"}, "dataset", small_dataset(), "synthetic");
  expect_refused(
      {"--steps", "3", "--checkpoint-dir", run}, 1,
      "train: the checkpoint is at step 4, after the end of the run at step 3; raise --steps or --epochs, or "
      "start a new run with --resume none");
  EXPECT_EQ(read_text(run + "/config.yaml"), config);  // unchanged
}

TEST(TrainErrors, ResumeFromAMissingCheckpointIsAnError) {
  const TempDir dir;
  const std::string run = dir.path() + "/run", none = dir.path() + "/none";
  ASSERT_EQ(train({"--steps", "4", "--checkpoint-every", "2", "--checkpoint-dir", run}).exit_code, 0);
  const Words flags = {"--steps", "8", "--checkpoint-dir", run, "--resume"};
  expect_refused(flags + Words{"3"}, 1, "resume: no checkpoint of step 3; steps available in " + run + ": 2, 4");
  expect_refused(flags + Words{none}, 1,
                 "resume: " + none + " does not exist; give \"auto\", \"none\", a step or the path of a checkpoint; " +
                     "steps available in " + run + ": 2, 4");
  expect_refused(flags + Words{dir.path()}, 1,
                 "resume: " + dir.path() +
                     " is neither a complete checkpoint (it has no manifest.json) nor a folder of checkpoints; check "
                     "the path");
  expect_refused(
      {"--resume", "3"}, 2,
      "train: resume: step 3 needs a folder; set run_dir or checkpoint_dir, or give the path of the checkpoint");
}

}  // namespace
}  // namespace lockstep
