// reconcile(): the job controller's state machine, as a function of the job, the state of its replicas and the time.
// It does no I/O and reads no clock. A runner calls it after every change and at Decision::wake, stores the new
// status, and carries out the decision. A second call with the same arguments returns the same decision, so a runner
// that crashed in between only has to call it again. Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// What the runner must do, in this order. All replicas of a job are started and stopped together.
struct Decision {
  bool stop = false;    // stop all running replicas, and do not start pending ones
  bool start = false;   // start every replica of attempt `status.attempt` that is missing from `pods`
  bool clean = false;   // delete the logs of the finished replicas (cleanPodPolicy)
  bool remove = false;  // delete the job: ttlSecondsAfterFinished has passed
  std::vector<JobEvent> events = {};
  std::optional<JobTime> wake = {};  // call reconcile() again at this time, even if nothing changes
};

// Updates job.status, and increments job.version if the status changed.
//
// `pods` has at most one entry for each index and attempt:
// - all started replicas of attempt `status.attempt`;
// - at least those replicas of earlier attempts that still run. The decision is never `start` while one of them runs.
// A replica that disappeared without an exit code is passed as failed with the reason "Lost".
//
// Events report changes only, so a second call returns none.
//
// A failed replica restarts all replicas, depending on restartPolicy:
// - Never: the job fails.
// - OnFailure, Always: restart.
// - ExitCode: restart if all failed replicas were lost or exited with a code >= 128, which is a signal or
//   distributed::kKubeflowRetry.
// An Indexed Job always restarts. Both kinds fail after backoffLimit restarts. The backoff is 1, 2, 4... and at most
// 60 s.
//
// A replica that failed with the reason kPortTaken does not count as a failure of the job. All replicas start again
// immediately, up to ten times, under any policy; this does not count as a restart.
Decision reconcile(Job& job, const std::vector<Pod>& pods, JobTime now);

// Sets a condition as the Kubeflow operator does:
// - after Failed nothing changes;
// - setting the same status and reason again changes nothing;
// - the condition that was set becomes the last one;
// - Running and Restarting replace each other;
// - Succeeded and Failed set Running and Restarting to false.
void set_condition(JobStatus& status, const Condition& condition);

}  // namespace lockstep
