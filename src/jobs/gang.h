// Runs the processes of a job on this host as a gang: they start together, their output is merged, signals go to all
// of them, and when one fails the others are stopped. Used by one thread.
#pragma once

#include <chrono>
#include <vector>

#include "cluster/join_events.h"
#include "jobs/cause.h"
#include "jobs/child.h"
#include "jobs/output.h"
#include "jobs/signals.h"

namespace lockstep {

struct GangOptions {
  // After a failure the other processes have this long to exit before SIGTERM, and again before SIGKILL.
  std::chrono::milliseconds grace{15'000};
  // From the first SIGINT or SIGTERM to SIGKILL.
  std::chrono::milliseconds stop_timeout{300'000};
  // A job of several processes ends when one of them is stopped (SIGSTOP) for this long. Processes that have joined
  // detect this themselves by missing heartbeats; then `grace` is added.
  std::chrono::milliseconds heartbeat_timeout{10'000};
};

struct GangResult {
  std::vector<ProcessExit> exits;  // one for each process, in order of exit
  int stopped_by = 0;              // the SIGINT, SIGTERM or SIGHUP that this process received; 0: none
  bool killed = false;             // a second such signal killed the processes
};

// The signals that run_gang() handles: SIGCHLD, SIGWINCH, and those that it forwards to the processes.
const std::vector<int>& gang_signals();

// Runs the processes until all have exited. Process i is specs[i]. Process 0 may have a terminal
// (ChildSpec::terminal_columns), on which it can draw a status line.
//
// Signals received through `signals` are forwarded; SIGHUP as SIGTERM. A second SIGINT, SIGTERM or SIGHUP kills all
// processes.
//
// After a failure, processes that cannot detect it are stopped immediately: those that are still joining the job
// (known from `join_events`) by SIGTERM, those that are stopped by SIGKILL.
//
// Throws what Child throws, after killing all processes that were started.
// REQUIRES: `signals` was constructed with gang_signals().
GangResult run_gang(const std::vector<ChildSpec>& specs, const GangOptions& options, JobOutput& output,
                    SignalPipe& signals, JoinEventReceiver& join_events);

// Writes all pending output. Blocks until it is written or SIGINT, SIGTERM or SIGHUP is received.
void flush(JobOutput& output, SignalPipe& signals);

// Waits for `time` while writing pending output. Returns early with the signal on SIGINT, SIGTERM or SIGHUP, else 0.
int wait_for_stop(std::chrono::milliseconds time, JobOutput& output, SignalPipe& signals);

}  // namespace lockstep
