// A job as its user describes it and as it stands: Kubeflow's JAXJob, with its words, and Kubernetes' Indexed Job.
// Plain values without I/O; manifest.h reads and writes them, reconcile.h moves them.
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

// What a replica runs. The image is for those who have containers; a local replica has none.
struct Container {
  std::string image;
  std::vector<std::string> command, args;  // both empty: `lockstep train`; args alone: arguments of `lockstep`
  std::vector<std::pair<std::string, std::string>> env;  // as written; replica_env() of manifest.h makes a replica's
  std::map<std::string, std::string> env_fields;         // valueFrom: the variable and "metadata.name"...
  std::string folder;                                    // workingDir; empty: where the job was applied
  int port = 6666;                                       // of the coordinator

  bool operator==(const Container&) const = default;
};

struct JobSpec {
  int replicas = 1;
  RestartPolicy restart = RestartPolicy::never;
  Container container;
  CleanPodPolicy clean = CleanPodPolicy::none;
  std::optional<int64_t> ttl_after_finished, active_deadline;  // seconds
  std::optional<int64_t> backoff_limit;                        // restarts; none: no limit
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
  std::vector<Condition> conditions;  // the one set last is last
  int active = 0, succeeded = 0, failed = 0;
  std::optional<JobTime> started, completed;
  int restarts = 0;       // of the whole set, so far
  int attempt = 0;        // of the set, for Pod::attempt: one more with every restart, every suspension of one that ran
                          // and every taken port
  int failed_before = 0;  // replicas that failed in attempts before
  std::string completed_indexes = {};      // "0-2,5", of an Indexed Job
  std::optional<JobTime> next_start = {};  // the next attempt waits until then
  int taken_ports = 0;                     // attempts in vain, because another program took the coordinator's port

  bool operator==(const JobStatus&) const = default;
};

struct Job {
  JobKind kind = JobKind::jax_job;
  std::string name, space = "default";  // the namespace
  std::string uid;
  std::map<std::string, std::string> labels;
  JobTime created{};
  int64_t generation = 1, version = 1;  // of the spec; of the object
  nlohmann::ordered_json manifest;      // as it was given, whole: the file is kept, not our reading of it
  JobSpec spec;
  JobStatus status;
  std::string folder = {};             // where it was applied, which relative paths start from; empty: not known
  nlohmann::ordered_json object = {};  // as the API server of Kubernetes has it; null elsewhere
};

// The reason of a replica that failed because another program had taken the port that was chosen for it.
inline constexpr const char* kPortTaken = "PortTaken";

// A replica as a runner finds it.
struct Pod {
  int index = 0;
  PodPhase phase = PodPhase::pending;
  int attempt = 0;               // JobStatus::attempt when it was started
  std::optional<int> exit_code;  // of one that ended: 128 + n for signal n
  std::string reason = {};       // "Completed", "Error", "OOMKilled", "Lost"...
  std::string node = {};         // the machine, where known
  std::optional<JobTime> started, ended;
  int64_t process = 0;  // on this machine; 0: none
  // As the API server of Kubernetes has it, where that is known.
  std::string name = {};           // empty: pod_name()
  std::string shown = {};          // what kubectl shows as STATUS; empty: by phase and reason
  int ready = -1, containers = 1;  // containers that are ready (-1: not known), of all
  std::optional<JobTime> created = {};
  nlohmann::ordered_json object = {};

  bool operator==(const Pod&) const = default;
};

// Something that happened, for `lockstep events` and `describe`.
struct JobEvent {
  JobTime time{};
  bool warning = false;
  std::string object, reason, message;  // "jaxjob/mnist", "pod/mnist-worker-0"
  nlohmann::ordered_json raw = {};      // as the API server of Kubernetes has it; null elsewhere

  bool operator==(const JobEvent&) const = default;
};

// "mnist-worker-1" of a JAXJob, "mnist-1" of an Indexed Job.
std::string pod_name(const Job& job, int index);
// The name of a pod that exists: on Kubernetes that of an Indexed Job has five letters behind it, "mnist-1-x7f2k".
std::string pod_name(const Job& job, const Pod& pod);

// "2024-12-18T16:47:28Z", and back; parse_time throws Error for anything else.
std::string time_text(JobTime time);
JobTime parse_time(std::string_view text);

// "Never", "OnFailure", "Always", "ExitCode"; "None", "Running", "All"; "Pending", "Running", "Succeeded", "Failed";
// "JAXJob", "Job".
std::string_view name_of(RestartPolicy policy);
std::string_view name_of(CleanPodPolicy policy);
std::string_view name_of(PodPhase phase);
std::string_view name_of(JobKind kind);

// "Running": the state that `get jobs` shows: the type of the last condition that is true.
std::string job_state(const Job& job);

// Succeeded or Failed is true: nothing will change any more.
bool is_finished(const Job& job);

}  // namespace lockstep
