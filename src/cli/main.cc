// The program `lockstep`: parses the command line, runs the subcommand, and reports a failure as one message and an
// exit code:
//
//   0   success
//   1   failure
//   2   the command line, a configuration file or an environment variable is wrong
//   3   an expectation (--expect) was not met
//   75  a transient failure, so a restart may help: another process or a GPU was lost, or the Kubernetes API server did
//       not respond. In a replica of a Kubeflow JAXJob the code is 138.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "cli/command_line.h"
#include "jobs/local/local_runner.h"
#include "jobs/runner.h"
#include "lane/gpu_deadline.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

int run(int argc, char** argv) {
  CommandLine line;
  const int code = line.parse(argc, argv, own_environment())();
  distributed::shutdown();
  return code;
}

}  // namespace
}  // namespace lockstep::cli

namespace {

int run_or_fail(int argc, char** argv) {
  try {
    if (int code = 0; lockstep::run_internal_process(argc, argv, code)) return code;
    return lockstep::cli::run(argc, argv);
  } catch (const lockstep::cli::UsageError& error) {
    lockstep::print_stderr("lockstep: {}\n", error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const lockstep::RunnerUnreachable& error) {
    lockstep::print_stderr("lockstep: {}\n", error.what());
    return lockstep::distributed::retry_code();
  } catch (const lockstep::SettingsError& error) {
    lockstep::print_stderr("lockstep: {}\n", error.what());
    lockstep::distributed::report_failure(error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const std::exception& error) {
    lockstep::print_stderr("lockstep: {}\n", error.what());
    return lockstep::distributed::report_failure(error);
  }
}

// Opens /dev/null in the wrong direction for each standard stream that is closed. Its use keeps failing, and no file
// that is opened later gets its descriptor.
void reserve_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)!::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Whether standard output is a pipe whose reader has exited, as with `| head -1`.
bool stdout_reader_exited() {
  pollfd stream = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&stream, 1, 0) == 1 && (stream.revents & (POLLERR | POLLHUP)) != 0;
}

// Flushes standard output. Returns `code`, or kFailed when it is success but the output is incomplete.
int flush_output(int code) {
  const bool flush_failed = std::fflush(stdout) != 0;
  const int error = errno;
  if (code != lockstep::cli::kDone || (!flush_failed && std::ferror(stdout) == 0) || stdout_reader_exited())
    return code;
  std::fprintf(stderr, "lockstep: cannot write to standard output%s%s; the output is incomplete\n",
               flush_failed ? ": " : "", flush_failed ? std::strerror(error) : "");
  return lockstep::cli::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  reserve_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit fails a write instead of killing the program
  const int code = flush_output(run_or_fail(argc, argv));
  if (!lockstep::GpuDeadline::any_expired()) return code;
  std::fflush(nullptr);
  std::_Exit(code);  // the CUDA driver's exit handlers would wait for the GPU
}
