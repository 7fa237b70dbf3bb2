#include "jobs/model/state_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

int64_t second_of(JobTime time) { return (time - at(0)).count(); }

}  // namespace

JobTime at(int64_t second) { return parse_time("2026-01-01T00:00:00Z") + std::chrono::seconds(second); }

Job job_of(std::string_view spec) {
  Job job;
  job.name = "mnist";
  job.namespace_name = "kubeflow";
  job.spec.replicas = 2;
  for (const std::string& word : words_of(spec)) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = equals == word.npos ? "" : word.substr(equals + 1);
    for (const RestartPolicy policy :
         {RestartPolicy::never, RestartPolicy::on_failure, RestartPolicy::always, RestartPolicy::exit_code})
      if (key == name_of(policy)) job.spec.restart = policy;
    for (const CleanPodPolicy policy : {CleanPodPolicy::none, CleanPodPolicy::running, CleanPodPolicy::all})
      if (key == "clean" && value == name_of(policy)) job.spec.clean = policy;
    if (key == "replicas") job.spec.replicas = std::stoi(value);
    if (key == "backoff") job.spec.backoff_limit = std::stoi(value);
    if (key == "deadline") job.spec.active_deadline = std::stoll(value);
    if (key == "ttl") job.spec.ttl_after_finished = std::stoll(value);
    if (key == "suspend") job.spec.suspend = true;
    if (key == "batch") job.kind = JobKind::indexed_job;
  }
  return job;
}

std::string state_text(const JobStatus& status) {
  std::string out;
  const auto add = [&](const std::string& word) { out += (out.empty() ? "" : " ") + word; };
  const auto add_number = [&](const char* name, int64_t value) {
    if (value != 0) add(fmt::format("{}={}", name, value));
  };
  const auto add_time = [&](const char* name, const std::optional<JobTime>& time) {
    if (time) add(fmt::format("{}={}", name, second_of(*time)));
  };
  for (const Condition& condition : status.conditions) add((condition.status ? "" : "!") + condition.type);
  add_number("active", status.active);
  add_number("succeeded", status.succeeded);
  add_number("failed", status.failed);
  add_time("started", status.started);
  add_time("completed", status.completed);
  add_number("restarts", status.restarts);
  add_number("attempt", status.attempt);
  add_number("before", status.failed_before);
  add_number("taken", status.taken_ports);
  add_time("next", status.next_start);
  if (!status.completed_indexes.empty()) add("indexes=" + status.completed_indexes);
  return out;
}

JobStatus state_of(std::string_view text, JobKind kind) {
  JobStatus out;
  for (const std::string& word : words_of(text)) {
    const size_t equals = word.find('=');
    if (equals == word.npos) {
      const bool status = word[0] != '!';
      const std::string type = word.substr(status ? 0 : 1);
      const std::string reason = fmt::format("{}{}", name_of(kind), type == "Suspended" && !status ? "Resumed" : type);
      out.conditions.push_back({type, status, reason, "", at(0), at(0)});
      continue;
    }
    const std::string key = word.substr(0, equals);
    const int number = key == "indexes" ? 0 : std::stoi(word.substr(equals + 1));
    if (key == "active") out.active = number;
    if (key == "succeeded") out.succeeded = number;
    if (key == "failed") out.failed = number;
    if (key == "started") out.started = at(number);
    if (key == "completed") out.completed = at(number);
    if (key == "restarts") out.restarts = number;
    if (key == "attempt") out.attempt = number;
    if (key == "before") out.failed_before = number;
    if (key == "taken") out.taken_ports = number;
    if (key == "next") out.next_start = at(number);
    if (key == "indexes") out.completed_indexes = word.substr(equals + 1);
  }
  return out;
}

std::vector<Pod> pods_of(std::string_view text, int attempt) {
  std::vector<Pod> out;
  int index = 0;
  for (const std::string& word : words_of(text)) {
    if (word == "|") {
      --attempt;
      index = 0;
      continue;
    }
    Pod pod;
    pod.index = index++;
    pod.attempt = attempt;
    if (word == "-") continue;
    if (word == "R") pod.phase = PodPhase::running;
    if (word == "S") pod.phase = PodPhase::succeeded, pod.exit_code = 0, pod.reason = "Completed";
    if (word == "T") pod.phase = PodPhase::failed, pod.exit_code = 1, pod.reason = kPortTaken;
    if (word == "L") pod.phase = PodPhase::failed, pod.reason = "Lost";
    if (word[0] == 'F') pod.phase = PodPhase::failed, pod.exit_code = std::stoi(word.substr(1)), pod.reason = "Error";
    out.push_back(pod);
  }
  return out;
}

std::string decision_text(const Decision& decision) {
  std::string out;
  const auto add = [&](const std::string& word) { out += (out.empty() ? "" : " ") + word; };
  if (decision.stop) add("stop");
  if (decision.start) add("start");
  if (decision.clean) add("clean");
  if (decision.remove) add("remove");
  if (decision.wake) add(fmt::format("wake={}", second_of(*decision.wake)));
  return out;
}

}  // namespace lockstep
