#include "base/file.h"

#include <cerrno>
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

TEST(File, OpenFileReadsAtAnyPlace) {
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

TEST(File, FoldersAreMadeListedAndEmptied) {
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

TEST(File, TreesAreRemovedWithAllTheyHold) {
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
  EXPECT_THROWS(disk().read_file(dir.path()), IoError, "name a file, not a folder");
  EXPECT_THROWS(disk().write_atomic(missing + "/x", Bytes{1}), IoError, "create " + missing + "/x");
  EXPECT_THROWS(disk().rename(missing, dir.path() + "/y"), IoError, "rename to " + dir.path() + "/y");
  disk().write(dir.path() + "/file", Bytes{1});
  EXPECT_THROWS(disk().make_dirs(dir.path() + "/file/sub"), IoError, "create folder " + dir.path() + "/file/sub");
  EXPECT_THROWS(throw_io_error("write", "/d/x", ENOSPC), IoError,
                "write /d/x: No space left on device; the disk is full: free some space or choose another folder");
  EXPECT_THROWS(throw_io_error("open", "/d/x", EACCES), IoError, "Permission denied; check the permissions");
}

TEST(File, AppendAddsToTheEndAndMakesTheFile) {
  const TempDir dir;
  const std::string path = dir.path() + "/x";
  disk().append(path, {});
  EXPECT_EQ(disk().size(path), 0);
  disk().append(path, Bytes{1, 2});
  disk().append(path, Bytes{3});
  EXPECT_EQ(disk().read_file(path), (Bytes{1, 2, 3}));
  EXPECT_THROWS(disk().append(dir.path() + "/missing/x", Bytes{1}), IoError, "open " + dir.path() + "/missing/x");
  EXPECT_THROWS(disk().append(dir.path(), Bytes{1}), IoError, "name a file, not a folder");
}

TEST(File, FullDeviceIsReported) {
  if (!disk().exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_THROWS(disk().write("/dev/full", Bytes(10)), IoError,
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

TEST(File, FirstFailureIsReportedWhenCleaningUpFailsToo) {
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

TEST(File, RacingAtomicWritersLeaveOneWholeFile) {
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

}  // namespace
}  // namespace lockstep
