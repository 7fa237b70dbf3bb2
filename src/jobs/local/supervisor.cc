#include "jobs/local/supervisor.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "jobs/local/replica.h"
#include "jobs/model/manifest.h"
#include "jobs/model/object.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = Supervisor::Clock;

// Polling intervals.
constexpr milliseconds kSoon{20};        // while a shim starts
constexpr milliseconds kRarely{200};     // while a shim starts slowly
constexpr seconds kAgain{1};             // after a failure, and to repeat signals that may have come too early
constexpr seconds kSafety{5};            // in case a wakeup was missed
constexpr seconds kShimRestartDelay{3};  // a shim that does not run by then is started again
constexpr int kKeptAttempts = 3;         // older attempts are deleted with their logs

// Converts a wall-clock time to the steady clock.
Clock::time_point steady_time(JobTime time) {
  const auto left = time - std::chrono::system_clock::now();
  return Clock::now() + std::clamp<std::chrono::nanoseconds>(left, milliseconds(1), std::chrono::hours(24));
}

bool has_ended(const PodStatus& status) { return status.state == PodState::ended && !status.shim; }

}  // namespace

Supervisor::Supervisor(StateDir state, FileSystem& files, SupervisorOptions options)
    : state_(std::move(state)), files_(files), options_(std::move(options)) {
  load();
}

void Supervisor::load() {
  if (!files_.exists(state_.jobs_folder())) return;
  for (const std::string& namespace_name : files_.list(state_.jobs_folder()))
    for (const std::string& name : files_.list(state_.namespace_folder(namespace_name))) {
      try {
        const std::string folder = state_.namespace_folder(namespace_name) + "/" + name;
        if (auto local = state_.read(namespace_name, name))
          jobs_[{namespace_name, name}].local = std::move(*local);
        else
          files_.remove_tree(folder);  // its creation or deletion was interrupted
        if (!files_.exists(folder)) continue;
        for (const std::string& each : files_.list(folder))
          if (each.starts_with('.')) files_.remove_tree(folder + "/" + each);
      } catch (const std::exception& error) {
        options_.log(fmt::format("cannot read job {}/{}: {}", namespace_name, name, error.what()));
      }
    }
}

Supervisor::Entry& Supervisor::find(const Json& request) {
  const Key key{request.at("namespace"), request.at("name")};
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.local.job.uid != request.at("uid").get<std::string>())
    throw_error("jobs: job {} no longer exists in namespace {}", key.second, key.first);
  return found->second;
}

std::string Supervisor::handle(const Json& request) {
  try {
    const std::string op = request.at("op");
    if (op == "apply") return apply(local_job_from_json(request.at("job")));
    if (op == "suspend") {
      Entry& entry = find(request);
      LocalJob next = entry.local;
      const bool suspend = request.at("suspend");
      if (next.job.spec.suspend == suspend) return "done";
      next.job.spec.suspend = suspend;
      ++next.job.generation;
      ++next.job.version;
      state_.write(next, files_);
      entry.local = std::move(next);
      entry.quiet = false;
      return "done";
    }
    if (op == "remove") {
      Entry& entry = find(request);
      entry.local.deleting = true;
      entry.quiet = false;
      try {
        state_.write(entry.local, files_);
      } catch (const IoError& error) {  // deleting must also work on a full disk
        options_.log(error.what());
      }
      return "done";
    }
    throw_error("jobs: the daemon does not support the request \"{}\"; it has another version: kill it, and try again",
                op);
  } catch (const Json::exception& error) {
    throw_error("jobs: the daemon cannot parse the request: {}; it has another version: kill it, and try again",
                error.what());
  }
}

