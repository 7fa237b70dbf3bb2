// Runs that are killed or stopped, that run out of disk space, or that find damaged checkpoints either end with the
// same result or report the loss.
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "cli/training.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"
#include "support/variable.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Sends a signal to runs of 40 steps at random moments until it has ended several of them, and restarts each run until
// it is complete. Every run must end like one without signals, and at least one resumes from a checkpoint.
void expect_no_harm(int signal, const Words& flags, unsigned seed) {
  int kills = long_tests() ? 25 : 4;
  const TempDir dir;
  const std::string wanted = dir.path() + "/wanted";
  const auto began = Clock::now();
  ASSERT_EQ(train(flags + Words{"--checkpoint-dir", wanted}).exit_code, 0);
  const auto length = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);

  if (length > std::chrono::seconds(1)) kills = std::min(kills, 4);  // a sanitized program is slow

  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> moment(0, length.count());
  int killed = 0, resumed = 0;
  for (int run = 0; killed < kills || resumed == 0; ++run) {
    const std::string now = fmt::format("{}/{}", dir.path(), run);
    int64_t newest = 0;
    for (bool over = false; !over;) {
      RunningProgram program(train_command(flags + Words{"--checkpoint-dir", now}));
      if (killed < kills || resumed == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(moment(random)));
        program.send(signal);
      }
      const RunningProgram::Result result = program.wait();
      over = result.exit_code == 0;
      ASSERT_TRUE(over || result.exit_code == 128 + signal) << result.exit_code << "\n" << result.err;
      killed += !over;
      // Every earlier checkpoint still exists, and every checkpoint is complete.
      if (newest > 0 && over) {
        ++resumed;
        expect_lacks(result.err, "skipping step");
        expect_contains(result.err, newest < 40 ? fmt::format("lockstep: resuming from step {} of 40\n", newest)
                                                : "lockstep: all 40 steps are already complete");
      }
      const std::vector<int64_t> steps = list_checkpoints(now);
      ASSERT_GE(steps.empty() ? 0 : steps.back(), newest);
      if (!steps.empty()) newest = steps.back();
      for (const int64_t step : steps) ASSERT_EQ(load_checkpoint(checkpoint_path(now, step)).step, step);
    }
    expect_same_result(now, wanted);
    FileSystem::real().remove_tree(now);
  }
}

TEST(Resume, KilledRunsEndByteEqual) {
  expect_no_harm(SIGKILL, {"--steps", "40", "--checkpoint-every", "3", "--eval-every", "5"}, 1);
}

TEST(Resume, KilledRunsOnTextEndByteEqual) {
  const TempDir cache;  // of the tokenized text
  const ScopedVariable variable("LOCKSTEP_CACHE_DIR", cache.path());
  for (const char* stream : {"off", "on"})
    expect_no_harm(SIGKILL,
                   text_flags() + Words{"--stream", stream, "--steps", "40", "--checkpoint-every", "3", "--eval-every",
                                        "10", "--ema-decay", "0.99", "--patience", "100"},
                   4);
}

TEST(Resume, StoppedRunsEndByteEqual) { expect_no_harm(SIGTERM, {"--steps", "40", "--dropout", "0.1"}, 3); }

TEST(Resume, KilledRunsWithDropoutAndFloat16EndByteEqual) {
  expect_no_harm(SIGKILL,
                 {"--steps", "40", "--checkpoint-every", "2", "--dropout", "0.2", "--precision", "float16", "--devices",
                  "2", "--keep-last", "1"},
                 2);
}

