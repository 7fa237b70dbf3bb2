// Jobs as API objects, as `kubectl get -o yaml` prints them, and as JSON for files. Pure functions, safe from any
// thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// The API object, with sorted keys: metadata (including kubectl's last-applied-configuration annotation), the spec as
// applied with the current value of suspend, and the status. For a job on Kubernetes, the API server's object.
nlohmann::ordered_json object_json(const Job& job);

// YAML in kubectl's style: sorted keys, lists at the indentation of their key, quotes only where needed, literal
// blocks for multi-line text, no folding of long lines. Ends with a newline.
std::string to_yaml(const nlohmann::ordered_json& value);

// The format of stored jobs. job_from_json(job_to_json(job)) restores the job, except for Job::folder and Job::object.
// Reading throws Error if a value is missing or has the wrong type.
nlohmann::ordered_json job_to_json(const Job& job);
Job job_from_json(const nlohmann::ordered_json& value);
nlohmann::ordered_json event_to_json(const JobEvent& event);
JobEvent event_from_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
