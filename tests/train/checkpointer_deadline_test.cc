// A checkpoint on a file system that does not answer, as a network file system whose server is gone.
#include <condition_variable>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoints.h"

namespace lockstep {
namespace {

// Files whose folders cannot be synced before release().
class HangingFiles final : public FaultyFiles {
 public:
  void sync_dir(const std::string& path) override {
    {
      std::unique_lock lock(mutex_);
      hangs_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return released_; });
    }
    FaultyFiles::sync_dir(path);
  }
  void wait_until_it_hangs() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return hangs_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = false, released_ = false;
};

constexpr std::chrono::milliseconds kShort(20);
constexpr std::chrono::minutes kLong(5);

// Waits for the current save, however often the short deadline passes.
void wait_long(Checkpointer& saver) {
  const auto limit = std::chrono::steady_clock::now() + kLong;
  for (;;) {
    try {
      return saver.wait();
    } catch (const IoError&) {
      if (std::chrono::steady_clock::now() > limit) throw;
    }
  }
}

TEST(CheckpointerDeadline, EndsTheWaitForAFileSystemThatDoesNotAnswer) {
  const TempDir dir;
  HangingFiles files;
  Checkpointer saver({.dir = dir.path(), .deadline = kShort, .files = &files});
  saver.save(small_checkpoint(3));
  files.wait_until_it_hangs();
  const std::string message = "checkpoint of step 3: an operation on a file in " + dir.path() +
                              " has not returned for 0.02 s; check the disk or network file system";
  EXPECT_THROWS(saver.wait(), IoError, message);
  EXPECT_THROWS(saver.save(small_checkpoint(4)), IoError, message);
  files.release();
  wait_long(saver);
  EXPECT_EQ(saver.saved(), std::vector<int64_t>{3});
  EXPECT_EQ(saver.failures(), std::vector<std::string>{});
}

TEST(CheckpointerDeadline, EndsTheWaitOfTheDestructor) {
  const TempDir dir;
  // Never released: the thread of the save waits until the process ends.
  static HangingFiles& files = *new HangingFiles;
  {
    Checkpointer saver({.dir = dir.path(), .deadline = kShort, .files = &files});
    saver.save(small_checkpoint(3));
    files.wait_until_it_hangs();
  }
  EXPECT_EQ(files.count("sync_dir"), 0) << "the file system answered";
}

TEST(CheckpointerDeadline, IsForOneOperationNotForTheWholeSave) {
  const TempDir dir;
  HangingFiles files;
  files.release();
  Checkpointer saver({.dir = dir.path(), .deadline = kLong, .files = &files});
  for (const int64_t step : {1, 2, 3}) saver.save(small_checkpoint(step));
  saver.wait();
  EXPECT_EQ(saver.saved(), (std::vector<int64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace lockstep