TEST(Resume, SignalsSaveACheckpointToResumeFrom) {
  std::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const TempDir dir;
    const std::string run = dir.path() + "/run", wanted = dir.path() + "/wanted";
    const Words flags = {"--schedule", "constant", "--log-every", "1"};
    RunningProgram program(
        train_command(flags + Words{"--steps", "1000000", "--checkpoint-dir", run, "--eval-every", "50"}));
    ASSERT_TRUE(program.says("\nstep 3/"));
    program.send(signal);
    const RunningProgram::Result stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 128 + signal) << stopped.err;
    EXPECT_EQ(stopped.out, "");
    ASSERT_FALSE(list_checkpoints(run).empty());
    const int64_t step = list_checkpoints(run).back();
    EXPECT_TRUE(stopped.err.ends_with(
        fmt::format("\nlockstep: stopped by {} at step {} of 1000000; rerun the command to resume from there\n",
                    signal == SIGTERM  ? "SIGTERM"
                    : signal == SIGINT ? "SIGINT"
                                       : "SIGHUP",
                    step)))
        << stopped.err;
    const std::string steps = std::to_string(step + 4);
    const RunningProgram::Result resumed =
        train(flags + Words{"--steps", steps, "--checkpoint-dir", run, "--eval-every", "50"});
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_contains(resumed.err, fmt::format("lockstep: resuming from step {} of {}\n", step, steps));
    ASSERT_EQ(train(flags + Words{"--steps", steps, "--checkpoint-dir", wanted, "--eval-every", "50"}).exit_code, 0);
    expect_same_result(run, wanted);
  }
}

TEST(Resume, SignalWithoutACheckpointFolderReportsThatNothingWasSaved) {
  RunningProgram program(train_command({"--steps", "1000000", "--log-every", "1", "--expect", "loss<0"}));
  ASSERT_TRUE(program.says("\nstep 2/"));
  program.send(SIGTERM);
  const RunningProgram::Result stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM);
  EXPECT_TRUE(stopped.err.ends_with(" of 1000000; nothing was saved because of --no-save\n")) << stopped.err;
  expect_lacks(stopped.err, "expected");
}

TEST(Resume, SecondRunInAFolderIsRejected) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  RunningProgram first(train_command({"--steps", "1000000", "--log-every", "1", "--checkpoint-dir", run}));
  ASSERT_TRUE(first.says("\nstep 2/"));
  const std::string settings = read_text(run + "/config.yaml");
  const RunningProgram::Result second = train({"--steps", "3", "--checkpoint-dir", run, "--resume", "none"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_EQ(second.out, "");
  expect_contains(second.err,
                  fmt::format("lockstep: train: {} is already in use by pid {} on host ", run, first.pid()));
  expect_contains(second.err, "; wait for it, stop it, or choose another --checkpoint-dir\n");
  EXPECT_EQ(read_text(run + "/config.yaml"), settings);

  first.send(SIGKILL);
  EXPECT_EQ(first.wait().exit_code, 128 + SIGKILL);
  EXPECT_EQ(train({"--steps", "3", "--checkpoint-dir", run, "--resume", "none"}).exit_code, 0);
}

// Whether the process has a handler for the signal.
bool catches(pid_t pid, int signal) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

TEST(Signals, KillARunThatDoesNotTrainYet) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "the control plane is left out";
#endif
  std::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    // The second of two processes waits for the first one, which is never started.
    RunningProgram program({"env", "LOCKSTEP_COORDINATOR=127.0.0.1:1", "LOCKSTEP_NUM_PROCESSES=2",
                            "LOCKSTEP_PROCESS_ID=1", "LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef", program_path(),
                            "train", "--no-save", "--dataset", "synthetic", "--quiet"});
    ASSERT_TRUE(comes_true([&] { return catches(program.pid(), signal); }));
    program.send(signal);
    const RunningProgram::Result result = program.wait();
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_EQ(result.err, "");
  }
}

TEST(Signals, IgnoredHangupStaysIgnored) {
  RunningProgram program(Words{"sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""} +
                         train_command({"--steps", "1000000", "--log-every", "1"}));
  ASSERT_TRUE(program.says("\nstep 2/"));
  program.send(SIGHUP);
  const std::string before = program.err();
  ASSERT_TRUE(comes_true([&] { return program.err().size() > before.size() + 1000; }));
  program.send(SIGTERM);
  const RunningProgram::Result stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM);
  expect_contains(stopped.err, "\nlockstep: stopped by SIGTERM at step ");
}

