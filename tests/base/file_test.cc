#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/faulty_files.h"
#include "base/throws.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;
FileSystem& disk() { return FileSystem::real(); }

TEST(File, ReadsWhatWasWritten) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  const Bytes bytes = {1, 2, 3, 4, 5};
  disk().write_atomic(path, bytes);
  EXPECT_EQ(disk().read_file(path), bytes);
  EXPECT_EQ(disk().size(path), 5);
  Bytes part(3);
  EXPECT_EQ(disk().read(path, 3, part), 2u);
  EXPECT_EQ(part, (Bytes{4, 5, 0}));
  EXPECT_EQ(disk().read(path, 9, part), 0u);
  disk().write_atomic(path, {});
  EXPECT_EQ(disk().read_file(path), Bytes{});
}

TEST(File, OpenFileReadsAtAnyOffset) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  disk().write(path, Bytes{1, 2, 3, 4, 5});
  FaultyFiles files;
  for (FileSystem* each : {&disk(), static_cast<FileSystem*>(&files)}) {
    const std::unique_ptr<OpenFile> file = each->open(path);
    Bytes part(3);
    EXPECT_EQ(file->read(3, part), 2u);
    EXPECT_EQ(file->read(0, part), 3u);
    EXPECT_EQ(part, (Bytes{1, 2, 3}));
  }
  EXPECT_EQ(files.count("read"), 2) << "what a test makes fail fails in open files too";
  EXPECT_THROWS(disk().open(path + "y"), IoError, "open " + path + "y: No such file or directory; check the path");
}

TEST(File, FoldersAreCreatedListedAndEmptied) {
  const TempDir dir;
  const std::string deep = dir.path() + "/a/b/c";
  disk().make_dirs(deep);
  disk().make_dirs(deep);
  disk().write(deep + "/2", Bytes{2});
  disk().write(deep + "/1", Bytes{1});
  EXPECT_EQ(disk().list(deep), (std::vector<std::string>{"1", "2"}));
  disk().rename(deep + "/1", deep + "/2");
  EXPECT_EQ(disk().read_file(deep + "/2"), Bytes{1});
  disk().remove(deep + "/2");
  disk().remove(deep + "/2");
  EXPECT_TRUE(disk().list(deep).empty());
  EXPECT_TRUE(disk().exists(deep));
  EXPECT_FALSE(disk().exists(deep + "/2"));
}

TEST(File, IsWrittenPieceByPiece) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  disk().write(path, Bytes(100));
  const std::unique_ptr<FileWriter> file = disk().create(path);
  file->write(Bytes{1, 2});
  file->write(Bytes{});
  file->write(Bytes{3});
  file->finish();
  EXPECT_EQ(disk().read_file(path), (Bytes{1, 2, 3}));
  EXPECT_THROWS(disk().create(dir.path() + "/missing/x"), IoError, "create " + dir.path() + "/missing/x");
}

TEST(File, RemoveTreeRemovesAllContents) {
  const TempDir dir;
  disk().make_dirs(dir.path() + "/a/b");
  disk().write(dir.path() + "/a/b/c", Bytes{1});
  disk().remove_tree(dir.path() + "/a");
  disk().remove_tree(dir.path() + "/a");
  EXPECT_TRUE(disk().list(dir.path()).empty());
}

TEST(File, ErrorsNameOperationPathReasonAndRemedy) {
  const TempDir dir;
  const std::string missing = dir.path() + "/missing";
  EXPECT_THROWS(disk().read_file(missing), IoError, missing + ": No such file or directory; check the path");
  EXPECT_THROWS(disk().list(missing), IoError, "list " + missing);
  EXPECT_THROWS(disk().read_file(dir.path()), IoError, "give a file, not a folder");
  EXPECT_THROWS(disk().write_atomic(missing + "/x", Bytes{1}), IoError, "create " + missing + "/x");
  EXPECT_THROWS(disk().rename(missing, dir.path() + "/y"), IoError, "rename to " + dir.path() + "/y");
  disk().write(dir.path() + "/file", Bytes{1});
  EXPECT_THROWS(disk().make_dirs(dir.path() + "/file/sub"), IoError, "create folder " + dir.path() + "/file/sub");
  EXPECT_THROWS(throw_io_error("write", "/d/x", ENOSPC), IoError,
                "write /d/x: No space left on device; the disk is full: free some space or choose another folder");
  EXPECT_THROWS(throw_io_error("open", "/d/x", EACCES), IoError, "Permission denied; check the permissions");
}

