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

constexpr size_t kMaxSlurmEvents = 500;

std::string kind_of(const Job& job) { return std::string(name_of(job.kind)); }

// Sets a condition. Adds an event and returns true if the condition changed.
bool set(SlurmJob& job, JobTime time, const std::string& type, bool status, const std::string& word,
         const std::string& message) {
  const std::vector<Condition> before = job.job.status.conditions;
  const std::string reason = kind_of(job.job) + word;
  set_condition(job.job.status, {type, status, reason, message, time, time});
  if (job.job.status.conditions == before) return false;
  add_event(job, time, type == "Restarting" || type == "Failed", reason, message);
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

int failures(const std::map<int, int>& exit_codes) {
  return static_cast<int>(std::ranges::count_if(exit_codes, [](const auto& each) { return each.second != 0; }));
}

// The message of the Failed condition.
std::string failure_message(const SlurmJob& job, const SlurmJobInfo& info, const std::map<int, int>& exit_codes) {
  const Job& model = job.job;
  const std::string name = kind_of(model) + " " + model.name;
  const std::string slurm = fmt::format("Slurm job {}", job.id);
  if (info.state == "TIMEOUT" || info.state == "DEADLINE")
    return fmt::format("Job {} has failed because it was active longer than specified deadline", model.name);
  if (info.state == "CANCELLED") return fmt::format("{} is failed because {} was cancelled.", name, slurm);
  if (info.state == "NODE_FAIL" || info.state == "BOOT_FAIL")
    return fmt::format("{} is failed because {} lost a node of {}.", name, slurm, info.nodes);
  if (info.state == "OUT_OF_MEMORY")
    return fmt::format("{} is failed because {} exceeded its memory limit.", name, slurm);
  if (info.state == "PREEMPTED") return fmt::format("{} is failed because {} was preempted.", name, slurm);
  if (model.spec.backoff_limit && model.spec.restart != RestartPolicy::never &&
      info.restarts >= *model.spec.backoff_limit)
    return fmt::format("Job {} has failed because it has reached the specified backoff limit", model.name);
  if (const int failed = failures(exit_codes); failed > 0)
    return fmt::format("{} is failed because {} Worker replica(s) failed.", name, failed);
  return fmt::format("{} is failed because {} ended with exit code {}.", name, slurm, info.exit_code);
}

void set_waiting(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  status.active = 0;
  const int restarts = job.info.restarts;
  if (restarts > 0 && !holds(status, "Restarting"))
    set(job, now, "Restarting", true, "Restarting",
        fmt::format("{} {} is restarting because Slurm requeued it.", kind_of(job.job), job.job.name));
}

void set_running(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  const JobTime time = job.info.started.value_or(now);
  if (!status.started) status.started = time;
  status.active = job.job.spec.replicas;
  if (set(job, time, "Running", true, "Running",
          fmt::format("{} {}/{} is running.", kind_of(job.job), job.job.namespace_name, job.job.name)))
    add_event(job, time, false, "Scheduled", fmt::format("Slurm job {} runs on {}", job.id, job.info.nodes));
}

// Pod::reason. `code` is nullopt for a task that srun did not report; then Slurm's state decides.
std::string pod_reason(const SlurmJobInfo& info, std::optional<int> code) {
  if (code) return code == 0 ? "Completed" : info.state == "OUT_OF_MEMORY" ? "OOMKilled" : "Error";
  if (info.state == "OUT_OF_MEMORY") return "OOMKilled";
  if (info.state == "NODE_FAIL" || info.state == "BOOT_FAIL") return "Lost";
  if (info.state == "TIMEOUT" || info.state == "DEADLINE") return "DeadlineExceeded";
  return info.state == "CANCELLED" || info.state == "PREEMPTED" ? "Stopped" : "Error";
}

// The node of a task: Slurm fills the nodes in order. Returns "" if the nodes have different numbers of tasks.
std::string node_of(const SlurmJob& job, int index) {
  if (job.info.nodes.empty()) return "";
  const std::vector<std::string> nodes = detail::expand_host_list(job.info.nodes, "Slurm's node list");
  const size_t tasks = static_cast<size_t>(job.job.spec.replicas);
  if (nodes.empty() || tasks % nodes.size() != 0) return "";
  return nodes[static_cast<size_t>(index) / (tasks / nodes.size())];
}

}  // namespace

void add_event(SlurmJob& job, JobTime time, bool warning, std::string reason, std::string message) {
  job.events.push_back({time, warning, (job.job.kind == JobKind::jax_job ? "jaxjob/" : "job/") + job.job.name,
                        std::move(reason), std::move(message)});
  if (job.events.size() > kMaxSlurmEvents) job.events.erase(job.events.begin());
}