// Each test damages a copy of one complete run.
class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    static const int trained = train(flags_ + Words{"--checkpoint-dir", wanted_}).exit_code;
    ASSERT_EQ(trained, 0);
    std::filesystem::copy(wanted_, run_, std::filesystem::copy_options::recursive);
    ASSERT_EQ(list_checkpoints(run_), (std::vector<int64_t>{5, 10, 15}));
  }
  std::string shard(int64_t step) const { return checkpoint_path(run_, step) + "/shard-00000-of-00001.safetensors"; }
  RunningProgram::Result again() const { return train(flags_ + Words{"--checkpoint-dir", run_}); }

  static const std::string& shared_folder() {
    static const TempDir dir;
    return dir.path();
  }

  const TempDir dir_;
  const std::string run_ = dir_.path() + "/run", wanted_ = shared_folder() + "/wanted";
  const Words flags_ = {"--steps", "15", "--checkpoint-every", "5"};
};

TEST_F(Damaged, DamagedNewestIsSkipped) {
  flip_byte(shard(15));
  const RunningProgram::Result result = again();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "lockstep: resume: skipping step 15: ");
  expect_contains(result.err, shard(15));
  expect_contains(result.err, "lockstep: resuming from step 10 of 15\n");
  expect_same_result(run_, wanted_);
}

TEST_F(Damaged, ManifestIsCheckedToo) {
  flip_byte(checkpoint_path(run_, 15) + "/manifest.json");
  FileSystem::real().remove(shard(10));
  const RunningProgram::Result result = again();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "lockstep: resume: skipping step 15: ");
  expect_contains(result.err, "lockstep: resume: skipping step 10: ");
  expect_contains(result.err, "lockstep: resuming from step 5 of 15\n");
  expect_same_result(run_, wanted_);
}

TEST_F(Damaged, MissingManifestIsSkippedToo) {
  FileSystem::real().remove(checkpoint_path(run_, 15) + "/manifest.json");
  const RunningProgram::Result result = again();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "lockstep: resume: skipping step 15: ");
  expect_contains(result.err, checkpoint_path(run_, 15));
  expect_contains(result.err, "lockstep: resuming from step 10 of 15\n");
  expect_same_result(run_, wanted_);
}

TEST_F(Damaged, OnlyCheckpointsWithoutManifestsAreAnError) {
  for (const int64_t step : {5, 10, 15}) FileSystem::real().remove(checkpoint_path(run_, step) + "/manifest.json");
  const std::vector<uint8_t> before = FileSystem::real().read_file(shard(15));
  const RunningProgram::Result result = again();
  EXPECT_EQ(result.exit_code, 1);
  expect_contains(result.err, "lockstep: resume: 3 checkpoints in " + run_ + ", but none is complete; ");
  EXPECT_EQ(FileSystem::real().read_file(shard(15)), before);
}

TEST_F(Damaged, OnlyDamagedCheckpointsAreAnErrorAndStayUnchanged) {
  for (const int64_t step : {5, 10, 15}) flip_byte(shard(step));
  const std::vector<uint8_t> before = FileSystem::real().read_file(shard(15));
  const RunningProgram::Result result = again();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(
      result.err.ends_with("\nlockstep: resume: 3 checkpoints in " + run_ +
                           ", but none is complete; restore a backup, or start a new run with --resume none or another "
                           "--checkpoint-dir\n"))
      << result.err;
  EXPECT_EQ(FileSystem::real().read_file(shard(15)), before);

  const RunningProgram::Result anew = train(flags_ + Words{"--checkpoint-dir", run_, "--resume", "none"});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  // The earlier checkpoints are moved aside.
  expect_contains(anew.err, "lockstep: the checkpoints of an earlier run were moved to " + run_ + "/previous-1\n");
  EXPECT_EQ(FileSystem::real().read_file(run_ + "/previous-1/step_00000015/shard-00000-of-00001.safetensors"), before);
  expect_same_weights(run_, wanted_);
}

TEST_F(Damaged, DamagedCheckpointGivenByPathIsRejected) {
  flip_byte(shard(10));
  const RunningProgram::Result result = train(flags_ + Words{"--checkpoint-dir", run_, "--resume", "10"});
  EXPECT_EQ(result.exit_code, 1);
  expect_contains(result.err, shard(10));
}

