// Runs that are kept in folders below runs/, and `lockstep runs`.
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/os/environment.h"
#include "cli/training.h"
#include "support/in_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class KeptRuns : public testing::Test {
 protected:
  // `lockstep train` in the test's folder, for 24 steps. `flags` come last.
  static Words command(const Words& flags) {
    return Words{program_path(), "train", "--dataset", small_dataset(), "--batch-size", "50", "--steps", "24"} + flags;
  }
  static RunningProgram::Result train(const Words& flags = {}) { return RunningProgram(command(flags)).wait(); }
  static RunningProgram::Result lockstep(const Words& words) {
    return RunningProgram(Words{program_path()} + words).wait();
  }
  static std::vector<std::string> run_names() {
    std::vector<std::string> out;
    if (!fs::exists("runs")) return out;
    for (const auto& each : fs::directory_iterator("runs")) out.push_back(each.path().filename().string());
    std::ranges::sort(out);
    return out;
  }
  // The folder of the only run.
  static std::string only_run() {
    const std::vector<std::string> names = run_names();
    EXPECT_EQ(names.size(), 1u);
    return names.empty() ? "" : "runs/" + names[0];
  }
  static nlohmann::json record_of(const std::string& folder) {
    return nlohmann::json::parse(read_text(folder + "/run.json"));
  }
  static std::string newest_name() {
    const std::string out = lockstep({"runs", "-o", "name", "--limit", "1"}).out;
    return out.substr(0, out.find('\n'));
  }

  InNewFolder here_;
};

