// A job: its specification and its status. There are two kinds, Kubeflow's JAXJob and Kubernetes' Indexed Job;
// field names and status texts follow these two. Plain values without I/O: manifest.h parses them, object.h prints
// and stores them, reconcile.h computes their state transitions. Functions here are safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

using JobTime = std::chrono::sys_seconds;

enum class JobKind { jax_job, indexed_job };
enum class RestartPolicy { never, on_failure, always, exit_code };
enum class CleanPodPolicy { none, running, all };
enum class PodPhase { pending, running, succeeded, failed };

// What a replica runs. Local and Slurm replicas are plain processes and ignore the image.
struct Container {
  std::string image;
  std::vector<std::string> command, args;  // both empty: `lockstep train`; args alone: arguments of `lockstep`
  std::vector<std::pair<std::string, std::string>> env;  // as in the manifest; replica_env() resolves it per replica
  std::map<std::string, std::string> env_fields;         // valueFrom.fieldRef: variable -> "metadata.name"...
  std::string folder;                                    // workingDir; empty: the folder of `lockstep apply`
  int port = 6666;                                       // the coordinator's

  bool operator==(const Container&) const = default;
};

struct JobSpec {
  int replicas = 1;
  RestartPolicy restart = RestartPolicy::never;
  Container container;
  CleanPodPolicy clean = CleanPodPolicy::none;
  std::optional<int64_t> ttl_after_finished, active_deadline;  // seconds
  std::optional<int64_t> backoff_limit;                        // number of restarts; nullopt: unlimited
  bool suspend = false;

  bool operator==(const JobSpec&) const = default;
};

struct Condition {
  std::string type;  // "Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed"
  bool status = true;
  std::string reason, message;
  JobTime updated{}, transitioned{};

  bool operator==(const Condition&) const = default;
};

struct JobStatus {
  std::vector<Condition> conditions;  // most recently set last
  int active = 0, succeeded = 0, failed = 0;
  std::optional<JobTime> started, completed;
  int restarts = 0;  // restarts of all replicas because of a failure
  // The number of the current attempt (Pod::attempt). Every restart, every suspension of started replicas and every
  // taken port begins a new attempt.
  int attempt = 0;
  int failed_before = 0;                   // replicas that failed in earlier attempts
  std::string completed_indexes = {};      // "0-2,5"; Indexed Jobs only
  std::optional<JobTime> next_start = {};  // backoff: the next attempt does not start before
  int taken_ports = 0;                     // attempts that failed because another program had the coordinator's port

  bool operator==(const JobStatus&) const = default;
};

struct Job {
  JobKind kind = JobKind::jax_job;
  std::string name, namespace_name = "default";
  std::string uid;
  std::map<std::string, std::string> labels;
  JobTime created{};
  int64_t generation = 1, version = 1;  // metadata.generation (of the spec) and resourceVersion (of the object)
  nlohmann::ordered_json manifest;      // the complete manifest as applied, including fields that Lockstep ignores
  JobSpec spec;
  JobStatus status;
  std::string folder = {};             // the folder of `lockstep apply`, base of relative paths; empty: unknown
  nlohmann::ordered_json object = {};  // the object of the Kubernetes API server; null for other runners
};

// Pod::reason of a replica that failed because another program had taken its port.
inline constexpr const char* kPortTaken = "PortTaken";

// The observed state of a replica.
struct Pod {
  int index = 0;
  PodPhase phase = PodPhase::pending;
  int attempt = 0;               // JobStatus::attempt when the replica was started
  std::optional<int> exit_code;  // after it ended; 128 + n for signal n
  std::string reason = {};       // "Completed", "Error", "OOMKilled", "Lost"...
  std::string node = {};         // the host; empty: unknown
  std::optional<JobTime> started, ended;
  int64_t process = 0;  // its process id on this host; 0: none
  // From the Kubernetes API server; unset for other runners.
  std::string name = {};            // empty: pod_name()
  std::string kubectl_status = {};  // STATUS as kubectl shows it; empty: derived from phase and reason
  int ready = -1, containers = 1;   // ready containers (-1: unknown) and all containers
  std::optional<JobTime> created = {};
  nlohmann::ordered_json object = {};

  bool operator==(const Pod&) const = default;
};

// An attempt of a replica that ended and was followed by another one. On Kubernetes either its pod was replaced, or its
// container was restarted: then the pod still exists, and the log is the one before the restart.
struct EarlierAttempt {
  Pod pod;
  bool same_pod = false;
};

// An event, for `lockstep events` and `describe`.
struct JobEvent {
  JobTime time{};
  bool warning = false;
  std::string object, reason, message;  // "jaxjob/mnist", "pod/mnist-worker-0"
  nlohmann::ordered_json raw = {};      // the object of the Kubernetes API server; null for other runners

  bool operator==(const JobEvent&) const = default;
};

// "mnist-worker-1" of a JAXJob, "mnist-1" of an Indexed Job.
std::string pod_name(const Job& job, int index);
// The name of an existing pod. Kubernetes appends five characters for an Indexed Job: "mnist-1-x7f2k".
std::string pod_name(const Job& job, const Pod& pod);

// Formats and parses "2024-12-18T16:47:28Z". parse_time() throws Error for any other form.
std::string time_text(JobTime time);
JobTime parse_time(std::string_view text);

// The names that manifests use: "OnFailure", "Running", "Succeeded", "JAXJob".
std::string_view name_of(RestartPolicy policy);
std::string_view name_of(CleanPodPolicy policy);
std::string_view name_of(PodPhase phase);
std::string_view name_of(JobKind kind);

// The STATE column of `get jobs`, such as "Running": the type of the last condition that is true; "" if none is.
std::string job_state(const Job& job);

// Whether Succeeded or Failed is true. The status of a finished job never changes again.
bool is_finished(const Job& job);

}  // namespace lockstep
