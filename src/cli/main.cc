// The program `lockstep`: finds the subcommand, runs it, and turns failures into one message and an exit code:
// 0 done, 1 it failed, 2 the command line or a configuration file is wrong, 3 an expectation (--expect) was not met,
// 75 another process or a GPU failed or was lost, and starting again may help.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/usage.h"
#include "jobs/local/local_runner.h"
#include "lane/gpu_patience.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "lockstep/version.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

int run(int argc, char** argv) {
  CLI::App program("SPMD training in C++: trains, launches and watches jobs.", "lockstep");
  program.require_subcommand(1);
  program.get_formatter()->column_width(32);
  program.set_version_flag("-V,--version", "lockstep " LOCKSTEP_VERSION, "print the version and exit");
  Action action;
#define COMMAND(name, title)             \
  add_##name##_command(program, action); \
  program.get_subcommand(#name)->group(title);
#include "cli/commands.def"
#undef COMMAND
  try {
    std::vector<char*> words = with_help_flag(program, take_launched_command(argc, argv), argv);
    const int count = static_cast<int>(words.size());
    check_words(program, count, words.data());
    program.parse(count, words.data());
  } catch (const CLI::Success& answer) {  // help and version
    return program.exit(answer);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "lockstep: %s\n", usage_error(program, error).c_str());
    return kWrongUsage;
  }
  const int code = action();
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
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const lockstep::SettingsError& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    lockstep::distributed::report_failure(error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const lockstep::CommError& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    const int code = lockstep::distributed::failure_code();
    return code != 0 ? code : lockstep::distributed::kRetry;
  } catch (const lockstep::DeviceLost& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    lockstep::distributed::report_failure(error.what(), true);
    return lockstep::distributed::kRetry;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    lockstep::distributed::report_failure(error.what());
    return lockstep::cli::kFailed;
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