void update_status(SlurmJob& job, const SlurmJobInfo& info, const std::map<int, int>& exit_codes, JobTime now) {
  if (is_finished(job.job)) return;
  const JobStatus before = job.job.status;
  JobStatus& status = job.job.status;
  const SlurmStage stage = stage_of(info);
  job.info = info;
  status.attempt = job.first_attempt + info.restarts;
  status.restarts = info.restarts;
  // A job that ended between two queries was Running, too.
  if (stage == SlurmStage::waiting)
    set_waiting(job, now);
  else
    set_running(job, now);
  if (stage == SlurmStage::succeeded || stage == SlurmStage::failed) {
    const JobTime time = info.ended.value_or(now);
    status.active = 0;
    status.completed = time;
    status.failed = stage == SlurmStage::failed ? std::max(1, failures(exit_codes)) : 0;
    status.succeeded = stage == SlurmStage::failed ? 0 : job.job.spec.replicas;
    if (stage == SlurmStage::failed)
      set(job, time, "Failed", true, "Failed", failure_message(job, info, exit_codes));
    else
      set(job, time, "Succeeded", true, "Succeeded",
          fmt::format("{} {}/{} successfully completed.", kind_of(job.job), job.job.namespace_name, job.job.name));
  }
  if (status != before) ++job.job.version;
}

void set_suspended(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  if (!job.id.empty()) job.first_attempt = status.attempt + 1;
  job.id.clear();
  job.info = {};
  status.active = 0;
  for (const char* type : {"Running", "Restarting"}) set_false(status, type, now);
  set(job, now, "Suspended", true, "Suspended", fmt::format("{} {} is suspended.", kind_of(job.job), job.job.name));
  ++job.job.version;
}

void set_resumed(SlurmJob& job, JobTime now) {
  JobStatus& status = job.job.status;
  if (holds(status, "Suspended"))
    set(job, now, "Suspended", false, "Resumed", fmt::format("{} {} is resumed.", kind_of(job.job), job.job.name));
  status.started.reset();
  status.attempt = job.first_attempt;
  ++job.job.version;
}

std::vector<Pod> slurm_pods(const SlurmJob& job, const std::map<int, int>& exit_codes) {
  std::vector<Pod> out;
  if (job.id.empty()) return out;
  const SlurmStage stage = job.info.state.empty() ? SlurmStage::waiting : stage_of(job.info);
  for (int i = 0; i < job.job.spec.replicas; ++i) {
    Pod pod;
    pod.index = i;
    pod.attempt = job.job.status.attempt;
    const auto end = exit_codes.find(i);
    if (stage != SlurmStage::waiting) {
      pod.phase = PodPhase::running;
      pod.node = node_of(job, i);
      pod.started = job.info.started;
    }
    if (stage == SlurmStage::succeeded) {
      pod.phase = PodPhase::succeeded;
      pod.exit_code = 0;
    } else if (stage == SlurmStage::failed || (stage == SlurmStage::running && end != exit_codes.end())) {
      // If srun reported some tasks of a failed job, the others succeeded.
      if (end != exit_codes.end())
        pod.exit_code = end->second;
      else if (job.info.state == "FAILED" && !exit_codes.empty())
        pod.exit_code = 0;
      pod.phase = pod.exit_code == 0 ? PodPhase::succeeded : PodPhase::failed;
    }
    if (pod.phase == PodPhase::succeeded || pod.phase == PodPhase::failed) {
      pod.reason = pod_reason(job.info, pod.exit_code);
      pod.ended = job.info.ended;
    }
    out.push_back(std::move(pod));
  }
  return out;
}

Json slurm_job_to_json(const SlurmJob& job) {
  Json events = Json::array();
  for (const JobEvent& event : job.events) events.push_back(event_to_json(event));
  return {{"job", job_to_json(job.job)}, {"id", job.id},           {"first_attempt", job.first_attempt},
          {"folder", job.folder},        {"program", job.program}, {"info", job_info_to_json(job.info)},
          {"events", std::move(events)}};
}

SlurmJob slurm_job_from_json(const Json& value) {
  try {
    SlurmJob out{.job = job_from_json(value.at("job")),
                 .id = value.at("id"),
                 .first_attempt = integer_at<int>(value, "first_attempt"),
                 .folder = value.at("folder"),
                 .program = value.at("program"),
                 .info = job_info_from_json(value.at("info")),
                 .events = {}};
    for (const Json& event : value.at("events")) out.events.push_back(event_from_json(event));
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw_error("read a Slurm job: {}; its file was changed by hand or by another version", error.what());
  }
}

}  // namespace lockstep
