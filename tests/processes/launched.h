// A job started by `lockstep launch`, with access to its processes.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>

#include "cli/training.h"
#include "support/long_tests.h"

namespace lockstep {

// Repetitions of tests with random faults: `usual` rounds have every kind of victim, and `./dev test --long` repeats them
// at other moments.
inline int fault_rounds(int usual = 2) { return long_tests() ? 20 : usual; }

class LaunchedJob {
 public:
  LaunchedJob(const Words& flags, const Words& command)
      : program_(Words{program_path(), "launch"} + flags + Words{"--"} + command) {}

  void send(int signal) { program_.send(signal); }
  // Sends a signal to one process. False if it does not run.
  bool send(int process, int signal) {
    const std::optional<pid_t> pid = find(process);
    return pid && ::kill(*pid, signal) == 0;
  }
  // The pid of the process with this number, if it runs.
  std::optional<pid_t> find(int process) const {
    const std::string wanted = fmt::format("LOCKSTEP_PROCESS_ID={}", process);
    for (const pid_t child : children()) {
      std::ifstream environment(fmt::format("/proc/{}/environ", child), std::ios::binary);
      for (std::string variable; std::getline(environment, variable, '\0');)
        if (variable == wanted) return child;
    }
    return std::nullopt;
  }
  // Waits until standard error holds the text.
  bool says(const std::string& text) const {
    bool found = false;
    comes_true([&] {
      const bool over = ended();
      found = contains(program_.err(), text);
      return found || over;
    });
    return found;
  }
  bool ended() const { return program_.ended(); }
  // Kills a job that does not end within five minutes, including restarts; that is a failure.
  RunningProgram::Result wait() {
    if (!comes_true([this] { return ended(); }, std::chrono::minutes(5))) {
      ADD_FAILURE() << "the job hangs:\n" << program_.err();
      for (const pid_t child : children()) ::kill(child, SIGKILL);
    }
    return program_.wait();
  }

 private:
  std::vector<pid_t> children() const {
    std::vector<pid_t> out;
    for (const pid_t pid : all_processes()) {
      std::string text;
      std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text);
      const size_t at = text.rfind(") ");
      if (at != text.npos && std::atoi(text.c_str() + at + 4) == program_.pid()) out.push_back(pid);
    }
    return out;
  }

  RunningProgram program_;
};

inline RunningProgram::Result launch(const Words& flags, const Words& command) {
  return LaunchedJob(flags, command).wait();
}

// `train` on the small data set with batches of 50, as a command after `launch ... --`.
inline Words train_words(const Words& flags) {
  const Words command = train_command(flags);  // starts with the program
  return Words(command.begin() + 1, command.end());
}

// Runs a job, or a single process without launcher flags, and returns the loss of every step.
inline std::vector<double> losses(const Words& launch_flags, const Words& train_flags) {
  const TempDir dir;
  const Words command =
      train_words(train_flags + Words{"--quiet", "--loggers", "jsonl", "--log-dir", dir.path() + "/log"});
  const RunningProgram::Result result =
      launch_flags.empty() ? RunningProgram(Words{program_path()} + command).wait() : launch(launch_flags, command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<double> out;
  if (result.exit_code != 0) return out;
  for (const std::string& line : lines_of(read_text(dir.path() + "/log/metrics.jsonl"))) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record["kind"] == "step") out.push_back(record["loss"].get<double>());
  }
  return out;
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_FALSE(wanted.empty());
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], 1e-5 * std::abs(wanted[i])) << "step " << i + 1;
}

}  // namespace lockstep
