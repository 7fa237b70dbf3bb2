#include "jobs/show.h"

#include <fmt/format.h>

#include <algorithm>

#include "jobs/selector.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

const Condition* last_true(const Job& job) {
  const auto& all = job.status.conditions;
  const auto found = std::find_if(all.rbegin(), all.rend(), [](const Condition& each) { return each.status; });
  return found == all.rend() ? nullptr : &*found;
}

// A pending replica is as old as its job's start, or as the job itself.
std::optional<JobTime> creation_time(const Job& job, const Pod& pod) {
  if (pod.created) return pod.created;
  if (pod.started) return pod.started;
  return job.status.started ? job.status.started : std::optional(job.created);
}

// "1 (12s ago)", "0".
std::string restarts_text(const Pod& pod, JobTime now) {
  if (pod.attempt == 0 || !pod.started) return std::to_string(pod.attempt);
  return fmt::format("{} ({} ago)", pod.attempt, age_text(pod.started, now));
}

// Ready and total containers: "0/1".
std::string ready_text(const Pod& pod) {
  const int ready = pod.ready >= 0 ? pod.ready : pod.phase == PodPhase::running ? 1 : 0;
  return fmt::format("{}/{}", ready, pod.containers);
}

TableRow with_namespace(const std::string& namespace_name, bool shown, TableRow row) {
  if (shown) row.insert(row.begin(), namespace_name);
  return row;
}

}  // namespace

std::string or_none(std::string text) { return text.empty() ? "<none>" : std::move(text); }
std::string exit_code_text(const Pod& pod) { return pod.exit_code ? std::to_string(*pod.exit_code) : "<none>"; }
std::string process_text(const Pod& pod) { return pod.process > 0 ? std::to_string(pod.process) : "<none>"; }

std::string full_name(const Job& job) {
  return (job.kind == JobKind::jax_job ? "jaxjob.kubeflow.org/" : "job.batch/") + job.name;
}

std::string short_name(const Job& job) { return (job.kind == JobKind::jax_job ? "jaxjobs/" : "jobs/") + job.name; }

std::string pod_status(const Pod& pod) {
  if (!pod.kubectl_status.empty()) return pod.kubectl_status;
  if (pod.phase == PodPhase::succeeded) return "Completed";
  if (pod.phase == PodPhase::failed) return pod.reason.empty() ? "Error" : pod.reason;
  return std::string(name_of(pod.phase));
}

TableRow job_header(TableOptions options) {
  TableRow row = {"NAME", "STATE", "AGE"};
  if (options.wide) row.insert(row.end(), {"REPLICAS", "RESTARTS", "MESSAGE"});
  return with_namespace("NAMESPACE", options.namespaces, row);
}

TableRow job_row(const Job& job, TableOptions options, JobTime now) {
  TableRow row = {job.name, job_state(job), age_text(job.created, now)};
  if (options.wide) {
    const Condition* last = last_true(job);
    row.insert(row.end(), {std::to_string(job.spec.replicas), std::to_string(job.status.restarts),
                           or_none(last ? last->message : "")});
  }
  return with_namespace(job.namespace_name, options.namespaces, row);
}

TableRow pod_header(TableOptions options) {
  TableRow row = {"NAME", "READY", "STATUS", "RESTARTS", "AGE"};
  if (options.wide) row.insert(row.end(), {"NODE", "PID", "EXIT CODE"});
  return with_namespace("NAMESPACE", options.namespaces, row);
}

TableRow pod_row(const Job& job, const Pod& pod, TableOptions options, JobTime now) {
  TableRow row = {pod_name(job, pod), ready_text(pod), pod_status(pod), restarts_text(pod, now),
                  age_text(creation_time(job, pod), now)};
  if (options.wide) row.insert(row.end(), {or_none(pod.node), process_text(pod), exit_code_text(pod)});
  return with_namespace(job.namespace_name, options.namespaces, row);
}

TableRow event_header(TableOptions options) {
  return with_namespace("NAMESPACE", options.namespaces, {"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"});
}

