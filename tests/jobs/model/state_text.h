// Job states and decisions as short text for readable test tables: "Created Running started=0 active=2". Pure
// functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/model/reconcile.h"

namespace lockstep {

// The given number of seconds after 2026-01-01, the start of time in these tests.
JobTime at(int64_t second);

// Parses "OnFailure replicas=3 backoff=2 deadline=60 ttl=5 clean=All suspend batch". The default is a JAXJob "mnist"
// in the namespace "kubeflow" with two replicas and no limits; "batch" makes it an Indexed Job.
Job job_of(std::string_view spec);

// Formats and parses a status: the conditions in order, false ones with "!", then all values that are not zero.
std::string state_text(const JobStatus& status);
JobStatus state_of(std::string_view text, JobKind kind);

// Parses one word per index: "P" pending, "R" running, "S" succeeded, "F1" failed with exit code 1, "L" lost, "T"
// failed because its port was taken, "-" missing. "|" starts the list of the previous attempt.
std::vector<Pod> pods_of(std::string_view text, int attempt);

// "stop start clean remove wake=61".
std::string decision_text(const Decision& decision);

}  // namespace lockstep
