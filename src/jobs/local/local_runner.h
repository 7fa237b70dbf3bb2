// The local runner: runs the replicas of a job as processes on this machine, managed by a per-user daemon
// (docs/how-to/local-jobs.md). Used by one thread.
//
//   command --socket--> daemon --starts--> shim (one per replica) --starts--> replica
//
// All state is in files (StateDir), so the daemon can be killed at any time: a command or a shim starts it again.
#pragma once

#include <memory>
#include <string>

#include "base/os/environment.h"
#include "jobs/runner.h"

namespace lockstep {

struct LocalOptions {
  std::string state;                // the state folder; empty: StateDir::default_path()
  std::string program = {};         // the path of `lockstep`; empty: this executable
  detail::Environment environment;  // the user's environment; see inherited_variables()
};

std::unique_ptr<Runner> make_local_runner(const LocalOptions& options);

// With the environment of this process.
std::unique_ptr<Runner> make_local_runner();

// Runs the internal processes `lockstep __daemon FOLDER` and `lockstep __shim FOLDER`. Returns false for any other
// command line; otherwise sets `code` to the exit code. main() calls it before it parses the command line.
bool run_internal_process(int argc, char** argv, int& code);

}  // namespace lockstep
