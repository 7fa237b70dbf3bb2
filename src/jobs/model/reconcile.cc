#include "jobs/model/reconcile.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr int64_t kMaxBackoff = 60;                 // seconds between restarts
constexpr int64_t kMaxDuration = int64_t{1} << 33;  // seconds; longer limits could overflow JobTime
constexpr int kMinRetryCode = 128;                  // restartPolicy ExitCode
constexpr int kMaxTakenPorts = 10;                  // more count as failures

JobTime after(JobTime time, int64_t duration) { return time + seconds(std::clamp<int64_t>(duration, 0, kMaxDuration)); }

bool is_alive(const Pod& pod) { return pod.phase == PodPhase::pending || pod.phase == PodPhase::running; }

// The rule of restartPolicy ExitCode, as in the Kubeflow operator. A lost replica did not choose its exit code.
bool is_retryable(const Pod& pod) { return pod.reason == "Lost" || !pod.exit_code || *pod.exit_code >= kMinRetryCode; }

const Condition* find_condition(const JobStatus& status, std::string_view type) {
  const auto found = std::ranges::find(status.conditions, type, &Condition::type);
  return found == status.conditions.end() ? nullptr : &*found;
}

bool is_true(const JobStatus& status, std::string_view type) {
  const Condition* condition = find_condition(status, type);
  return condition && condition->status;
}

// "0-2,5": three or more consecutive indexes form a range.
std::string index_text(const std::vector<int>& indexes) {
  std::string out;
  for (size_t i = 0; i < indexes.size();) {
    size_t last = i;
    while (last + 1 < indexes.size() && indexes[last + 1] == indexes[last] + 1) ++last;
    if (last - i < 2) last = i;
    if (!out.empty()) out += ',';
    out += last == i ? fmt::format("{}", indexes[i]) : fmt::format("{}-{}", indexes[i], indexes[last]);
    i = last + 1;
  }
  return out;
}

// Reason and message of a condition or event.
struct StatusText {
  std::string reason, message;
};

// The texts of the Kubeflow operator, or `batch` for an Indexed Job unless that is empty.
StatusText status_text(const Job& job, std::string_view type, std::string_view kubeflow_message, StatusText batch) {
  if (job.kind == JobKind::jax_job || batch.reason.empty())
    return {fmt::format("{}{}", name_of(job.kind), type), fmt::format("{} {}", name_of(job.kind), kubeflow_message)};
  return batch;
}

// One call of reconcile().
class Reconciler {
 public:
  Reconciler(Job& job, const std::vector<Pod>& pods, JobTime now)
      : job_(job), status_(job.status), pods_(pods), now_(now) {
    count_pods();
  }

  Decision run() {
    if (!find_condition(status_, "Created"))
      set("Created", true, status_text(job_, "Created", job_.name + " is created.", {}));
    if (!is_finished(job_)) advance();
    if (is_finished(job_)) clean_up();
    return std::move(decision_);
  }

 private:
  void count_pods() {
    std::vector<int> done;
    std::vector<bool> present(static_cast<size_t>(job_.spec.replicas));
    present_ = pending_ = running_ = succeeded_ = failed_ = 0;
    fatal_ = old_alive_ = port_taken_ = false;
    alive_ = std::ranges::any_of(pods_, is_alive);
    for (const Pod& pod : pods_) {
      LOCKSTEP_CHECK(pod.index >= 0 && pod.index < job_.spec.replicas, "replica {} of {}", pod.index,
                     job_.spec.replicas);
      if (pod.attempt < status_.attempt) {
        old_alive_ = old_alive_ || is_alive(pod);
        continue;
      }
      present[static_cast<size_t>(pod.index)] = true;
      pending_ += pod.phase == PodPhase::pending;
      running_ += pod.phase == PodPhase::running;
      succeeded_ += pod.phase == PodPhase::succeeded;
      failed_ += pod.phase == PodPhase::failed;
      fatal_ = fatal_ || (pod.phase == PodPhase::failed && !is_retryable(pod));
      port_taken_ = port_taken_ || (pod.phase == PodPhase::failed && pod.reason == kPortTaken);
      if (pod.phase == PodPhase::succeeded) done.push_back(pod.index);
    }
    present_ = static_cast<int>(std::ranges::count(present, true));
    std::ranges::sort(done);
    done_ = job_.kind == JobKind::indexed_job ? index_text(done) : "";
  }

