#include "jobs/kubernetes/required_objects.h"

#include <algorithm>
#include <optional>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json at(const Json& object, const char* path) {
  const Json::json_pointer pointer(path);
  return object.contains(pointer) ? object[pointer] : Json();
}

constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";                          // of jobs only
constexpr const char* kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";  // of `kubectl apply`
constexpr const char *kNameLabel = "app.kubernetes.io/name", *kInstanceLabel = "app.kubernetes.io/instance";

Json metadata_of(const Json& job, const Json& name) {
  Json out = {{"name", name}};
  if (const Json namespace_name = at(job, "/metadata/namespace"); namespace_name.is_string())
    out["namespace"] = namespace_name;
  Json labels = at(job, "/metadata/labels");
  if (labels.is_object()) labels.erase(kQueueLabel);
  labels[kNameLabel] = "lockstep";
  labels[kInstanceLabel] = at(job, "/metadata/name");
  out["labels"] = std::move(labels);
  if (job.contains("/metadata/uid"_json_pointer)) out["ownerReferences"] = Json::array({owner_reference(job)});
  return out;
}

Json service_of(const Json& job, const Json& pod) {
  Json ports = Json::array();
  for (const Json& container : at(pod, "/containers"))
    for (const Json& port : at(container, "/ports")) {
      Json out = {{"port", port.at("containerPort")}};
      if (port.contains("name")) out["name"] = port["name"];
      ports.push_back(std::move(out));
    }
  Json spec = {{"clusterIP", "None"},
               {"publishNotReadyAddresses", true},
               {"selector", {{"job-name", at(job, "/metadata/name")}}}};
  if (!ports.empty()) spec["ports"] = std::move(ports);
  return {
      {"apiVersion", "v1"}, {"kind", "Service"}, {"metadata", metadata_of(job, pod.at("subdomain"))}, {"spec", spec}};
}

const char* pod_path(const Json& job) {
  return job.at("kind") == "JAXJob" ? "/spec/jaxReplicaSpecs/Worker/template/spec" : "/spec/template/spec";
}

// The container that trains: the one named jax, else the first. Null if there is none.
Json* container_of(Json& job) {
  const Json::json_pointer path(std::string(pod_path(job)) + "/containers");
  if (!job.contains(path) || !job[path].is_array()) return nullptr;
  Json* chosen = nullptr;
  for (Json& each : job[path])
    if (!chosen || at(each, "/name") == "jax") chosen = &each;
  return chosen;
}

bool has_token(const Json& container) {
  for (const Json& variable : at(container, "/env"))
    if (at(variable, "/name") == "LOCKSTEP_TOKEN" || at(variable, "/name") == "LOCKSTEP_TOKEN_FILE") return true;
  const Json sources = at(container, "/envFrom");
  return sources.is_array() && !sources.empty();
}

// The key of a Secret that holds the job's token.
struct TokenKey {
  std::string secret, key;
  bool optional = false;
};

// The key of the Secret that is mounted at this path; nullopt if none is.
std::optional<TokenKey> mounted_key(const Json& pod, const Json& container, const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/')), name = path.substr(path.rfind('/') + 1);
  for (const Json& mount : at(container, "/volumeMounts")) {
    if (at(mount, "/mountPath") != folder) continue;
    for (const Json& volume : at(pod, "/volumes")) {
      const Json secret = at(volume, "/secret/secretName");
      if (at(volume, "/name") != at(mount, "/name") || !secret.is_string()) continue;
      const bool optional = at(volume, "/secret/optional") == true;
      for (const Json& item : at(volume, "/secret/items"))
        if (at(item, "/path") == name && at(item, "/key").is_string()) return TokenKey{secret, item["key"], optional};
      return TokenKey{secret, name, optional};
    }
  }
  return std::nullopt;
}

