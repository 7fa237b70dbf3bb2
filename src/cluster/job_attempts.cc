#include "cluster/job_attempts.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

std::string text_in(const detail::Environment& environment, const char* name) {
  const auto at = environment.find(name);
  return at == environment.end() ? "" : at->second;
}

}  // namespace

std::string job_variable(const detail::Environment& environment, const std::string& id, const std::string& attempt) {
  const std::string outer = text_in(environment, kJobVariable);
  return fmt::format("{}{}{}:{}", outer, outer.empty() ? "" : " ", id, attempt);
}

std::vector<JobAttempt> job_attempts(const detail::Environment& environment) {
  std::vector<JobAttempt> out;
  if (const std::string job = text_in(environment, "SLURM_JOB_ID"); !job.empty()) {
    const std::string cluster = text_in(environment, "SLURM_CLUSTER_NAME"),
                      step = text_in(environment, "SLURM_STEP_ID"),
                      restarts = text_in(environment, "SLURM_RESTART_COUNT");
    out.push_back(
        {.id = fmt::format("slurm-{}{}{}{}{}", cluster, cluster.empty() ? "" : "-", job, step.empty() ? "" : ".", step),
         .attempt = restarts.empty() ? "0" : restarts,
         .may_repeat = true});
  }
  std::istringstream words(text_in(environment, kJobVariable));
  for (std::string word; words >> word;) {
    const size_t colon = word.rfind(':');
    if (colon == word.npos || colon == 0 || colon + 1 == word.size()) continue;
    out.push_back({.id = word.substr(0, colon), .attempt = word.substr(colon + 1)});
  }
  std::ranges::reverse(out);
  return out;
}

bool is_in_job_pod(const detail::Environment& environment) {
  if (!environment.contains("KUBERNETES_SERVICE_HOST")) return false;
  const auto is_set = [&](const char* name) { return environment.contains(name); };
  return is_set("JOB_COMPLETION_INDEX") || is_set("KUBEFLOW_TRAINER_SERVER_URL") ||
         (is_set("COORDINATOR_ADDRESS") && is_set("PROCESS_ID"));
}

}  // namespace lockstep
