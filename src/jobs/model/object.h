// Jobs as kubectl shows them, and as they are kept. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// The object with its metadata (with kubectl's annotation of what was applied), its spec as given except for a suspend
// that was changed since, and its status; an Indexed Job has that of batch/v1. Keys are sorted. A job of an API server
// is the object that the server has.
nlohmann::ordered_json object_json(const Job& job);

// {"apiVersion": "v1", "kind": "List", "items": [...]}: what `get -o yaml` shows for several.
nlohmann::ordered_json list_json(const std::vector<Job>& jobs);

// YAML in kubectl's style: sorted keys, lists at the indentation of their key, quotes only where they are needed,
// literal blocks for text of several lines; long lines are not folded. Ends with a line break.
std::string to_yaml(const nlohmann::ordered_json& value);

// Everything a job holds, for a file; job_from_json(job_to_json(job)) is the same job. Reading throws Error for a value
// that is none.
nlohmann::ordered_json job_to_json(const Job& job);
Job job_from_json(const nlohmann::ordered_json& value);
nlohmann::ordered_json pod_to_json(const Pod& pod);
Pod pod_from_json(const nlohmann::ordered_json& value);
nlohmann::ordered_json event_to_json(const JobEvent& event);
JobEvent event_from_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
