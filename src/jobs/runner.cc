#include "jobs/runner.h"

#include "base/check.h"
#include "base/os/process.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/kubernetes_runner.h"
#include "jobs/local/local_runner.h"
#include "jobs/slurm/slurm_runner.h"

namespace lockstep {

std::optional<std::pair<Job, Pod>> Runner::find_pod(const std::string& namespace_name, const std::string& name) {
  for (const Job& job : list(namespace_name))
    for (int i = 0; i < job.spec.replicas; ++i) {
      if (pod_name(job, i) != name) continue;
      for (const Pod& pod : pods(job))
        if (pod.index == i) return std::pair(job, pod);
      Pod waiting;
      waiting.index = i;
      waiting.attempt = job.status.restarts;
      return std::pair(job, waiting);
    }
  return std::nullopt;
}

void Runner::pod_log(const Job& job, const Pod& pod, LogOptions options,
                     const std::function<bool(std::string_view)>& sink) {
  options.replica = pod.index;
  options.pod = pod.name;
  logs(job, options, sink);
}

std::string default_namespace(const std::string& on) {
  // If kubectl is missing, make_runner() reports it.
  if (on != "kubernetes" || find_program("kubectl").empty()) return "default";
  static const std::string namespace_name = kubectl::context_namespace();
  return namespace_name;
}

std::unique_ptr<Runner> make_runner(const std::string& on) {
  if (on == "local") return make_local_runner();
  if (on == "slurm") return make_slurm_runner();
  if (on == "kubernetes") return make_kubernetes_runner();
  throw_error("jobs: unknown runner \"{}\"; choose local, slurm or kubernetes", on);
}

}  // namespace lockstep
