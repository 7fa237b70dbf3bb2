#include "board/job_api.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"
#include "jobs/runner.h"
#include "jobs/show.h"

namespace lockstep::board {
namespace {

using nlohmann::json;

constexpr int64_t kLogLines = 200;
constexpr size_t kMaxLogBytes = size_t{1} << 20;

json time_json(std::optional<JobTime> time) { return time ? json(time->time_since_epoch().count()) : json(nullptr); }

json pod_json(const Job& job, const Pod& pod) {
  return {{"name", pod_name(job, pod)},
          {"index", pod.index},
          {"status", pod_status(pod)},
          {"node", pod.node},
          {"started", time_json(pod.started)},
          {"ended", time_json(pod.ended)},
          {"exit_code", pod.exit_code ? json(*pod.exit_code) : json(nullptr)}};
}

}  // namespace

std::string jobs_json() {
  const std::unique_ptr<Runner> runner = make_runner("local");
  json jobs = json::array();
  for (const Job& job : runner->list("")) {
    json pods = json::array();
    for (const Pod& pod : runner->pods(job)) pods.push_back(pod_json(job, pod));
    jobs.push_back({{"name", job.name},
                    {"namespace", job.namespace_name},
                    {"kind", name_of(job.kind)},
                    {"state", job_state(job)},
                    {"finished", is_finished(job)},
                    {"suspended", job.spec.suspend},
                    {"restarts", job.status.restarts},
                    {"created", time_json(job.created)},
                    {"replicas", std::move(pods)}});
  }
  return json{{"jobs", std::move(jobs)}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string job_log(const std::string& namespace_name, const std::string& name, int replica) {
  const std::unique_ptr<Runner> runner = make_runner("local");
  const Job job = runner->get(namespace_name, name);
  if (replica < 0 || replica >= job.spec.replicas)
    throw_error("{} has no replica {}; give a number from 0 to {}", name, replica, job.spec.replicas - 1);
  std::string out;
  runner->logs(job, {.replica = replica, .tail = kLogLines}, [&](std::string_view text) {
    out += text;
    return out.size() < kMaxLogBytes;
  });
  return printable_lines(out);
}

void change_job(const std::string& namespace_name, const std::string& name, const std::string& action) {
  if (action != "suspend" && action != "resume" && action != "delete")
    throw_error("unknown action \"{}\"; choose suspend, resume or delete", printable(action));
  const std::unique_ptr<Runner> runner = make_runner("local");
  const Job job = runner->get(namespace_name, name);
  if (action == "delete")
    runner->remove(job);
  else
    runner->set_suspend(job, action == "suspend");
}

}  // namespace lockstep::board
