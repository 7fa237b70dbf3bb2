// The command `lockstep data`.
#include "base/throws.h"
#include "data/digits.h"
#include "support/program.h"

namespace lockstep::detail {
namespace {

TEST(DataCommand, UnknownDataSetListsTheKnown) {
  const ProcessResult result = run_lockstep({"data", "fetch", "cifar"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("\"cifar\" is not one of mnist, fashion-mnist"), std::string::npos) << result.output;
}

TEST(DataCommand, VerifyOfAnEmptyFolderFailsAndNamesTheRemedy) {
  const TempDir dir;
  const ProcessResult result = run_lockstep({"data", "verify", "mnist", "--dir", dir.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("mnist train-images-idx3-ubyte  missing\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(
                "lockstep: 4 of 4 files of mnist are missing or damaged; run `lockstep data fetch mnist --dir " +
                dir.path() + "`\n"),
            std::string::npos)
      << result.output;
}

TEST(DataCommand, OfManyFilesOnlyTheFirstAreListed) {
  const TempDir dir;
  const ProcessResult result = run_lockstep({"data", "verify", "sotu", "--dir", dir.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("sotu 1790_george_washington_n.txt missing\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("sotu and 225 more files  missing or damaged\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("233 of 233 files of sotu are missing or damaged"), std::string::npos) << result.output;
}

TEST(DataCommand, ListShowsWhereDataSetsAre) {
  const TempDir dir;
  const ProcessResult none = run_lockstep({"data", "list", "--cache-dir", dir.path()});
  EXPECT_EQ(none.exit_code, 0) << none.output;
  EXPECT_NE(none.output.find("moby-dick      text        1      1.20  -\n"), std::string::npos) << none.output;
  FileSystem::real().make_dirs(dir.path() + "/moby-dick");
  FileSystem::real().write(dir.path() + "/moby-dick/data.txt", std::vector<uint8_t>{1});
  const ProcessResult one = run_lockstep({"data", "list", "--cache-dir", dir.path()});
  EXPECT_NE(one.output.find("  " + dir.path() + "/moby-dick\n"), std::string::npos) << one.output;
}

TEST(DataCommand, FetchIntoAnImpossibleFolderFailsBeforeDownloading) {
  const TempDir dir;
  FileSystem::real().write(dir.path() + "/file", std::vector<uint8_t>{1});
  const ProcessResult result = run_lockstep({"data", "fetch", "mnist", "--dir", dir.path() + "/file/sub"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output, "lockstep: create folder " + dir.path() +
                               "/file/sub: Not a directory; a component of the path is a file; check the path\n");
}

}  // namespace
}  // namespace lockstep::detail
