// The specs of the two kinds of jobs, read from a manifest. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/model/manifest_field.h"

namespace lockstep::detail {

// Read `spec` of an object by the rules of its kind; what is read over goes to `notes`.
JobSpec read_jax_job_spec(const Field& object, std::vector<std::string>& notes);
JobSpec read_indexed_job_spec(const Field& object, std::vector<std::string>& notes);

// Whether replica_env() knows the value of a valueFrom.fieldRef in a job of that kind.
bool is_known_field(JobKind kind, const std::string& field);

}  // namespace lockstep::detail
