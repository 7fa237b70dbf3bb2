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

constexpr std::chrono::milliseconds kAtOnce{0};

TEST(FolderLock, SecondIsToldWhoHoldsIt) {
  const TempDir dir;
  const std::string run = dir.path() + "/a/run";
  {
    const FolderLock lock(run, kAtOnce);
    EXPECT_THROWS(
        FolderLock(run, kAtOnce), Error,
        "the checkpoints in " + run + " are being written by pid " + std::to_string(::getpid()) + " on host ");
    EXPECT_THROWS(FolderLock(run, kAtOnce), Error, "; wait for it, end it, or choose another --checkpoint-dir");
    EXPECT_NO_THROW(FolderLock(dir.path() + "/b", kAtOnce));
  }
  EXPECT_NO_THROW(FolderLock(run, kAtOnce));
}

TEST(FolderLock, NothingIsWrittenThroughALink) {
  const TempDir dir;
  const std::string victim = dir.path() + "/victim", run = dir.path() + "/run", lock = run + "/.lock";
  const std::vector<uint8_t> precious = {'m', 'i', 'n', 'e'};
  FileSystem::real().make_dirs(run);
  FileSystem::real().write(victim, precious);
  ASSERT_EQ(::symlink(victim.c_str(), lock.c_str()), 0);
  EXPECT_THROWS(FolderLock(run, kAtOnce), IoError, lock + ": Too many levels of symbolic links; it is a symbolic link");
  EXPECT_EQ(FileSystem::real().read_file(victim), precious);
  ASSERT_EQ(::unlink(lock.c_str()), 0);
  ASSERT_EQ(::link(victim.c_str(), lock.c_str()), 0);
  EXPECT_NO_THROW(FolderLock(run, kAtOnce));
  EXPECT_EQ(FileSystem::real().read_file(victim), precious);
}

TEST(FolderLock, HolderThatSaysNothingIsAnotherRun) {
  const TempDir dir;
  const int file = ::open((dir.path() + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  EXPECT_THROWS(FolderLock(dir.path(), kAtOnce), Error, "are being written by another run; ");
  ::close(file);
}

TEST(FolderLock, OneOfAnotherMachineIsToldOfOnly) {
  const TempDir dir;
  const std::string holder = "pid 7 on host far-away\n", path = dir.path() + "/.lock";
  FileSystem::real().write(path, std::vector<uint8_t>(holder.begin(), holder.end()));
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(FolderLock(dir.path(), kAtOnce));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lockstep: pid 7 on host far-away may be writing to " + dir.path() +
                                                        ", too: if it still runs, end one of both\n");
  ::close(file);
}

// A process that holds the lock until it is killed.
pid_t hold(const std::string& dir) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(dir, kAtOnce);
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  ::close(ends[1]);
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  return child;
}

TEST(FolderLock, DeadHolderIsNotInTheWay) {
  const TempDir dir;
  const pid_t child = hold(dir.path());
  EXPECT_THROWS(FolderLock(dir.path(), kAtOnce), Error, "written by pid " + std::to_string(child) + " on host ");
  ::kill(child, SIGKILL);
  EXPECT_NO_THROW(FolderLock(dir.path(), std::chrono::minutes(1))) << "one that is about to end is waited for";
  ::waitpid(child, nullptr, 0);
}

TEST(FolderLock, IsNoCheckpoint) {
  const TempDir dir;
  const FolderLock lock(dir.path(), kAtOnce);
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
  EXPECT_FALSE(find_checkpoint(dir.path(), "auto", [](const std::string& text) { ADD_FAILURE() << text; }));
  EXPECT_EQ(FileSystem::real().list(dir.path()), std::vector<std::string>{".lock"});
}

}  // namespace
}  // namespace lockstep
