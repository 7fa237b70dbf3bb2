// The rules of a job as one function of what it is, what its replicas do and what time it is. No I/O, no clock: a
// runner calls it whenever something changed or the time it asked for has come, and does what it says. Calling it again
// with the same values says the same, so a runner that died in between starts by calling it. Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// What a runner is to do, in this order. Replicas are started and stopped as a set: they share one fate.
struct Decision {
  bool stop = false;    // end all replicas that run, and forget those that wait
  bool start = false;   // start all replicas that `pods` did not have; they belong to attempt `status.attempt`
  bool clean = false;   // remove what finished replicas left (their logs) by cleanPodPolicy
  bool remove = false;  // the job itself: its time to live after the end is over
  std::vector<JobEvent> events = {};
  std::optional<JobTime> wake = {};  // call again then, even when nothing happens
};

// Moves job.status, and job.version when that changed. `pods` are all that exist, at most one of each index and
// attempt: those of attempt `status.attempt` (one that is missing was not started yet, or not by a runner that died
// meanwhile) and those of earlier attempts, at least for as long as they run: `start` is never said while one of those
// does. A replica that was there and is gone without a trace is reported as failed with the reason "Lost" and without
// an exit code. Events tell what changed, so a second call has none.
//
// A restart is one of the whole set. The policy says when: Never does not, OnFailure and Always do, ExitCode does after
// codes from 128 on (a signal, or distributed::kKubeflowRetry of a process of ours) and after a lost replica, unless
// one failed with a smaller code. An Indexed Job has its limit only. Between restarts are 1, 2, 4... and at most 60 s.
// A replica that failed with the reason kPortTaken is no failure of the job: the set starts again at once, at most ten
// times, whatever the policy, and that is no restart.
Decision reconcile(Job& job, const std::vector<Pod>& pods, JobTime now);

// Sets a condition by the rules: nothing after Failed; same status and reason is no change; a set condition goes to the
// end; Running and Restarting exclude each other; Succeeded and Failed end Running.
void set_condition(JobStatus& status, const Condition& condition);

}  // namespace lockstep
