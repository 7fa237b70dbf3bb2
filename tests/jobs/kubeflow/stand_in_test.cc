// Selection of the example program that runs in place of a known image.
#include "jobs/stand_in.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

Container image(const std::string& name) {
  Container out;
  out.image = name;
  return out;
}

void write_program(const std::string& path) {
  FileSystem::real().make_dirs(path.substr(0, path.rfind('/')));
  FileSystem::real().write(path, {});
  ::chmod(path.c_str(), 0755);
}

TEST(StandIn, IsSelectedByTheNameOfTheImage) {
  for (const char* name :
       {"docker.io/sandipanify/jaxjob-spmd-mnist:latest", "jaxjob-spmd-mnist",
        "docker.io/kubeflow/jaxjob-dist-spmd-mnist@sha256:0123", "localhost:5000/jaxjob-spmd-mnist:1"})
    EXPECT_EQ(stand_in_of(image(name)), "spmd_mnist_pmap") << name;
  for (const char* name :
       {"lockstep:latest", "jaxjob-spmd-mnist/other", "my-jaxjob-spmd-mnist", "localhost:5000/other"})
    EXPECT_EQ(stand_in_of(image(name)), "") << name;
}

TEST(StandIn, IsNotUsedIfTheContainerHasACommand) {
  Container container = image("jaxjob-spmd-mnist");
  container.command = {"lockstep", "train"};
  EXPECT_EQ(stand_in_of(container), "");
  container.command.clear();
  container.args = {"train"};
  EXPECT_EQ(stand_in_of(container), "");
}

TEST(StandIn, IsFoundInABuildAndInAnInstallation) {
  const TempDir dir;
  const std::string build = dir.path() + "/build", prefix = dir.path() + "/usr";
  write_program(build + "/examples/p");
  write_program(prefix + "/libexec/lockstep/p");
  EXPECT_EQ(find_stand_in("p", build + "/lockstep"), build + "/examples/p");
  EXPECT_EQ(find_stand_in("p", prefix + "/bin/lockstep"), prefix + "/libexec/lockstep/p");
}

TEST(StandIn, MissingStandInIsAnError) {
  EXPECT_THROWS(find_stand_in("p", "/none/bin/lockstep"), Error,
                "apply: the program p, which runs here in place of the image, is not installed (looked for "
                "/none/bin/examples/p and /none/libexec/lockstep/p); install lockstep with its examples "
                "(-DLOCKSTEP_BUILD_EXAMPLES=ON), or give the container a command");
}

}  // namespace
}  // namespace lockstep
