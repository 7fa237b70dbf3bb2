#include "cli/apply_jobs.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/ownership.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

// Waits until the controller has created the first pods, or has reported that it cannot: for a moment only, because it
// may be busy. Reports the reason.
void report_refused_pods(Runner& runner, const Job& job, const std::function<void(std::string_view)>& note) {
  constexpr std::chrono::seconds kMoment{2};
  constexpr std::chrono::milliseconds kPause{200};
  if (job.spec.suspend) return;
  const auto end = std::chrono::steady_clock::now() + kMoment;
  for (;; std::this_thread::sleep_for(kPause)) {
    const Job current = runner.get(job.namespace_name, job.name, job.kind);
    if (const std::string reason = runner.why_waiting(current); !reason.empty())
      return note(fmt::format("{} waits: {}", job.name, reason));
    if (!runner.pods(current).empty() || std::chrono::steady_clock::now() >= end) return;
  }
}

// Changes that need the jobs on the cluster. The jobs run without them.
void finish_on_cluster(Runner& runner, const JobFiles& files, const std::function<void(std::string_view)>& note) {
  for (const OtherObject& each : files.others)
    if (each.kind == "JobSet" || each.kind == "TrainJob")
      adopt_rendered_objects({each.kind, each.name, each.namespace_name}, files.others);
  for (const Job& job : files.jobs)
    adopt_rendered_objects({std::string(name_of(job.kind)), job.name, job.namespace_name}, files.others);
  for (const Job& job : files.jobs) report_refused_pods(runner, job, note);
}

}  // namespace

void apply_jobs(Runner& runner, const JobFlags& flags, const JobFiles& files,
                const std::function<void(std::string_view)>& note) {
  const bool on_cluster = runner_name(flags) == "kubernetes";
  // Jobs come last because they use the other objects, such as a ConfigMap or Secret.
  for (const OtherObject& each : files.others) {
    if (!on_cluster) break;
    fmt::print("{}\n", kubectl::apply_object(each.value, each.namespace_name));
    std::fflush(stdout);
  }
  for (const Job& job : files.jobs) {
    const std::string done = runner.apply(job, note);
    fmt::print("{} {}\n", full_name(job), done);
    std::fflush(stdout);
  }
  if (!on_cluster) return;
  try {
    finish_on_cluster(runner, files, note);
  } catch (const std::runtime_error& error) {  // also a job that was deleted in the meantime
    note(error.what());
  }
}

}  // namespace lockstep::cli