  void advance() {
    update_counts();
    if (succeeded_ == job_.spec.replicas) return succeed();
    if (job_.spec.suspend) return suspend();
    if (is_true(status_, "Suspended")) resume();
    if (!status_.started) status_.started = now_;
    const std::optional<int64_t>& deadline = job_.spec.active_deadline;
    if (deadline && now_ >= after(*status_.started, *deadline)) return fail_at_deadline();
    if (port_taken_ && status_.taken_ports < kMaxTakenPorts) {
      retry_with_another_port();
    } else if (failed_ > 0) {
      if (!may_restart()) return;
      restart();
    } else if (running_ > 0) {
      set("Running", true, status_text(job_, "Running", job_.namespace_name + "/" + job_.name + " is running.", {}));
    }
    if (deadline) wake_at(after(*status_.started, *deadline));
    start_when_possible();
  }

  // Replicas of earlier attempts count as active while they run; those that ended are not counted.
  void update_counts() {
    const auto old = std::ranges::count_if(
        pods_, [&](const Pod& pod) { return pod.attempt < status_.attempt && pod.phase == PodPhase::running; });
    const bool count_pending = job_.kind == JobKind::indexed_job;
    status_.active = std::min(running_ + (count_pending ? pending_ : 0) + static_cast<int>(old),
                              job_.spec.replicas - succeeded_ - failed_);
    status_.succeeded = succeeded_;
    status_.failed = failed_;
    status_.completed_indexes = done_;
  }

  void succeed() {
    set("Succeeded", true,
        status_text(job_, "Succeeded", job_.namespace_name + "/" + job_.name + " successfully completed.",
                    {"CompletionsReached", "Reached expected number of succeeded pods"}));
    if (!status_.completed) status_.completed = now_;
  }

  void suspend() {
    if (present_ > 0) abandon_attempt();
    status_.active = 0;
    status_.next_start.reset();
    const StatusText why =
        status_text(job_, "Suspended", job_.name + " is suspended.", {"JobSuspended", "Job suspended"});
    for (const char* type : {"Running", "Restarting"})
      if (is_true(status_, type)) set_condition(status_, condition(type, false, why));
    set("Suspended", true, why);
    decision_.stop = alive_;
  }

  void resume() {
    set("Suspended", false, status_text(job_, "Resumed", job_.name + " is resumed.", {"JobResumed", "Job resumed"}));
    status_.started = now_;
  }

  void fail_at_deadline() {
    fail(job_.kind == JobKind::jax_job
             ? StatusText{"JAXJobFailed",
                          fmt::format("Job {} has failed because it was active longer than specified deadline",
                                      job_.name)}
             : StatusText{"DeadlineExceeded", "Job was active longer than specified deadline"});
  }

  // Returns whether the job restarts; if not, sets Failed. The restartPolicy of an Indexed Job only chooses where its
  // containers restart (same pod or new pod), so it is ignored here.
  bool may_restart() {
    const RestartPolicy policy = job_.spec.restart;
    const bool allowed = job_.kind == JobKind::indexed_job || policy == RestartPolicy::on_failure ||
                         policy == RestartPolicy::always || (policy == RestartPolicy::exit_code && !fatal_);
    if (!allowed) {
      fail(status_text(job_, "Failed",
                       fmt::format("{} is failed because {} Worker replica(s) failed.", job_.name, failed_), {}));
    } else if (job_.spec.backoff_limit && status_.restarts >= *job_.spec.backoff_limit) {
      fail(job_.kind == JobKind::jax_job
               ? StatusText{"JAXJobFailed",
                            fmt::format("Job {} has failed because it has reached the specified backoff limit",
                                        job_.name)}
               : StatusText{"BackoffLimitExceeded", "Job has reached the specified backoff limit"});
    }
    return !is_finished(job_);
  }

  void fail(const StatusText& why) {
    status_.active = 0;
    status_.next_start.reset();
    if (!status_.completed) status_.completed = now_;
    set("Failed", true, why);
  }

  void restart() {
    const StatusText why =
        status_text(job_, "Restarting",
                    fmt::format("{} is restarting because {} Worker replica(s) failed.", job_.name, failed_), {});
    // Replicas that fail again before they ran leave the condition unchanged, but the event must still be reported.
    if (!set("Restarting", true, why)) add_event("Restarting", why);
    status_.next_start = after(now_, int64_t{1} << std::min(status_.restarts, 6));
    *status_.next_start = std::min(*status_.next_start, after(now_, kMaxBackoff));
    ++status_.restarts;
    abandon_attempt();
  }