std::string Supervisor::apply(LocalJob wanted) {
  const Key key{wanted.job.namespace_name, wanted.job.name};
  if (const auto found = jobs_.find(key); found != jobs_.end()) {
    Entry& entry = found->second;
    if (entry.local.job.uid == wanted.job.uid) return "created";  // sent again: the first response was lost
    if (entry.local.deleting) throw_error("job {}: it is being deleted; apply it again afterwards", wanted.job.name);
    LocalJob next = entry.local;
    const std::string result = update_job(next.job, wanted.job);
    if (result == "unchanged") return result;
    state_.write(next, files_);
    entry.local = std::move(next);
    entry.quiet = false;
    return result;
  }
  const std::string folder = state_.job_folder(wanted.job);
  files_.make_dirs(folder);
  try {
    for (JobEvent& event : reconcile(wanted.job, {}, current_time()).events) add_event(wanted, std::move(event));
    state_.write(wanted, files_);
  } catch (const IoError&) {
    files_.remove_tree(folder);
    throw;
  }
  jobs_[key].local = std::move(wanted);
  return "created";
}

Supervisor::Wakeup Supervisor::step() {
  Wakeup next{.time = Clock::now() + std::chrono::hours(1), .processes = {}};
  watched_ = 0;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Entry& entry = at->second;
    bool stays = true;
    if (!entry.quiet || Clock::now() >= entry.next) {
      Wakeup own{.time = Clock::now() + kSafety, .processes = {}};
      try {
        stays = step(entry, own);
      } catch (const std::exception& error) {
        // The disk is full, or another process changed the files. Try again later.
        log_problem(fmt::format("job {}/{}: {}", at->first.first, at->first.second, error.what()));
        own.time = Clock::now() + kAgain;
      }
      entry.next = own.time;
      for (Descriptor& each : own.processes) next.processes.push_back(std::move(each));
    }
    next.time = std::min(next.time, entry.next);
    const bool has_ttl = is_finished(entry.local.job) && entry.local.job.spec.ttl_after_finished;
    if (stays && (!entry.quiet || has_ttl)) ++watched_;
    at = stays ? std::next(at) : jobs_.erase(at);
  }
  return next;
}

void Supervisor::log_problem(const std::string& problem) {
  if (problem != last_problem_) options_.log(problem);
  last_problem_ = problem;
}

Supervisor::StatusesByAttempt Supervisor::read_statuses(Entry& entry) {
  StatusesByAttempt out;
  for (const int attempt : state_.attempts(entry.local.job)) {
    if (attempt < entry.settled) continue;
    std::vector<PodStatus> statuses = state_.read_pod_statuses(entry.local.job, attempt);
    if (out.empty() && attempt < entry.local.job.status.attempt && std::ranges::all_of(statuses, has_ended))
      entry.settled = attempt + 1;
    else
      out[attempt] = std::move(statuses);
  }
  return out;
}

std::vector<Pod> Supervisor::pods_of(const Entry& entry, const StatusesByAttempt& statuses) const {
  const Job& job = entry.local.job;
  std::vector<Pod> out;
  for (const auto& [attempt, all] : statuses)
    for (size_t i = 0; i < all.size(); ++i) {
      const Pod pod = to_pod(all[i], static_cast<int>(i), attempt);
      const bool alive = pod.phase == PodPhase::pending || pod.phase == PodPhase::running;
      if (attempt >= job.status.attempt || alive) out.push_back(pod);
    }
  return out;
}

void Supervisor::report_phase_changes(LocalJob& local, const std::vector<Pod>& pods,
                                      const StatusesByAttempt& statuses) const {
  if (local.reported_attempt != local.job.status.attempt || local.reported_phases.empty()) {
    local.reported_attempt = local.job.status.attempt;
    local.reported_phases.assign(static_cast<size_t>(local.job.spec.replicas), PodPhase::pending);
  }
  for (const Pod& pod : pods) {
    PodPhase& reported = local.reported_phases[static_cast<size_t>(pod.index)];
    if (pod.attempt != local.reported_attempt || pod.phase == reported) continue;
    const std::string object = "pod/" + pod_name(local.job, pod.index);
    if (reported == PodPhase::pending && pod.started)
      add_event(local, {*pod.started, false, object, "Started", "Started the process"});
    reported = pod.phase;
    if (pod.phase == PodPhase::running) continue;
    const auto& ended = statuses.at(pod.attempt)[static_cast<size_t>(pod.index)].ended;
    std::string message = ended ? ended->message : "";
    if (pod.phase == PodPhase::succeeded) message = "Completed successfully";
    add_event(local, {pod.ended.value_or(current_time()), pod.phase == PodPhase::failed, object, pod.reason, message});
  }
}

