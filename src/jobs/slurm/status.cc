#include "jobs/slurm/status.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"
#include "cluster/host_list.h"
#include "jobs/model/object.h"
#include "jobs/model/reconcile.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostSlurmEvents = 500;

std::string kind_of(const Job& job) { return std::string(name_of(job.kind)); }

// Returns whether that was news, of which it then tells.
bool set(SlurmJob& job, JobTime time, const std::string& type, bool status, const std::string& word,
         const std::string& message) {
  const std::vector<Condition> before = job.job.status.conditions;
  const std::string reason = kind_of(job.job) + word;
  set_condition(job.job.status, {type, status, reason, message, time, time});
  if (job.job.status.conditions == before) return false;
  tell(job, time, type == "Restarting" || type == "Failed", reason, message);
  return true;
}

void set_false(JobStatus& status, std::string_view type, JobTime time) {
  for (Condition& each : status.conditions)
    if (each.type == type && each.status) each.status = false, each.updated = each.transitioned = time;
}

bool holds(const JobStatus& status, std::string_view type) {
  return std::ranges::any_of(status.conditions,
                             [&](const Condition& each) { return each.type == type && each.status; });
}

int failures(const std::map<int, int>& ends) {
  return static_cast<int>(std::ranges::count_if(ends, [](const auto& each) { return each.second != 0; }));
}

// Why it has failed.
std::string failure(const SlurmJob& job, const SlurmSight& sight, const std::map<int, int>& ends) {
  const Job& its = job.job;
  const std::string name = kind_of(its) + " " + its.name;
  const std::string slurm = fmt::format("Slurm's job {}", job.id);
  if (sight.state == "TIMEOUT" || sight.state == "DEADLINE")
    return fmt::format("Job {} has failed because it was active longer than specified deadline", its.name);
  if (sight.state == "CANCELLED") return fmt::format("{} is failed because {} was cancelled.", name, slurm);
  if (sight.state == "NODE_FAIL" || sight.state == "BOOT_FAIL")
    return fmt::format("{} is failed because {} has lost a node of {}.", name, slurm, sight.nodes);
  if (sight.state == "OUT_OF_MEMORY")
    return fmt::format("{} is failed because {} has used more memory than it may.", name, slurm);
  if (sight.state == "PREEMPTED")
    return fmt::format("{} is failed because {} had to make room for others.", name, slurm);
  if (its.spec.backoff_limit && its.spec.restart != RestartPolicy::never && sight.restarts >= *its.spec.backoff_limit)
    return fmt::format("Job {} has failed because it has reached the specified backoff limit", its.name);
  if (const int failed = failures(ends); failed > 0)
    return fmt::format("{} is failed because {} Worker replica(s) failed.", name, failed);
  return fmt::format("{} is failed because {} ended with exit code {}.", name, slurm, sight.exit_code);
}

void see_waiting(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  status.active = 0;
  const int restarts = job.sight.restarts;
  if (restarts > 0 && !holds(status, "Restarting"))
    set(job, now, "Restarting", true, "Restarting",
        fmt::format("{} {} is restarting because Slurm has put it back into the queue.", kind_of(job.job),
                    job.job.name));
}

void see_running(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  const JobTime time = job.sight.started.value_or(now);
  if (!status.started) status.started = time;
  status.active = job.job.spec.replicas;
  if (set(job, time, "Running", true, "Running",
          fmt::format("{} {}/{} is running.", kind_of(job.job), job.job.space, job.job.name)))
    tell(job, time, false, "Scheduled", fmt::format("Slurm's job {} runs on {}", job.id, job.sight.nodes));
}

// "Completed", "Error", or what Slurm knows of one of which srun said nothing.
std::string pod_reason(const SlurmSight& sight, std::optional<int> code) {
  if (code) return code == 0 ? "Completed" : sight.state == "OUT_OF_MEMORY" ? "OOMKilled" : "Error";
  if (sight.state == "OUT_OF_MEMORY") return "OOMKilled";
  if (sight.state == "NODE_FAIL" || sight.state == "BOOT_FAIL") return "Lost";
  if (sight.state == "TIMEOUT" || sight.state == "DEADLINE") return "DeadlineExceeded";
  return sight.state == "CANCELLED" || sight.state == "PREEMPTED" ? "Stopped" : "Error";
}

// Where each task runs, by Slurm's rule that fills nodes in order; empty where the tasks are not spread evenly.
std::string node_of(const SlurmJob& job, int index) {
  if (job.sight.nodes.empty()) return "";
  const std::vector<std::string> nodes = detail::expand_host_list(job.sight.nodes, "Slurm's list of nodes");
  const size_t tasks = static_cast<size_t>(job.job.spec.replicas);
  if (nodes.empty() || tasks % nodes.size() != 0) return "";
  return nodes[static_cast<size_t>(index) / (tasks / nodes.size())];
}

}  // namespace

