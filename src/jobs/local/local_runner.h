// Jobs on this machine: every replica is a process, looked after by a daemon of the user's own. docs/start/laptop.md shows
// how. Used by one thread.
#pragma once

#include <memory>
#include <string>

#include "jobs/runner.h"
#include "sharding/device_table.h"  // Environment

namespace lockstep {

struct LocalOptions {
  std::string state;                // the folder; empty: by the environment (StateDir::default_path)
  std::string program = {};         // `lockstep`, by its path; empty: this very program
  detail::Environment environment;  // of the user; see kept_variables()
};

std::unique_ptr<Runner> make_local_runner(const LocalOptions& options);

// With the environment of this process.
std::unique_ptr<Runner> make_local_runner();

// What the program does before it reads its command line: `lockstep __daemon FOLDER` and `lockstep __shepherd FOLDER`
// are processes of this runner, and no commands. Returns whether it was one, and its exit code.
bool is_local_process(int argc, char** argv, int& code);

}  // namespace lockstep
