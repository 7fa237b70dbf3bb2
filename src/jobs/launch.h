// launch(): starts the processes of one job, here or on other machines, watches over them, and starts them again when
// that may help. Used by the main thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "jobs/gang.h"
#include "jobs/hosts.h"
#include "sharding/device_table.h"  // Environment

namespace lockstep {

struct LaunchOptions {
  std::vector<std::string> argv;  // the program of every process: a path, or a name on the PATH
  int processes = 1;
  std::vector<HostSlots> hosts = {};        // empty: this machine
  std::vector<std::string> ssh = {"ssh"};   // how to get to another one: its name and a command are added
  std::optional<int> port = {};             // of the coordinator; none: one that is free
  std::vector<std::string> variables = {};  // NAME=value, for all processes
  bool pin = true;                          // each has its share of the cores of this machine

  GangOptions gang = {};
  int max_restarts = 0;
  std::chrono::milliseconds restart_delay{1000};  // before the first; twice as long before each other, up to a minute
  std::string on_restart = {};                    // what starting again means, for the user
  // What the user can do after a failure that a restart may fix; called when the job has ended.
  std::function<std::string()> on_failure = {};

  bool first_only = false;  // OutputOptions
  std::string logs = {};
};

// Runs it, and returns the exit code of the first cause, 0 when all went well. Throws Error for options that make no
// sense and when there is no such program, IoError when processes cannot be started.
int launch(const LaunchOptions& options);

// What launch() is made of; for tests.

// The cores cut into n parts, as equal as can be; all empty when there are fewer cores than parts.
std::vector<std::vector<int>> cut_cpus(const std::vector<int>& cpus, int n);

// The cores that this process may use.
std::vector<int> own_cpus();

// The delay before restart `number`, from 1 on.
std::chrono::milliseconds delay_before(int number, std::chrono::milliseconds first);

// One start of a job.
struct Attempt {
  std::string coordinator;  // "127.0.0.1:4711"
  std::string token;
  std::string launcher = {};  // LOCKSTEP_LAUNCHER
};

// The processes of one attempt. `environment` is that of the launcher, `folder` where it is.
std::vector<ChildSpec> child_specs(const LaunchOptions& options, const Attempt& attempt,
                                   const detail::Environment& environment, const std::string& folder);

}  // namespace lockstep
