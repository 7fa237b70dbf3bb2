// The container image is complete: the program runs in its root file system alone, and not as root.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "cli/training.h"
#include "jobs/model/manifest.h"
#include "support/program.h"
#include "support/sanitizers.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

std::string collect_script() { return std::string(LOCKSTEP_SOURCE_DIR) + "/deploy/containers/collect.sh"; }

// The command prefix that changes the root folder and drops root.
Words enter(const std::string& root) {
  return ::getuid() == 0 ? Words{"chroot", "--userspec=65532:65532", root} : Words{"unshare", "-r", "chroot", root};
}

RunningProgram::Result inside(const std::string& root, const Words& command) {
  return RunningProgram(Words{"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=/lib",
                              "LOCKSTEP_CACHE_DIR=/tmp/lockstep"} +
                        enter(root) + command)
      .wait();
}

TEST(Container, ProgramRunsInTheRootOfTheImage) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need /proc, which the image does not have";
  if (run_process(enter("/") + Words{"true"}, std::chrono::seconds(10)).exit_code != 0)
    GTEST_SKIP() << "no permission for chroot";
  const TempDir dir;
  const std::string root = dir.path() + "/root";
  const auto collected = RunningProgram({collect_script(), program_path(), root}).wait();
  ASSERT_EQ(collected.exit_code, 0) << collected.err;
  EXPECT_NE(collected.out.find(" MiB in " + root), std::string::npos) << collected.out;
  for (const char* other : {"/bin/sh", "/bin/bash", "/usr"}) EXPECT_FALSE(std::filesystem::exists(root + other));

  const auto version = inside(root, {"/bin/lockstep", "version"});
  ASSERT_EQ(version.exit_code, 0) << version.err;
  EXPECT_EQ(version.out.find(run_lockstep({"--version"}).output), 0u) << version.out;
  EXPECT_NE(version.out.find("HTTPS                 libcurl "), std::string::npos) << "libcurl is not in the image\n"
                                                                                   << version.out;
  const auto trained = inside(root, {"/bin/lockstep", "train", "--dataset", "synthetic", "--steps", "3", "--batch-size",
                                     "64", "--devices", "2", "--quiet", "--checkpoint-dir", "/checkpoints/run"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("after 3 steps"), std::string::npos) << trained.out;
  EXPECT_TRUE(std::filesystem::exists(root + "/checkpoints/run"));
}

// The programs that the manifests in examples/jobs run are in the image that the Containerfiles build.
TEST(Container, HasTheProgramsOfTheExampleManifests) {
  const std::string example = LOCKSTEP_BINARY_DIR "/examples/spmd_mnist_pmap";
  if (!std::filesystem::exists(example)) GTEST_SKIP() << "the examples are not built";
  const TempDir dir;
  const std::string root = dir.path() + "/root";
  const auto collected = RunningProgram({collect_script(), "--also", example, program_path(), root}).wait();
  ASSERT_EQ(collected.exit_code, 0) << collected.err;
  std::set<std::string> programs;
  for (const auto& each : std::filesystem::directory_iterator(root + "/bin"))
    programs.insert(each.path().filename().string());
  EXPECT_EQ(programs, (std::set<std::string>{"lockstep", "spmd_mnist_pmap"}));
  for (const auto& each : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/examples/jobs"))
    for (const Job& job : parse_manifests(read_text(each.path()), each.path()).jobs)
      EXPECT_TRUE(programs.contains(job.spec.container.command.at(0))) << each.path();
  for (const char* file : {"Containerfile", "Containerfile.cuda"}) {
    const std::string text = read_text(LOCKSTEP_SOURCE_DIR "/deploy/containers/" + std::string(file));
    EXPECT_NE(text.find("--target lockstep_main spmd_mnist_pmap "), std::string::npos) << file;
    EXPECT_NE(text.find("collect.sh --also /build/examples/spmd_mnist_pmap /build/lockstep "), std::string::npos);
  }
  if (kSanitized || run_process(enter("/") + Words{"true"}, std::chrono::seconds(10)).exit_code != 0)
    GTEST_SKIP() << "no permission for chroot, or sanitizers, which need /proc";
  const auto trained = inside(root, {"/bin/spmd_mnist_pmap", "--data", "synthetic", "--epochs", "1", "--devices", "2"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("Epoch 0 in "), std::string::npos) << trained.out;
}

// Libraries that the program opens with dlopen are not in the output of ldd.
TEST(Container, AdditionalLibrariesAreCopiedWithTheirDependencies) {
  const TempDir dir;
  const auto listed = RunningProgram({"ldd", program_path()}).wait().out;
  const size_t at = listed.find("libyaml-cpp"), path = listed.find("=> ", at);
  if (at == std::string::npos || path == std::string::npos) GTEST_SKIP() << "yaml-cpp is not a shared library here";
  const std::string own = listed.substr(path + 3, listed.find(" (", path) - path - 3);
  const std::string library = dir.path() + "/libopened.so.1", root = dir.path() + "/root";
  std::filesystem::copy_file(own, library);
  const auto collected = RunningProgram({collect_script(), "/bin/true", root, library}).wait();
  ASSERT_EQ(collected.exit_code, 0) << collected.err;
  for (const char* name : {"/lib/libopened.so.1", "/lib/libstdc++.so.6", "/lib/libc.so.6"})
    EXPECT_TRUE(std::filesystem::exists(root + name)) << name;
}

TEST(Container, CollectRejectsInvalidArguments) {
  const TempDir dir;
  EXPECT_EQ(RunningProgram({collect_script()}).wait().exit_code, 2);
  const auto missing = RunningProgram({collect_script(), dir.path() + "/none", dir.path() + "/root"}).wait();
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("program " + dir.path() + "/none does not exist or is not executable; build it first"),
            std::string::npos);
  const auto without =
      RunningProgram({collect_script(), program_path(), dir.path() + "/root", dir.path() + "/libx.so"}).wait();
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_NE(without.err.find("collect: library " + dir.path() + "/libx.so does not exist"), std::string::npos);
  std::filesystem::create_directories(dir.path() + "/full/x");
  const auto full = RunningProgram({collect_script(), program_path(), dir.path() + "/full"}).wait();
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("is not empty; choose another folder"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
