// States and decisions of jobs as short text, so that tables of them can be read: "Created Running started=0 active=2".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/model/reconcile.h"

namespace lockstep {

// Seconds after the beginning of the time of tests.
JobTime at(int64_t second);

// "OnFailure replicas=3 backoff=2 deadline=60 ttl=5 clean=All suspend batch": a JAXJob "mnist" in "kubeflow" with two
// replicas and without limits unless it says otherwise.
Job job_of(std::string_view spec);

// Conditions in their order, false ones with "!", and what else is not zero. Both ways.
std::string state_text(const JobStatus& status);
JobStatus state_of(std::string_view text, JobKind kind);

// "P" waits, "R" runs, "S" succeeded, "F1" failed with that code, "L" is lost, "T" found its port taken, "-" is
// missing; one word for each index.
// "|" begins the same replicas of the attempt before `attempt`.
std::vector<Pod> pods_of(std::string_view text, int attempt);

// "stop start clean remove wake=61".
std::string decision_text(const Decision& decision);

}  // namespace lockstep
