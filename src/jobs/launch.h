// launch(): starts the processes of one job on this host or over ssh on others, supervises them, and restarts them
// after failures that a restart may fix. Used by the main thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/os/environment.h"
#include "jobs/gang.h"
#include "jobs/hosts.h"

namespace lockstep {

struct LaunchOptions {
  std::vector<std::string> argv;  // the program of every process: a path, or a name on the PATH
  int processes = 1;
  std::string job = {};                    // a unique id, by which a run recognizes itself after a restart; empty: none
  std::vector<HostSlots> hosts = {};       // empty: this host
  std::vector<std::string> ssh = {"ssh"};  // the remote shell; host name and command are appended
  std::optional<int> port = {};            // the coordinator's; nullopt: a free one
  std::vector<std::string> variables = {};  // NAME=value, for all processes
  bool pin = true;                          // pin each process to its share of this host's cores

  GangOptions gang = {};
  int max_restarts = 0;
  std::chrono::milliseconds restart_delay{1000};  // before the first restart; doubles each time, up to a minute
  std::string on_restart = {};                    // appended to the restart message, such as where training resumes
  // Returns advice for the user after a failure that a restart may fix. Called when the job has ended.
  std::function<std::string()> on_failure = {};

  bool first_only = false;  // OutputOptions
  std::string logs = {};    // OutputOptions
};

// Runs the job. Returns 0 on success, else the exit code of the process that caused the failure. Throws Error for
// invalid options and a program that is not found, IoError if processes cannot be started.
int launch(const LaunchOptions& options);

// Parts of launch(), for other runners and tests.

// The delay before restart `number` (from 1): `first`, doubled for each restart, up to a minute.
std::chrono::milliseconds restart_backoff(int number, std::chrono::milliseconds first);

// Whether the variable describes a job. Processes do not inherit it: its value would describe another job than theirs.
bool is_job_variable(const std::string& name);

// What differs between two starts of a job.
struct LaunchAttempt {
  std::string coordinator;  // "127.0.0.1:4711"
  std::string token;
  std::string launcher = {};  // LOCKSTEP_LAUNCHER
  int number = 0;             // of the attempt, from 0
  int restarts = 0;           // LOCKSTEP_RESTARTS
};

// The processes of one attempt. `environment` and `folder` are the launcher's environment and working directory.
std::vector<ChildSpec> child_specs(const LaunchOptions& options, const LaunchAttempt& attempt,
                                   const detail::Environment& environment, const std::string& folder);

}  // namespace lockstep