void tell(SlurmJob& job, JobTime time, bool warning, std::string reason, std::string message) {
  job.events.push_back({time, warning, (job.job.kind == JobKind::jax_job ? "jaxjob/" : "job/") + job.job.name,
                        std::move(reason), std::move(message)});
  if (job.events.size() > kMostSlurmEvents) job.events.erase(job.events.begin());
}

void see(SlurmJob& job, const SlurmSight& sight, const std::map<int, int>& ends, JobTime now) {
  if (is_finished(job.job)) return;
  const JobStatus before = job.job.status;
  JobStatus& status = job.job.status;
  // A start that was over before anybody looked has been one all the same.
  const SlurmStage stage = stage_of(sight);
  job.sight = sight;
  status.attempt = job.first_attempt + sight.restarts;
  status.restarts = sight.restarts;
  if (stage == SlurmStage::waiting) {
    see_waiting(job, now);
  } else {
    see_running(job, now);
  }
  if (stage == SlurmStage::succeeded || stage == SlurmStage::failed) {
    const JobTime time = sight.ended.value_or(now);
    status.active = 0;
    status.completed = time;
    status.failed = stage == SlurmStage::failed ? std::max(1, failures(ends)) : 0;
    status.succeeded = stage == SlurmStage::failed ? 0 : job.job.spec.replicas;
    if (stage == SlurmStage::failed)
      set(job, time, "Failed", true, "Failed", failure(job, sight, ends));
    else
      set(job, time, "Succeeded", true, "Succeeded",
          fmt::format("{} {}/{} successfully completed.", kind_of(job.job), job.job.space, job.job.name));
  }
  if (status != before) ++job.job.version;
}

void see_suspended(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  if (!job.id.empty()) job.first_attempt = status.attempt + 1;
  job.id.clear();
  job.sight = {};
  status.active = 0;
  for (const char* type : {"Running", "Restarting"}) set_false(status, type, now);
  set(job, now, "Suspended", true, "Suspended", fmt::format("{} {} is suspended.", kind_of(job.job), job.job.name));
  ++job.job.version;
}

void see_resumed(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  if (holds(status, "Suspended"))
    set(job, now, "Suspended", false, "Resumed", fmt::format("{} {} is resumed.", kind_of(job.job), job.job.name));
  status.started.reset();
  status.attempt = job.first_attempt;
  ++job.job.version;
}

std::vector<Pod> slurm_pods(const SlurmJob& job, const std::map<int, int>& ends) {
  std::vector<Pod> out;
  if (job.id.empty()) return out;
  const SlurmStage stage = job.sight.state.empty() ? SlurmStage::waiting : stage_of(job.sight);
  for (int i = 0; i < job.job.spec.replicas; ++i) {
    Pod pod;
    pod.index = i;
    pod.attempt = job.job.status.attempt;
    const auto end = ends.find(i);
    if (stage != SlurmStage::waiting) {
      pod.phase = PodPhase::running;
      pod.node = node_of(job, i);
      pod.started = job.sight.started;
    }
    if (stage == SlurmStage::succeeded) {
      pod.phase = PodPhase::succeeded;
      pod.exit_code = 0;
    } else if (stage == SlurmStage::failed || (stage == SlurmStage::running && end != ends.end())) {
      // Where a job failed by itself and srun spoke of some tasks, the others ended well.
      if (end != ends.end())
        pod.exit_code = end->second;
      else if (job.sight.state == "FAILED" && !ends.empty())
        pod.exit_code = 0;
      pod.phase = pod.exit_code == 0 ? PodPhase::succeeded : PodPhase::failed;
    }
    if (pod.phase == PodPhase::succeeded || pod.phase == PodPhase::failed) {
      pod.reason = pod_reason(job.sight, pod.exit_code);
      pod.ended = job.sight.ended;
    }
    out.push_back(std::move(pod));
  }
  return out;
}

Json slurm_job_to_json(const SlurmJob& job) {
  Json events = Json::array();
  for (const JobEvent& event : job.events) events.push_back(event_to_json(event));
  return {{"job", job_to_json(job.job)}, {"id", job.id},           {"first_attempt", job.first_attempt},
          {"folder", job.folder},        {"program", job.program}, {"sight", sight_to_json(job.sight)},
          {"events", std::move(events)}};
}

SlurmJob slurm_job_from_json(const Json& value) {
  try {
    SlurmJob out{.job = job_from_json(value.at("job")),
                 .id = value.at("id"),
                 .first_attempt = integer_at<int>(value, "first_attempt"),
                 .folder = value.at("folder"),
                 .program = value.at("program"),
                 .sight = sight_from_json(value.at("sight")),
                 .events = {}};
    for (const Json& event : value.at("events")) out.events.push_back(event_from_json(event));
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw_error("read a job of Slurm: {}; its file was changed by hand, or by another version", error.what());
  }
}

}  // namespace lockstep
