#include "jobs/kubernetes/companions.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json at(const Json& object, const char* path) {
  const Json::json_pointer pointer(path);
  return object.contains(pointer) ? object[pointer] : Json();
}

Json metadata_of(const Json& job, const Json& name) {
  Json out = {{"name", name}};
  if (const Json space = at(job, "/metadata/namespace"); space.is_string()) out["namespace"] = space;
  if (const Json labels = at(job, "/metadata/labels"); labels.is_object()) out["labels"] = labels;
  out["ownerReferences"] = Json::array({{{"apiVersion", job.at("apiVersion")},
                                         {"kind", job.at("kind")},
                                         {"name", at(job, "/metadata/name")},
                                         {"uid", at(job, "/metadata/uid")}}});
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

}  // namespace

std::vector<Json> companions_of(const Json& job, const std::string& token) {
  const bool jax_job = job.at("kind") == "JAXJob";
  const Json pod = at(job, jax_job ? "/spec/jaxReplicaSpecs/Worker/template/spec" : "/spec/template/spec");
  std::vector<Json> out;
  if (at(pod, "/subdomain").is_string()) out.push_back(service_of(job, pod));
  for (const Json& container : at(pod, "/containers"))
    for (const Json& variable : at(container, "/env")) {
      const Json name = at(variable, "/valueFrom/secretKeyRef/name"), key = at(variable, "/valueFrom/secretKeyRef/key");
      if (at(variable, "/name") != "LOCKSTEP_TOKEN" || !name.is_string() || !key.is_string()) continue;
      out.push_back({{"apiVersion", "v1"},
                     {"kind", "Secret"},
                     {"metadata", metadata_of(job, name)},
                     {"type", "Opaque"},
                     {"stringData", {{key.get<std::string>(), token}}}});
    }
  return out;
}

}  // namespace lockstep
