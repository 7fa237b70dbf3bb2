#include "base/os/run_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/file.h"
#include "base/os/process.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A file in memory with this content: unlike a pipe it does not need a writer while the program reads it.
Descriptor file_with(const std::string& content) {
  Descriptor out(::memfd_create("input", MFD_CLOEXEC));
  if (!out) throw_io_error("open", "a file in memory", errno);
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(out.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("write", "a file in memory", errno);
    done += static_cast<size_t>(n);
  }
  if (::lseek(out.get(), 0, SEEK_SET) < 0) throw_io_error("seek in", "a file in memory", errno);
  return out;
}

// What a program has written to one of its streams.
class CapturedStream {
 public:
  CapturedStream(const ProgramOptions& options, Descriptor reader) : options_(options), reader_(std::move(reader)) {}

  int fd() const { return reader_.get(); }

  // Reads once if there is something to read. Returns whether there was.
  bool read() {
    pollfd ready = {reader_.get(), POLLIN, 0};
    if (!reader_ || ::poll(&ready, 1, 0) <= 0) return false;
    std::array<char, 16384> bytes;
    const ssize_t n = ::read(reader_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) return true;
    if (n <= 0) {
      reader_.close();
      return false;
    }
    text_.append(bytes.data(), static_cast<size_t>(n));
    if (options_.keep_tail && text_.size() / 2 > options_.max_output) cut();
    return true;
  }

  bool is_too_long() const { return !options_.keep_tail && text_.size() > options_.max_output; }

  std::string take() {
    cut();
    return std::move(text_);
  }

 private:
  void cut() {
    if (text_.size() > options_.max_output) text_.erase(0, text_.size() - options_.max_output);
  }

  const ProgramOptions& options_;
  Descriptor reader_;
  std::string text_;
};

// Kills the program when the scope ends.
class RunningGroup {
 public:
  explicit RunningGroup(const ProcessSpec& spec)
      : pid_(start_process(spec)), end_(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))) {}
  ~RunningGroup() {
    if (pid_ > 0) kill();
  }
  RunningGroup(const RunningGroup&) = delete;
  RunningGroup& operator=(const RunningGroup&) = delete;

  bool has_ended() const { return process_has_ended(pid_); }
  int kill() { return kill_group_and_reap(std::exchange(pid_, -1)); }

  // Waits until there is output, the program has ended, or the deadline has passed. May return earlier.
  void wait(const CapturedStream& out, const CapturedStream& err, Clock::time_point deadline) const {
    constexpr std::chrono::milliseconds kTick(10), kLongest(1000);  // kernels before 5.3 have no pidfds: then it polls
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const auto time = std::clamp(left, std::chrono::milliseconds(0), end_ ? kLongest : kTick);
    std::array<pollfd, 3> all = {pollfd{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    ::poll(all.data(), all.size(), static_cast<int>(time.count()));
  }

 private:
  pid_t pid_;
  const Descriptor end_;  // a pidfd, readable when the program has ended; may be empty
};

}  // namespace

ProgramResult run_program(const std::vector<std::string>& argv, const ProgramOptions& options) {
  LOCKSTEP_CHECK(!argv.empty());
  const std::string program = require_program("run a program", argv[0], "install it, or correct the PATH");
  const Descriptor in = file_with(options.input);
  Pipe out_pipe = make_pipe(), err_pipe = make_pipe();
  RunningGroup running(
      {.program = program,
       .argv = argv,
       .streams = {in.get(), out_pipe.writer.get(), (options.merge_streams ? out_pipe : err_pipe).writer.get()}});
  out_pipe.writer.close();
  err_pipe.writer.close();
  CapturedStream out(options, std::move(out_pipe.reader)), err(options, std::move(err_pipe.reader));

  const Clock::time_point deadline = Clock::now() + options.deadline;
  ProgramResult result;
  while (!running.has_ended() && !result.timed_out) {
    running.wait(out, err, deadline);
    out.read();
    err.read();
    if (out.is_too_long() || err.is_too_long()) break;
    result.timed_out = Clock::now() >= deadline && !running.has_ended();
  }
  result.code = running.kill();
  // Reads what is left in the pipes. A process that left the group may keep writing: reads no more than a pipe holds.
  constexpr int kPipeReads = 128;
  for (CapturedStream* each : {&out, &err})
    for (int i = 0; i < kPipeReads && !each->is_too_long() && each->read(); ++i) continue;
  if (out.is_too_long() || err.is_too_long())
    throw IoError(
        fmt::format("run {}: it printed more than {} bytes and was killed; request less", argv[0], options.max_output));
  if (result.timed_out && !options.return_at_deadline)
    throw IoError(
        fmt::format("run {}: it did not end within {:g} s and was killed; check that the service it contacts responds",
                    argv[0], std::chrono::duration<double>(options.deadline).count()));
  result.out = out.take();
  result.err = err.take();
  return result;
}

}  // namespace lockstep
