// The program `lockstep`: finds the subcommand, runs it, and turns failures into one message and an exit code:
// 0 done, 1 it failed, 2 the command line or a configuration file is wrong, 3 an expectation (--expect) was not met,
// 75 another process or a GPU failed or was lost, or the API server did not answer, and starting again may help (138 in
// a replica of a Kubeflow JAXJob).
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/say.h"
#include "cli/command_line.h"
#include "jobs/local/local_runner.h"
#include "jobs/runner.h"
#include "lane/gpu_patience.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

int run(int argc, char** argv) {
  CommandLine line;
  const int code = line.parse(argc, argv)();
  distributed::shutdown();
  return code;
}

}  // namespace
}  // namespace lockstep::cli

namespace {

int run_or_fail(int argc, char** argv) {
  try {
    if (int code = 0; lockstep::is_local_process(argc, argv, code)) return code;
    return lockstep::cli::run(argc, argv);
  } catch (const lockstep::cli::UsageError& error) {
    lockstep::say("lockstep: {}\n", error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const lockstep::Unreachable& error) {
    lockstep::say("lockstep: {}\n", error.what());
    return lockstep::distributed::retry_code();
  } catch (const lockstep::SettingsError& error) {
    lockstep::say("lockstep: {}\n", error.what());
    lockstep::distributed::report_failure(error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const std::exception& error) {
    lockstep::say("lockstep: {}\n", error.what());
    return lockstep::distributed::report_failure(error);
  }
}

// A standard stream that is closed stays one that cannot be used: no file that is opened later takes its number.
void keep_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)!::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Whether the reader of a pipe has gone, as `| head -1` does.
bool nobody_reads_stdout() {
  pollfd stream = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&stream, 1, 0) == 1 && (stream.revents & (POLLERR | POLLHUP)) != 0;
}

// Success is one only when all of the output was written.
int with_output_written(int code) {
  const bool fails_now = std::fflush(stdout) != 0;
  const int error = errno;
  if (code != lockstep::cli::kDone || (!fails_now && std::ferror(stdout) == 0) || nobody_reads_stdout()) return code;
  std::fprintf(stderr, "lockstep: standard output could not be written%s%s; what it holds is not all\n",
               fails_now ? ": " : "", fails_now ? std::strerror(error) : "");
  return lockstep::cli::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  keep_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no more is a failed write, not the end of the program
  const int code = with_output_written(run_or_fail(argc, argv));
  if (!lockstep::GpuPatience::is_given_up()) return code;
  std::fflush(nullptr);
  std::_Exit(code);  // CUDA's own end would wait for the GPU
}
