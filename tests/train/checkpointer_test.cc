#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "support/variable.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoints.h"

namespace lockstep {
namespace {

using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

Checkpoint with_accuracy(int64_t step, double accuracy) {
  Checkpoint out = small_checkpoint(step);
  out.metrics["test_accuracy"] = accuracy;
  return out;
}

TEST(Checkpointer, SavesInTheBackgroundAndWaits) {
  const TempDir dir;
  Checkpointer saver({.dir = dir.path() + "/a/b"});
  EXPECT_EQ(saver.best(), std::nullopt);
  saver.save(odd_checkpoint());
  saver.wait();
  EXPECT_EQ(saver.saved(), Steps{1000});
  EXPECT_EQ(saver.failures(), Names{});
  EXPECT_TRUE(same_checkpoint(load_checkpoint(checkpoint_path(dir.path() + "/a/b", 1000)), odd_checkpoint()));
}

TEST(Checkpointer, DestructorWaitsForTheSave) {
  const TempDir dir;
  Checkpointer({.dir = dir.path()}).save(small_checkpoint(3));
  EXPECT_TRUE(same_checkpoint(load_checkpoint(checkpoint_path(dir.path(), 3)), small_checkpoint(3)));
}

TEST(Checkpointer, ArrayMemoryMayBeReusedAfterSave) {
  const TempDir dir;
  std::vector<float> memory(300'000, 1.5f);  // more than one piece of the copy
  const Type type = {f32, {300, 1000}};
  Checkpoint checkpoint;
  checkpoint.arrays = {{"w", detail::adopt_bytes(memory.data(), type, nullptr, [](void*) {})}};
  Checkpointer saver({.dir = dir.path()});
  saver.save(checkpoint);
  std::fill(memory.begin(), memory.end(), 2.5f);
  saver.wait();
  const Checkpoint loaded = load_checkpoint(checkpoint_path(dir.path(), 0));
  EXPECT_EQ(loaded.arrays[0].second.to_vector<float>(), std::vector<float>(300'000, 1.5f));
}

TEST(Checkpointer, InvalidArgumentsThrowImmediately) {
  const TempDir dir;
  EXPECT_THROWS(Checkpointer({.dir = ""}), Error, "the folder name is empty");
  EXPECT_THROWS(Checkpointer({.dir = dir.path(), .keep_last = -1}), Error, "keep_last is -1");
  EXPECT_THROWS(Checkpointer({.dir = dir.path(), .shard_bytes = 0}), Error, "shard_bytes is 0");
  EXPECT_THROWS(Checkpointer({.dir = dir.path(), .deadline = std::chrono::milliseconds(0)}), Error,
                "checkpointer: the deadline is 0 ms; give a positive time");
  Checkpointer saver({.dir = dir.path()});
  EXPECT_THROWS(saver.save(small_checkpoint(-1)), Error, "the step is -1");
  saver.save(small_checkpoint(1));
  saver.wait();
  EXPECT_EQ(saver.saved(), Steps{1});
}

TEST(Checkpointer, KeepsTheLastAndTheBest) {
  const TempDir dir;
  Checkpointer saver({.dir = dir.path(), .keep_last = 2});
  const std::vector<double> accuracies = {0.1, 0.9, NAN, 0.8, 0.9, 0.7, 0.6, 0.5};
  const std::vector<Steps> kept = {{1}, {1, 2}, {2, 3}, {2, 3, 4}, {4, 5}, {5, 6}, {5, 6, 7}, {5, 7, 8}};
  for (size_t i = 0; i < accuracies.size(); ++i) {
    saver.save(with_accuracy(static_cast<int64_t>(i) + 1, accuracies[i]));
    saver.wait();
    EXPECT_EQ(list_checkpoints(dir.path()), kept[i]) << i;
  }
  EXPECT_EQ(saver.best(), 5);
  EXPECT_EQ(saver.failures(), Names{});
  EXPECT_EQ(saver.saved(), (Steps{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(disk().list(dir.path()).size(), 3u);
}

TEST(Checkpointer, LowerMetricMayBeBetter) {
  const TempDir dir;
  Checkpointer saver({.dir = dir.path(), .keep_last = 1, .higher_is_better = false});
  for (const int64_t step : {1, 2, 3, 4}) saver.save(with_accuracy(step, step == 2 ? 0.1 : 0.5));
  saver.wait();
  EXPECT_EQ(list_checkpoints(dir.path()), (Steps{2, 4}));
}

TEST(Checkpointer, KeepLastZeroKeepsAll) {
  const TempDir dir;
  Checkpointer saver({.dir = dir.path(), .keep_last = 0});
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) saver.save(small_checkpoint(step));
  saver.wait();
  EXPECT_EQ(list_checkpoints(dir.path()).size(), 6u);
}

TEST(Checkpointer, WithoutMetricOnlyTheNewestAreKept) {
  const TempDir dir;
  Checkpointer saver({.dir = dir.path(), .keep_last = 1, .best_metric = ""});
  for (const int64_t step : {1, 2, 3}) saver.save(small_checkpoint(step));
  saver.wait();
  EXPECT_EQ(list_checkpoints(dir.path()), Steps{3});
  EXPECT_EQ(saver.best(), std::nullopt);
}

TEST(Checkpointer, FindsTheBestAfterARestart) {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3, 4}) save_checkpoint(dir.path(), with_accuracy(step, step == 2 ? 0.9 : 0.5));
  Checkpointer saver({.dir = dir.path(), .keep_last = 2});
  saver.save(with_accuracy(5, 0.6));
  saver.wait();
  EXPECT_EQ(saver.best(), 2);
  EXPECT_EQ(list_checkpoints(dir.path()), (Steps{2, 4, 5}));
}

TEST(Checkpointer, NewestIsByTimeOfWritingNotByStep) {
  const TempDir dir;
  for (const int64_t step : {100, 200}) save_checkpoint(dir.path(), small_checkpoint(step));
  Checkpointer saver({.dir = dir.path(), .keep_last = 1, .best_metric = ""});
  saver.save(small_checkpoint(50));
  saver.wait();
  EXPECT_EQ(list_checkpoints(dir.path()), Steps{50});
}

TEST(Checkpointer, DamagedCheckpointsAreNeitherCountedNorRemoved) {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3}) save_checkpoint(dir.path(), with_accuracy(step, step == 3 ? 0.9 : 0.5));
  disk().write(checkpoint_path(dir.path(), 3) + "/shard-00000-of-00001.safetensors", std::vector<uint8_t>(10));
  Checkpointer saver({.dir = dir.path(), .keep_last = 2});
  saver.save(small_checkpoint(4));
  saver.wait();
  EXPECT_EQ(saver.failures(), Names{});
  EXPECT_EQ(list_checkpoints(dir.path()), (Steps{2, 3, 4}));
  EXPECT_EQ(saver.best(), 4);
}

TEST(Checkpointer, SkippedCheckpointsAreNeitherCountedNorRemoved) {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3}) save_checkpoint(dir.path(), with_accuracy(step, step == 3 ? 0.9 : 0.5));
  const std::string shard = checkpoint_path(dir.path(), 3) + "/shard-00000-of-00001.safetensors";
  std::vector<uint8_t> bytes = disk().read_file(shard);
  bytes.back() ^= 1;
  disk().write(shard, bytes);
  Checkpointer saver({.dir = dir.path(), .keep_last = 2, .resumed_step = 2});
  saver.save(with_accuracy(4, 0.6));
  saver.wait();
  EXPECT_EQ(list_checkpoints(dir.path()), (Steps{2, 3, 4}));
  EXPECT_EQ(saver.best(), 4);
  saver.save(with_accuracy(5, 0.7));
  saver.wait();
  EXPECT_EQ(list_checkpoints(dir.path()), (Steps{3, 4, 5}));
  EXPECT_EQ(saver.failures(), Names{});
}

TEST(Checkpointer, HiddenFoldersOfDeadProcessesAreRemoved) {
  const TempDir dir;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  const auto hidden = [&](const char* kind, int64_t pid) {
    return fmt::format(".step_00000007.{}-{}-{}-999", kind, host, pid);
  };
  const Names stay = {
      hidden("tmp", ::getppid()), ".step_00000007.tmp",       ".step_7.tmp-a-1-2",      ".step_00000007.new-a-1-2",
      "step_00000007.tmp-a-1-2",  ".step_00000007.tmp-a-b-2", ".step_00000007.tmp-1-x", ".other"};
  const Names go = {hidden("tmp", dead), hidden("tmp", ::getpid()), hidden("old", dead),
                    ".step_00000007.tmp-another-host-1-1"};
  for (const Names& names : {stay, go})
    for (const std::string& name : names) {
      disk().make_dirs(dir.path() + "/" + name);
      disk().write(dir.path() + "/" + name + "/x", std::vector<uint8_t>{1});
    }
  Checkpointer saver({.dir = dir.path()});
  saver.save(small_checkpoint(8));
  saver.wait();
  EXPECT_EQ(saver.failures(), Names{});
  for (const std::string& name : stay) EXPECT_TRUE(disk().exists(dir.path() + "/" + name + "/x")) << name;
  for (const std::string& name : go) EXPECT_FALSE(disk().exists(dir.path() + "/" + name)) << name;
}

// Uses memory instead of a disk if possible, because hundreds of saves with several fsyncs each would be slow.
class CheckpointerFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/shm", W_OK) == 0) in_memory_.emplace("TMPDIR", "/dev/shm");
  }

 private:
  std::optional<ScopedVariable> in_memory_;
};

