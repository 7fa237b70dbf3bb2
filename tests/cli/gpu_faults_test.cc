// Training on a GPU that fails, that has too little memory, or whose driver is too old. Needs the emulated GPU
// (tests/emulated), which fails on request.
#include "cli/training.h"
#include "lane/gpu_report.h"

namespace lockstep {
namespace {

class GpuFault : public testing::Test {
 protected:
  void SetUp() override {
    const GpuReport report = report_first_gpu();
    if (!report.why_not.empty()) GTEST_SKIP() << report.why_not;
    if (report.gpus.empty() || report.gpus[0].name != "emulated GPU") GTEST_SKIP() << "the GPU is a real one";
  }

  static RunningProgram::Result run(const Words& variables, const Words& command) {
    return RunningProgram(Words{"env"} + variables + command).wait();
  }

  const TempDir dir_;
};

TEST_F(GpuFault, LostGpuLeavesACheckpointToResumeFrom) {
  const auto command = [&](const std::string& name) {
    return train_command({"--platform", "cuda", "--steps", "16", "--checkpoint-every", "2", "--checkpoint-dir",
                          dir_.path() + "/" + name});
  };
  const std::string run_dir = dir_.path() + "/run";
  const std::string sign = dir_.path() + "/lost";
  RunningProgram running(Words{"env", "LOCKSTEP_EMULATED_LOST_WITH=" + sign} + command("run"));
  EXPECT_TRUE(comes_true([&] { return list_checkpoints(run_dir).size() > 1; }, std::chrono::minutes(5)))
      << running.err();
  FileSystem::real().write(sign, std::vector<uint8_t>());
  const auto lost = running.wait();
  EXPECT_EQ(lost.exit_code, 75) << lost.err;
  expect_contains(
      lost.err,
      "uncorrectable ECC error encountered (cudaErrorECCUncorrectable); this process can no longer use the GPU");
  expect_contains(lost.err, "restart to resume from the last checkpoint");
  const std::vector<int64_t> saved = list_checkpoints(run_dir);
  ASSERT_FALSE(saved.empty()) << lost.err;
  EXPECT_LT(saved.back(), 16);
  const auto again = run({}, command("run"));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  expect_contains(again.err, "resuming from step " + std::to_string(saved.back()) + " of 16");
  EXPECT_EQ(run({}, command("whole")).exit_code, 0);
  expect_same_weights(run_dir, dir_.path() + "/whole");
}

// A GPU that does not respond is waited for until LOCKSTEP_GPU_TIMEOUT, and not again at exit.
TEST_F(GpuFault, HungGpuTimesOutAndLeavesACheckpoint) {
  const std::string run_dir = dir_.path() + "/run", sign = dir_.path() + "/hangs";
  RunningProgram running(
      Words{"env", "LOCKSTEP_EMULATED_HANGS_WITH=" + sign, "LOCKSTEP_GPU_TIMEOUT=1.5"} +
      train_command({"--platform", "cuda", "--steps", "4000", "--checkpoint-every", "2", "--checkpoint-dir", run_dir}));
  EXPECT_TRUE(comes_true([&] { return list_checkpoints(run_dir).size() > 1; }, std::chrono::minutes(5)))
      << running.err();
  FileSystem::real().write(sign, std::vector<uint8_t>());
  const auto result = running.wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  expect_contains(result.err, "cuda: emulated GPU has not finished its work within 1.5 s");
  expect_contains(result.err, "use a larger --gpu-timeout (LOCKSTEP_GPU_TIMEOUT)");
  EXPECT_FALSE(list_checkpoints(run_dir).empty());
}

TEST_F(GpuFault, InvalidTimeoutIsAUsageError) {
  for (const char* wrong : {"0", "-1", "soon", "5s", "inf", "nan"}) {
    const auto result =
        run({std::string("LOCKSTEP_GPU_TIMEOUT=") + wrong},
            train_command({"--platform", "cuda", "--steps", "2", "--checkpoint-dir", dir_.path() + "/x"}));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    expect_contains(result.err, std::string("environment: LOCKSTEP_GPU_TIMEOUT is \"") + wrong +
                                    "\"; set it to a number of seconds");
  }
}

TEST_F(GpuFault, OutOfMemoryNamesTheRequest) {
  const auto result =
      run({"LOCKSTEP_EMULATED_MEMORY=2"},
          train_command({"--platform", "cuda", "--steps", "2", "--checkpoint-dir", dir_.path() + "/run"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, "GiB requested for ");
  expect_contains(result.err, "of the 0.00 GiB of emulated GPU are free; this process holds");
  expect_contains(result.err, "; use a smaller batch, or see with nvidia-smi which processes use the rest");
}

// A GPU that another process uses: training does not start, and existing checkpoints are unchanged.
TEST_F(GpuFault, GpuInUseIsReported) {
  struct Case {
    const char* taken;
    int exit_code;
    std::string message, remedy;
  };
  const std::vector<Case> cases = {
      {"memory", 1, "cuda: GPU 0 has too little free memory for another process: out of memory",
       "a process needs about 500 MiB before its first array; see with nvidia-smi which processes use it, or use "
       "--platform cpu"},
      {"whole", 75, "cuda: GPU 0 is in use by another process: ",
       "in compute mode Exclusive Process only one process can use it; find it with nvidia-smi, or use --platform "
       "cpu"}};
  const auto command = [&](const char* steps) {
    return train_command({"--platform", "cuda", "--steps", steps, "--checkpoint-dir", dir_.path() + "/run"});
  };
  EXPECT_EQ(run({}, command("2")).exit_code, 0);
  for (const Case& each : cases) {
    const std::string variable = std::string("LOCKSTEP_EMULATED_TAKEN=") + each.taken;
    const auto result = run({variable}, command("4"));
    EXPECT_EQ(result.exit_code, each.exit_code) << result.err;
    expect_contains(result.err, each.message);
    expect_contains(result.err, each.remedy);
    expect_lacks(result.err, "computing on");
    const auto doctor = run({variable}, {program_path(), "doctor", "--platform", "cuda"});
    EXPECT_EQ(doctor.exit_code, 1) << doctor.out;
    expect_contains(doctor.out, "1 problem found\n- " + each.message);
    const auto devices = run({variable}, {program_path(), "devices", "--platform", "cuda"});
    expect_contains(devices.out, "not usable now");
    expect_contains(devices.out, "\n# " + each.message);
  }
  const auto again = run({}, command("4"));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  expect_contains(again.err, "resuming from step 2 of 4");
}

// The memory suffices at the start, but not for a library that is loaded later.
TEST_F(GpuFault, LibraryThatDoesNotFitIsOutOfMemory) {
  const auto result = run({"LOCKSTEP_EMULATED_TAKEN=rest"}, train_command({"--platform", "cuda", "--steps", "2"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, "cuda: create the cuBLASLt handle");
  expect_contains(result.err, "; use a smaller batch, or see with nvidia-smi which processes use the rest");
}

TEST_F(GpuFault, OldDriverIsReported) {
  const auto result = run({"LOCKSTEP_EMULATED_DRIVER=12040"}, {program_path(), "devices", "--platform", "cuda"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, "cuda: the driver supports CUDA 12.4, but the libraries are CUDA ");
  expect_contains(result.err, "; install a newer driver, or use --platform cpu (LOCKSTEP_PLATFORM=cpu)");
}

}  // namespace
}  // namespace lockstep
