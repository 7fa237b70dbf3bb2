// Jobs survive failures of the daemon, of shims and of the disk.
#include <sys/mount.h>
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <random>

#include "jobs/local/jobs.h"
#include "support/listener.h"
#include "support/long_tests.h"

namespace lockstep {
namespace {

// Every start of a replica appends its pod folder to starts-<index>.
const char* const kCountStarts = "echo $LOCKSTEP_POD_FOLDER >> starts-$PROCESS_ID; ";

TEST_F(LocalJobs, KillingTheDaemonLosesNoJobAndStartsNoReplicaTwice) {
  std::mt19937 random(7);
  const int rounds = long_tests() ? 50 : 3;
  for (int round = 0; round < rounds; ++round) {
    const std::string name = "round-" + std::to_string(round);
    const std::string folder = dir_.path() + "/" + name;
    std::filesystem::create_directory(folder);
    // The first attempt fails after a while, the second succeeds.
    Json manifest = shell_job(
        name, 3, std::string(kCountStarts) + "sleep 0.1; test $(wc -l < starts-$PROCESS_ID) -ge 2 && exit 0; exit 1");
    manifest["spec"]["runPolicy"]["backoffLimit"] = 5;
    manifest["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure";
    container_of(manifest)["workingDir"] = folder;
    EXPECT_EQ(apply(manifest), "created");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!is_finished(get(name)) && std::chrono::steady_clock::now() < end) {
      ::poll(nullptr, 0, static_cast<int>(random() % 150));
      kill_daemon();
    }
    ASSERT_EQ(state_of(name), "Succeeded") << "round " << round << "\n" << events_text(name);
    // The attempts depend on which replica failed first; no replica was started twice in one attempt.
    for (int i = 0; i < 3; ++i) {
      std::vector<std::string> starts = lines_of(read_if_exists(folder + "/starts-" + std::to_string(i)));
      const size_t count = starts.size();
      std::ranges::sort(starts);
      starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
      EXPECT_EQ(starts.size(), count) << "replica " << i << " of round " << round;
      EXPECT_LE(count, static_cast<size_t>(get(name).status.attempt) + 1);
      EXPECT_GE(count, 2u);
    }
    for (const Pod& pod : runner().pods(get(name))) EXPECT_EQ(pod.phase, PodPhase::succeeded);
  }
}

TEST_F(LocalJobs, ReplicasOutliveTheDaemon) {
  Json manifest = shell_job("lives", 2, std::string(kCountStarts) + "while test ! -e stop; do sleep 0.01; done");
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  expect_state("lives", "Running");
  ASSERT_TRUE(soon([&] {
    const std::vector<Pod> pods = runner().pods(get("lives"));
    return pods[0].process != 0 && pods[1].process != 0;
  }));
  const std::vector<Pod> before = runner().pods(get("lives"));
  kill_daemon();
  std::ofstream(dir_.path() + "/stop") << "x";
  // Their shims record how they ended, without a daemon.
  for (const Pod& pod : before) EXPECT_TRUE(is_gone_soon(static_cast<pid_t>(pod.process)));
  expect_state("lives", "Succeeded");
  EXPECT_EQ(lines_of(read_if_exists(dir_.path() + "/starts-0")).size(), 1u);
}

TEST_F(LocalJobs, AShimRestartsTheDaemon) {
  Json manifest =
      shell_job("alone", 1, "test -e x && touch y && exit 0; touch x; while test ! -e go; do sleep 0.01; done; exit 1");
  manifest["spec"]["jaxReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure";
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(dir_.path() + "/x"); }));
  kill_daemon();
  std::ofstream(dir_.path() + "/go") << "x";
  EXPECT_TRUE(soon([&] { return std::filesystem::exists(dir_.path() + "/y"); }));
}

TEST_F(LocalJobs, KillingAShimKillsItsReplica) {
  // PR_SET_PDEATHSIG kills the shell; the process it started would survive without the daemon.
  apply(shell_job("lost", 2, "sleep 600 & echo $!; wait"));
  expect_state("lost", "Running");
  ASSERT_TRUE(soon([&] { return log_of("lost", 0).ends_with("\n") && log_of("lost", 1).ends_with("\n"); }));
  const std::vector<Pod> pods = runner().pods(get("lost"));
  const pid_t grandchild = std::stoi(log_of("lost", 1));
  const auto shim = lock_holder(StateDir(state_).pod_folder(get("lost"), 0, 1).lock_path());
  ASSERT_TRUE(shim);
  shim->send(SIGKILL);
  EXPECT_TRUE(is_gone_soon(static_cast<pid_t>(pods[1].process)));
  EXPECT_TRUE(is_gone_soon(grandchild));
  expect_state("lost", "Failed");
  EXPECT_EQ(runner().pods(get("lost"))[1].reason, "Lost");
  EXPECT_TRUE(
      contains(events_text("lost"), "pod/lost-worker-1 Lost: Its shim was killed, which also killed the replica"));
}

