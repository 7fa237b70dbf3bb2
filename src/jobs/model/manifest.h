// Reading jobs from manifests: YAML (several documents) or JSON, as kubectl takes them. Every mistake throws Error with
// the file, the line, the path of the field, its value and the remedy. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

inline constexpr int kMostReplicas = 4096;

struct ManifestOptions {
  std::string space = "default";  // the namespace of those that name none
  std::string suffix = {};        // five random letters, put behind metadata.generateName; empty: that is refused
  bool any_kind = false;          // objects of unknown kinds are others, not errors: kubectl knows them
};

// An object of a manifest that is no job: a Service, a ConfigMap. Only a cluster has a use for it.
struct OtherObject {
  nlohmann::ordered_json value;
  std::string kind, name, space;  // the name may be empty
};

struct Manifests {
  std::vector<Job> jobs;            // status, uid and created are not set yet
  std::vector<OtherObject> others;  // in the order of the file
  std::vector<std::string> notes;   // what is read over here (a Service, an image's sidecar...), each one sentence
};

// Reads JAXJobs (kubeflow.org/v1), Indexed Jobs (batch/v1) and Lists of them; there may be none where all objects are
// read over (a file with a Service only). `source` is what errors call the file.
Manifests parse_manifests(std::string_view text, const std::string& source, const ManifestOptions& options = {});

// What is wrong with the name of a namespace, with the remedy; empty: nothing.
std::string wrong_namespace(std::string_view name);

// Makes `job`, which exists, what `wanted` says: "configured", or "unchanged". Labels, suspend, the policies, limits
// and times may change; Error names what may not (replicas, the container, the kind) and the remedy. The status stays.
std::string update_job(Job& job, const Job& wanted);

// The variables of the container as replica `index` gets them: fields resolved, $(NAME) replaced by those before. What
// a runner adds (COORDINATOR_ADDRESS, NUM_PROCESSES...) goes behind them.
std::vector<std::pair<std::string, std::string>> replica_env(const Job& job, int index);

// $(NAME) replaced as Kubernetes does in command, args and env: an unknown one stays, $$(NAME) is a literal $(NAME).
std::string expand_variables(std::string_view text, const std::vector<std::pair<std::string, std::string>>& env);

}  // namespace lockstep
