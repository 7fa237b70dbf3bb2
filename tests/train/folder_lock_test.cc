#include "train/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/throws.h"
#include "lockstep/checkpoint.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kNoWait{0};

TEST(FolderLock, SecondRunIsRejectedNamingTheHolder) {
  const TempDir dir;
  const std::string run = dir.path() + "/a/run";
  {
    const FolderLock lock(run, kNoWait);
    EXPECT_THROWS(FolderLock(run, kNoWait), Error,
                  run + " is already in use by pid " + std::to_string(::getpid()) + " on host ");
    EXPECT_THROWS(FolderLock(run, kNoWait), Error, "; wait for it, stop it, or choose another --checkpoint-dir");
    EXPECT_NO_THROW(FolderLock(dir.path() + "/b", kNoWait));
  }
  EXPECT_NO_THROW(FolderLock(run, kNoWait));
}

TEST(FolderLock, LinksAreNotFollowedOrOverwritten) {
  const TempDir dir;
  const std::string victim = dir.path() + "/victim", run = dir.path() + "/run", lock = run + "/.lock";
  const std::vector<uint8_t> precious = {'m', 'i', 'n', 'e'};
  FileSystem::real().make_dirs(run);
  FileSystem::real().write(victim, precious);
  ASSERT_EQ(::symlink(victim.c_str(), lock.c_str()), 0);
  EXPECT_THROWS(FolderLock(run, kNoWait), IoError, lock + ": Too many levels of symbolic links; the path is a symbolic link");
  EXPECT_EQ(FileSystem::real().read_file(victim), precious);
  ASSERT_EQ(::unlink(lock.c_str()), 0);
  ASSERT_EQ(::link(victim.c_str(), lock.c_str()), 0);
  EXPECT_NO_THROW(FolderLock(run, kNoWait));
  EXPECT_EQ(FileSystem::real().read_file(victim), precious);
}

TEST(FolderLock, UnknownHolderIsCalledAnotherRun) {
  const TempDir dir;
  const int file = ::open((dir.path() + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  EXPECT_THROWS(FolderLock(dir.path(), kNoWait), Error, "is already in use by another run; ");
  ::close(file);
}

TEST(FolderLock, HolderOnAnotherHostOnlyCausesAWarning) {
  const TempDir dir;
  const std::string holder = "pid 7 on host far-away\n", path = dir.path() + "/.lock";
  FileSystem::real().write(path, std::vector<uint8_t>(holder.begin(), holder.end()));
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(FolderLock(dir.path(), kNoWait));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: warning: pid 7 on host far-away may also be writing to " + dir.path() +
                "; if it is still running, stop one of the two\n");
  ::close(file);
}

// Starts a process that holds the lock until it is killed.
pid_t hold(const std::string& dir) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(dir, kNoWait);
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  ::close(ends[1]);
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  return child;
}

TEST(FolderLock, LockOfADeadProcessIsReleased) {
  const TempDir dir;
  const pid_t child = hold(dir.path());
  EXPECT_THROWS(FolderLock(dir.path(), kNoWait), Error, "in use by pid " + std::to_string(child) + " on host ");
  ::kill(child, SIGKILL);
  EXPECT_NO_THROW(FolderLock(dir.path(), std::chrono::minutes(1))) << "waits for a holder that is about to end";
  ::waitpid(child, nullptr, 0);
}

TEST(FolderLock, LockFileIsNotACheckpoint) {
  const TempDir dir;
  const FolderLock lock(dir.path(), kNoWait);
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
  EXPECT_FALSE(find_checkpoint(dir.path(), "auto", [](const std::string& text) { ADD_FAILURE() << text; }));
  EXPECT_EQ(FileSystem::real().list(dir.path()), std::vector<std::string>{".lock"});
}

}  // namespace
}  // namespace lockstep