  // The job itself did not fail, so neither restartPolicy nor backoffLimit applies.
  void retry_with_another_port() {
    ++status_.taken_ports;
    add_event(kPortTaken,
              {kPortTaken, fmt::format("{} {} is restarting with another port.", name_of(job_.kind), job_.name)});
    begin_attempt();
  }

  void abandon_attempt() {
    status_.failed_before += failed_;
    begin_attempt();
  }

  void begin_attempt() {
    ++status_.attempt;
    count_pods();
    update_counts();
  }

  void start_when_possible() {
    decision_.stop = old_alive_;
    if (old_alive_ || present_ == job_.spec.replicas) return;
    // If the clock was set back, the restart must still happen within kMaxBackoff.
    if (status_.next_start) *status_.next_start = std::min(*status_.next_start, after(now_, kMaxBackoff));
    decision_.start = !status_.next_start || now_ >= *status_.next_start;
    if (!decision_.start) wake_at(*status_.next_start);
  }

  void clean_up() {
    decision_.stop = alive_;
    decision_.clean = !alive_ && !pods_.empty() && job_.spec.clean == CleanPodPolicy::all;
    decision_.wake.reset();
    if (!job_.spec.ttl_after_finished || !status_.completed) return;
    const JobTime end = after(*status_.completed, *job_.spec.ttl_after_finished);
    decision_.remove = !alive_ && now_ >= end;
    if (now_ < end) wake_at(end);
  }

  Condition condition(std::string_view type, bool value, const StatusText& why) const {
    return {std::string(type), value, why.reason, why.message, now_, now_};
  }

  // Sets a condition and reports it as an event. Returns false if nothing changed.
  bool set(std::string_view type, bool value, const StatusText& why) {
    const std::vector<Condition> before = status_.conditions;
    set_condition(status_, condition(type, value, why));
    if (status_.conditions == before) return false;
    add_event(type, why);
    return true;
  }

  void add_event(std::string_view type, const StatusText& why) {
    decision_.events.push_back({now_, type == "Restarting" || type == "Failed" || type == kPortTaken,
                                (job_.kind == JobKind::jax_job ? "jaxjob/" : "job/") + job_.name, why.reason,
                                why.message});
  }

  void wake_at(JobTime time) { decision_.wake = decision_.wake ? std::min(*decision_.wake, time) : time; }

  Job& job_;
  JobStatus& status_;
  const std::vector<Pod>& pods_;
  const JobTime now_;
  // Pods of the current attempt.
  int present_ = 0, pending_ = 0, running_ = 0, succeeded_ = 0, failed_ = 0;
  bool fatal_ = false;       // one failed with an exit code that ExitCode does not retry
  bool port_taken_ = false;  // one failed with kPortTaken
  std::string done_;         // indexes of the succeeded ones, for an Indexed Job
  // Pods that are pending or running, of any attempt and of earlier attempts.
  bool alive_ = false, old_alive_ = false;
  Decision decision_;
};

}  // namespace

void set_condition(JobStatus& status, const Condition& condition) {
  if (is_true(status, "Failed")) return;
  Condition next = condition;
  if (const Condition* present = find_condition(status, condition.type); present && present->status == next.status) {
    if (present->reason == next.reason) return;
    next.transitioned = present->transitioned;
  }
  const bool ends = next.type == "Succeeded" || next.type == "Failed";
  std::erase_if(status.conditions, [&](const Condition& other) {
    return other.type == next.type || (next.type == "Restarting" && other.type == "Running") ||
           (next.type == "Running" && other.type == "Restarting");
  });
  // Keep their times, as the operator does: they tell when the job began to run.
  for (Condition& other : status.conditions)
    if (ends && (other.type == "Running" || other.type == "Restarting")) other.status = false;
  status.conditions.push_back(std::move(next));
}

Decision reconcile(Job& job, const std::vector<Pod>& pods, JobTime now) {
  const JobStatus before = job.status;
  Decision decision = Reconciler(job, pods, now).run();
  if (job.status != before) ++job.version;
  return decision;
}

}  // namespace lockstep