bool Supervisor::step(Entry& entry, Wakeup& next) {
  if (entry.local.deleting) {
    if (!stop_all(entry, next)) return true;
    remove_folder(state_.job_folder(entry.local.job));
    return false;
  }
  advance(entry, next);
  return true;
}

bool Supervisor::stop_all(Entry& entry, Wakeup& next) {
  StatusesByAttempt statuses = read_statuses(entry);
  bool all_ended = true;
  for (auto& [attempt, all] : statuses)
    for (size_t i = 0; i < all.size(); ++i) {
      const auto index = static_cast<int>(i);
      const Clock::time_point time = drive_replica(entry, attempt, index, all[i], false);
      // Read the status again: drive_replica() may have written ended.json, or a shim may have started first.
      PodStatus status = read_pod_status(state_.pod_folder(entry.local.job, attempt, index));
      if (!status.shim && status.state != PodState::running && all[i].state != PodState::running) continue;
      all_ended = false;
      next.time = std::min(next.time, time);
      watch(status, next);
    }
  return all_ended;
}

void Supervisor::watch(PodStatus& status, Wakeup& next) const {
  if (!status.shim) return;
  if (!status.shim->handle) next.time = std::min(next.time, Clock::now() + kRarely);
  next.processes.push_back(std::move(status.shim->handle));
}

void Supervisor::advance(Entry& entry, Wakeup& next) {
  StatusesByAttempt statuses = read_statuses(entry);
  // A lost replica counts as running as long as one of its processes runs.
  for (auto& [attempt, all] : statuses)
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].state == PodState::lost) drive_replica(entry, attempt, static_cast<int>(i), all[i], false);

  const std::vector<Pod> pods = pods_of(entry, statuses);
  LocalJob local = entry.local;
  report_phase_changes(local, pods, statuses);
  const Decision decision = reconcile(local.job, pods, current_time());
  for (const JobEvent& event : decision.events) add_event(local, event);
  if (local.job.status != entry.local.job.status || local.events != entry.local.events ||
      local.reported_phases != entry.local.reported_phases || local.reported_attempt != entry.local.reported_attempt) {
    state_.write(local, files_);  // before acting on the decision: the next daemon must know it
    entry.local = std::move(local);
  }
  if (decision.start) {
    start_attempt(entry);
    statuses[entry.local.job.status.attempt] =
        state_.read_pod_statuses(entry.local.job, entry.local.job.status.attempt);
  }
  if (decision.clean) clean(entry);
  if (decision.remove) {
    entry.local.deleting = true;
    entry.quiet = false;
    next.time = Clock::now();
    return;
  }
  if (decision.wake) next.time = std::min(next.time, steady_time(*decision.wake));

  const Job& job = entry.local.job;
  entry.quiet = is_finished(job) || (job.spec.suspend && job_state(job) == "Suspended");
  for (auto& [attempt, all] : statuses) {
    const bool wanted = attempt == job.status.attempt && !is_finished(job);
    for (size_t i = 0; i < all.size(); ++i) {
      next.time = std::min(next.time, drive_replica(entry, attempt, static_cast<int>(i), all[i], wanted));
      entry.quiet = entry.quiet && has_ended(all[i]);
      watch(all[i], next);
    }
  }
  if (entry.quiet) next.time = decision.wake ? steady_time(*decision.wake) : Clock::now() + std::chrono::hours(1);
}