// The contents of the folder before the save that fails.
enum class Start { empty, other_step, same_step };

// Prepares the folder with a checkpoint to be removed and a leftover hidden folder, so that the save uses every file
// operation.
void prepare(const std::string& dir, Start start) {
  if (start == Start::empty) return;
  save_checkpoint(dir, with_accuracy(1, 0.1));
  save_checkpoint(dir, with_accuracy(2, 0.9));
  if (start == Start::same_step) save_checkpoint(dir, with_accuracy(3, 0.2));
  disk().make_dirs(dir + "/.step_00000001.tmp-another-host-1-1");
}

void save_three(FaultyFiles& files, const std::string& dir, Names* failures = nullptr) {
  Checkpointer saver({.dir = dir, .keep_last = 1, .shard_bytes = 200, .files = &files});
  saver.save(with_accuracy(3, 0.5));
  saver.wait();
  if (failures) *failures = saver.failures();
}

bool is_step_three(const Checkpoint& found) {
  return same_checkpoint(found, with_accuracy(3, 0.2)) || same_checkpoint(found, with_accuracy(3, 0.5));
}

// Earlier checkpoints are intact: step 2, the best one, and step 3, old or new, if it existed before.
void expect_intact(const std::string& dir, Start start, const std::string& when) {
  if (start == Start::empty) return;
  EXPECT_TRUE(same_checkpoint(load_checkpoint(checkpoint_path(dir, 2)), with_accuracy(2, 0.9))) << when;
  const auto found = find_checkpoint(dir, "auto", [&](const std::string& text) { ADD_FAILURE() << when << text; });
  ASSERT_TRUE(found) << when;
  EXPECT_TRUE(is_step_three(*found) || (start == Start::other_step && found->step == 2)) << when;
}