TEST_F(LocalJobs, AReplicaOfAFinishedJobIsNeverStarted) {
  // As if the daemon had died between creating the folders and starting the shims.
  Json manifest = shell_job("never", 1, "touch started; sleep 600");
  container_of(manifest)["workingDir"] = dir_.path();
  manifest["spec"]["runPolicy"]["suspend"] = true;
  apply(manifest);
  expect_state("never", "Suspended");
  apply(shell_job("done", 1, "true"));
  expect_state("done", "Succeeded");
  kill_daemon();
  const StateDir state(state_);
  const PodFolder folder = state.pod_folder(get("done"), 0, 0);
  std::filesystem::remove(folder.path() + "/ended.json");
  std::filesystem::remove(folder.path() + "/started.json");
  // The next daemon finds a waiting replica of a finished job and records its end. A late shim then does nothing.
  get("done");
  ASSERT_TRUE(soon([&] { return folder.ended().has_value(); }));
  EXPECT_EQ(folder.ended()->reason, "Stopped");
  EXPECT_EQ(RunningProgram({program_path(), "__shim", folder.path()}).wait().exit_code, 0);
  EXPECT_FALSE(folder.started());
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/started"));
}

TEST_F(LocalJobs, AShimNeverStartsAReplicaTwice) {
  Json manifest = shell_job("once", 1, kCountStarts);
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  expect_state("once", "Succeeded");
  const PodFolder folder = StateDir(state_).pod_folder(get("once"), 0, 0);
  EXPECT_EQ(RunningProgram({program_path(), "__shim", folder.path()}).wait().exit_code, 0);
  std::filesystem::remove(folder.path() + "/ended.json");
  EXPECT_EQ(RunningProgram({program_path(), "__shim", folder.path()}).wait().exit_code, 0);
  EXPECT_EQ(lines_of(read_if_exists(dir_.path() + "/starts-0")).size(), 1u);
}

TEST_F(LocalJobs, DeletingTheStateFolderEndsEverything) {
  apply(shell_job("orphan", 1, "sleep 600"));
  expect_state("orphan", "Running");
  ASSERT_TRUE(soon([&] { return runner().pods(get("orphan")).at(0).process != 0; }));
  const pid_t replica = static_cast<pid_t>(runner().pods(get("orphan"))[0].process), daemon = daemon_pid();
  std::filesystem::remove_all(state_);
  EXPECT_TRUE(is_gone_soon(replica));
  EXPECT_TRUE(is_gone_soon(daemon));
}

TEST_F(LocalJobs, AJobWithAnInvalidFileIsIgnored) {
  apply(shell_job("good", 1, "true"));
  expect_state("good", "Succeeded");
  kill_daemon();
  std::filesystem::create_directories(state_ + "/jobs/default/bad");
  std::ofstream(state_ + "/jobs/default/bad/job.json") << "{";
  EXPECT_THROW(get("bad"), Error);
  apply(shell_job("more", 1, "true"));
  expect_state("more", "Succeeded");
  EXPECT_TRUE(contains(read_if_exists(state_ + "/daemon.log"), "cannot read job default/bad: read "))
      << read_if_exists(state_ + "/daemon.log");
}

TEST_F(LocalJobs, AJobRestartsWithAnotherPortWhenItsPortIsTaken) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "built without the control plane";
#endif
  // Replica 0 writes its port to a file and waits until the test has taken that port.
  Json manifest = shell_job("ported", 2,
                            "test $PROCESS_ID != 0 -o -e go || { echo $COORDINATOR_PORT > p; mv p port; "
                            "while test ! -e go; do sleep 0.01; done; }; exec " +
                                program_path() + " allreduce --devices 1");
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(dir_.path() + "/port"); }));
  const int port = std::stoi(read_if_exists(dir_.path() + "/port"));
  const Listener faster(8, port);
  std::ofstream(dir_.path() + "/go") << "x";
  expect_state("ported", "Succeeded");
  EXPECT_EQ(get("ported").status.restarts, 0);  // does not count as a restart; the policy is Never
  EXPECT_EQ(get("ported").status.taken_ports, 1);
  EXPECT_TRUE(contains(log_of("ported", 0), "Process 0 has y=[2.]")) << log_of("ported", 0);
  const std::string events = events_text("ported");
  EXPECT_TRUE(contains(events, "pod/ported-worker-0 PortTaken: Port " + std::to_string(port) + " was taken by pid " +
                                   std::to_string(::getpid())))
      << events;
  EXPECT_TRUE(contains(events, "jaxjob/ported PortTaken: JAXJob ported is restarting with another port.")) << events;
}

TEST_F(LocalJobs, AnotherPortInUseIsAnOrdinaryError) {
  const Listener other;
  for (const std::string& text : {std::string("OSError: [Errno 98] Address already in use"),
                                  "bind 127.0.0.1:" + std::to_string(other.port()) + ": Address already in use",
                                  std::string("bind 127.0.0.1:${COORDINATOR_PORT}0: Address already in use")}) {
    apply(shell_job("other", 1, "echo \"" + text + "\"; exit 1"));
    expect_state("other", "Failed");
    EXPECT_EQ(runner().pods(get("other")).at(0).reason, "Error") << text;
    runner().remove(get("other"));
  }
}

