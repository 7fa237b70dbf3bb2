// A real Slurm on this machine, started once for the tests of a program and ended with it.
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
#include "cli/training.h"
#include "jobs/run_program.h"
#include "jobs/slurm/sight.h"

namespace lockstep {

// Two minutes are enough; a program is asked each time.
inline bool slurm_comes_to(const std::function<bool()>& condition) {
  return comes_true(condition, std::chrono::minutes(2), std::chrono::milliseconds(50));
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Has training that was started so many times come as far as two steps in the last of them? Of its own words.
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

// The two processes that train in a folder stand still while this lives: what is to happen to them happens before they
// are done, however long it takes to tell Slurm.
class StandingStill {
 public:
  explicit StandingStill(const std::string& folder) {
    for (const pid_t pid : all_processes()) {
      std::ifstream words(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
      std::string program, command;
      std::getline(words, program, '\0');
      std::getline(words, command, '\0');
      const std::string rest{std::istreambuf_iterator<char>(words), {}};
      if (program.ends_with("lockstep") && command == "train" && contains(rest, folder)) pids_.push_back(pid);
    }
    for (const pid_t pid : pids_) ::kill(pid, SIGSTOP);
    EXPECT_EQ(pids_.size(), 2u) << "processes train in " << folder;
  }
  ~StandingStill() {
    for (const pid_t pid : pids_) ::kill(pid, SIGCONT);
  }
  StandingStill(const StandingStill&) = delete;
  StandingStill& operator=(const StandingStill&) = delete;

 private:
  std::vector<pid_t> pids_;
};

// What cluster.sh starts. It ends when its input does, so also when this program is killed.
class SlurmCluster {
 public:
  static SlurmCluster& instance() {
    static SlurmCluster cluster;
    return cluster;
  }

  // Why there is none; empty: there is one.
  const std::string& missing() const { return missing_; }

  // "kill NODE", "start NODE".
  void tell(const std::string& words) {
    const std::string line = words + "\n";
    ASSERT_EQ(::write(to_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    ASSERT_EQ(read_line(), "done");
  }

 private:
  SlurmCluster() {
    std::array<int, 2> in, out;
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    const std::string script = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/slurm/cluster.sh";
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

  // Empty at the end.
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

// Tests of it; skipped, with the reason, where there can be none.
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
    for (const std::string& id : submitted_) EXPECT_TRUE(slurm_comes_to([&] { return is_over(id); })) << id;
  }

  static std::optional<SlurmSight> sight(const std::string& id) {
    return parse_scontrol(run_program({"env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job", id}).out);
  }
  static bool is_over(const std::string& id) {
    const std::optional<SlurmSight> now = sight(id);
    return !now || stage_of(*now) == SlurmStage::succeeded || stage_of(*now) == SlurmStage::failed;
  }
  // The state in which it ended; "" when it does not.
  static std::string end_of(const std::string& id) {
    return slurm_comes_to([&] { return is_over(id); }) ? sight(id).value_or(SlurmSight()).state : "";
  }

  // A job that was put back waits two minutes; this one does not. (In the second in which it was ended a node would
  // take the new start for the old one.) Returns whether it has been put back.
  static bool starts_again(const std::string& id, int restarts) {
    const bool waits = slurm_comes_to([&] {
      const std::optional<SlurmSight> now = sight(id);
      return now && now->restarts == restarts && now->state == "PENDING";
    });
    run_program({"scontrol", "update", "JobId=" + id, "StartTime=now+2"});
    return waits;
  }

  // A script by `lockstep render slurm`; it prints to the file out().
  std::string render(const std::string& name, const Words& flags, const Words& command) {
    const Words words = Words{program_path(), "render", "slurm", "--job-name", name, "--output", out(name)} + flags +
                        Words{"--"} + command;
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string path = dir_.path() + "/" + name + ".sh";
    FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(result.out.data()), result.out.size()});
    return path;
  }
  // The job's number.
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

  // Training on the small data set; `name` is its folder.
  Words train_command(const std::string& name, int steps) const {
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
            checkpoints(name)};
  }
  std::string checkpoints(const std::string& name) const { return dir_.path() + "/" + name; }

  const TempDir dir_;
  std::vector<std::string> submitted_;
};

}  // namespace lockstep