void expect_next_save_recovers(FaultyFiles& files, const std::string& dir, const std::string& when) {
  Names failures;
  save_three(files, dir, &failures);
  EXPECT_EQ(failures, Names{}) << when;
  EXPECT_TRUE(same_checkpoint(load_checkpoint(checkpoint_path(dir, 3)), with_accuracy(3, 0.5))) << when;
  for (const std::string& name : disk().list(dir)) EXPECT_NE(name[0], '.') << when << ": " << name;
}

TEST_F(CheckpointerFaults, EveryFailureIsReportedAndKeepsOldCheckpoints) {
  std::map<std::string, int> tried;
  for (const Start start : {Start::empty, Start::other_step, Start::same_step}) {
    std::map<std::string, int> calls;
    {
      const TempDir dir;
      prepare(dir.path() + "/run", start);
      FaultyFiles files;
      save_three(files, dir.path() + "/run");
      calls = files.counts();
    }
    for (const auto& [operation, count] : calls) {
      for (int k = 1; k <= count; ++k) {
        const TempDir root;
        const std::string dir = root.path() + "/run";
        const std::string when = fmt::format("{} {} of {} with start {}", operation, k, count, static_cast<int>(start));
        prepare(dir, start);
        FaultyFiles files;
        files.fail_at(operation, k, operation == "write" ? ENOSPC : EIO);
        Names failures;
        save_three(files, dir, &failures);
        ++tried[operation];
        ASSERT_FALSE(failures.empty()) << when;
        EXPECT_EQ(failures[0].find("checkpoint of step 3 "), 0u) << failures[0];
        EXPECT_NE(failures[0].find(root.path()), std::string::npos) << failures[0];
        EXPECT_NE(failures[0].find(operation == "write" ? "the disk is full" : "Input/output error"), std::string::npos)
            << failures[0];
        expect_intact(dir, start, when);
        const bool cleaning = operation == "remove_tree" || failures[0].find("is saved, but") != std::string::npos;
        const Names left = cleaning || !disk().exists(dir) ? Names{} : disk().list(dir);
        for (const std::string& name : left)
          EXPECT_TRUE(name.find(".tmp-") == std::string::npos || name.find("another") != std::string::npos)
              << when << " left " << name;
        expect_next_save_recovers(files, dir, when);
      }
    }
  }
  for (const char* operation :
       {"create", "write", "sync", "rename", "make_dirs", "sync_dir", "remove_tree", "list", "exists", "size", "read"})
    EXPECT_GT(tried[operation], 0) << operation;
}