TEST_F(LocalJobs, AJobFailsAfterTenTakenPorts) {
  apply(shell_job("unlucky", 1, "echo \"bind 127.0.0.1:$COORDINATOR_PORT: Address already in use\"; exit 1"));
  expect_state("unlucky", "Failed");
  EXPECT_EQ(get("unlucky").status.taken_ports, 10);
  EXPECT_EQ(get("unlucky").status.restarts, 0);
}

TEST_F(LocalJobs, LogsAreBounded) {
  environment_["LOCKSTEP_LOG_LIMIT"] = "100000";
  make_runner();
  // 6 MB of numbered lines.
  apply(shell_job("chatty", 1, "seq -f 'line %010.0f of the log' 200000; echo the end"));
  expect_state("chatty", "Succeeded");
  const std::string log = log_of("chatty", 0);
  EXPECT_LT(log.size(), 210'000u);
  EXPECT_GT(log.size(), 90'000u);
  const std::vector<std::string> lines = lines_of(log);
  EXPECT_TRUE(contains(lines[0], "bytes before this line were dropped: the log was longer than LOCKSTEP_LOG_LIMIT"));
  EXPECT_EQ(lines.back(), "the end");
  EXPECT_EQ(lines[lines.size() - 2], "line 0000200000 of the log");
  EXPECT_EQ(log_of("chatty", 0, {.tail = 2}), "line 0000200000 of the log\nthe end\n");
}

TEST_F(LocalJobs, RejectsAnInvalidLogLimit) {
  environment_["LOCKSTEP_LOG_LIMIT"] = "much";
  make_runner();
  try {
    apply(shell_job("x", 1, "true"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "LOCKSTEP_LOG_LIMIT is \"much\"; set it to a number of bytes, at least 4096");
  }
}

// A small tmpfs at the state folder, if this user may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = ::mount("none", path.c_str(), "tmpfs", 0, "size=1m,mode=0700") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool is_mounted() const { return mounted_; }
  void fill() const {
    std::ofstream out(path_ + "/filler");
    const std::string block(4096, 'x');
    while (out.write(block.data(), static_cast<std::streamsize>(block.size())) && out.flush()) continue;
  }
  void free_space() const { std::filesystem::remove(path_ + "/filler"); }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST_F(LocalJobs, ReplicasKeepRunningOnAFullDisk) {
  const SmallDisk disk(state_);
  if (!disk.is_mounted()) GTEST_SKIP() << "no permission to mount a file system";
  make_runner();
  Json manifest = shell_job("full", 1,
                            "echo before; touch ready; while test ! -e go; do sleep 0.01; done; "
                            "i=0; while test $i -lt 20000; do echo in between; i=$((i+1)); done; touch said; "
                            "while test ! -e on; do sleep 0.01; done; echo after");
  container_of(manifest)["workingDir"] = dir_.path();
  apply(manifest);
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(dir_.path() + "/ready"); }));
  ASSERT_TRUE(soon([&] { return state_of("full") == "Running" && runner().pods(get("full")).at(0).process != 0; }));
  disk.fill();
  std::ofstream(dir_.path() + "/go") << "x";
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(dir_.path() + "/said"); }));
  EXPECT_THROW(apply(shell_job("no-room", 1, "true")), IoError);
  // The replica ends while ended.json cannot be written. The daemon may die in the meantime.
  const pid_t process = static_cast<pid_t>(runner().pods(get("full")).at(0).process);
  std::ofstream(dir_.path() + "/on") << "x";
  EXPECT_TRUE(is_gone_soon(process));
  kill_daemon();
  disk.free_space();
  expect_state("full", "Succeeded");
  const std::string log = log_of("full", 0);
  EXPECT_TRUE(log.starts_with("before\n")) << log.substr(0, 200);
  // Some lines fit into the last block of the file; all others are counted by a note.
  int64_t present = 0, missing = 0, notes = 0;
  for (const std::string& line : lines_of(log)) {
    int64_t count = 0;
    present += line == "before" || line == "in between" || line == "after";
    if (std::sscanf(line.c_str(), "lockstep: %" SCNd64 " lines (", &count) != 1) continue;
    EXPECT_TRUE(contains(line, " bytes) are missing here: ") && contains(line, "No space left on device")) << line;
    missing += count;
    ++notes;
  }
  EXPECT_GE(missing, 10'000);
  EXPECT_GE(present + missing, 20'002);
  EXPECT_LE(present + missing, 20'002 + notes);  // each note may split a line
  EXPECT_EQ(apply(shell_job("room", 1, "true")), "created");
  expect_state("room", "Succeeded");
}

TEST_F(LocalJobs, AJobCanBeDeletedFromAFullDisk) {
  const SmallDisk disk(state_);
  if (!disk.is_mounted()) GTEST_SKIP() << "no permission to mount a file system";
  make_runner();
  apply(shell_job("full", 2, "sleep 600"));
  expect_state("full", "Running");
  disk.fill();
  runner().remove(get("full"));
  EXPECT_TRUE(runner().list("").empty());
}

}  // namespace
}  // namespace lockstep
