#include "jobs/model/object.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

// Metadata that the server sets, ignoring the manifest.
constexpr std::array kServerFields = {"uid",           "resourceVersion", "generation",  "creationTimestamp",
                                      "managedFields", "selfLink",        "generateName"};

Json sorted(const Json& value) { return Json(nlohmann::json(value)); }

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// kubectl's annotation: the manifest as one line of JSON with sorted keys and the resolved namespace. Like Go's JSON
// encoder, it escapes the characters that are special in HTML.
std::string last_applied(const Job& job) {
  Json given = job.manifest;
  Json& metadata = given["metadata"];
  if (!metadata["annotations"].is_object()) metadata["annotations"] = Json::object();
  metadata["annotations"].erase(kLastApplied);
  metadata["name"] = job.name;
  metadata["namespace"] = job.namespace_name;
  metadata.erase("generateName");
  std::string out = sorted(given).dump();
  replace_all(out, "<", "\\u003c");
  replace_all(out, ">", "\\u003e");
  replace_all(out, "&", "\\u0026");
  replace_all(out, "\u2028", "\\u2028");
  replace_all(out, "\u2029", "\\u2029");
  return out + "\n";
}

Json metadata_json(const Job& job) {
  Json out = Json::object();
  if (job.manifest.contains("metadata") && job.manifest["metadata"].is_object()) out = job.manifest["metadata"];
  for (const char* key : kServerFields) out.erase(key);
  if (!out["annotations"].is_object()) out["annotations"] = Json::object();
  out["annotations"][kLastApplied] = last_applied(job);
  out["creationTimestamp"] = time_text(job.created);
  out["generation"] = job.generation;
  out["name"] = job.name;
  out["namespace"] = job.namespace_name;
  out["resourceVersion"] = fmt::format("{}", job.version);
  out["uid"] = job.uid;
  return out;
}

Json spec_json(const Job& job) {
  Json out = job.manifest.contains("spec") ? job.manifest["spec"] : Json::object();
  const char* const parent = job.kind == JobKind::jax_job ? "/runPolicy" : "";
  const Json::json_pointer pointer(fmt::format("{}/suspend", parent));
  const bool written = out.contains(pointer) && out[pointer] == true;
  if (written != job.spec.suspend) out[pointer] = job.spec.suspend;
  return out;
}

Json condition_json(const Condition& condition, JobKind kind) {
  Json out = {{"lastTransitionTime", time_text(condition.transitioned)},
              {"message", condition.message},
              {"reason", condition.reason},
              {"status", condition.status ? "True" : "False"},
              {"type", condition.type}};
  out[kind == JobKind::jax_job ? "lastUpdateTime" : "lastProbeTime"] = time_text(condition.updated);
  if (kind == JobKind::indexed_job && condition.type == "Succeeded") out["type"] = "Complete";
  return out;
}

// Like Kubernetes, omits a count of zero.
void put_count(Json& out, const char* key, int count) {
  if (count != 0) out[key] = count;
}

Json jax_job_status(const Job& job) {
  const JobStatus& status = job.status;
  Json out = Json::object();
  if (status.conditions.empty()) return out;
  for (const Condition& condition : status.conditions) out["conditions"].push_back(condition_json(condition, job.kind));
  Json& worker = out["replicaStatuses"]["Worker"];
  put_count(worker, "active", status.active);
  put_count(worker, "failed", status.failed);
  worker["selector"] = fmt::format(
      "training.kubeflow.org/job-name={},training.kubeflow.org/operator-name=jaxjob-controller,"
      "training.kubeflow.org/replica-type=worker",
      job.name);
  put_count(worker, "succeeded", status.succeeded);
  if (status.started) out["startTime"] = time_text(*status.started);
  if (status.completed) out["completionTime"] = time_text(*status.completed);
  return out;
}

Json indexed_job_status(const Job& job) {
  const JobStatus& status = job.status;
  Json out = Json::object();
  bool succeeded = false;
  for (const Condition& condition : status.conditions) {
    if (condition.type != "Succeeded" && condition.type != "Failed" && condition.type != "Suspended") continue;
    out["conditions"].push_back(condition_json(condition, job.kind));
    succeeded = succeeded || (condition.type == "Succeeded" && condition.status);
  }
  put_count(out, "active", status.active);
  put_count(out, "failed", status.failed + status.failed_before);
  put_count(out, "succeeded", status.succeeded);
  if (!status.completed_indexes.empty()) out["completedIndexes"] = status.completed_indexes;
  if (status.started) out["startTime"] = time_text(*status.started);
  if (status.completed && succeeded) out["completionTime"] = time_text(*status.completed);
  return out;
}

}  // namespace

nlohmann::ordered_json object_json(const Job& job) {
  if (!job.object.is_null()) return sorted(job.object);
  const bool jax_job = job.kind == JobKind::jax_job;
  return sorted({{"apiVersion", jax_job ? "kubeflow.org/v1" : "batch/v1"},
                 {"kind", name_of(job.kind)},
                 {"metadata", metadata_json(job)},
                 {"spec", spec_json(job)},
                 {"status", jax_job ? jax_job_status(job) : indexed_job_status(job)}});
}

}  // namespace lockstep