TEST_F(CheckpointerFaults, DeathAtAnyOperationLeavesCompleteCheckpoints) {
  for (const Start start : {Start::empty, Start::other_step, Start::same_step}) {
    for (int k = 1, last = 1; k <= last; ++k) {
      const TempDir root;
      const std::string dir = root.path() + "/run";
      const std::string when = fmt::format("death at operation {} with start {}", k, static_cast<int>(start));
      prepare(dir, start);
      FaultyFiles files;
      files.die_at(k);
      save_three(files, dir);
      if (k == 1) {
        const TempDir other;
        prepare(other.path() + "/run", start);
        FaultyFiles healthy;
        save_three(healthy, other.path() + "/run");
        last = healthy.total();
      }
      expect_intact(dir, start, when);
      files.die_at(0);
      expect_next_save_recovers(files, dir, when);
    }
  }
}

TEST_F(CheckpointerFaults, InterruptedReplacementIsFoundAndRestored) {
  const TempDir dir;
  const std::string path = save_checkpoint(dir.path(), small_checkpoint(5));
  disk().rename(path, dir.path() + "/.step_00000005.old-another-host-1-1");
  EXPECT_EQ(list_checkpoints(dir.path()), Steps{5});
  EXPECT_EQ(find_checkpoint(dir.path(), "5", ignore)->step, 5);
  EXPECT_EQ(find_checkpoint("", path, ignore)->step, 5);
  EXPECT_TRUE(same_checkpoint(load_checkpoint(path), small_checkpoint(5)));
  save_checkpoint(dir.path(), small_checkpoint(6));
  EXPECT_EQ(disk().list(dir.path()), (Names{"step_00000005", "step_00000006"}));
}

