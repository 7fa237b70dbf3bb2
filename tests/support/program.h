// Runs the program `lockstep` as a user does.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/os/run_program.h"

extern char** environ;

namespace lockstep {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::string program_path() {
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // the leak check of a sanitized child takes seconds at every exit
  return std::string(LOCKSTEP_BINARY_DIR) + "/lockstep";
}

// How a program ended, with its standard output and standard error together.
struct ProcessResult {
  int exit_code = 0;  // 128 + n if signal n ended it
  bool timed_out = false;
  std::string output;  // the last 64 KiB
};

// Runs a program and kills it at the deadline.
inline ProcessResult run_process(const Words& arguments, std::chrono::milliseconds deadline) {
  ProgramResult result = run_program(arguments, {.deadline = deadline,
                                                 .return_at_deadline = true,
                                                 .merge_streams = true,
                                                 .max_output = 64 * 1024,
                                                 .keep_tail = true});
  return {result.code, result.timed_out, std::move(result.out)};
}

inline ProcessResult run_lockstep(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program_path());
  return run_process(arguments, std::chrono::seconds(60));
}

// Waits up to a minute until a process that is not a child of this one has exited. (Its new parent may reap it late
// or never.)
inline bool is_gone_soon(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  for (int i = 0; i < 60'000; ++i) {
    std::string text;
    std::getline(std::ifstream(path), text);
    if (const size_t at = text.rfind(") "); at == text.npos || text[at + 2] == 'Z' || text[at + 2] == 'X') return true;
    ::poll(nullptr, 0, 1);
  }
  return false;
}

// Expects the command line to be rejected with this message and exit code 2.
inline void expect_usage_error(const std::vector<std::string>& arguments, const std::string& message) {
  const ProcessResult result = run_lockstep(arguments);
  EXPECT_EQ(result.exit_code, 2) << message;
  EXPECT_EQ(result.output, "lockstep: " + message + "\n");
}

// Waits for a condition. Returns whether it held within the timeout.
inline bool comes_true(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::minutes(1),
                       std::chrono::milliseconds pause = std::chrono::milliseconds(1)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
  }
  return true;
}

// All processes on this host.
inline std::vector<pid_t> all_processes() {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == name.npos) out.push_back(std::stoi(name));
  }
  return out;
}

// A running program: a test can read its output and send it signals while it runs.
class RunningProgram {
 public:
  struct Result {
    int exit_code = 0;     // 128 + n when signal n ended it
    std::string out, err;  // its complete output
  };

  // arguments[0] is the program.
  explicit RunningProgram(const std::vector<std::string>& arguments) : out_(std::tmpfile()), err_(std::tmpfile()) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ::fileno(out_.get()), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ::fileno(err_.get()), STDERR_FILENO);
    const int error = ::posix_spawnp(&child_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  }
  ~RunningProgram() {
    if (child_ > 0) send(SIGKILL), wait();
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t pid() const { return child_; }
  void send(int signal) { ::kill(child_, signal); }

  std::string err() const { return text_of(err_.get()); }

  bool ended() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
  }

  // Waits until standard error contains the text; false if the program ends without it.
  bool says(const std::string& text) const {
    for (;;) {
      const bool over = ended();
      if (err().find(text) != std::string::npos) return true;
      if (over) return false;
      ::poll(nullptr, 0, 2);
    }
  }

  Result wait() {
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) continue;
    child_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_of(out_.get()), text_of(err_.get())};
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  // Uses pread(), so that the write offset of the child does not move.
  static std::string text_of(std::FILE* file) {
    std::string out;
    char chunk[4096];
    for (ssize_t n; (n = ::pread(::fileno(file), chunk, sizeof(chunk), static_cast<off_t>(out.size()))) > 0;)
      out.append(chunk, static_cast<size_t>(n));
    return out;
  }

  File out_, err_;
  pid_t child_ = -1;
};

}  // namespace lockstep
