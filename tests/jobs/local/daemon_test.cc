// The daemon: its socket, file permissions, and the commands that use it.
#include <sys/stat.h>

#include <filesystem>

#include "base/throws.h"
#include "jobs/local/jobs.h"
#include "jobs/local/socket.h"
#include "support/variable.h"

namespace lockstep {
namespace {

int mode_of(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return static_cast<int>(info.st_mode & 0777);
}

TEST_F(LocalJobs, FilesAreAccessibleToTheUserOnly) {
  apply(shell_job("mine", 1, "echo words; umask"));
  expect_state("mine", "Succeeded");
  EXPECT_EQ(mode_of(state_), 0700);
  EXPECT_EQ(mode_of(state_ + "/socket"), 0600);
  for (const auto& each : std::filesystem::recursive_directory_iterator(state_))
    EXPECT_EQ(mode_of(each.path()) & 0077, 0) << each.path();
}

TEST_F(LocalJobs, TheTokenIsOnlyInItsFile) {
  Json manifest = shell_job("secret", 1, "echo $LOCKSTEP_TOKEN; while test ! -e stop; do sleep 0.01; done");
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  expect_state("secret", "Running");
  const std::string attempt = StateDir(state_).attempt_folder(get("secret"), 0);
  std::string token = read_if_exists(attempt + "/token");
  ASSERT_EQ(token.size(), 65u);
  token.pop_back();
  for (const auto& each : std::filesystem::recursive_directory_iterator(state_))
    if (each.is_regular_file() && each.path() != attempt + "/token") {
      EXPECT_FALSE(contains(read_if_exists(each.path()), token)) << each.path();
    }
  for (const auto& each : std::filesystem::directory_iterator("/proc"))
    EXPECT_FALSE(contains(read_if_exists(each.path() / "cmdline"), token)) << each.path();
  const ScopedVariable state("LOCKSTEP_STATE_DIR", state_);
  EXPECT_FALSE(contains(run_lockstep({"get", "jaxjob", "secret", "-o", "yaml"}).output, token));
  EXPECT_FALSE(contains(run_lockstep({"describe", "job", "secret"}).output, token));
  std::ofstream(dir_.path() + "/stop") << "x";
  expect_state("secret", "Succeeded");
}

TEST_F(LocalJobs, ASecondDaemonExitsImmediately) {
  apply(shell_job("one", 1, "true"));
  const pid_t daemon = daemon_pid();
  EXPECT_NE(daemon, 0);
  EXPECT_EQ(RunningProgram({program_path(), "__daemon", state_}).wait().exit_code, 0);
  EXPECT_EQ(daemon_pid(), daemon);
}

TEST_F(LocalJobs, TheDaemonExitsWhenIdle) {
  environment_["LOCKSTEP_DAEMON_IDLE"] = "0.2";
  make_runner();
  apply(shell_job("quick", 1, "true"));
  expect_state("quick", "Succeeded");
  EXPECT_TRUE(soon([&] { return daemon_pid() == 0; }));
  EXPECT_EQ(state_of("quick"), "Succeeded");  // reading the state needs no daemon
  EXPECT_EQ(daemon_pid(), 0);
  apply(shell_job("next", 1, "true"));
  expect_state("next", "Succeeded");
}

TEST_F(LocalJobs, AStateFolderMayHaveALongPath) {
  state_ = dir_.path() + "/" + std::string(120, 'x');
  make_runner();
  apply(shell_job("far", 1, "true"));
  expect_state("far", "Succeeded");
}

TEST_F(LocalJobs, RejectsInvalidRequests) {
  apply(shell_job("here", 1, "true"));
  const StateDir state(state_);
  const auto ask = [&](const Json& request) {
    return send_request(connect_to_daemon(state), request, std::chrono::seconds(30));
  };
  EXPECT_THROWS(ask({{"op", "dance"}}), Error, "jobs: the daemon does not support the request \"dance\"");
  EXPECT_THROWS(ask({{"what", 1}}), Error, "jobs: the daemon cannot parse the request");
  EXPECT_THROWS(ask(Json::array()), Error, "jobs: the daemon cannot parse the request");
  EXPECT_THROWS(ask({{"op", "remove"}, {"namespace", "default"}, {"name", "here"}, {"uid", "other"}}), Error,
                "jobs: job here no longer exists in namespace default");
  EXPECT_THROWS(ask({{"op", std::string(kMaxMessageBytes, 'x')}}), Error, "bytes; at most");
  // A client that sends nothing does not block others.
  const Descriptor silent = connect_to_daemon(state);
  EXPECT_EQ(apply(shell_job("there", 1, "true")), "created");
}

TEST_F(LocalJobs, TheDaemonDoesNotHoldTheOutputOfTheCommandThatStartsIt) {
  const std::string file = dir_.path() + "/job.json";
  std::ofstream(file) << shell_job("piped", 1, "sleep 600").dump();
  const ScopedVariable state("LOCKSTEP_STATE_DIR", state_);
  // The pipe is closed when apply exits, although the daemon and the replica keep running.
  const ProcessResult result = run_lockstep({"apply", "-f", file});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_FALSE(result.timed_out);
  EXPECT_TRUE(contains(result.output, "piped created")) << result.output;
  expect_state("piped", "Running");
}

TEST_F(LocalJobs, ReplicasJoinOneJob) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "built without the control plane";
#endif
  Json manifest = shell_job("together", 2, "");
  container_of(manifest).erase("command");
  container_of(manifest)["args"] = Json::array({"allreduce", "--devices", "1"});
  apply(manifest);
  expect_state("together", "Succeeded");
  EXPECT_TRUE(contains(log_of("together", 0), "Process 0 has y=[2.]")) << log_of("together", 0);
}

TEST_F(LocalJobs, AManifestWithOnlyAnImageRunsLockstepTrain) {
  Json manifest = shell_job("mnist", 1, "");
  container_of(manifest).erase("command");
  manifest["spec"]["runPolicy"]["suspend"] = true;
  apply(manifest);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_EQ(notes_[0],
            "the image example/none:1 is ignored: replicas are processes on this machine, and without a command "
            "they run `lockstep train`");
}

}  // namespace
}  // namespace lockstep