TEST_F(KeptRuns, HaveSettingsStateCheckpointsAndMetrics) {
  const RunningProgram::Result result = train({"--seed", "3", "--eval-every", "12"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string run = only_run();
  EXPECT_TRUE(std::regex_match(run, std::regex("runs/20[0-9-]+-mlp-1"))) << run;
  EXPECT_EQ(occurrences(result.err, "saved in   " + run + "\n"), 1u) << result.err;
  EXPECT_EQ(occurrences(result.err, "saved in " + run + "\n"), 1u) << result.err;
  expect_contains(read_text(run + "/config.yaml"), "seed: 3\n");
  expect_contains(read_text(run + "/config.yaml"), "run_dir: " + run + "\n");
  EXPECT_EQ(list_checkpoints(run), (std::vector<int64_t>{24})) << "without a validation set only the last one is kept";
  EXPECT_EQ(FileSystem::real().list(run + "/log"), std::vector<std::string>{"metrics.jsonl"});

  const nlohmann::json record = record_of(run);
  EXPECT_EQ(record["state"], "complete");
  EXPECT_EQ(record["task"], "mlp");
  EXPECT_EQ(record["step"], 24);
  EXPECT_EQ(record["total_steps"], 24);
  EXPECT_EQ(record["settings"]["seed"], "3");
  EXPECT_EQ(record["command"][1], "train");
  EXPECT_EQ(record["folder"], fs::current_path().string());
  EXPECT_GT(record["metrics"]["test_accuracy"]["best"], 0.1);
  EXPECT_TRUE(record["metrics"]["loss"].contains("last"));
}

TEST_F(KeptRuns, KeepTheBestAndTheLastCheckpoint) {
  ASSERT_EQ(train({"--eval-every", "4", "--validation", "0.2", "--learning-rate", "0.01"}).exit_code, 0);
  const std::string run = only_run();
  const nlohmann::json loss = record_of(run)["metrics"]["validation_loss"];
  std::vector<int64_t> wanted = {loss["best_step"]};
  if (wanted[0] != 24) wanted.push_back(24);
  EXPECT_EQ(list_checkpoints(run), wanted);
}

TEST_F(KeptRuns, AreResumedInTheirFolderWithTheirSettings) {
  ASSERT_EQ(train({"--seed", "3", "--learning-rate", "0.01"}).exit_code, 0);
  const std::string run = only_run();
  const RunningProgram::Result more = lockstep({"train", "--resume", "last", "--steps", "36"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  expect_contains(more.err, "lockstep: resuming from step 24 of 36\n");
  EXPECT_EQ(only_run(), run);
  EXPECT_EQ(record_of(run)["step"], 36);
  EXPECT_EQ(record_of(run)["settings"]["learning_rate"], "0.01");
  EXPECT_NE(record_of(run)["created"], record_of(run)["started"]);

  const std::string name = run.substr(5);
  const RunningProgram::Result again = lockstep({"train", run + "/config.yaml"});
  expect_contains(again.err, "lockstep: all 36 steps are already complete; nothing left to train\n");
  const RunningProgram::Result wrong = lockstep({"train", "--resume", name, "--seed", "4"});
  EXPECT_EQ(wrong.exit_code, 1);
  expect_contains(wrong.err, "resume: seed was 3 when the checkpoint was written and is 4 now");
  EXPECT_EQ(lockstep({"train", "--resume", "nothing"}).err,
            "lockstep: train: resume: nothing does not exist, and runs/ has no run of that name; `lockstep runs` lists "
            "them\n");
}

TEST_F(KeptRuns, CanBeginWithTheWeightsOfAnotherOne) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string first = newest_name();
  const RunningProgram::Result second = train({"--init-from", first});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(run_names().size(), 2u);
  EXPECT_EQ(record_of("runs/" + newest_name())["settings"]["init_from"], "runs/" + first);
}

TEST_F(KeptRuns, AreNotMadeWithOtherFoldersOrNoSave) {
  EXPECT_EQ(train({"--no-save"}).exit_code, 0);
  EXPECT_EQ(train({"--checkpoint-dir", "c"}).exit_code, 0);
  EXPECT_EQ(train({"--log-dir", "l"}).exit_code, 0);
  EXPECT_FALSE(fs::exists("runs"));
  EXPECT_TRUE(fs::exists("c/config.yaml"));
  EXPECT_FALSE(fs::exists("c/run.json"));
  EXPECT_EQ(train({"--run-dir", "mine"}).exit_code, 0);
  EXPECT_FALSE(fs::exists("runs"));
  EXPECT_TRUE(fs::exists("mine/run.json"));
  expect_contains(train({"--run-dir", "mine"}).err, "all 24 steps are already complete");
}

TEST_F(KeptRuns, LeaveNothingBehindIfTheSettingsAreWrong) {
  EXPECT_EQ(train({"--batch-size", "601"}).exit_code, 2);
  EXPECT_EQ(train({"--expect-devices", "99"}).exit_code, 2);
  EXPECT_EQ(train({"--resume", "runs/none"}).exit_code, 1);
  EXPECT_EQ(train({"--resume", "none-such"}).exit_code, 2);
  EXPECT_FALSE(fs::exists("runs"));
}

TEST_F(KeptRuns, AreRefusedBeforeTrainingWhereTheyCannotBeWritten) {
  FileSystem::real().write("runs", {});
  const RunningProgram::Result result = train();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(
      result.err.ends_with("Not a directory; choose the folder of the run with --run-dir, or keep nothing with "
                           "--no-save\n"))
      << result.err;
  expect_lacks(result.err, "step 1");
}

TEST_F(KeptRuns, RecordWhyTheyFailed) {
  EXPECT_EQ(train({"--expect", "test_accuracy>=1.5"}).exit_code, 3);
  const nlohmann::json record = record_of(only_run());
  EXPECT_EQ(record["state"], "failed");
  expect_contains(record["error"], "expected test_accuracy>=1.5, but test_accuracy is 0.");
}

TEST_F(KeptRuns, ThatAreStoppedSayHowToResume) {
  RunningProgram program(command({"--steps", "1000000", "--log-every", "1"}));
  ASSERT_TRUE(program.says("\nstep 2/"));
  program.send(SIGINT);
  const RunningProgram::Result stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGINT);
  const std::string run = only_run();
  EXPECT_TRUE(stopped.err.ends_with("resume it with `lockstep train --resume " + run.substr(5) + "`\n")) << stopped.err;
  EXPECT_EQ(record_of(run)["state"], "stopped");
}

TEST_F(KeptRuns, ThatAreKilledAreLost) {
  RunningProgram program(command({"--steps", "1000000", "--log-every", "1"}));
  ASSERT_TRUE(program.says("\nstep 2/"));
  expect_contains(lockstep({"runs", "--no-headers"}).out, "running");
  const RunningProgram::Result refused = lockstep({"runs", "delete", "last", "--yes"});
  EXPECT_EQ(refused.exit_code, 1);
  expect_contains(refused.err, " is running (process " + std::to_string(program.pid()) + " on host ");
  program.send(SIGKILL);
  program.wait();
  expect_contains(lockstep({"runs", "--no-headers"}).out, "lost");
  EXPECT_EQ(lockstep({"runs", "delete", "last", "--yes"}).out, "deleted " + only_run() + "\n");
}

TEST_F(KeptRuns, OfSeveralProcessesHaveOneFolderAndResumeAfterARestart) {
  const std::string words = fmt::format(
      "train --dataset {} --batch-size 50 --steps 400 --checkpoint-every 10 --log-every 1", small_dataset());
  RunningProgram program({"sh", "-c", program_path() + " launch -n 2 --max-restarts 1 --restart-delay 0 -- " + words});
  ASSERT_TRUE(program.says("step 30/400"));
  const std::string run = only_run();
  ::kill(static_cast<pid_t>(record_of(run)["pid"].get<int64_t>()), SIGKILL);
  const RunningProgram::Result result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::regex_search(result.err, std::regex("resuming from step [0-9]+ of 400"))) << result.err;
  expect_contains(result.err, "training resumes from the last checkpoint");
  EXPECT_EQ(only_run(), run);
  const nlohmann::json record = record_of(run);
  EXPECT_EQ(record["state"], "complete");
  EXPECT_EQ(record["devices"]["processes"], 2);
  EXPECT_EQ(record["jobs"].size(), 1u);
  EXPECT_EQ(record["jobs"].front(), "1");
}

TEST_F(KeptRuns, OfARequeuedSlurmJobContinueInTheirFolder) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  const Words flags = {"--steps", "12"};
  EXPECT_EQ(train(flags).exit_code, 0);
  EXPECT_EQ(train(flags).exit_code, 0);
  EXPECT_EQ(run_names().size(), 2u) << "the script trains twice";
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  expect_contains(train(flags).err, "all 12 steps are already complete");
  expect_contains(train(flags).err, "all 12 steps are already complete");
  EXPECT_EQ(run_names().size(), 2u);
  EXPECT_EQ(train(flags).exit_code, 0);
  EXPECT_EQ(run_names().size(), 3u);
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_RESTART_COUNT");
}

