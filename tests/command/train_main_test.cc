// A program with train_main(), examples/my_task.cc, as its users run it.
#include "lockstep/train_main.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <sstream>

#include "base/file.h"
#include "lockstep/checkpoint.h"
#include "lockstep/version.h"
#include "support/in_folder.h"
#include "support/program.h"
#include "support/text_file.h"
#include "support/variable.h"

namespace lockstep {
namespace {

const auto* const kFolder = testing::AddGlobalTestEnvironment(new TestsInNewFolder);

const std::string kMyTask = LOCKSTEP_BINARY_DIR "/examples/my_task";
// A short run: 20 steps an epoch.
const Words kShort = {"--points", "2000", "--batch-size", "100", "--learning-rate", "0.01"};

ProcessResult my_task(const Words& words) {
  program_path();  // sets the options of sanitizers
  return run_process(Words{kMyTask} + words, std::chrono::minutes(2));
}

void expect_refused(const Words& words, const std::string& message) {
  const ProcessResult result = my_task(words);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(result.output, "my_task: " + message + "\n");
}

void write_settings(const std::string& path, const std::string& text) {
  FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
}

// Expects the checkpoints of a step in both folders to have equal arrays, up to a difference.
void expect_same_arrays(const std::string& dir, const std::string& wanted, int64_t step, float most = 0) {
  const Checkpoint a = load_checkpoint(checkpoint_path(dir, step)), b = load_checkpoint(checkpoint_path(wanted, step));
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (size_t i = 0; i < a.arrays.size(); ++i) {
    EXPECT_EQ(a.arrays[i].first, b.arrays[i].first);
    const std::vector<float> x = a.arrays[i].second.to_vector<float>(), y = b.arrays[i].second.to_vector<float>();
    ASSERT_EQ(x.size(), y.size());
    for (size_t k = 0; k < x.size(); ++k) ASSERT_LE(std::abs(x[k] - y[k]), most) << a.arrays[i].first << " " << k;
  }
}

// Help without line breaks: lines may be wrapped between any two words.
std::string one_line(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

double loss_of(const std::string& output) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(output, found, std::regex("test loss ([0-9.]+)"))) << output;
  return found.empty() ? 1e9 : std::stod(found[1]);
}

TEST(TrainMain, HelpHasOwnSettingsThenThoseOfTheTrainer) {
  const ScopedVariable columns("COLUMNS", std::nullopt);
  const ProcessResult help = my_task({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  const std::string text = one_line(help.output);
  EXPECT_NE(text.find("Usage: my_task [COMMAND] [OPTIONS] [CONFIG]"), text.npos) << help.output;
  EXPECT_NE(text.find("my_task: --hidden N units of each hidden layer (default: 64)"), text.npos) << help.output;
  EXPECT_NE(text.find("--wave sine|chirp curve to learn (default: sine)"), text.npos) << help.output;
  EXPECT_LT(text.find("--hidden"), text.find("--learning-rate"));
  for (const char* word : {"eval", "inspect", "completion", "train"}) EXPECT_NE(text.find(word), text.npos) << word;
  for (const char* flag : {"--model", "--dataset", "--pixel-mean", "--label-smoothing", "--dropout", " cnn"})
    EXPECT_EQ(text.find(flag), text.npos) << flag;
  EXPECT_NE(text.find("75 a GPU, the network or another process failed"), text.npos);
  std::istringstream lines(help.output);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_EQ(my_task({"help"}).output, help.output);
  EXPECT_NE(my_task({"train", "--help"}).output.find("--hidden N"), std::string::npos);
  EXPECT_NE(my_task({"help", "eval"}).output.find("my_task eval run"), std::string::npos);
}

TEST(TrainMain, VersionNamesBoth) {
  EXPECT_EQ(my_task({"--version"}).output, "my_task (lockstep " LOCKSTEP_VERSION ")\n");
}

TEST(TrainMain, FlagsOverrideTheFile) {
  const TempDir dir;
  const std::string file = dir.path() + "/run.yaml";
  write_settings(file, "hidden: 5\nlearning-rate: 0.5\nwave: chirp\n");
  const ProcessResult result = my_task({file, "--hidden=7", "--print-config"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.find("# my_task\nhidden: 7\npoints: 20000\nnoise: 0.1\nwave: chirp\n"), 0u) << result.output;
  EXPECT_NE(result.output.find("\nlearning_rate: 0.5\n"), std::string::npos);
  EXPECT_EQ(result.output.find("dataset"), std::string::npos);
  write_settings(file, result.output);  // what is printed reads back the same
  EXPECT_EQ(my_task({"train", "--config", file, "--print-config"}).output, result.output);
}

TEST(TrainMain, WrongCommandLinesAreRefused) {
  expect_refused({"--hiden", "3"}, "unknown flag --hiden; did you mean \"--hidden\"? see `my_task --help`");
  expect_refused({"train", "--hiden", "3"},
                 "train: unknown flag --hiden; did you mean \"--hidden\"? see `my_task train --help`");
  expect_refused({"--hidden", "0"}, "--hidden: \"0\" is not a whole number of at least 1; see `my_task --help`");
  expect_refused({"--wave", "sinus"},
                 "--wave: \"sinus\" is not one of sine, chirp; did you mean \"sine\"? see `my_task --help`");
  expect_refused({"--model", "cnn"},
                 "--model: model configures the models and data sets of `lockstep train`, and my_task has its own; "
                 "remove the flag");
  expect_refused({"evl", "run"}, "unknown command \"evl\"; did you mean \"eval\"? see `my_task --help`");
  expect_refused({"--steps", "5", "--epochs", "2"},
                 "train: command line: both steps (5) and epochs (2) are given; keep only one");
  expect_refused({"--patience", "3", "--quiet"},
                 "train: patience is 3, but the task wave has no validation set; remove it");
  expect_refused({"--batch-size", "100000", "--quiet"},
                 "train: batch_size is 100000, but the training set has 20000 examples; use at most 20000");
}

TEST(TrainMain, WrongFilesAreRefused) {
  const TempDir dir;
  const std::string file = dir.path() + "/run.yaml";
  write_settings(file, "\nhiden: 5\n");
  expect_refused({file}, "train: " + file + ":2: unknown key \"hiden\"; did you mean \"hidden\"? see `my_task --help`");
  write_settings(file, "dataset: mnist\n");
  expect_refused({file}, "train: " + file +
                             ":1: dataset configures the models and data sets of `lockstep train`, and my_task has its "
                             "own; remove it");
  write_settings(file, "noise: -1\n");
  expect_refused({file}, "train: " + file + ":1: noise: \"-1\" is not a number of at least 0");
  EXPECT_NE(my_task({dir.path() + "/none.yaml"}).output.find("none.yaml"), std::string::npos);
}

TEST(TrainMain, TrainsEvaluatesAndShowsCheckpoints) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  const ProcessResult trained =
      my_task(kShort + Words{"--epochs", "10", "--quiet", "--checkpoint-dir", run, "--expect", "test_abs_error<0.3"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_LT(loss_of(trained.output), 0.1);
  const ProcessResult evaluated = my_task({"eval", run, "--devices", "3"});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
  EXPECT_TRUE(std::regex_search(evaluated.output,
                                std::regex("^test_loss 0\\.[0-9]+ test_abs_error 0\\.[0-9]+ examples 1000\n$")))
      << evaluated.output;
  const ProcessResult shown = my_task({"inspect", run});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_NE(shown.output.find("\n  points: 2000\n"), std::string::npos) << shown.output;
  EXPECT_NE(shown.output.find("\n  program: my_task\n"), std::string::npos);
  EXPECT_EQ(shown.output.find("dataset"), std::string::npos);
  // lockstep shows the checkpoint, but has no task to evaluate it.
  EXPECT_EQ(run_lockstep({"inspect", run}).output, shown.output);
  const ProcessResult other = run_lockstep({"eval", run});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(other.output, "lockstep: " + run +
                              ": written by the program my_task, with its own task; use that program instead of "
                              "lockstep\n");
}

TEST(TrainMain, ExpectationsDecideTheExitCode) {
  const ProcessResult result = my_task(kShort + Words{"--steps", "2", "--quiet", "--expect", "test_loss<0.000001"});
  EXPECT_EQ(result.exit_code, 3) << result.output;
}

TEST(TrainMain, ResumedRunsKeepTheirSettings) {
  const TempDir dir;
  const std::string run = dir.path() + "/run", whole = dir.path() + "/whole";
  const Words start = kShort + Words{"--quiet", "--checkpoint-dir", run};
  ASSERT_EQ(my_task(start + Words{"--epochs", "2"}).exit_code, 0);
  const ProcessResult changed = my_task(start + Words{"--epochs", "4", "--hidden", "32"});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_EQ(changed.output,
            "my_task: resume: hidden was 64 when the checkpoint was written and is 32 now; use --hidden 64, or start a "
            "new run with --resume none or another --checkpoint-dir\n");
  // The learning rate of a longer run has another schedule, so both runs have a constant one.
  const Words constant = kShort + Words{"--quiet", "--schedule", "constant", "--resume", "auto"};
  FileSystem::real().remove_tree(run);
  ASSERT_EQ(my_task(constant + Words{"--steps", "7", "--checkpoint-dir", run}).exit_code, 0);
  ASSERT_EQ(my_task(constant + Words{"--steps", "12", "--checkpoint-dir", run}).exit_code, 0);
  ASSERT_EQ(my_task(constant + Words{"--steps", "12", "--checkpoint-dir", whole}).exit_code, 0);
  expect_same_arrays(run, whole, 12);
}

TEST(TrainMain, SignalsSaveACheckpoint) {
  const TempDir dir;
  RunningProgram program({kMyTask, "--steps", "1000000", "--checkpoint-dir", dir.path() + "/run"});
  ASSERT_TRUE(program.says("step 1/1000000"));
  program.send(SIGTERM);
  const RunningProgram::Result result = program.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  EXPECT_NE(result.err.find("my_task: stopped by SIGTERM at step "), std::string::npos) << result.err;
  EXPECT_EQ(list_checkpoints(dir.path() + "/run").size(), 1u);
}

#ifdef LOCKSTEP_WITH_GRPC
TEST(TrainMain, TwoLaunchedProcessesTrainLikeOne) {
  const TempDir dir;
  const std::string one = dir.path() + "/one", two = dir.path() + "/two";
  const Words flags = kShort + Words{"--epochs", "2", "--quiet"};
  ASSERT_EQ(my_task(flags + Words{"--devices", "2", "--checkpoint-dir", one}).exit_code, 0);
  const ProcessResult launched =
      run_lockstep(Words{"launch", "-n", "2", "--", kMyTask} + flags + Words{"--checkpoint-dir", two});
  ASSERT_EQ(launched.exit_code, 0) << launched.output;
  expect_same_arrays(two, one, 40, 1e-4f);  // sums are taken in another order
}
#endif

// What bash offers after these words, the last of which is being typed.
std::string bash_offers(const Words& words) {
  std::string typed;
  for (const std::string& word : words) typed += " '" + word + "'";
  const std::string script = "source <('" + kMyTask + "' completion bash)\nCOMP_WORDS=(my_task" + typed +
                             ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                             "\n_my_task\nprintf '%s ' \"${COMPREPLY[@]}\"\n";
  return run_process({"bash", "--norc", "-c", script}, std::chrono::minutes(1)).output;
}

TEST(TrainMain, CompletionOffersOwnSettings) {
  EXPECT_EQ(bash_offers({"--hid"}), "--hidden ");
  EXPECT_EQ(bash_offers({"--wave", ""}), "sine chirp ");
  EXPECT_EQ(bash_offers({"train", "--wave", "c"}), "chirp ");
  EXPECT_EQ(bash_offers({"ins"}), "inspect ");
  EXPECT_EQ(bash_offers({"--mod"}), " ");
}

// train_main() accepts functions and lambdas with and without settings.
struct Count {
  Setting<int64_t> count{3, "number of examples"};
};
template <class F>
using SettingsType = typename detail::SettingsOf<F>::Type;

TEST(TrainMain, SettingsAreDeducedFromTheFunction) {
  const auto lambda = [](const Count&, const TrainInputs&) -> Problem { return {}; };
  const auto no_settings = []() -> Problem { return {}; };
  EXPECT_TRUE((std::is_same_v<SettingsType<Problem (*)()>, detail::NoSettings>));
  EXPECT_TRUE((std::is_same_v<SettingsType<Problem (*)(const Count&)>, Count>));
  EXPECT_TRUE((std::is_same_v<SettingsType<Problem (*)(const Count&, const TrainInputs&)>, Count>));
  EXPECT_TRUE((std::is_same_v<SettingsType<decltype(lambda)>, Count>));
  EXPECT_TRUE((std::is_same_v<SettingsType<decltype(no_settings)>, detail::NoSettings>));
}

// Runs train_main() in this process. Returns the exit code and what it printed to standard error.
template <class Make>
std::pair<int, std::string> run_here(Words words, Make make) {
  words.insert(words.begin(), "here");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  const int code = train_main(static_cast<int>(argv.size()), argv.data(), make);
  return {code, testing::internal::GetCapturedStderr()};
}

struct SeedSetting {
  Setting<int64_t> seed{1, "taken"};
};

TEST(TrainMain, MistakesOfTheProgramAreErrors) {
  const auto [code, text] = run_here({}, [](const SeedSetting&) -> Problem { return {}; });
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text, "here: settings: the trainer already has --seed; rename the field \"seed\" of the settings\n");
  const auto [no_task, first] = run_here({"--quiet"}, []() -> Problem { return {}; });
  EXPECT_EQ(no_task, 1);
  EXPECT_EQ(first, "here: train_main: the problem has no task; set Problem::task, such as by make_task()\n");
  const Task task{.name = "t",
                  .init = [](const Array&) { return std::vector<Array>(); },
                  .loss = [](const std::vector<Array>&, const BatchArrays&, const nn::Mode&) { return TaskResult(); }};
  const auto [no_data, second] =
      run_here({"--quiet"}, [task]() -> Problem { return {.task = task, .train = nullptr}; });
  EXPECT_EQ(no_data, 1);
  EXPECT_EQ(second,
            "here: train_main: the problem has no training set; set Problem::train, such as by array_source()\n");
  const auto [thrown, third] =
      run_here({"--quiet"}, []() -> Problem { throw std::runtime_error("points.csv: no such file"); });
  EXPECT_EQ(thrown, 1);
  EXPECT_EQ(third, "here: points.csv: no such file\n");
}

}  // namespace
}  // namespace lockstep
