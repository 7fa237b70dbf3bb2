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

constexpr milliseconds kSoon{20};          // a shepherd is on its way
constexpr milliseconds kRarely{200};       // it is late
constexpr seconds kAgain{1};               // after a failure, and for signals that may have come too early
constexpr seconds kShepherdStartAgain{3};  // a shepherd that is not there by then is started again
constexpr seconds kSafety{5};              // should something that wakes the daemon be missing
constexpr int kKeptAttempts = 3;           // older ones are removed with their logs

// On the clock that does not jump, for a moment of the one that does.
Clock::time_point moment(JobTime time) {
  const auto left = time - std::chrono::system_clock::now();
  return Clock::now() + std::clamp<std::chrono::nanoseconds>(left, milliseconds(1), std::chrono::hours(24));
}

void add_event(LocalJob& local, JobEvent event) {
  local.events.push_back(std::move(event));
  if (local.events.size() > kMostEvents) local.events.erase(local.events.begin());
}

bool is_over(const PodSight& sight) { return sight.state == PodState::ended && !sight.shepherd; }

}  // namespace

Supervisor::Supervisor(StateDir state, FileSystem& files, SupervisorOptions options)
    : state_(std::move(state)), files_(files), options_(std::move(options)) {
  load();
}

void Supervisor::load() {
  if (!files_.exists(state_.jobs_folder())) return;
  for (const std::string& space : files_.list(state_.jobs_folder()))
    for (const std::string& name : files_.list(state_.space_folder(space))) {
      try {
        const std::string folder = state_.space_folder(space) + "/" + name;
        if (auto local = state_.read(space, name))
          jobs_[{space, name}].local = std::move(*local);
        else
          files_.remove_tree(folder);  // half made, or half removed
        if (!files_.exists(folder)) continue;
        for (const std::string& each : files_.list(folder))
          if (each.starts_with('.')) files_.remove_tree(folder + "/" + each);
      } catch (const std::exception& error) {
        options_.say(fmt::format("job {}/{} cannot be read: {}", space, name, error.what()));
      }
    }
}

Supervisor::Entry& Supervisor::find(const Json& request) {
  const Key key{request.at("space"), request.at("name")};
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.local.job.uid != request.at("uid").get<std::string>())
    throw_error("jobs: there is no job {} in namespace {} any more", key.second, key.first);
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
      } catch (const IoError& error) {  // a full disk is a reason to remove a job, not to keep it
        options_.say(error.what());
      }
      return "done";
    }
    throw_error("jobs: the daemon knows no request \"{}\"; it is of another version: end it, and try again", op);
  } catch (const Json::exception& error) {
    throw_error("jobs: the daemon does not understand a request: {}; it is of another version: end it, and try again",
                error.what());
  }
}

