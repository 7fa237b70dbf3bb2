// The objects that a job on Kubernetes requires: the headless Service that its pods name as their subdomain, and the
// Secret with its token. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

// Whether required_objects() has Secrets without which the pods start, too (optional: true).
enum class OptionalSecrets { include, omit };

// The Service and the Secrets that `job`, a JAXJob or Indexed Job, refers to, with the labels of rendered objects. If
// the job has a uid, it is their owner, so that Kubernetes deletes them with it. The Secret holds `token` under the key
// that the job reads.
std::vector<nlohmann::ordered_json> required_objects(const nlohmann::ordered_json& job, const std::string& token,
                                                     OptionalSecrets optional = OptionalSecrets::include);

// The ownerReference of an object that Kubernetes deletes with `job`, an object from the API server.
nlohmann::ordered_json owner_reference(const nlohmann::ordered_json& job);

// Whether `lockstep render` wrote this object for the job of this name, and nothing owns it.
bool is_rendered_for(const nlohmann::ordered_json& object, const std::string& job);

// Adds LOCKSTEP_TOKEN from the Secret NAME-token to the container of `job`, a new one, and returns the name of the
// Secret. Returns "" and adds nothing if
// - the container has LOCKSTEP_TOKEN or LOCKSTEP_TOKEN_FILE, or has envFrom, which may contain them;
// - it is a JAXJob. `kubectl apply` would replace its whole list of containers and so remove the variable, and replicas
//   that are created later could not join. Without a token its processes recognize each other by their addresses.
std::string add_token_reference(nlohmann::ordered_json& job);

// Adds LOCKSTEP_TOKEN of `present`, the same job on the API server, to the container of `job` if `kubectl apply` would
// remove it otherwise.
void keep_token_reference(nlohmann::ordered_json& job, const nlohmann::ordered_json& present);

// Whether an object with this uid owns `object`.
bool is_owned_by(const nlohmann::ordered_json& object, const std::string& uid);

// Whether the owner of `object` is an earlier job with the kind and name of `job`. Kubernetes will delete the object.
bool is_owned_by_earlier_job(const nlohmann::ordered_json& object, const nlohmann::ordered_json& job);

}  // namespace lockstep
