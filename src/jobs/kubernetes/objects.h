// Reading what the API server says of jobs, pods and events, as `kubectl get -o json` prints it. What a server adds to
// what was applied is no error here, and neither is what is not there yet. Pure functions, safe from any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// Whether it is a job as we know them: a JAXJob, or a Job whose completionMode is Indexed.
bool is_job_object(const nlohmann::ordered_json& object);

// Throws Error, naming the field, for what is no such object. A Job's conditions get a JAXJob's words: Created, Running
// and Succeeded for Complete.
Job job_of_object(const nlohmann::ordered_json& object);

// A pod with the name it has in the cluster and the one before it, which it replaced; empty: there was none.
struct NamedPod {
  Pod pod;
  std::string name, container;
  std::string before = {};
  bool restarted = false;  // its container was started again in the same pod
};

// Of a list of pods the newest of each index, by index.
std::vector<NamedPod> pods_of_list(const nlohmann::ordered_json& list);

// Of a list of events, in the order of time.
std::vector<JobEvent> events_of_list(const nlohmann::ordered_json& list);

}  // namespace lockstep
