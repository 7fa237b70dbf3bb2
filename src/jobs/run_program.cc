#include "jobs/run_program.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/os/descriptor.h"
#include "base/spawn.h"
#include "data/process.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = size_t{256} << 20;

// The three standard streams are files in memory: unlike pipes they cannot fill up, break or stay open.
Descriptor make_stream(const char* name, const std::string& content) {
  Descriptor out(::memfd_create(name, MFD_CLOEXEC));
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

std::string content_of(const Descriptor& stream) {
  std::string out;
  std::array<char, 16384> chunk;
  for (;;) {
    const ssize_t n = ::pread(stream.get(), chunk.data(), chunk.size(), static_cast<off_t>(out.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", "a file in memory", errno);
    if (n == 0) return out;
    out.append(chunk.data(), static_cast<size_t>(n));
    if (out.size() > kMaxOutput)
      throw IoError(fmt::format("a program printed more than {} bytes; request less", kMaxOutput));
  }
}

// Returns whether the child exited before the deadline. Does not reap it.
bool wait_for_exit(pid_t child, Clock::time_point deadline) {
  constexpr auto kMaxSleep = std::chrono::milliseconds(20);
  for (auto sleep = std::chrono::milliseconds(1);; sleep = std::min(2 * sleep, kMaxSleep)) {
    if (has_ended(child)) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(sleep);
  }
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& argv, const std::string& input,
                          std::chrono::milliseconds deadline) {
  LOCKSTEP_CHECK(!argv.empty());
  const std::string program = detail::find_program(argv[0]);
  if (program.empty())
    throw_error("run a program: \"{}\" {}", argv[0],
                argv[0].find('/') == std::string::npos ? "was not found on the PATH; install it, or correct the PATH"
                                                       : "is not an executable file; correct its path");
  const Descriptor in = make_stream("input", input), out = make_stream("output", {}), err = make_stream("error", {});
  const pid_t child = spawn_program(program, argv, {in.get(), out.get(), err.get()});
  const bool ended = wait_for_exit(child, Clock::now() + deadline);
  const int code = end_group(child);
  if (!ended)
    throw IoError(
        fmt::format("run {}: it did not end within {:g} s and was killed; check that the service it contacts responds",
                    argv[0], std::chrono::duration<double>(deadline).count()));
  return {.code = code, .out = content_of(out), .err = content_of(err)};
}

}  // namespace lockstep
