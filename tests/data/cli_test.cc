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
