// Running the processes of a job together: they start together, what they print is put together, signals go to all of
// them, and when one fails the others stop. Used by one thread.
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
  // After a failure the others have so long to stop by themselves before SIGTERM, and as long again before SIGKILL.
  std::chrono::milliseconds grace{15'000};
  // So long after the first SIGINT or SIGTERM those that are left are killed.
  std::chrono::milliseconds stop_timeout{300'000};
  // A job of several processes ends when one of them is stopped (SIGSTOP) for so long. Where the others have joined the
  // job they notice it themselves, and have `grace` on top of it.
  std::chrono::milliseconds heartbeat_timeout{10'000};
};

struct GangResult {
  std::vector<ProcessEnd> ends;  // of all processes, in the order in which they ended
  int stopped_by = 0;            // the SIGINT, SIGTERM or SIGHUP that came for this process; 0: none
};

// Signals that run_gang() understands: SIGCHLD, SIGWINCH, and those that it passes on.
const std::vector<int>& gang_signals();

// Runs them to their ends. What comes out of `signals` is passed on; SIGHUP as SIGTERM. A second SIGINT, SIGTERM or
// SIGHUP kills. Process i is specs[i]; a first one on a terminal (ChildSpec::terminal_columns) may draw. Throws what
// Child does, after killing those that were started. After a failure, processes that are joining the job (as `inbox`
// says) receive SIGTERM at once, and those that are stopped SIGKILL: they cannot learn of it. REQUIRES: `signals` is
// made of gang_signals().
GangResult run_gang(const std::vector<ChildSpec>& specs, const GangOptions& options, Output& output,
                    SignalPipe& signals, JoinEventReceiver& inbox);

// Writes what is pending, however long it takes; SIGINT, SIGTERM and SIGHUP end it early.
void flush(Output& output, SignalPipe& signals);

// Waits so long, or until such a signal comes; which then is the result, else 0. What is pending is written meanwhile.
int wait_for_stop(std::chrono::milliseconds time, Output& output, SignalPipe& signals);

}  // namespace lockstep
