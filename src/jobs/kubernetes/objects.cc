#include "jobs/kubernetes/objects.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/check.h"
#include "jobs/kubernetes/pod_status.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Json kNothing;

// The value at this path; null if it does not exist.
const Json& at(const Json& object, std::initializer_list<const char*> path) {
  const Json* here = &object;
  for (const char* name : path) {
    if (!here->is_object()) return kNothing;
    const auto found = here->find(name);
    if (found == here->end()) return kNothing;
    here = &*found;
  }
  return *here;
}

std::string text_at(const Json& object, std::initializer_list<const char*> path) {
  const Json& value = at(object, path);
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<int64_t> number_at(const Json& object, std::initializer_list<const char*> path) {
  const Json& value = at(object, path);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  return fits ? std::optional(value.get<int64_t>()) : std::nullopt;
}

int count_at(const Json& object, std::initializer_list<const char*> path) {
  return static_cast<int>(std::clamp<int64_t>(number_at(object, path).value_or(0), 0, INT32_MAX));
}

// Drops the fraction of a second.
std::optional<JobTime> time_at(const Json& object, std::initializer_list<const char*> path) {
  std::string text = text_at(object, path);
  if (const size_t point = text.find('.'); point != text.npos) text = text.substr(0, point) + "Z";
  return text.empty() ? std::nullopt : std::optional(parse_time(text));
}

std::vector<std::string> words_at(const Json& object, std::initializer_list<const char*> path) {
  std::vector<std::string> out;
  for (const Json& each : at(object, path))
    if (each.is_string()) out.push_back(each.get<std::string>());
  return out;
}

std::map<std::string, std::string> texts_at(const Json& object, std::initializer_list<const char*> path) {
  std::map<std::string, std::string> out;
  const Json& map = at(object, path);
  if (!map.is_object()) return out;
  for (const auto& [key, value] : map.items())
    if (value.is_string()) out[key] = value.get<std::string>();
  return out;
}

// The source of a variable's value (valueFrom): "key token of Secret mnist-token", "metadata.name".
std::string source_of(const Json& from) {
  if (!from.is_object() || from.empty()) return "";
  if (const std::string field = text_at(from, {"fieldRef", "fieldPath"}); !field.empty()) return field;
  for (const auto& [reference, kind] : {std::pair("secretKeyRef", "Secret"), std::pair("configMapKeyRef", "ConfigMap")})
    if (from.contains(reference))
      return fmt::format("key {} of {} {}", text_at(from, {reference, "key"}), kind,
                         text_at(from, {reference, "name"}));
  return from.items().begin().key();
}

// The container that trains: the one named jax, else the first.
Container container_of(const Json& pod_spec) {
  const Json* chosen = nullptr;
  for (const Json& each : at(pod_spec, {"containers"}))
    if (!chosen || text_at(each, {"name"}) == "jax") chosen = &each;
  Container out;
  if (!chosen) return out;
  out.image = text_at(*chosen, {"image"});
  out.command = words_at(*chosen, {"command"});
  out.args = words_at(*chosen, {"args"});
  out.folder = text_at(*chosen, {"workingDir"});
  for (const Json& each : at(*chosen, {"env"})) {
    const std::string name = text_at(each, {"name"});
    out.env.emplace_back(name, text_at(each, {"value"}));
    if (const std::string source = source_of(at(each, {"valueFrom"})); !source.empty()) out.env_fields[name] = source;
  }
  for (const Json& each : at(*chosen, {"ports"}))
    if (const auto port = number_at(each, {"containerPort"}); port && *port > 0 && *port < 65536)
      out.port = static_cast<int>(*port);
  return out;
}

int replicas_of(std::optional<int64_t> number) {
  constexpr int64_t kMax = 1 << 20;
  return static_cast<int>(std::clamp<int64_t>(number.value_or(1), 0, kMax));
}

JobSpec jax_job_spec(const Json& spec) {
  const Json& worker = at(spec, {"jaxReplicaSpecs", "Worker"});
  JobSpec out;
  out.replicas = replicas_of(number_at(worker, {"replicas"}));
  const std::string restart = text_at(worker, {"restartPolicy"}),
                    clean = text_at(spec, {"runPolicy", "cleanPodPolicy"});
  out.restart = restart == "OnFailure"  ? RestartPolicy::on_failure
                : restart == "Always"   ? RestartPolicy::always
                : restart == "ExitCode" ? RestartPolicy::exit_code
                                        : RestartPolicy::never;
  out.clean = clean == "All"       ? CleanPodPolicy::all
              : clean == "Running" ? CleanPodPolicy::running
                                   : CleanPodPolicy::none;
  out.container = container_of(at(worker, {"template", "spec"}));
  out.ttl_after_finished = number_at(spec, {"runPolicy", "ttlSecondsAfterFinished"});
  out.active_deadline = number_at(spec, {"runPolicy", "activeDeadlineSeconds"});
  out.backoff_limit = number_at(spec, {"runPolicy", "backoffLimit"});
  out.suspend = at(spec, {"runPolicy", "suspend"}) == true;
  return out;
}

JobSpec indexed_job_spec(const Json& spec) {
  JobSpec out;
  out.replicas = replicas_of(number_at(spec, {"completions"}));
  out.container = container_of(at(spec, {"template", "spec"}));
  out.ttl_after_finished = number_at(spec, {"ttlSecondsAfterFinished"});
  out.active_deadline = number_at(spec, {"activeDeadlineSeconds"});
  out.backoff_limit = number_at(spec, {"backoffLimit"});
  out.suspend = at(spec, {"suspend"}) == true;
  return out;
}

std::vector<Condition> conditions_of(const Json& status) {
  std::vector<Condition> out;
  for (const Json& each : at(status, {"conditions"})) {
    Condition condition{.type = text_at(each, {"type"}),
                        .status = text_at(each, {"status"}) == "True",
                        .reason = text_at(each, {"reason"}),
                        .message = text_at(each, {"message"})};
    condition.transitioned = time_at(each, {"lastTransitionTime"}).value_or(JobTime());
    condition.updated = time_at(each, {"lastUpdateTime"}).value_or(condition.transitioned);
    out.push_back(std::move(condition));
  }
  return out;
}

// A Job has conditions only for its end and for suspension. Running follows from its counts.
std::vector<Condition> indexed_job_conditions(const Job& job, const Json& status) {
  std::vector<Condition> out = {{.type = "Created",
                                 .reason = "JobCreated",
                                 .message = fmt::format("Job {} is created.", job.name),
                                 .updated = job.created,
                                 .transitioned = job.created}};
  std::vector<Condition> reported;
  bool finished = false;
  for (Condition& condition : conditions_of(status)) {
    if (condition.type == "Complete") condition.type = "Succeeded";
    if (condition.type != "Succeeded" && condition.type != "Failed" && condition.type != "Suspended") continue;
    finished = finished || (condition.type != "Suspended" && condition.status);
    reported.push_back(std::move(condition));
  }
  if (job.status.started && (finished || job.status.active > 0))
    out.push_back({.type = "Running",
                   .status = !finished,
                   .reason = "JobRunning",
                   .message = fmt::format("Job {}/{} is running.", job.namespace_name, job.name),
                   .updated = *job.status.started,
                   .transitioned = *job.status.started});
  // A resumed job keeps Suspended with status False; insert it before the current conditions.
  for (Condition& condition : reported)
    out.insert(condition.status ? out.end() : out.begin() + 1, std::move(condition));
  return out;
}

int completion_index(const Json& pod) {
  for (const Json* from : {&at(pod, {"metadata", "labels"}), &at(pod, {"metadata", "annotations"})})
    for (const char* name : {"training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index"}) {
      const std::string text = text_at(*from, {name});
      int value = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
    }
  return -1;
}

PodPhase pod_phase_of(const std::string& text) {
  if (text == "Running") return PodPhase::running;
  if (text == "Succeeded") return PodPhase::succeeded;
  return text == "Failed" ? PodPhase::failed : PodPhase::pending;
}

// kubectl does not show managedFields either.
Json without_managed_fields(Json object) {
  if (object.contains("metadata") && object["metadata"].is_object()) object["metadata"].erase("managedFields");
  return object;
}

KubernetesPod pod_of_object(const Json& object, int index) {
  KubernetesPod out;
  Pod& pod = out.pod;
  pod.index = index;
  pod.phase = pod_phase_of(text_at(object, {"status", "phase"}));
  pod.node = text_at(object, {"spec", "nodeName"});
  pod.reason = text_at(object, {"status", "reason"});  // "Evicted"
  pod.started = time_at(object, {"status", "startTime"});
  pod.created = time_at(object, {"metadata", "creationTimestamp"});
  const PodStatusText shown = kubectl_pod_status(object);
  pod.kubectl_status = shown.status;
  pod.ready = shown.ready;
  pod.containers = shown.containers;
  pod.object = without_managed_fields(object);
  pod.name = out.name = text_at(object, {"metadata", "name"});
  out.uid = text_at(object, {"metadata", "uid"});
  for (const char* label : {"training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "job-name"})
    if (out.job.empty()) out.job = text_at(object, {"metadata", "labels", label});
  const Json& containers = at(object, {"spec", "containers"});
  if (containers.is_array() && !containers.empty()) out.container = text_at(containers[0], {"name"});
  for (const Json& each : at(object, {"spec", "containers"}))
    if (text_at(each, {"name"}) == "jax") out.container = "jax";
  for (const Json& each : at(object, {"status", "containerStatuses"})) {
    if (text_at(each, {"name"}) != out.container) continue;
    pod.attempt = count_at(each, {"restartCount"});
    out.restarted = pod.attempt > 0;
    out.running = at(each, {"state", "running"}).is_object();
    const Json& state = at(each, {"state"});
    if (pod.reason.empty()) pod.reason = text_at(state, {"waiting", "reason"});
    if (pod.reason.empty()) pod.reason = text_at(state, {"terminated", "reason"});
    if (const auto code = number_at(state, {"terminated", "exitCode"}))
      pod.exit_code = static_cast<int>(std::clamp<int64_t>(*code, INT32_MIN, INT32_MAX));
    pod.ended = time_at(state, {"terminated", "finishedAt"});
    if (const auto started = time_at(state, {"terminated", "startedAt"})) pod.started = started;
    if (const auto started = time_at(state, {"running", "startedAt"})) pod.started = started;
  }
  return out;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

const char* resource_of(JobKind kind) { return kind == JobKind::jax_job ? "jaxjobs.kubeflow.org" : "jobs.batch"; }
const char* type_of(JobKind kind) { return kind == JobKind::jax_job ? "jaxjob" : "job.batch"; }
const char* job_label(JobKind kind) { return kind == JobKind::jax_job ? "training.kubeflow.org/job-name" : "job-name"; }

bool is_job_object(const Json& object) {
  const std::string kind = text_at(object, {"kind"}), version = text_at(object, {"apiVersion"});
  return (kind == "JAXJob" && version.starts_with("kubeflow.org/")) ||
         (kind == "Job" && version == "batch/v1" && text_at(object, {"spec", "completionMode"}) == "Indexed");
}

Job job_of_object(const Json& object) {
  if (!is_job_object(object))
    throw_error("kubernetes: unsupported kind {} of {}; supported: JAXJob, and Job with completionMode Indexed",
                text_at(object, {"kind"}), text_at(object, {"apiVersion"}));
  Job job;
  job.kind = text_at(object, {"kind"}) == "JAXJob" ? JobKind::jax_job : JobKind::indexed_job;
  job.name = text_at(object, {"metadata", "name"});
  if (job.name.empty()) throw_error("kubernetes: a {} has no metadata.name", text_at(object, {"kind"}));
  if (const std::string namespace_name = text_at(object, {"metadata", "namespace"}); !namespace_name.empty())
    job.namespace_name = namespace_name;
  job.uid = text_at(object, {"metadata", "uid"});
  job.labels = texts_at(object, {"metadata", "labels"});
  job.created = time_at(object, {"metadata", "creationTimestamp"}).value_or(JobTime());
  job.generation = number_at(object, {"metadata", "generation"}).value_or(1);
  const std::string version = text_at(object, {"metadata", "resourceVersion"});
  std::from_chars(version.data(), version.data() + version.size(), job.version);
  job.object = without_managed_fields(object);
  job.manifest = object;
  job.manifest.erase("status");
  const Json &spec = at(object, {"spec"}), &status = at(object, {"status"});
  job.spec = job.kind == JobKind::jax_job ? jax_job_spec(spec) : indexed_job_spec(spec);
  job.status.started = time_at(status, {"startTime"});
  job.status.completed = time_at(status, {"completionTime"});
  const Json& counts = job.kind == JobKind::jax_job ? at(status, {"replicaStatuses", "Worker"}) : status;
  job.status.active = count_at(counts, {"active"});
  job.status.succeeded = count_at(counts, {"succeeded"});
  job.status.failed = count_at(counts, {"failed"});
  job.status.completed_indexes = text_at(status, {"completedIndexes"});
  job.status.conditions = job.kind == JobKind::jax_job ? conditions_of(status) : indexed_job_conditions(job, status);
  return job;
}

std::vector<KubernetesPod> pods_in_list(const Json& list) {
  std::vector<const Json*> all;
  for (const Json& each : at(list, {"items"})) all.push_back(&each);
  std::stable_sort(all.begin(), all.end(), [](const Json* a, const Json* b) {
    return time_at(*a, {"metadata", "creationTimestamp"}) < time_at(*b, {"metadata", "creationTimestamp"});
  });
  std::vector<KubernetesPod> out;
  for (const Json* each : all) {
    const int index = completion_index(*each);
    if (index < 0) continue;
    KubernetesPod pod = pod_of_object(*each, index);
    const auto old = std::find_if(out.rbegin(), out.rend(), [&](const KubernetesPod& other) {
      return other.job == pod.job && other.pod.index == index &&
             text_at(other.pod.object, {"metadata", "namespace"}) == text_at(*each, {"metadata", "namespace"});
    });
    if (old != out.rend()) {
      pod.predecessor = old->name;
      pod.pod.attempt += old->pod.attempt + 1;
    }
    out.push_back(std::move(pod));
  }
  return out;
}

std::vector<KubernetesPod> newest_pods_in_list(const Json& list) {
  std::map<int, KubernetesPod> newest;
  for (KubernetesPod& pod : pods_in_list(list)) newest[pod.pod.index] = std::move(pod);
  std::vector<KubernetesPod> out;
  for (auto& [index, pod] : newest) out.push_back(std::move(pod));
  return out;
}

std::vector<EarlierAttempt> earlier_attempts_of(const std::vector<KubernetesPod>& pods) {
  std::vector<EarlierAttempt> out;
  for (size_t i = 0; i < pods.size(); ++i) {
    const KubernetesPod& each = pods[i];
    for (const Json& container : at(each.pod.object, {"status", "containerStatuses"})) {
      const Json& last = at(container, {"lastState", "terminated"});
      if (text_at(container, {"name"}) != each.container || !last.is_object()) continue;
      Pod before = each.pod;
      before.attempt = std::max(before.attempt - 1, 0);
      before.reason = before.kubectl_status = text_at(last, {"reason"});
      before.exit_code = count_at(last, {"exitCode"});
      before.phase = before.exit_code == 0 ? PodPhase::succeeded : PodPhase::failed;
      before.started = time_at(last, {"startedAt"});
      before.ended = time_at(last, {"finishedAt"});
      out.push_back({std::move(before), true});
    }
    const bool replaced = std::any_of(pods.begin() + static_cast<std::ptrdiff_t>(i) + 1, pods.end(),
                                      [&](const KubernetesPod& other) { return other.pod.index == each.pod.index; });
    if (replaced) out.push_back({each.pod, false});
  }
  return out;
}

void update_status_from_pods(Job& job, const std::vector<KubernetesPod>& pods) {
  bool running = false;
  for (const KubernetesPod& each : pods) {
    job.status.restarts = std::max(job.status.restarts, each.pod.attempt);
    running = running || each.running;
  }
  if (job.kind == JobKind::jax_job || running || is_finished(job)) return;
  std::erase_if(job.status.conditions, [](const Condition& each) { return each.type == "Running"; });
}

namespace {

// Whether a pod of this job can have the name: "mnist-1-x7f2k" for a Job, "mnist-worker-1" for a JAXJob.
bool is_pod_name_of(const Job& job, std::string_view name) {
  const std::string prefix = job.name + (job.kind == JobKind::jax_job ? "-worker-" : "-");
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view rest = name.substr(digits);
  return digits > 0 &&
         (job.kind == JobKind::jax_job ? rest.empty() : rest.size() == 6 && rest[0] == '-' && rest.rfind('-') == 0);
}

JobEvent event_of_object(const Json& object) {
  JobEvent event;
  for (const char* field : {"lastTimestamp", "eventTime", "firstTimestamp"})
    if (const auto time = time_at(object, {field}); time && event.time == JobTime()) event.time = *time;
  event.warning = text_at(object, {"type"}) == "Warning";
  event.object = lower(text_at(object, {"involvedObject", "kind"})) + "/" + text_at(object, {"involvedObject", "name"});
  event.reason = text_at(object, {"reason"});
  event.message = text_at(object, {"message"});
  event.raw = without_managed_fields(object);
  return event;
}

bool is_event_of(const Json& object, const JobEvent& event, const Job& job, const std::vector<KubernetesPod>& pods) {
  const std::string kind = text_at(object, {"involvedObject", "kind"}),
                    uid = text_at(object, {"involvedObject", "uid"}),
                    name = text_at(object, {"involvedObject", "name"});
  const bool in_lifetime = event.time >= job.created;
  if (kind == name_of(job.kind) && name == job.name) return uid.empty() ? in_lifetime : uid == job.uid;
  if (kind != "Pod") return false;
  for (const KubernetesPod& each : pods)
    if (each.name == name && (uid.empty() || each.uid == uid)) return true;
  return is_pod_name_of(job, name) && in_lifetime;
}

// What prevents a pending pod from running, as its conditions and its containers report it.
std::string pending_reason(const KubernetesPod& pod) {
  for (const Json& each : at(pod.pod.object, {"status", "conditions"}))
    if (text_at(each, {"type"}) == "PodScheduled" && text_at(each, {"status"}) == "False")
      return text_at(each, {"message"});
  for (const Json& each : at(pod.pod.object, {"status", "containerStatuses"}))
    if (const std::string message = text_at(each, {"state", "waiting", "message"}); !message.empty())
      return fmt::format("{}: {}", text_at(each, {"state", "waiting", "reason"}), message);
  return "";
}

}  // namespace

std::string waiting_reason(const Job& job, const std::vector<KubernetesPod>& pods,
                           const std::vector<JobEvent>& events) {
  const bool missing = pods.size() < static_cast<size_t>(job.spec.replicas) && !job.spec.suspend;
  // An event that is older than a pod may be out of date: the quota has room again.
  JobTime newest = job.created;
  for (const KubernetesPod& each : pods) newest = std::max(newest, each.pod.created.value_or(newest));
  for (auto event = events.rbegin(); missing && event != events.rend() && event->time >= newest; ++event)
    if (event->reason == "FailedCreate" || event->reason == "FailedCreatePod") return event->message;
  for (const KubernetesPod& each : pods) {
    if (each.pod.phase != PodPhase::pending) continue;
    if (const std::string reason = pending_reason(each); !reason.empty())
      return fmt::format("{}: {}", each.name, reason);
  }
  return "";
}

std::vector<JobEvent> events_of_job(const Json& list, const Job& job, const std::vector<KubernetesPod>& pods) {
  std::vector<JobEvent> out;
  for (const Json& each : at(list, {"items"})) {
    JobEvent event = event_of_object(each);
    if (is_event_of(each, event, job, pods)) out.push_back(std::move(event));
  }
  std::stable_sort(out.begin(), out.end(), [](const JobEvent& a, const JobEvent& b) { return a.time < b.time; });
  return out;
}

}  // namespace lockstep
