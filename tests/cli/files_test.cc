// Files that users name: pipes and devices are read and written as such, and nothing of theirs is replaced.
#include <sys/stat.h>

#include <filesystem>

#include "cli/training.h"

namespace lockstep {
namespace {

using detail::ProcessResult;

ProcessResult shell(const std::string& line) {
  return detail::run_process({"bash", "-c", line}, std::chrono::seconds(60));
}

TEST(FilesOfUsers, ConfigurationComesThroughAPipe) {
  const std::string small = fmt::format("dataset: {}\nbatch_size: 50\nsteps: 2\nquiet: true\n", small_dataset());
  for (const char* from : {"<(cat)", "/dev/stdin", "-"}) {
    const ProcessResult result = shell(fmt::format("printf '%s' '{}' | {} train {}", small, program_path(), from));
    EXPECT_EQ(result.exit_code, 0) << from << ": " << result.output;
    expect_contains(result.output, "after 2 steps");
  }
}

TEST(FilesOfUsers, OwnConfigurationStaysAsItIs) {
  const TempDir dir;
  const std::string config = dir.path() + "/config.yaml";
  const std::string own = fmt::format("# mine\ndataset: {}\nbatch_size: 50\nsteps: 2\nquiet: true\n", small_dataset());
  FileSystem::real().write(config, std::vector<uint8_t>(own.begin(), own.end()));
  for (int i = 0; i < 2; ++i) {
    const ProcessResult result =
        run_lockstep({"train", config, "--checkpoint-dir", dir.path(), "--resume", i == 0 ? "auto" : "none"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(read_text(config), own);
    const std::string kept = read_text(dir.path() + "/run-config.yaml");
    expect_contains(kept, "checkpoint_dir: ");
    expect_contains(kept, "\nresume: auto\n");  // who uses it again goes on
  }
}

TEST(FilesOfUsers, OutputGoesWhereALinkLeads) {
  const TempDir dir;
  const std::string target = dir.path() + "/target", link = dir.path() + "/link";
  FileSystem::real().write(target, std::vector<uint8_t>());
  std::filesystem::create_symlink(target, link);
  EXPECT_EQ(run_lockstep({"render", "kubernetes", "--set", "name=x", "-o", link}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  expect_contains(read_text(target), "kind: Job");
}

TEST(FilesOfUsers, OutputGoesThroughAPipe) {
  const TempDir dir;
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const ProcessResult result =
      shell(fmt::format("{0} render kubernetes --set name=x -o {1} & timeout 20 cat {1}; wait", program_path(), pipe));
  expect_contains(result.output, "kind: Job");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

}  // namespace
}  // namespace lockstep