TEST_F(KeptRuns, AreNotMadeInThePodOfAJob) {
  const RunningProgram::Result result =
      RunningProgram(Words{"env", "KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=0"} + command({})).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err,
                  "lockstep: note: nothing is saved, because the disk of this pod is lost when it ends; give --run-dir "
                  "with a folder of a volume\n");
  EXPECT_FALSE(fs::exists("runs"));
}

TEST_F(KeptRuns, AreEvaluatedAndInspectedByName) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string name = newest_name();
  for (const std::string& run : {name, std::string("last"), std::string("best")}) {
    const RunningProgram::Result eval = lockstep({"eval", run});
    EXPECT_EQ(eval.exit_code, 0) << eval.err;
    EXPECT_TRUE(eval.out.starts_with("test_loss ") || contains(eval.out, "test_accuracy")) << eval.out;
    expect_contains(lockstep({"inspect", run}).out, "24");
  }
}

class RunsCommand : public KeptRuns {
 protected:
  void SetUp() override {
    ASSERT_EQ(train({"--learning-rate", "0.01"}).exit_code, 0);
    ASSERT_EQ(train({"--learning-rate", "0.00001"}).exit_code, 0);
    names_ = lines_of(lockstep({"runs", "-o", "name"}).out);
    ASSERT_EQ(names_.size(), 2u);
  }
  std::vector<std::string> names_;
};

TEST_F(RunsCommand, ListsRunsWithTheSettingsThatDiffer) {
  const std::vector<std::string> lines = lines_of(lockstep({"runs"}).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(std::regex_match(
      lines[0], std::regex("NAME +STATE +MODEL +DATASET +STEPS +TEST_ACCURACY +TIME +AGE +LEARNING_RATE")))
      << lines[0];
  EXPECT_TRUE(lines[1].starts_with(names_[0] + "   complete   mlp ")) << lines[1];
  EXPECT_TRUE(lines[1].ends_with(" 0.01")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(" 1e-05")) << lines[2];

  const auto names = [](const Words& flags) { return lines_of(lockstep(Words{"runs", "-o", "name"} + flags).out); };
  EXPECT_EQ(names({"--sort", "test_accuracy"}), names_);
  EXPECT_EQ(names({"--sort", "learning_rate"}), (std::vector<std::string>{names_[1], names_[0]}));
  EXPECT_EQ(names({"--sort", "test_loss", "--limit", "1"}), std::vector<std::string>{names_[0]});
  EXPECT_EQ(names({"--limit", "1"}), std::vector<std::string>{names_[1]});
  expect_contains(lockstep({"runs", "--metric", "test_loss"}).out, "TEST_LOSS");
  expect_contains(lockstep({"runs", "-o", "wide"}).out, "VERSION");
  const nlohmann::json all = nlohmann::json::parse(lockstep({"runs", "-o", "json"}).out);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["name"], names_[0]);
  EXPECT_EQ(all[0]["settings"]["learning_rate"], "0.01");
}

