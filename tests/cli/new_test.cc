// `lockstep new` writes a project. tests/install builds and runs one.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

TEST(NewCommand, WritesAProject) {
  const TempDir dir;
  const std::string project = dir.path() + "/a/b";
  const ProcessResult result = run_lockstep({"new", "My_wave2", "--dir", project});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output, "created " + project + "; next:\n  cd " + project + "\n  cmake -B build -Dlockstep_DIR=" +
                               std::filesystem::canonical(LOCKSTEP_BINARY_DIR).string() +
                               "\n  cmake --build build\n  build/My_wave2 settings.yaml\n");
  EXPECT_EQ(FileSystem::real().list(project),
            (std::vector<std::string>{"CMakeLists.txt", "README.md", "job.yaml", "main.cc", "settings.yaml"}));
  for (const std::string& name : FileSystem::real().list(project)) {
    const std::string text = read_text(project + "/" + name);
    for (const char* placeholder : {"{{name}}", "{{job}}", "{{lockstep_dir}}"})
      EXPECT_EQ(text.find(placeholder), text.npos) << name;
    EXPECT_EQ(text.find("my_task"), text.npos) << name;
    EXPECT_NE(text.find("My_wave2"), text.npos) << name;
  }
  EXPECT_NE(read_text(project + "/job.yaml").find("\n  name: my-wave2\n"), std::string::npos);
  EXPECT_EQ(run_lockstep({"apply", "--dry-run", "-f", project + "/job.yaml"}).output,
            "jaxjob.kubeflow.org/my-wave2 is valid (dry run)\n");
}

TEST(NewCommand, NothingIsOverwritten) {
  const TempDir dir;
  FileSystem::real().write(dir.path() + "/precious", {});
  const ProcessResult full = run_lockstep({"new", "wave", "--dir", dir.path()});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.output, "lockstep: new: the folder " + dir.path() +
                             " is not empty; nothing was written: give another one with --dir\n");
  const ProcessResult file = run_lockstep({"new", "wave", "--dir", dir.path() + "/precious"});
  EXPECT_EQ(file.exit_code, 1);
  EXPECT_EQ(file.output, "lockstep: new: " + dir.path() + "/precious is a file; give another folder with --dir\n");
  EXPECT_EQ(FileSystem::real().list(dir.path()), std::vector<std::string>{"precious"});
}

TEST(NewCommand, NamesMustBeNamesOfProgramsAndJobs) {
  for (const char* name : {"", "1st", "a b", "../up", "a/b", "wave-", "wave_", "wäve", "a;b"})
    expect_usage_error({"new", name}, "new: \"" + std::string(name) +
                                          "\" is not the name of a project; use letters, digits, - and _, begin with a "
                                          "letter and do not end with - or _, at most 60 characters; --dir names its "
                                          "folder");
  EXPECT_EQ(run_lockstep({"new", std::string(61, 'a')}).exit_code, 2);
  expect_usage_error({"new", "test"}, "new: the name \"test\" is reserved; choose another one");
}

}  // namespace
}  // namespace lockstep