TableRow event_row(const Job& job, const JobEvent& event, TableOptions options, JobTime now) {
  return with_namespace(
      job.namespace_name, options.namespaces,
      {age_text(event.time, now), event.warning ? "Warning" : "Normal", event.reason, event.object, event.message});
}

std::string job_row_key(const Job& job) {
  return fmt::format("{} {} {}", job.uid, job_state(job), job.status.restarts);
}

std::string pod_row_key(const Job& job, const Pod& pod) {
  return fmt::format("{} {} {} {} {} {}", job.uid, ready_text(pod), pod_status(pod), pod.attempt, pod.process,
                     exit_code_text(pod));
}

ordered_json pod_object(const Job& job, const Pod& pod) {
  if (!pod.object.is_null()) return ordered_json(nlohmann::json(pod.object));  // keys sorted
  ordered_json labels = ordered_json::object();
  for (const auto& [key, value] : pod_labels(job, pod.index)) labels[key] = value;
  const Container& from = job.spec.container;
  ordered_json container;
  if (!from.args.empty()) container["args"] = from.args;
  if (!from.command.empty()) container["command"] = from.command;
  if (!from.env.empty()) container["env"] = ordered_json::array();
  for (const auto& [name, value] : from.env) container["env"].push_back({{"name", name}, {"value", value}});
  if (!from.image.empty()) container["image"] = from.image;
  container["name"] = "jax";

  ordered_json state = ordered_json::object();
  if (pod.phase == PodPhase::running) {
    state["running"] = {{"startedAt", time_text(pod.started)}};
  } else if (pod.phase == PodPhase::pending) {
    state["waiting"] = ordered_json::object();
    if (!pod.reason.empty()) state["waiting"]["reason"] = pod.reason;
  } else {
    ordered_json& ended = state["terminated"];
    if (pod.exit_code) ended["exitCode"] = *pod.exit_code;
    if (pod.ended) ended["finishedAt"] = time_text(pod.ended);
    ended["reason"] = pod_status(pod);
    if (pod.started) ended["startedAt"] = time_text(pod.started);
  }

  ordered_json out = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  out["metadata"]["creationTimestamp"] = time_text(creation_time(job, pod));
  out["metadata"]["labels"] = labels;
  out["metadata"]["name"] = pod_name(job, pod.index);
  out["metadata"]["namespace"] = job.namespace_name;
  out["metadata"]["ownerReferences"] =
      ordered_json::array({{{"apiVersion", job.kind == JobKind::jax_job ? "kubeflow.org/v1" : "batch/v1"},
                            {"controller", true},
                            {"kind", name_of(job.kind)},
                            {"name", job.name},
                            {"uid", job.uid}}});
  out["spec"]["containers"] = ordered_json::array({container});
  if (!pod.node.empty()) out["spec"]["nodeName"] = pod.node;
  out["status"]["containerStatuses"] = ordered_json::array(
      {{{"name", "jax"}, {"ready", pod.phase == PodPhase::running}, {"restartCount", pod.attempt}, {"state", state}}});
  out["status"]["phase"] = name_of(pod.phase);
  if (pod.started) out["status"]["startTime"] = time_text(pod.started);
  return out;
}

ordered_json list_object(std::vector<ordered_json> items) {
  ordered_json out = {{"apiVersion", "v1"},
                      {"items", ordered_json::array()},
                      {"kind", "List"},
                      {"metadata", {{"resourceVersion", ""}}}};
  for (ordered_json& item : items) out["items"].push_back(std::move(item));
  return out;
}

ConditionResult check_condition(const Job& job, const std::string& type, bool status) {
  const auto at = std::find_if(job.status.conditions.begin(), job.status.conditions.end(),
                               [&](const Condition& each) { return each.type == type; });
  const bool known = at != job.status.conditions.end();
  if (known && at->status == status) return ConditionResult::met;
  if (!is_finished(job)) return ConditionResult::not_yet;
  // For example, a job may finish without ever having been Running.
  return !known && !status ? ConditionResult::met : ConditionResult::never;
}

}  // namespace lockstep