TEST(File, AppendCreatesTheFileAndWritesAtItsEnd) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  disk().append(path, {});
  EXPECT_EQ(disk().size(path), 0);
  disk().append(path, Bytes{1, 2});
  disk().append(path, Bytes{3});
  EXPECT_EQ(disk().read_file(path), (Bytes{1, 2, 3}));
  EXPECT_THROWS(disk().append(dir.path() + "/missing/x", Bytes{1}), IoError, "open " + dir.path() + "/missing/x");
  EXPECT_THROWS(disk().append(dir.path(), Bytes{1}), IoError, "give a file, not a folder");
}

TEST(File, FullDeviceIsReported) {
  if (!disk().exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_THROWS(write_user_file("/dev/full", "0123456789"), IoError,
                "write /dev/full: No space left on device; the disk is full");
}

TEST(File, FailedAtomicWriteLeavesTheOldFileAndNothingElse) {
  for (const char* operation : {"write", "rename"}) {
    const TempDir dir;
    const std::string path = dir.path() + "/x";
    FaultyFiles files;
    files.write_atomic(path, Bytes{1, 2, 3});
    files.fail(operation, ENOSPC);
    EXPECT_THROWS(files.write_atomic(path, Bytes(100)), IoError, "the disk is full");
    EXPECT_EQ(files.read_file(path), (Bytes{1, 2, 3})) << operation;
    EXPECT_EQ(files.list(dir.path()), std::vector<std::string>{"x"}) << operation;
  }
}

TEST(File, FirstFailureIsReportedWhenCleanupFailsToo) {
  const TempDir dir;
  FaultyFiles files;
  files.fail("write", ENOSPC);
  files.fail("remove", EACCES);
  EXPECT_THROWS(files.write_atomic(dir.path() + "/x", Bytes(100)), IoError, "the disk is full");
}

TEST(File, AtomicWriteSyncsItsFolder) {
  const TempDir dir;
  FaultyFiles files;
  files.write_atomic(dir.path() + "/x", Bytes{1});
  EXPECT_EQ(files.count("sync_dir"), 1);
}

TEST(File, RacingAtomicWritersLeaveOneCompleteFile) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  std::vector<std::thread> writers;
  for (uint8_t id = 0; id < 4; ++id)
    writers.emplace_back([&, id] {
      for (int i = 0; i < 20; ++i) disk().write_atomic(path, Bytes(1000, id));
    });
  for (std::thread& writer : writers) writer.join();
  const Bytes got = disk().read_file(path);
  EXPECT_EQ(got, Bytes(1000, got.at(0)));
  EXPECT_EQ(disk().list(dir.path()), std::vector<std::string>{"x"});
}

TEST(File, ParentDir) {
  EXPECT_EQ(parent_dir("a/b"), "a");
  EXPECT_EQ(parent_dir("/a/b"), "/a");
  EXPECT_EQ(parent_dir("/b"), "/");
  EXPECT_EQ(parent_dir("b"), ".");
}

TEST(File, TempDirDisappearsWithItsContents) {
  std::string path;
  {
    const TempDir dir;
    path = dir.path();
    disk().make_dirs(path + "/a/b");
    disk().write(path + "/a/b/c", Bytes{1});
  }
  EXPECT_FALSE(disk().exists(path));
}