TEST_F(RunsCommand, LeavesOutColumnsThatDoNotFitTheTerminal) {
  const ProcessResult shown = run_process(
      {"script", "-qec", "stty cols 74; '" + program_path() + "' runs", "/dev/null"}, std::chrono::seconds(60));
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  const std::vector<std::string> lines = lines_of(shown.output);
  ASSERT_EQ(lines.size(), 4u) << shown.output;
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(lines[i].size(), 75u) << lines[i];  // with a carriage return
  EXPECT_TRUE(std::regex_search(lines[0], std::regex("^NAME +STATE +.*STEPS +TEST_ACCURACY +.*AGE"))) << lines[0];
  expect_lacks(lines[0], "LEARNING_RATE");
  expect_contains(lines[3], "not shown: learning_rate; -o wide shows all settings that differ");
}

TEST_F(RunsCommand, DescribesAndComparesThem) {
  const std::string shown = lockstep({"runs", "show", "best"}).out;
  expect_contains(shown, "Name:         " + names_[0] + "\n");
  expect_contains(shown, "State:        complete\n");
  expect_contains(shown, "Checkpoints:  step_00000024\n");
  expect_contains(shown, "  learning_rate   0.01\n");
  EXPECT_EQ(nlohmann::json::parse(lockstep({"runs", "show", "last", "-o", "json"}).out)["name"], names_[1]);

  const std::string compared = lockstep({"runs", "compare", "best", "last"}).out;
  EXPECT_TRUE(std::regex_search(compared, std::regex("learning_rate +0.01 +1e-05\n"))) << compared;
  EXPECT_TRUE(std::regex_search(compared, std::regex("test_accuracy +[01][.\\d]* +0\\.\\d+\n"))) << compared;
  expect_lacks(compared, "batch_size");
}

TEST_F(RunsCommand, DeletesAndPrunesThem) {
  const RunningProgram::Result asked = lockstep({"runs", "delete", "last"});
  EXPECT_EQ(asked.exit_code, 2);
  expect_contains(asked.err, "runs delete: standard input is not a terminal to ask on; give --yes to delete\n");
  const std::string dry = lockstep({"runs", "prune", "--keep", "0", "--dry-run"}).out;
  EXPECT_TRUE(dry.starts_with("would delete runs/" + names_[1] + " (")) << dry;
  EXPECT_EQ(occurrences(dry, "\n"), 1u) << "the best one is kept: " << dry;
  EXPECT_EQ(lockstep({"runs", "prune", "--keep", "1"}).err, "lockstep: there is nothing to delete\n");
  EXPECT_EQ(lockstep({"runs", "prune", "--keep", "0", "--yes"}).out, "deleted runs/" + names_[1] + "\n");
  EXPECT_EQ(lockstep({"runs", "delete", names_[0], "last", "-y"}).out, "deleted runs/" + names_[0] + "\n");
  EXPECT_TRUE(run_names().empty());
  EXPECT_EQ(lockstep({"runs"}).err, "No runs found in runs/\n");
}

TEST_F(RunsCommand, WrongArgumentsNameTheRemedy) {
  const auto error_of = [](const Words& words) { return lockstep(Words{"runs"} + words).err; };
  EXPECT_EQ(
      error_of({"--sort", "test_acuracy"}),
      "lockstep: runs: cannot sort by \"test_acuracy\"; did you mean \"test_accuracy\"? choose name, state, steps, "
      "age, time, a metric of the runs or a setting\n");
  EXPECT_TRUE(
      error_of({"--metric", "f1"}).starts_with("lockstep: runs: no run has the metric \"f1\"; the metrics are "));
  EXPECT_EQ(error_of({"compare", "last"}), "lockstep: runs compare: only one run is given; give at least two\n");
  FileSystem::real().make_dirs("other");
  EXPECT_EQ(error_of({"show", "other"}),
            "lockstep: runs show: other has no run.json; give the folder of a run, or a name that `lockstep runs` "
            "lists\n");
  EXPECT_EQ(error_of({"delete", "other", "-y"}),
            "lockstep: runs delete: other has no run.json, so it is not the folder of a run; remove it yourself if you "
            "want to\n");
  FileSystem::real().write("runs/" + names_[0] + "/run.json", {});
  EXPECT_TRUE(error_of({}).starts_with("lockstep: runs/" + names_[0] + "/run.json")) << error_of({});
  FileSystem::real().make_dirs("runs/a\nlockstep: b");
  FileSystem::real().write("runs/a\nlockstep: b/run.json", {});
  EXPECT_NE(error_of({}).find("lockstep: runs/a\\x0alockstep: b/run.json"), std::string::npos) << error_of({});
}

}  // namespace
}  // namespace lockstep
