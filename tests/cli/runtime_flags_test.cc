// The flags of base/runtime_settings.def: each has the effect of its environment variable and overrides it.
#include "base/file.h"
#include "cli/launched_shells.h"
#include "support/program.h"
#include "support/text.h"
#include "support/variable.h"

namespace lockstep {
namespace {

TEST(RuntimeFlags, OverrideTheirVariables) {
  const ScopedVariable id("LOCKSTEP_PROCESS_ID", "0"), count("LOCKSTEP_NUM_PROCESSES", "9");
  const auto result = run_lockstep({"doctor", "--coordinator", "127.0.0.1:1", "--num-processes", "2", "--process-id",
                                    "1", "--insecure", "--timeout", "0.1"});
  EXPECT_TRUE(contains(result.output, "process 1 of 2")) << result.output;
  EXPECT_TRUE(contains(result.output, "127.0.0.1:1")) << result.output;
}

TEST(RuntimeFlags, InvalidValuesAreUsageErrors) {
  expect_usage_error({"train", "--gpu-timeout", "0"},
                     "train: --gpu-timeout: \"0\" is not a number of seconds above 0 and up to 1000000000; see "
                     "`lockstep train --help`");
  expect_usage_error({"eval", "run", "--gpu-math", "half"},
                     "eval: --gpu-math: \"half\" is not tf32 or full; see `lockstep eval --help`");
  expect_usage_error({"apply", "-f", "x", "--log-limit", "10"},
                     "apply: --log-limit: \"10\" is not a whole number from 4096 to 1000000000000; see `lockstep apply "
                     "--help`");
}

TEST(RuntimeFlags, LaunchPassesThemToItsProcesses) {
  const auto result =
      RunningProgram(shells::launch_words({"-n", "1", "--gpu-math", "full", "--no-nccl", "--cache-dir", "/c"},
                                          "echo $LOCKSTEP_CUDA_MATH $LOCKSTEP_NCCL $LOCKSTEP_CACHE_DIR"))
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "[0] full off /c\n");
}

TEST(RuntimeFlags, SelectFolders) {
  const TempDir dir;
  EXPECT_TRUE(
      contains(run_lockstep({"data", "verify", "--cache-dir", dir.path()}).output, "mnist is not in the cache"));
  run_lockstep({"get", "jobs", "--on", "local", "--state-dir", dir.path() + "/state"});
  EXPECT_TRUE(FileSystem::real().exists(dir.path() + "/state"));
}

}  // namespace
}  // namespace lockstep