std::set<int> Supervisor::used_ports() const {
  std::set<int> out;
  for (const auto& [key, entry] : jobs_) {
    if (is_finished(entry.local.job)) continue;
    const std::string path = state_.attempt_folder(entry.local.job, entry.local.job.status.attempt) + "/port";
    std::array<uint8_t, 16> digits = {};
    try {
      const size_t size = files_.exists(path) ? files_.read(path, 0, digits) : 0;
      const auto* text = reinterpret_cast<const char*>(digits.data());
      int port = 0;
      if (std::from_chars(text, text + size, port).ec == std::errc() && port > 0 && port < 65536) out.insert(port);
    } catch (const IoError&) {  // treat it as having no port
    }
  }
  return out;
}

void Supervisor::start_attempt(const Entry& entry) {
  const Job& job = entry.local.job;
  for (const int attempt : state_.attempts(job))
    if (attempt <= job.status.attempt - kKeptAttempts && attempt < entry.settled)
      remove_folder(state_.attempt_folder(job, attempt));
  if (files_.exists(state_.attempt_folder(job, job.status.attempt))) return;
  prepare_attempt(entry.local, state_, used_ports(), files_);
}

void Supervisor::clean(const Entry& entry) {
  for (const int attempt : state_.attempts(entry.local.job))
    remove_folder(state_.attempt_folder(entry.local.job, attempt));
}

// Renames the folder first, so that it disappears atomically. If deleting is interrupted, the next daemon's load()
// completes it.
void Supervisor::remove_folder(const std::string& folder) {
  const std::string parent = parent_dir(folder), hidden = parent + "/." + folder.substr(parent.size() + 1);
  files_.remove_tree(hidden);
  if (files_.exists(folder)) files_.rename(folder, hidden);
  files_.remove_tree(hidden);
}

Clock::time_point Supervisor::drive_replica(Entry& entry, int attempt, int index, PodStatus& status, bool wanted) {
  const PodFolder folder = state_.pod_folder(entry.local.job, attempt, index);
  const Clock::time_point soon = Clock::now() + kSoon, later = Clock::now() + kSafety;
  switch (status.state) {
    case PodState::waiting:
      if (wanted) return start(entry, attempt, index);
      record_end(folder, {current_time(), std::nullopt, "Stopped", "Not started"});
      return soon;
    case PodState::starting:
    case PodState::running:
      if (!wanted && status.shim) status.shim->send(SIGTERM);
      if (status.state == PodState::starting) return soon;
      return wanted ? later : Clock::now() + kAgain;
    case PodState::lost: {
      const std::vector<pid_t> left = find_leftover_processes(folder);
      for (const pid_t pid : left) kill_leftover_process(pid, folder);
      if (left.empty()) {
        record_end(folder,
                   {current_time(), std::nullopt, "Lost", "Its shim was killed, which also killed the replica"});
        status = read_pod_status(folder);
      } else {
        status.state = PodState::running;
      }
      return soon;
    }
    case PodState::ended:
      break;
  }
  return status.shim ? soon : later;
}

Clock::time_point Supervisor::start(Entry& entry, int attempt, int index) {
  if (entry.started_attempt != attempt) {
    entry.started.clear();
    entry.started_attempt = attempt;
  }
  const Clock::time_point time = Clock::now();
  const auto [before, first] = entry.started.try_emplace(index, time);
  if (!first && time < before->second + kShimRestartDelay)
    return time + (time < before->second + kAgain ? kSoon : kRarely);
  before->second = time;
  options_.start_shim(state_.pod_folder(entry.local.job, attempt, index));
  return time + kSoon;
}

// A late shim checks for ended.json under the same lock, and then starts nothing.
void Supervisor::record_end(const PodFolder& folder, const EndRecord& ended) {
  const std::optional<FileLock> lock = FileLock::try_acquire(folder.lock_path());
  if (!lock || folder.ended() || (folder.started() && ended.reason != "Lost")) return;
  try {
    folder.write(ended, files_);
  } catch (const IoError& error) {  // on a full disk no shim can start the replica either; retried later
    log_problem(error.what());
  }
}

}  // namespace lockstep
