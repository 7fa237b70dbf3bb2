// Parses jobs from manifests: YAML (one or more documents) or JSON, as kubectl accepts them. Every mistake throws
// Error with the file, the line, the path of the field, its value and the remedy. Pure functions, safe from any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

inline constexpr int kMaxReplicas = 4096;

struct ManifestOptions {
  std::string namespace_name = "default";  // the namespace of objects without metadata.namespace
  std::string suffix = {};  // five random letters to append to metadata.generateName; empty: reject generateName
  bool any_kind = false;    // put objects of unknown kinds into `others` instead of rejecting them
};

// An object that is not a job, such as a Service or a ConfigMap. Only Kubernetes uses it.
struct OtherObject {
  nlohmann::ordered_json value;
  std::string kind, name, namespace_name;  // the name may be empty
};

struct Manifests {
  std::vector<Job> jobs;            // without status, uid and creation time
  std::vector<OtherObject> others;  // in the order of the file
  std::vector<std::string> notes;   // one sentence for each ignored object or field (a Service, a sidecar...)
};

// Parses JAXJobs (kubeflow.org/v1), Indexed Jobs (batch/v1) and Lists of them. The result has no jobs if the file
// has only other objects. `source` is the file name for error messages.
Manifests parse_manifests(std::string_view text, const std::string& source, const ManifestOptions& options = {});

// Why `name` is not a valid namespace, with the remedy; "" if it is valid.
std::string namespace_error(std::string_view name);

// Updates the existing `job` to `wanted` and returns "configured" or "unchanged". Labels, suspend, policies, limits
// and times may change. Throws Error for a change of the replicas, the container or the kind. The status is kept.
std::string update_job(Job& job, const Job& wanted);

// The container's environment for replica `index`: fieldRefs are resolved, and $(NAME) is replaced by the value of
// an earlier variable. The runner appends its own variables (COORDINATOR_ADDRESS, NUM_PROCESSES...).
std::vector<std::pair<std::string, std::string>> replica_env(const Job& job, int index);

// Expands $(NAME) as Kubernetes does in command, args and env: unknown names stay, $$(NAME) is a literal $(NAME).
std::string expand_variables(std::string_view text, const std::vector<std::pair<std::string, std::string>>& env);

}  // namespace lockstep