std::string Supervisor::apply(LocalJob wanted) {
  const Key key{wanted.job.space, wanted.job.name};
  if (const auto found = jobs_.find(key); found != jobs_.end()) {
    Entry& entry = found->second;
    if (entry.local.job.uid == wanted.job.uid) return "created";  // the answer to the first request was lost
    if (entry.local.deleting)
      throw_error("job {}: it is being deleted; apply it again when it is gone", wanted.job.name);
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

Supervisor::Next Supervisor::step() {
  Next next{.time = Clock::now() + std::chrono::hours(1), .processes = {}};
  watched_ = 0;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Entry& entry = at->second;
    bool stays = true;
    if (!entry.quiet || Clock::now() >= entry.next) {
      Next own{.time = Clock::now() + kSafety, .processes = {}};
      try {
        stays = step(entry, own);
      } catch (const std::exception& error) {
        // The disk is full, or files were changed under us: what was not done is done when it is possible.
        const std::string trouble = fmt::format("job {}/{}: {}", at->first.first, at->first.second, error.what());
        say_trouble(trouble);
        own.time = Clock::now() + kAgain;
      }
      entry.next = own.time;
      for (Descriptor& each : own.processes) next.processes.push_back(std::move(each));
    }
    next.time = std::min(next.time, entry.next);
    const bool waits = is_finished(entry.local.job) && entry.local.job.spec.ttl_after_finished;
    if (stays && (!entry.quiet || waits)) ++watched_;
    at = stays ? std::next(at) : jobs_.erase(at);
  }
  return next;
}

void Supervisor::say_trouble(const std::string& trouble) {
  if (trouble != last_trouble_) options_.say(trouble);
  last_trouble_ = trouble;
}

Supervisor::Sights Supervisor::look_at(Entry& entry) {
  Sights out;
  for (const int attempt : state_.attempts(entry.local.job)) {
    if (attempt < entry.settled) continue;
    std::vector<PodSight> sights = state_.look_at(entry.local.job, attempt);
    if (out.empty() && attempt < entry.local.job.status.attempt && std::ranges::all_of(sights, is_over))
      entry.settled = attempt + 1;
    else
      out[attempt] = std::move(sights);
  }
  return out;
}

std::vector<Pod> Supervisor::pods_of(const Entry& entry, const Sights& sights) const {
  const Job& job = entry.local.job;
  std::vector<Pod> out;
  for (const auto& [attempt, all] : sights)
    for (size_t i = 0; i < all.size(); ++i) {
      const Pod pod = as_pod(all[i], static_cast<int>(i), attempt);
      const bool alive = pod.phase == PodPhase::pending || pod.phase == PodPhase::running;
      if (attempt >= job.status.attempt || alive) out.push_back(pod);
    }
  return out;
}

void Supervisor::tell_phases(LocalJob& local, const std::vector<Pod>& pods, const Sights& sights) const {
  if (local.told_attempt != local.job.status.attempt || local.told.empty()) {
    local.told_attempt = local.job.status.attempt;
    local.told.assign(static_cast<size_t>(local.job.spec.replicas), PodPhase::pending);
  }
  for (const Pod& pod : pods) {
    PodPhase& told = local.told[static_cast<size_t>(pod.index)];
    if (pod.attempt != local.told_attempt || pod.phase == told) continue;
    const std::string object = "pod/" + pod_name(local.job, pod.index);
    if (told == PodPhase::pending && pod.started)
      add_event(local, {*pod.started, false, object, "Started", "Started its process"});
    told = pod.phase;
    if (pod.phase == PodPhase::running) continue;
    const auto& ended = sights.at(pod.attempt)[static_cast<size_t>(pod.index)].ended;
    std::string message = ended ? ended->message : "";
    if (pod.phase == PodPhase::succeeded) message = "It ended well";
    add_event(local, {pod.ended.value_or(current_time()), pod.phase == PodPhase::failed, object, pod.reason, message});
  }
}

bool Supervisor::step(Entry& entry, Next& next) {
  if (entry.local.deleting) {
    if (!end_all(entry, next)) return true;
    remove_folder(state_.job_folder(entry.local.job));
    return false;
  }
  advance(entry, next);
  return true;
}

bool Supervisor::end_all(Entry& entry, Next& next) {
  Sights sights = look_at(entry);
  bool over = true;
  for (auto& [attempt, all] : sights)
    for (size_t i = 0; i < all.size(); ++i) {
      const auto index = static_cast<int>(i);
      const Clock::time_point time = tend(entry, attempt, index, all[i], false);
      // Not as it was but as it is: one that waited was sealed, or its shepherd was faster.
      PodSight sight = look(state_.pod_folder(entry.local.job, attempt, index));
      if (!sight.shepherd && sight.state != PodState::running && all[i].state != PodState::running) continue;
      over = false;
      next.time = std::min(next.time, time);
      watch(sight, next);
    }
  return over;
}

void Supervisor::watch(PodSight& sight, Next& next) const {
  if (!sight.shepherd) return;
  if (!sight.shepherd->handle) next.time = std::min(next.time, Clock::now() + kRarely);
  next.processes.push_back(std::move(sight.shepherd->handle));
}

void Supervisor::advance(Entry& entry, Next& next) {
  Sights sights = look_at(entry);
  // A lost one counts as running for as long as something of it does.
  for (auto& [attempt, all] : sights)
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].state == PodState::lost) tend(entry, attempt, static_cast<int>(i), all[i], false);

  const std::vector<Pod> pods = pods_of(entry, sights);
  LocalJob local = entry.local;
  tell_phases(local, pods, sights);
  const Decision decision = reconcile(local.job, pods, current_time());
  for (const JobEvent& event : decision.events) add_event(local, event);
  if (local.job.status != entry.local.job.status || local.events != entry.local.events ||
      local.told != entry.local.told || local.told_attempt != entry.local.told_attempt) {
    state_.write(local, files_);  // before anything is done: who comes after this process must know
    entry.local = std::move(local);
  }
  if (decision.start) {
    start_attempt(entry);
    sights[entry.local.job.status.attempt] = state_.look_at(entry.local.job, entry.local.job.status.attempt);
  }
  if (decision.clean) clean(entry);
  if (decision.remove) {
    entry.local.deleting = true;
    entry.quiet = false;
    next.time = Clock::now();
    return;
  }
  if (decision.wake) next.time = std::min(next.time, moment(*decision.wake));

  const Job& job = entry.local.job;
  entry.quiet = is_finished(job) || (job.spec.suspend && job_state(job) == "Suspended");
  for (auto& [attempt, all] : sights) {
    const bool wanted = attempt == job.status.attempt && !is_finished(job);
    for (size_t i = 0; i < all.size(); ++i) {
      next.time = std::min(next.time, tend(entry, attempt, static_cast<int>(i), all[i], wanted));
      entry.quiet = entry.quiet && is_over(all[i]);
      watch(all[i], next);
    }
  }
  if (entry.quiet) next.time = decision.wake ? moment(*decision.wake) : Clock::now() + std::chrono::hours(1);
}

