// A real Slurm on this machine. The first test that needs it starts it; it ends with the test program.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/os/run_program.h"
#include "cli/training.h"
#include "jobs/slurm/job_info.h"

namespace lockstep {

// Waits up to two minutes. Polls slowly: each call of `condition` runs a Slurm program.
inline bool slurm_eventually(const std::function<bool()>& condition) {
  return comes_true(condition, std::chrono::minutes(2), std::chrono::milliseconds(50));
}

// Whether training has resumed `restarts` times and logged at least two steps since, according to its output `text`.
inline bool trains(const std::string& text, int restarts) {
  size_t at = 0;
  for (int i = 0; i < restarts; ++i) {
    at = text.find("lockstep: resuming from step ", at);
    if (at == text.npos) return false;
    ++at;
  }
  const size_t first = text.find("\nstep ", at);
  return first != text.npos && contains(text.substr(first + 1), "\nstep ");
}

// Stops (SIGSTOP) the two processes that train in a folder while this object lives, so that training cannot finish
// before Slurm acts on it.
class PausedTraining {
 public:
  explicit PausedTraining(const std::string& folder) {
    for (const pid_t pid : all_processes()) {
      std::ifstream words(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
      std::string program, command;
      std::getline(words, program, '\0');
      std::getline(words, command, '\0');
      std::string rest;  // not by stream iterators, which throw if the process ends meanwhile
      for (std::string word; std::getline(words, word, '\0');) rest += word + ' ';
      if (program.ends_with("lockstep") && command == "train" && contains(rest, folder)) pids_.push_back(pid);
    }
    for (const pid_t pid : pids_) ::kill(pid, SIGSTOP);
    EXPECT_EQ(pids_.size(), 2u) << "training processes in " << folder;
  }
  ~PausedTraining() {
    for (const pid_t pid : pids_) ::kill(pid, SIGCONT);
  }
  PausedTraining(const PausedTraining&) = delete;
  PausedTraining& operator=(const PausedTraining&) = delete;

 private:
  std::vector<pid_t> pids_;
};

// The cluster that cluster.sh starts. It ends when its standard input is closed, so also when this program is killed.
class SlurmCluster {
 public:
  static SlurmCluster& instance() {
    static SlurmCluster cluster;
    return cluster;
  }

  // Why no cluster could be started; empty: it runs.
  const std::string& missing() const { return missing_; }

