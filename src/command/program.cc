#include "command/program.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/print_stderr.h"
#include "base/printable.h"
#include "base/terminal_style.h"
#include "command/command.h"
#include "lane/gpu_deadline.h"
#include "lockstep/distributed.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

// Opens /dev/null in the wrong direction for each standard stream that is closed. Its use keeps failing, and no file
// that is opened later gets its descriptor.
void reserve_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)!::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int run_or_report(const std::string& name, const std::function<int()>& body) {
  const auto print_failure = [&](const std::exception& error) {
    const std::string title = painted(name + ":", Paint::bold_red, terminal_style(STDERR_FILENO).color);
    write_stderr(title + " " + printable_lines(error.what()) + "\n");
  };
  try {
    const int code = body();
    distributed::shutdown();
    return code;
  } catch (const UsageError& error) {
    print_failure(error);
    return kWrongUsage;
  } catch (const SettingsError& error) {
    print_failure(error);
    distributed::report_failure(error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    print_failure(error);
    return distributed::report_failure(error);
  }
}

// Whether standard output is a pipe whose reader has exited, as with `| head -1`.
bool stdout_reader_exited() {
  pollfd stream = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&stream, 1, 0) == 1 && (stream.revents & (POLLERR | POLLHUP)) != 0;
}

// Flushes standard output. Returns `code`, or kFailed when it is success but the output is incomplete.
int flush_output(const std::string& name, int code) {
  const bool flush_failed = std::fflush(stdout) != 0;
  const int error = errno;
  if (code != kDone || (!flush_failed && std::ferror(stdout) == 0) || stdout_reader_exited()) return code;
  std::fprintf(stderr, "%s: cannot write to standard output%s%s; the output is incomplete\n", name.c_str(),
               flush_failed ? ": " : "", flush_failed ? std::strerror(error) : "");
  return kFailed;
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) {
  reserve_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit fails a write instead of killing the program
  const int code = flush_output(name, run_or_report(name, body));
  if (!GpuDeadline::any_expired()) return code;
  std::fflush(nullptr);
  std::_Exit(code);  // the CUDA driver's exit handlers would wait for the GPU
}

}  // namespace lockstep::cli
