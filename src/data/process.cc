#include "data/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/file.h"

extern char** environ;

namespace lockstep::detail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kTail = 64 * 1024;

// The reading end of a child's output.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw_io_error("open", "a pipe", errno);
  }
  ~Pipe() {
    close_writer();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

  enum class Got { bytes, nothing, end };

  // Waits at most this long for output and appends what there is.
  Got read(std::string& output, int wait_ms) {
    pollfd ready = {ends_[0], POLLIN, 0};
    if (::poll(&ready, 1, wait_ms) <= 0) return Got::nothing;
    std::array<char, 4096> chunk;
    const ssize_t n = ::read(ends_[0], chunk.data(), chunk.size());
    if (n < 0) return errno == EINTR ? Got::nothing : Got::end;
    output.append(chunk.data(), static_cast<size_t>(n));
    if (output.size() > 2 * kTail) output.erase(0, output.size() - kTail);
    return n > 0 ? Got::bytes : Got::end;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

pid_t spawn(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);

  // The parent may block or ignore signals that must still be able to end the child.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);

  pid_t child = -1;
  const int error = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw_io_error("run", arguments[0], error);
  return child;
}

// Whether the child has ended, leaving it to be reaped later.
bool has_ended(pid_t child) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR
                                                                                            : info.si_pid != 0;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline) {
  ProcessResult result;
  Pipe pipe;
  const pid_t child = spawn(arguments, pipe.writer());
  pipe.close_writer();

  const auto end = Clock::now() + deadline;
  bool open = true;
  while (!has_ended(child) && !result.timed_out) {
    constexpr int kTickMs = 20;
    if (open) {
      open = pipe.read(result.output, kTickMs) != Pipe::Got::end;
    } else {
      ::poll(nullptr, 0, kTickMs);
    }
    result.timed_out = Clock::now() >= end;
  }
  // The child is not yet reaped, so its number still names its group: kill it, or what it left behind.
  ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  constexpr int kPipeChunks = 64;  // more than a pipe holds: a process that escaped the group cannot keep us here
  for (int i = 0; i < kPipeChunks && pipe.read(result.output, 0) == Pipe::Got::bytes; ++i) continue;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (result.output.size() > kTail) result.output.erase(0, result.output.size() - kTail);
  return result;
}

std::string find_program(std::string_view name) {
  const std::string program(name);
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0 ? program : "";
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable ? variable : "";
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string path = std::string(rest.substr(0, colon)) + "/" + program;
    if (colon > 0 && ::access(path.c_str(), X_OK) == 0) return path;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return "";
}

}  // namespace lockstep::detail