// Paths of files that are not regular: a pipe, a device, a folder, ...
std::vector<std::string> irregular_files(const std::string& dir) {
  EXPECT_EQ(::mkfifo((dir + "/pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", dir + "/zeros");
  std::filesystem::create_symlink(dir + "/pipe", dir + "/link");
  return {dir + "/pipe", dir + "/zeros", dir + "/link"};
}

TEST(File, OnlyRegularFilesAreRead) {
  const TempDir dir;
  Bytes part(3);
  for (const std::string& path : irregular_files(dir.path())) {
    EXPECT_THROWS(disk().read_file(path), IoError, "a regular file is required");
    EXPECT_THROWS(disk().read(path, 0, part), IoError, "a regular file is required");
    EXPECT_THROWS(disk().open(path), IoError, "a regular file is required");
    EXPECT_THROWS(disk().size(path), IoError, "a regular file is required");
  }
}

TEST(File, ReadFileHasASizeLimit) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  disk().write(path, Bytes(5));
  EXPECT_EQ(disk().read_file(path, 5).size(), 5u);
  EXPECT_THROWS(disk().read_file(path, 4), Error, "x: the file has more than 4 bytes, the limit");
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse: no space is allocated
  EXPECT_THROWS(disk().read_file(path), Error, "bytes, the limit");
}

TEST(File, NothingIsWrittenThroughLinksPipesAndDevices) {
  const TempDir dir;
  const std::string victim = dir.path() + "/victim", link = dir.path() + "/leads";
  disk().write(victim, Bytes{1, 2, 3});
  std::filesystem::create_symlink(victim, link);
  std::filesystem::create_symlink(dir.path() + "/new", dir.path() + "/dangling");
  for (const std::string& path : {link, dir.path() + "/dangling"}) {
    EXPECT_THROWS(disk().write(path, Bytes{9}), IoError,
                  "the path is a symbolic link, which lockstep does not follow here");
    EXPECT_THROWS(disk().append(path, Bytes{9}), IoError, "the path is a symbolic link");
    EXPECT_THROWS(disk().create(path), IoError, "the path is a symbolic link");
    errno = 0;
    EXPECT_FALSE(open_lock_file(path, 0600));
    EXPECT_EQ(errno, ELOOP);
  }
  EXPECT_EQ(disk().read_file(victim), (Bytes{1, 2, 3}));
  EXPECT_FALSE(disk().exists(dir.path() + "/new"));
  const std::string pipe = irregular_files(dir.path())[0];
  EXPECT_THROWS(disk().write(pipe, Bytes{9}), IoError, "the path is not a regular file");
  EXPECT_THROWS(disk().append(pipe, Bytes{9}), IoError, "the path is not a regular file");
  EXPECT_FALSE(open_lock_file(pipe, 0600));
  disk().write_atomic(link, Bytes{7});  // replaces the link
  EXPECT_FALSE(std::filesystem::is_symlink(link));
  EXPECT_EQ(disk().read_file(victim), (Bytes{1, 2, 3}));
}

TEST(File, UserFilesMayBePipesAndDevices) {
  const TempDir dir;
  const std::string pipe = irregular_files(dir.path())[0];
  std::thread writer([&] { write_user_file(pipe, "through a pipe"); });
  EXPECT_EQ(read_user_file(pipe, 100), "through a pipe");
  writer.join();
  EXPECT_EQ(read_user_file("/dev/null", 100), "");
  EXPECT_THROWS(read_user_file("/dev/zero", 100'000), Error, "/dev/zero: the file has more than 100000 bytes");
  EXPECT_THROWS(read_user_file(dir.path(), 100), IoError, "give a file, not a folder");
}

TEST(File, OwnershipIsChecked) {
  const TempDir dir;
  EXPECT_TRUE(is_own_path(dir.path()));
  EXPECT_TRUE(is_own_path("/"));
  EXPECT_FALSE(is_own_path(dir.path() + "/none"));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  disk().write(dir.path() + "/x", Bytes{1});
  ASSERT_EQ(::chown((dir.path() + "/x").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(is_own_path(dir.path() + "/x"));
}

}  // namespace
}  // namespace lockstep
