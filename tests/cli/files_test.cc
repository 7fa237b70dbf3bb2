// Files given on the command line: pipes and devices are read and written in place, and links are not replaced.
#include <sys/stat.h>

#include <filesystem>

#include "cli/training.h"
#include "lockstep/create.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

ProcessResult shell(const std::string& line) { return run_process({"bash", "-c", line}, std::chrono::seconds(60)); }

TEST(UserFiles, ConfigurationComesThroughAPipe) {
  const std::string small =
      fmt::format("dataset: {}\nbatch_size: 50\nsteps: 2\nquiet: true\nno_save: true\n", small_dataset());
  for (const char* from : {"<(cat)", "/dev/stdin", "-"}) {
    const ProcessResult result = shell(fmt::format("printf '%s' '{}' | {} train {}", small, program_path(), from));
    EXPECT_EQ(result.exit_code, 0) << from << ": " << result.output;
    expect_contains(result.output, "after 2 steps");
  }
}

TEST(UserFiles, ConfigurationOfTheUserIsNotOverwritten) {
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
    expect_contains(kept, "\nresume: auto\n");  // a run with this file resumes
  }
}

TEST(UserFiles, ManifestsComeThroughAPipe) {
  const std::string job =
      "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  completionMode: Indexed\n  completions: 1\n  "
      "parallelism: 1\n"
      "  template: {spec: {restartPolicy: Never, containers: [{name: jax, image: x, command: [\"true\"]}]}}\n";
  for (const char* from : {"<(cat)", "/dev/stdin", "-"}) {
    const ProcessResult result =
        shell(fmt::format("printf '%s' '{}' | {} apply --dry-run -f {}", job, program_path(), from));
    EXPECT_EQ(result.exit_code, 0) << from << ": " << result.output;
  }
}

TEST(UserFiles, EndlessInputIsRejected) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer reserves more address space than the limit of this test";
  for (const char* command :
       {"train /dev/zero", "apply --dry-run -f /dev/zero", "train - </dev/zero",
        "render kubernetes --variables /dev/zero", "blame /dev/zero", "launch -n 1 --hosts @/dev/zero -- version"}) {
    const ProcessResult result = shell(fmt::format("ulimit -v 4000000; {} {}", program_path(), command));
    EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << command << ": " << result.exit_code;
    expect_contains(result.output, " bytes, the limit; check that it is the right file");
  }
}

TEST(UserFiles, DeeplyNestedInputIsRejected) {
  const TempDir dir;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const auto file = [&](const char* name, const std::string& text) {
    FileSystem::real().write(dir.path() + "/" + name, std::vector<uint8_t>(text.begin(), text.end()));
    return dir.path() + "/" + name;
  };
  const std::string manifest = file("d.json", "{\"apiVersion\":" + deep + "}");
  const std::string settings = file("d.yaml", "model: " + deep);
  const std::string variables = file("v.json", "{\"node_selector\":" + deep + "}");
  std::string filters = "{{ a";
  for (int i = 0; i < 25'000; ++i) filters += "| default(1)";
  const std::string own_template = file("t.j2", filters + " }}");
  const std::vector<Words> commands = {{"apply", "--dry-run", "-f", manifest},
                                       {"train", settings},
                                       {"render", "kubernetes", "--variables", variables},
                                       {"render", "kubernetes", "--template", own_template}};
  for (const Words& command : commands) {
    const ProcessResult result = run_lockstep(command);
    EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << command[0] << ": " << result.output;
    expect_contains(result.output, ": more than ");
  }
}

TEST(UserFiles, SpecialFilesInAFolderAreRejected) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir.path() + "/a.yaml").c_str(), 0600), 0);
  const ProcessResult result = run_lockstep({"apply", "--dry-run", "-f", dir.path()});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  expect_contains(result.output, "a.yaml: it is a pipe; a regular file is required");
}

TEST(UserFiles, NothingIsWrittenThroughLinksInARun) {
  for (const char* name : {".lock", "metrics.jsonl", "metrics.csv"}) {
    const TempDir dir;
    const std::string victim = dir.path() + "/victim", run = dir.path() + "/run";
    FileSystem::real().make_dirs(run);
    FileSystem::real().write(victim, std::vector<uint8_t>{'m', 'i', 'n', 'e'});
    std::filesystem::create_symlink(victim, run + "/" + name);
    const ProcessResult result =
        run_lockstep({"train", "--dataset", small_dataset(), "--batch-size", "50", "--steps", "2", "--quiet",
                      "--loggers", "jsonl,csv", "--log-dir", run, "--checkpoint-dir", run});
    EXPECT_EQ(result.exit_code, 1) << name << ": " << result.output;
    expect_contains(result.output, "the path is a symbolic link, which lockstep does not follow here");
    EXPECT_EQ(read_text(victim), "mine");
  }
}

TEST(UserFiles, NamesInCheckpointsAreEscaped) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  Checkpoint checkpoint;
  checkpoint.step = 1;
  checkpoint.arrays = {{"params/\033[31mred", ones(Shape{2}, f32)}};
  checkpoint.config = {{"model\033", "\033]0;title\a"}};
  checkpoint.metrics = {
      {"\xc2\x9b"
       "31m",
       1}};
  save_checkpoint(run, checkpoint);
  for (const ProcessResult& result : {run_lockstep({"inspect", run}), run_lockstep({"eval", run})}) {
    EXPECT_EQ(result.output.find('\033'), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("\xc2\x9b"), std::string::npos) << result.output;
    expect_contains(result.output, "\\x1b");
  }
}

TEST(UserFiles, CheckpointsAreFolders) {
  const TempDir dir;
  const std::string file = dir.path() + "/manifest.json";
  FileSystem::real().write(file, std::vector<uint8_t>());
  for (const char* command : {"eval", "inspect"}) {
    const ProcessResult result = run_lockstep({command, file});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output, fmt::format("lockstep: {}: {} is a file; give the folder of a checkpoint, or a folder of "
                                         "checkpoints\n",
                                         command, file));
  }
}

TEST(UserFiles, EvalNamesItselfWhenItSkipsACheckpoint) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  Checkpoint checkpoint;
  checkpoint.step = 1;
  checkpoint.arrays = {{"params/w", ones(Shape{2}, f32)}};
  save_checkpoint(run, checkpoint);
  FileSystem::real().write(run + "/step_00000001/manifest.json", std::vector<uint8_t>());
  const ProcessResult result = run_lockstep({"eval", run});
  EXPECT_EQ(result.exit_code, 1);
  expect_contains(result.output, "lockstep: eval: skipping step 1: checkpoint: ");
  expect_contains(result.output, "lockstep: eval: no checkpoint in " + run + " is complete; use another folder\n");
}

TEST(UserFiles, ErrorsNameTheOutputFile) {
  const TempDir dir;
  const std::string output = dir.path() + "/none/job.yaml";
  const ProcessResult result = run_lockstep({"render", "kubernetes", "--set", "name=x", "-o", output});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output, "lockstep: create " + output + ": No such file or directory; check the path\n");
}

TEST(UserFiles, OutputFollowsALink) {
  const TempDir dir;
  const std::string target = dir.path() + "/target", link = dir.path() + "/link";
  FileSystem::real().write(target, std::vector<uint8_t>());
  std::filesystem::create_symlink(target, link);
  EXPECT_EQ(run_lockstep({"render", "kubernetes", "--set", "name=x", "-o", link}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  expect_contains(read_text(target), "kind: Job");
}

TEST(UserFiles, OutputGoesThroughAPipe) {
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
