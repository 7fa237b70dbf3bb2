// Resuming and exporting on a file system that is really full: a small tmpfs in a mount namespace of its own.
#include "cli/training.h"

namespace lockstep {
namespace {

// Runs a shell script in a folder on an empty disk of this size, which is lost afterwards. $0 is the program.
class FilledDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (on_disk("64k", "true").exit_code != 0) GTEST_SKIP() << "no permission to mount in a namespace of its own";
  }
  RunningProgram::Result on_disk(const std::string& size, const std::string& script) const {
    const std::string mounted =
        "mount -t tmpfs -o size=" + size + " tmpfs " + dir_.path() + " && cd " + dir_.path() + " || exit 77; " + script;
    const Words alone = ::getuid() == 0 ? Words{"unshare", "-m"} : Words{"unshare", "-r", "-m"};
    return RunningProgram(alone + Words{"/bin/sh", "-c", mounted, program_path()}).wait();
  }
  // The words that train a model whose checkpoints have 2.8 MB.
  static std::string training(const std::string& flags) {
    return "\"$0\" train --dataset " + small_dataset() + " --batch-size 50 --quiet --steps " + flags;
  }

  const TempDir dir_;
};

constexpr const char* kFull = ": No space left on device; the disk is full: free some space or choose another folder";

TEST_F(FilledDisk, ARunContinuesWhenThereIsSpaceAgain) {
  const RunningProgram::Result result =
      on_disk("8m", training("2 --run-dir run") + " && dd if=/dev/zero of=fill bs=4k 2> /dev/null; " +
                        training("4 --run-dir run") + "; echo \"exit $?\"; rm fill; " + training("4 --run-dir run") +
                        " && ls -A run && grep '\"state\"' run/run.json");
  expect_contains(result.out, "exit 1\n");
  expect_contains(result.out, "step_00000004\n  \"state\": \"complete\",\n");
  expect_lacks(result.out, "tmp");
  expect_contains(result.err, kFull);
}

TEST_F(FilledDisk, ExportNamesTheFileAndRemovesIt) {
  const std::string model = dir_.path() + "-model";
  ASSERT_EQ(train({"--steps", "1", "--checkpoint-dir", model, "--quiet"}).exit_code, 0);
  for (const char* format : {"onnx", "safetensors", "c"}) {
    const RunningProgram::Result result =
        on_disk("512k", "\"$0\" export " + model + " --format " + format + " -o out.bin; echo \"exit $?\"; ls -A");
    EXPECT_EQ(result.out, "exit 1\n") << format;
    EXPECT_EQ(result.err, "lockstep: write out.bin" + std::string(kFull) + "\n") << format;
  }
  std::filesystem::remove_all(model);
}

}  // namespace
}  // namespace lockstep