// Where a container's variable takes the token from; nullopt if it is another variable or source.
std::optional<TokenKey> token_key(const Json& pod, const Json& container, const Json& variable) {
  const Json value = at(variable, "/value");
  if (at(variable, "/name") == "LOCKSTEP_TOKEN_FILE" && value.is_string()) return mounted_key(pod, container, value);
  const Json name = at(variable, "/valueFrom/secretKeyRef/name"), key = at(variable, "/valueFrom/secretKeyRef/key");
  if (at(variable, "/name") != "LOCKSTEP_TOKEN" || !name.is_string() || !key.is_string()) return std::nullopt;
  return TokenKey{name, key, at(variable, "/valueFrom/secretKeyRef/optional") == true};
}

}  // namespace

Json owner_reference(const Json& job) {
  return {{"apiVersion", job.at("apiVersion")},
          {"kind", job.at("kind")},
          {"name", at(job, "/metadata/name")},
          {"uid", at(job, "/metadata/uid")}};
}

bool is_rendered_for(const Json& object, const std::string& job) {
  const Json labels = at(object, "/metadata/labels");
  return labels.is_object() && labels.value(kNameLabel, Json()) == "lockstep" &&
         labels.value(kInstanceLabel, Json()) == job && !object.contains("/metadata/ownerReferences"_json_pointer);
}

std::string add_token_reference(Json& job) {
  Json* const container = job.at("kind") == "Job" ? container_of(job) : nullptr;
  if (!container || has_token(*container)) return "";
  const std::string secret = at(job, "/metadata/name").get<std::string>() + "-token";
  Json& env = (*container)["env"];
  if (!env.is_array()) env = Json::array();
  env.push_back({{"name", "LOCKSTEP_TOKEN"}, {"valueFrom", {{"secretKeyRef", {{"name", secret}, {"key", "token"}}}}}});
  return secret;
}

void keep_token_reference(Json& job, const Json& present) {
  Json* const container = container_of(job);
  Json old = present;
  const Json* const running = container_of(old);
  if (!container || !running || has_token(*container)) return;
  const Json annotations = at(present, "/metadata/annotations");
  const Json applied = annotations.is_object() ? annotations.value(kLastApplied, Json()) : Json();
  const bool merged = job.at("kind") == "Job" &&
                      (!applied.is_string() || applied.get<std::string>().find("LOCKSTEP_TOKEN") == std::string::npos);
  for (const Json& variable : at(*running, "/env")) {
    if (merged || at(variable, "/name") != "LOCKSTEP_TOKEN") continue;
    Json& env = (*container)["env"];
    if (!env.is_array()) env = Json::array();
    env.push_back(variable);
  }
}

bool is_owned_by(const Json& object, const std::string& uid) {
  const Json owners = at(object, "/metadata/ownerReferences");
  return std::ranges::any_of(owners, [&](const Json& each) { return at(each, "/uid") == uid; });
}

bool is_owned_by_earlier_job(const Json& object, const Json& job) {
  for (const Json& owner : at(object, "/metadata/ownerReferences"))
    if (at(owner, "/kind") == job.at("kind") && at(owner, "/name") == at(job, "/metadata/name") &&
        at(owner, "/uid") != at(job, "/metadata/uid"))
      return true;
  return false;
}

std::vector<Json> required_objects(const Json& job, const std::string& token, OptionalSecrets optional) {
  const Json pod = at(job, pod_path(job));
  std::vector<Json> out;
  if (at(pod, "/subdomain").is_string()) out.push_back(service_of(job, pod));
  for (const Json& container : at(pod, "/containers"))
    for (const Json& variable : at(container, "/env")) {
      const auto found = token_key(pod, container, variable);
      if (!found || (found->optional && optional == OptionalSecrets::omit)) continue;
      out.push_back({{"apiVersion", "v1"},
                     {"kind", "Secret"},
                     {"metadata", metadata_of(job, found->secret)},
                     {"type", "Opaque"},
                     {"immutable", true},
                     {"stringData", {{found->key, token}}}});
    }
  return out;
}

}  // namespace lockstep
