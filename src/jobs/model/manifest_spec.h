// Parses the `spec` of the two kinds of jobs. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/model/manifest_field.h"

namespace lockstep::detail {

// Parse `spec` of `object`. Each ignored field adds a sentence to `notes`. Throw Error.
JobSpec read_jax_job_spec(const ManifestField& object, std::vector<std::string>& notes);
JobSpec read_indexed_job_spec(const ManifestField& object, std::vector<std::string>& notes);

// Whether replica_env() can resolve valueFrom.fieldRef.fieldPath `field` for a job of this kind.
bool is_known_field(JobKind kind, const std::string& field);

}  // namespace lockstep::detail
