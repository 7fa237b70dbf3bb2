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
  std::string uid = {}, job = {};  // of the pod; the name of its job
  bool restarted = false;          // its container was started again in the same pod
  bool runs = false;               // its container runs now
};

// All pods of a list that belong to a job, the oldest first. Pod::attempt counts the pods of the same job and index
// before it and the restarts of their containers.
std::vector<NamedPod> all_pods_of_list(const nlohmann::ordered_json& list);

// Of a list of pods of one job the newest of each index, by index.
std::vector<NamedPod> pods_of_list(const nlohmann::ordered_json& list);

// What only the pods of a job tell: how often it was restarted, and whether an Indexed Job is Running, which is so when
// a container of it runs.
void set_from_pods(Job& job, const std::vector<NamedPod>& pods);

// Of a list of events those of this job and of its pods, also of pods that were replaced, in the order of time. Events
// of an earlier job of the same name are left out.
std::vector<JobEvent> events_of_job(const nlohmann::ordered_json& list, const Job& job,
                                    const std::vector<NamedPod>& pods);

}  // namespace lockstep
