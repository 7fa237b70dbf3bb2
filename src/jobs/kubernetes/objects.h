// Parses jobs, pods and events of the API server, as printed by `kubectl get -o json`. Unknown fields are ignored, and
// missing ones have default values. Pure functions, safe from any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// The names of a kind of jobs: the resource in requests ("jobs.batch"), the type in messages ("job.batch"), and the
// label of its pods that holds the name of the job.
const char* resource_of(JobKind kind);
const char* type_of(JobKind kind);
const char* job_label(JobKind kind);

// Whether the object is a JAXJob, or a Job with completionMode Indexed.
bool is_job_object(const nlohmann::ordered_json& object);

// Throws Error if is_job_object() is false or the name is missing. Translates the conditions of a Job into those of a
// JAXJob: adds Created and Running, and renames Complete to Succeeded.
Job job_of_object(const nlohmann::ordered_json& object);

struct KubernetesPod {
  Pod pod;
  std::string name, container;     // of the pod in the cluster, and of its container that trains
  std::string predecessor = {};    // name of the pod that this one replaced; empty: none
  std::string uid = {}, job = {};  // uid of the pod; name of its job
  bool restarted = false;          // its container was restarted within the pod
  bool running = false;            // its container is running
};

// All pods of the list that belong to a job, oldest first. Pod::attempt is the number of earlier pods of the same job
// and index plus all container restarts.
std::vector<KubernetesPod> pods_in_list(const nlohmann::ordered_json& list);

// The newest pod of each index, sorted by index. REQUIRES: all pods belong to one job.
std::vector<KubernetesPod> newest_pods_in_list(const nlohmann::ordered_json& list);

// The attempts of a job before those of newest_pods_in_list(). `pods` are those of pods_in_list().
std::vector<EarlierAttempt> earlier_attempts_of(const std::vector<KubernetesPod>& pods);

// Sets the parts of the status that are visible only in the pods: the number of restarts, and for an Indexed Job the
// condition Running, which requires a running container.
void update_status_from_pods(Job& job, const std::vector<KubernetesPod>& pods);

// The events of the job and of its pods, including replaced pods, sorted by time. Excludes events of an earlier job
// with the same name.
std::vector<JobEvent> events_of_job(const nlohmann::ordered_json& list, const Job& job,
                                    const std::vector<KubernetesPod>& pods);

// Why replicas of the job do not start: the last event about a pod that could not be created, if pods are missing; else
// what the scheduler or the kubelet reports about a pending pod. "": nothing is known, or all have started.
// `pods` are the newest ones, `events` those of events_of_job().
std::string waiting_reason(const Job& job, const std::vector<KubernetesPod>& pods, const std::vector<JobEvent>& events);

}  // namespace lockstep