TEST_F(Damaged, ResumingFromAnEarlierStepMovesLaterOnesAside) {
  const std::string stale =
      run_ + "/.step_00000020.old-elsewhere-1-1";  // of a save that was interrupted on another host
  ASSERT_EQ(train({"--steps", "20", "--checkpoint-dir", dir_.path() + "/more"}).exit_code, 0);
  FileSystem::real().rename(checkpoint_path(dir_.path() + "/more", 20), stale);
  const RunningProgram::Result result =
      train({"--steps", "7", "--checkpoint-every", "1", "--keep-last", "1", "--checkpoint-dir", run_, "--resume", "5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "lockstep: resuming from step 5 of 7\n");
  expect_contains(result.err, "lockstep: the checkpoints after step 5 were moved to " + run_ + "/previous-1\n");
  EXPECT_EQ(list_checkpoints(run_ + "/previous-1"), (std::vector<int64_t>{10, 15, 20}));
  EXPECT_EQ(list_checkpoints(run_).back(), 7);

  const RunningProgram::Result on = train({"--steps", "9", "--checkpoint-every", "1", "--checkpoint-dir", run_});
  EXPECT_EQ(on.exit_code, 0) << on.err;
  expect_contains(on.err, "lockstep: resuming from step 7 of 9\n");
  expect_lacks(on.err, "previous-2");
}

TEST_F(Damaged, ResumingFromAnEarlierPathMovesLaterOnesAside) {
  const RunningProgram::Result newest =
      train(flags_ + Words{"--checkpoint-dir", run_, "--resume", checkpoint_path(run_, 15)});
  EXPECT_EQ(newest.exit_code, 0) << newest.err;
  expect_lacks(newest.err, "were moved to");
  const RunningProgram::Result result =
      train(flags_ + Words{"--checkpoint-dir", run_, "--resume", checkpoint_path(run_, 10)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "lockstep: the checkpoints after step 10 were moved to " + run_ + "/previous-1\n");
  EXPECT_EQ(list_checkpoints(run_ + "/previous-1"), std::vector<int64_t>{15});
  expect_same_weights(run_, wanted_);
}

// A file system with room for one checkpoint but not for two.
class SmallDisk {
 public:
  SmallDisk() { mounted_ = ::mount("none", dir_.path().c_str(), "tmpfs", 0, "size=4m") == 0; }
  ~SmallDisk() {
    if (mounted_) ::umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  bool mounted_ = false;
};

TEST(FullDisk, TrainingContinuesAndSavedCheckpointsStayComplete) {
  for (const bool quiet : {false, true}) {
    const SmallDisk disk;
    if (!disk.mounted()) GTEST_SKIP() << "this user may not mount";
    const RunningProgram::Result result = train({"--steps", "9", "--checkpoint-every", "3", "--checkpoint-dir",
                                                 disk.path(), "--resume", "none", quiet ? "--quiet" : "--quiet=false"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    for (const char* step : {"6", "9"})
      expect_contains(result.err, fmt::format("alarm: checkpoint of step {} was not saved: ", step));
    expect_contains(result.err, "No space left on device");
    expect_contains(result.err, "lockstep: the last checkpoint, of step 9, could not be saved in " + disk.path() +
                                    ": the trained model is lost; ");
    expect_contains(result.out, "mlp test accuracy ");
    expect_lacks(result.err, "checkpoints are in " + disk.path());
    EXPECT_EQ(list_checkpoints(disk.path()), std::vector<int64_t>{3});
    EXPECT_EQ(load_checkpoint(checkpoint_path(disk.path(), 3)).step, 3);
  }
}

TEST(FullDisk, FileSizeLimitDoesNotKillTheRun) {
  if (kThreadSanitizer) GTEST_SKIP() << "a part of ThreadSanitizer's own memory is a file, which may not grow either";
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  const RunningProgram::Result result =
      RunningProgram(Words{"sh", "-c", "ulimit -f 1000; exec \"$0\" \"$@\""} +
                     train_command({"--steps", "6", "--checkpoint-every", "3", "--checkpoint-dir", run}))
          .wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, "alarm: checkpoint of step 3 was not saved: ");
  expect_contains(result.err, "File too large");
  EXPECT_TRUE(list_checkpoints(run).empty());
}

}  // namespace
}  // namespace lockstep