std::set<int> Supervisor::ports_in_use() const {
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
    } catch (const IoError&) {  // it has none, then
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
  prepare_attempt(entry.local, state_, ports_in_use(), files_);
}

void Supervisor::clean(const Entry& entry) {
  for (const int attempt : state_.attempts(entry.local.job))
    remove_folder(state_.attempt_folder(entry.local.job, attempt));
}

// It is gone for everybody at once, and for the disk after a while, or when the next daemon begins.
void Supervisor::remove_folder(const std::string& folder) {
  const std::string parent = parent_dir(folder), hidden = parent + "/." + folder.substr(parent.size() + 1);
  files_.remove_tree(hidden);
  if (files_.exists(folder)) files_.rename(folder, hidden);
  files_.remove_tree(hidden);
}

Clock::time_point Supervisor::tend(Entry& entry, int attempt, int index, PodSight& sight, bool wanted) {
  const PodFolder folder = state_.pod_folder(entry.local.job, attempt, index);
  const Clock::time_point soon = Clock::now() + kSoon, later = Clock::now() + kSafety;
  switch (sight.state) {
    case PodState::waiting:
      if (wanted) return start(entry, attempt, index);
      seal(folder, {current_time(), std::nullopt, "Stopped", "it was not started"});
      return soon;
    case PodState::starting:
    case PodState::running:
      if (!wanted && sight.shepherd) sight.shepherd->send(SIGTERM);
      if (sight.state == PodState::starting) return soon;
      return wanted ? later : Clock::now() + kAgain;
    case PodState::lost: {
      const std::vector<pid_t> left = left_behind(folder);
      for (const pid_t pid : left) kill_left_behind(pid, folder);
      if (left.empty()) {
        seal(folder, {current_time(), std::nullopt, "Lost", "its shepherd was killed, and it with it"});
        sight = look(folder);
      } else {
        sight.state = PodState::running;
      }
      return soon;
    }
    case PodState::ended:
      break;
  }
  return sight.shepherd ? soon : later;
}

Clock::time_point Supervisor::start(Entry& entry, int attempt, int index) {
  if (entry.started_attempt != attempt) {
    entry.started.clear();
    entry.started_attempt = attempt;
  }
  const Clock::time_point time = Clock::now();
  const auto [before, first] = entry.started.try_emplace(index, time);
  if (!first && time < before->second + kShepherdStartAgain)
    return time + (time < before->second + kAgain ? kSoon : kRarely);
  before->second = time;
  options_.start_shepherd(state_.pod_folder(entry.local.job, attempt, index));
  return time + kSoon;
}

// Nobody can start it afterwards: a shepherd that is late finds the file under the same lock.
void Supervisor::seal(const PodFolder& folder, const Ended& ended) {
  const std::optional<FileLock> lock = FileLock::take(folder.lock_path());
  if (!lock || folder.ended() || (folder.started() && ended.reason != "Lost")) return;
  try {
    folder.write(ended, files_);
  } catch (const IoError& error) {  // on a full disk nothing can be started either; it is tried again
    say_trouble(error.what());
  }
}

}  // namespace lockstep