  // "kill NODE" or "start NODE".
  void command(const std::string& words) {
    const std::string line = words + "\n";
    ASSERT_EQ(::write(to_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    ASSERT_EQ(read_line(), "done");
  }

 private:
  SlurmCluster() {
    std::array<int, 2> in, out;
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    const std::string script = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/jobs/slurm/cluster.sh";
    std::array<const char*, 6> argv = {"bash", script.c_str(), dir_.path().c_str(), "127.0.0.1", "127.0.0.2", nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const int error = ::posix_spawnp(&pid_, "bash", &actions, nullptr, const_cast<char**>(argv.data()), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
    if (error != 0) throw std::runtime_error("cannot start bash");
    std::string last;
    for (std::string line; !(line = read_line()).empty() && line != "ready";) last = line, missing_ = line;
    if (missing_.empty())
      ::setenv("SLURM_CONF", (dir_.path() + "/slurm.conf").c_str(), 1);
    else
      std::fprintf(stderr, "SKIPPED: tests of a real Slurm: %s\n", missing_.c_str());
  }
  ~SlurmCluster() {
    ::close(to_);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
    ::close(from_);
  }

  // Returns "" at the end of the stream.
  std::string read_line() {
    std::string line;
    for (char c; ::read(from_, &c, 1) == 1;) {
      if (c == '\n') return line;
      line += c;
    }
    return line;
  }

  const TempDir dir_;
  std::string missing_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

// Fixture of tests on the cluster. Skips them, with the reason, where no Slurm can run.
class OnSlurm : public testing::Test {
 protected:
  void SetUp() override {
    if (!SlurmCluster::instance().missing().empty()) GTEST_SKIP() << SlurmCluster::instance().missing();
    ::setenv("LOCKSTEP_FLIGHT_DIR", dir_.path().c_str(), 1);
    ::setenv("LOCKSTEP_STATE_DIR", (dir_.path() + "/state").c_str(), 1);
  }
  void TearDown() override {
    if (!SlurmCluster::instance().missing().empty()) return;
    for (const std::string& id : submitted_)
      if (!is_over(id)) run_program({"scancel", id});
    for (const std::string& id : submitted_) EXPECT_TRUE(slurm_eventually([&] { return is_over(id); })) << id;
  }

  static std::optional<SlurmJobInfo> info(const std::string& id) {
    return parse_scontrol(run_program({"env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job", id}).out);
  }
  static bool is_over(const std::string& id) {
    const std::optional<SlurmJobInfo> now = info(id);
    return !now || stage_of(*now) == SlurmStage::succeeded || stage_of(*now) == SlurmStage::failed;
  }
  // Waits for the end and returns the final state; "" if the job does not end in time.
  static std::string end_of(const std::string& id) {
    return slurm_eventually([&] { return is_over(id); }) ? info(id).value_or(SlurmJobInfo()).state : "";
  }

  // Waits until the job is requeued and lets it start after 2 s instead of Slurm's two minutes. Returns whether it was
  // requeued. A start in the same second as the end would look to the node like the old one.
  static bool restarts_soon(const std::string& id, int restarts) {
    const bool waits = slurm_eventually([&] {
      const std::optional<SlurmJobInfo> now = info(id);
      return now && now->restarts == restarts && now->state == "PENDING";
    });
    run_program({"scontrol", "update", "JobId=" + id, "StartTime=now+2"});
    return waits;
  }

  // Writes a script with `lockstep render slurm` and returns its path. Its output goes to the file out(name).
  std::string render(const std::string& name, const Words& flags, const Words& command) {
    const Words words = Words{program_path(), "render", "slurm", "--job-name", name, "--output", out(name)} + flags +
                        Words{"--"} + command;
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string path = dir_.path() + "/" + name + ".sh";
    FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(result.out.data()), result.out.size()});
    return path;
  }
  // Submits a job and returns its id.
  std::string submit(const std::string& name, const Words& flags, const Words& command) {
    return submit_words({render(name, flags, command)});
  }
  std::string submit_words(const Words& words) {
    const ProgramResult result = run_program(Words{"sbatch", "--parsable"} + words);
    EXPECT_EQ(result.code, 0) << result.err;
    submitted_.push_back(result.out.substr(0, result.out.find('\n')));
    return submitted_.back();
  }

  std::string out(const std::string& name) const { return dir_.path() + "/" + name + ".out"; }
  std::string printed(const std::string& name) const {
    return FileSystem::real().exists(out(name)) ? read_text(out(name)) : "";
  }

  static constexpr int kSteps = 600;

  // The checkpoints of `kSteps` steps of training in two processes without an interruption.
  static const std::string& undisturbed() {
    static const TempDir dir;
    static const std::string folder = [] {
      const RunningProgram::Result result =
          RunningProgram(Words{program_path(), "launch", "-n", "2", "--"} + train_in(dir.path() + "/run", kSteps))
              .wait();
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return dir.path() + "/run";
    }();
    return folder;
  }

  // Training on the small data set with checkpoints in the folder `name` of this test.
  Words train_command(const std::string& name, int steps) const { return train_in(checkpoints(name), steps); }
  std::string checkpoints(const std::string& name) const { return dir_.path() + "/" + name; }

  static Words train_in(const std::string& folder, int steps) {
    return {"train",
            "--dataset",
            small_dataset(),
            "--batch-size",
            "50",
            "--steps",
            std::to_string(steps),
            "--log-every",
            "1",
            "--eval-every",
            "10000",
            "--checkpoint-dir",
            folder};
  }

  const TempDir dir_;
  std::vector<std::string> submitted_;
};

}  // namespace lockstep
