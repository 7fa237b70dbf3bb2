// Finds the root cause of a failed job: which process failed first, and which only stopped because of it. Pure
// functions, safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/child.h"

namespace lockstep {

struct ProcessExit {
  int process = 0;
  ExitStatus exit_status = {};
  bool signalled = false;      // the launcher had sent it a signal
  int round = 0;               // exits found in the same round of polling have no known order
  double seconds = 0;          // from the start of the job to the exit
  std::string last_line = {};  // the last line it printed
  // The signal that had stopped it (SIGSTOP) when the launcher killed it, and for how many seconds; 0: not stopped.
  int stopped_by = 0;
  double stopped_for = 0;
};

// Returns the index in `exits` (in order of exit) of the process that caused the failure; nullopt if all succeeded.
// That is the first failed process that did not fail because of another one. A process failed because of another one
// if it has exit code 75, was signalled, or names another process in its last line. If all failed ones did, the first
// is returned. A process that was stopped (stopped_by) always counts as a cause.
std::optional<size_t> find_cause(const std::vector<ProcessExit>& exits);

// Whether a restart may help: after exit code 75 or a crash. An error that a program reports itself would recur, and
// SIGINT, SIGTERM, SIGHUP and SIGQUIT are requests to stop.
bool restart_may_help(const ExitStatus& exit_status);

// The exit code as a shell reports it: 128 + n for signal n.
int exit_code(const ExitStatus& exit_status);

// `process 1 was killed by SIGKILL (out of memory? check dmesg) after 12.3 s; the others stopped because of it`.
std::string describe_cause(const std::vector<ProcessExit>& exits, size_t cause);

}  // namespace lockstep
