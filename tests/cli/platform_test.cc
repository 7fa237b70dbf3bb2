// --platform, and checkpoints that move between the CPU and a GPU.
#include "cli/training.h"
#include "lane/gpu_report.h"

namespace lockstep {
namespace {

TEST(PlatformFlag, ChoosesTheCpu) {
  for (const char* platform : {"cpu", "auto"}) {
    if (nvidia_hardware_present() && platform == std::string("auto")) continue;
    const ProcessResult result = run_lockstep({"devices", "--platform", platform});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "# Local devices: [ 1 ], [cpu(id=0)]\n# Global devices:[ 1 ], [cpu(id=0)]\n");
  }
}

TEST(PlatformFlag, OverridesTheVariable) {
  const Words words = {"env", "LOCKSTEP_PLATFORM=cuda", program_path(), "allreduce", "--platform", "cpu"};
  EXPECT_EQ(run_process(words, std::chrono::seconds(60)).output,
            "Total devices: 1  |  Devices per task: 1\nProcess 0 has y=[1.]\n");
}

TEST(PlatformFlag, RejectsUnknownPlatforms) {
  for (const char* command : {"devices", "allreduce", "doctor"})
    expect_usage_error(
        {command, "--platform", "tpu"},
        std::string(command) + ": --platform: \"tpu\" is not auto, cpu or cuda; see `lockstep " + command + " --help`");
  expect_usage_error({"train", "--platform", "tpu"},
                     "train: platform: unknown value \"tpu\"; choose auto, cpu or cuda; did you mean \"cpu\"?");
}

TEST(PlatformFlag, MissingGpuNamesReasonAndRemedy) {
  if (nvidia_hardware_present()) GTEST_SKIP() << "there is NVIDIA hardware";
  for (const Words& words : {Words{"devices"}, Words{"allreduce"}, Words{"train", "--dataset", "synthetic"}}) {
    const ProcessResult result = run_lockstep(words + Words{"--platform", "cuda"});
    EXPECT_EQ(result.exit_code, 1);
    expect_contains(result.output, "lockstep: cuda: ");
    expect_contains(result.output, ", or use --platform cpu (LOCKSTEP_PLATFORM=cpu)\n");
  }
  const ProcessResult doctor = run_lockstep({"doctor", "--platform", "cuda"});
  EXPECT_EQ(doctor.exit_code, 1);
  expect_contains(doctor.output, "1 problem found\n- cuda: ");
}

TEST(PlatformFlag, IsPassedOnByLaunch) {
  const ProcessResult result = run_lockstep({"launch", "-n", "1", "--platform", "tpu", "--", "devices"});
  EXPECT_EQ(result.exit_code, 2);
  expect_contains(result.output, "launch: --platform: \"tpu\" is not auto, cpu or cuda");
  const ProcessResult shown =
      run_lockstep({"launch", "-n", "1", "--platform", "cpu", "--program", "printenv", "--", "LOCKSTEP_PLATFORM"});
  expect_contains(shown.output, "cpu\n");
}

TEST(PlatformOfSeveralProcesses, MissingGpuNamesReasonAndRemedy) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "the control plane is left out";
#endif
  if (nvidia_hardware_present()) GTEST_SKIP() << "there is NVIDIA hardware";
  const ProcessResult result = run_lockstep({"launch", "-n", "2", "--platform", "cuda", "--", "devices"});
  EXPECT_EQ(result.exit_code, 1) << result.output;
  expect_contains(result.output, "cuda: ");
  expect_contains(result.output, ", or use --platform cpu (LOCKSTEP_PLATFORM=cpu)");
}

// The last loss of a run whose first and second 12 steps use these platforms.
double loss_of(const std::string& dir, const char* first, const char* second) {
  const Words flags = {"--schedule", "constant", "--checkpoint-dir", dir};
  const auto begun = train(flags + Words{"--steps", "12", "--platform", first});
  EXPECT_EQ(begun.exit_code, 0) << begun.err;
  const auto ended = train(flags + Words{"--steps", "24", "--platform", second});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_contains(ended.err, "resuming from step 12 of 24");
  return manifest_of(dir)["metrics"]["loss"];
}

TEST(Checkpoints, MoveBetweenTheCpuAndAGpu) {
  if (const GpuReport report = report_first_gpu(); !report.why_not.empty()) GTEST_SKIP() << report.why_not;
  const TempDir dir;
  const double wanted = loss_of(dir.path() + "/cpu", "cpu", "cpu");
  EXPECT_NEAR(loss_of(dir.path() + "/up", "cpu", "cuda") / wanted, 1, 1e-3);
  EXPECT_NEAR(loss_of(dir.path() + "/down", "cuda", "cpu") / wanted, 1, 1e-3);
  EXPECT_NEAR(loss_of(dir.path() + "/gpu", "cuda", "cuda") / wanted, 1, 1e-3);
}

}  // namespace
}  // namespace lockstep
