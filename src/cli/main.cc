// The program `lockstep`: parses the command line and runs the subcommand. See run_program() for the exit codes. Code 75
// is also for a Kubernetes API server that did not respond.
#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "cli/command_line.h"
#include "command/program.h"
#include "jobs/local/local_runner.h"
#include "jobs/runner.h"
#include "lockstep/distributed.h"

namespace {

int run(int argc, char** argv) {
  if (int code = 0; lockstep::run_internal_process(argc, argv, code)) return code;
  lockstep::cli::CommandLine line;
  const lockstep::cli::Action action = line.parse(argc, argv, lockstep::own_environment());
  try {
    return action();
  } catch (const lockstep::RunnerUnreachable& error) {
    lockstep::print_stderr("lockstep: {}\n", error.what());
    return lockstep::distributed::retry_code();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::cli::run_program("lockstep", [&] { return run(argc, argv); });
}