TEST_F(CheckpointerFaults, FullDiskIsReportedForEverySave) {
  const TempDir dir;
  FaultyFiles files;
  Checkpointer saver({.dir = dir.path(), .files = &files});
  saver.save(small_checkpoint(1));
  saver.wait();
  files.fail("write", ENOSPC);
  for (const int64_t step : {2, 3}) saver.save(small_checkpoint(step));
  saver.wait();
  const Names failures = saver.failures();
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_NE(failures[1].find("checkpoint of step 3 was not saved: write " + dir.path() + "/.step_00000003.tmp-"),
            std::string::npos)
      << failures[1];
  EXPECT_NE(failures[1].find("No space left on device; the disk is full"), std::string::npos) << failures[1];
  EXPECT_EQ(saver.failures(), Names{});
  EXPECT_EQ(saver.saved(), Steps{1});
  EXPECT_EQ(disk().list(dir.path()), Names{"step_00000001"});
}

constexpr int kAcknowledgeFd = 100;  // the descriptor to which the child writes each saved step

// Runs in the child process that is killed: saves each step twice and acknowledges every save to the parent.
TEST(CheckpointerKilled, DISABLED_SavesUntilItDies) {
  const char* dir = std::getenv("LOCKSTEP_TEST_KILLED_DIR");
  ASSERT_TRUE(dir);
  Checkpointer saver({.dir = dir, .keep_last = 2, .shard_bytes = 200});
  const int64_t first = std::atoll(std::getenv("LOCKSTEP_TEST_KILLED_STEP"));
  for (int64_t i = 2 * first;; ++i) {
    const int64_t step = i / 2;
    saver.save(small_checkpoint(step));
    saver.wait();
    if (!saver.failures().empty()) ::_exit(1);
    if (::write(kAcknowledgeFd, &step, sizeof(step)) != sizeof(step)) ::_exit(1);
  }
}

// Starts that child and kills it some time after it has acknowledged `acknowledgements` saves. Returns the last
// acknowledged step.
int64_t run_and_kill(const std::string& dir, int64_t first, int acknowledgements, int microseconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError("pipe");
  const std::string step = std::to_string(first);
  ::setenv("LOCKSTEP_TEST_KILLED_DIR", dir.c_str(), 1);
  ::setenv("LOCKSTEP_TEST_KILLED_STEP", step.c_str(), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], kAcknowledgeFd);
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    ::execl("/proc/self/exe", "killed", "--gtest_brief=1", "--gtest_also_run_disabled_tests",
            "--gtest_filter=CheckpointerKilled.DISABLED_SavesUntilItDies", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  int64_t acknowledged = -1, last = -1;
  for (int i = 0; i < acknowledgements && ::read(ends[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged);
       ++i)
    last = acknowledged;
  ::usleep(static_cast<useconds_t>(microseconds));  // a random point in the following saves
  ::kill(child, SIGKILL);
  while (::read(ends[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged)) last = acknowledged;
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ends[0]);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  return last;
}

TEST(CheckpointerKilled, AcknowledgedSavesSurviveSigkill) {
  const TempDir dir;
  std::mt19937 random(5);
  int64_t next = 0;
  for (int round = 0; round < 20; ++round) {
    const int64_t last =
        run_and_kill(dir.path(), next, 1 + static_cast<int>(random() % 5), static_cast<int>(random() % 5000));
    ASSERT_GE(last, next) << "round " << round;
    const auto found = find_checkpoint(dir.path(), "auto", [&](const std::string& text) { ADD_FAILURE() << text; });
    ASSERT_TRUE(found) << "round " << round;
    EXPECT_GE(found->step, last) << "round " << round;
    EXPECT_TRUE(same_checkpoint(*found, small_checkpoint(found->step))) << "round " << round;
    next = found->step + 1;
  }
  Checkpointer({.dir = dir.path(), .keep_last = 1, .best_metric = ""}).save(small_checkpoint(next));
  EXPECT_EQ(disk().list(dir.path()), Names{detail::step_name(next)});
}

}  // namespace
}  // namespace lockstep
