#include "data/process.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/file.h"
#include "base/spawn.h"

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

  enum class ReadResult { bytes, nothing, end };

  // Waits at most `wait_ms` for output and appends it.
  ReadResult read(std::string& output, int wait_ms) {
    pollfd ready = {ends_[0], POLLIN, 0};
    if (::poll(&ready, 1, wait_ms) <= 0) return ReadResult::nothing;
    std::array<char, 4096> chunk;
    const ssize_t n = ::read(ends_[0], chunk.data(), chunk.size());
    if (n < 0) return errno == EINTR ? ReadResult::nothing : ReadResult::end;
    output.append(chunk.data(), static_cast<size_t>(n));
    if (output.size() > 2 * kTail) output.erase(0, output.size() - kTail);
    return n > 0 ? ReadResult::bytes : ReadResult::end;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline) {
  ProcessResult result;
  Pipe pipe;
  const pid_t child = spawn_program(arguments.at(0), arguments, {-1, pipe.writer(), pipe.writer()});
  pipe.close_writer();

  const auto end = Clock::now() + deadline;
  bool open = true;
  while (!has_ended(child) && !result.timed_out) {
    constexpr int kTickMs = 20;
    if (open) {
      open = pipe.read(result.output, kTickMs) != Pipe::ReadResult::end;
    } else {
      ::poll(nullptr, 0, kTickMs);
    }
    result.timed_out = Clock::now() >= end;
  }
  result.exit_code = end_group(child);
  // Read the rest of the pipe. Limited to more than its capacity, so that a process that left the group and keeps
  // writing cannot block here.
  constexpr int kPipeChunks = 64;
  for (int i = 0; i < kPipeChunks && pipe.read(result.output, 0) == Pipe::ReadResult::bytes; ++i) continue;
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
