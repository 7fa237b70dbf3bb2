// The exit codes that podFailurePolicy distinguishes, and the permissions of rendered files.
#include <sys/stat.h>

#include "cli/training.h"
#include "support/listener.h"
#include "support/program.h"

namespace lockstep {
namespace {

mode_t mode_of(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST(RenderedFile, IsReadableOnlyByItsOwner) {
  const TempDir dir;
  const std::string path = dir.path() + "/job.yaml";
  EXPECT_EQ(run_lockstep({"render", "kubernetes", "-o", path}).exit_code, 0);
  EXPECT_EQ(mode_of(path), 0600u);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(run_lockstep({"render", "kubernetes", "-o", path}).exit_code, 0);
  EXPECT_EQ(mode_of(path), 0600u);
}

#ifdef LOCKSTEP_WITH_GRPC

// Nothing has failed when the other processes have not come: their pods wait for a node, or a node was lost.
TEST(FirstCause, AProcessThatWaitsInVainHasNotFailed) {
  Listener closed;
  const int port = closed.port();
  closed.close();
  const auto code = [&](int process, const Words& variables) {
    return RunningProgram(
               Words{"/usr/bin/env", "LOCKSTEP_COORDINATOR=127.0.0.1:" + std::to_string(port),
                     "LOCKSTEP_NUM_PROCESSES=2", "LOCKSTEP_PROCESS_ID=" + std::to_string(process),
                     "LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef", "LOCKSTEP_INITIALIZATION_TIMEOUT=1"} +
               variables + Words{program_path(), "train", "--no-save", "--steps", "1", "--dataset", small_dataset()})
        .wait()
        .exit_code;
  };
  for (const int process : {0, 1}) {
    EXPECT_EQ(code(process, {}), 75);
    EXPECT_EQ(code(process, {"LOCKSTEP_FIRST_CAUSE_CODE=74"}), 75);
  }
}

#endif

}  // namespace
}  // namespace lockstep
