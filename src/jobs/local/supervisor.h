// Supervisor: the daemon's controller, without its socket. It repeats: read the state (job files, locks of shims), call
// reconcile(), store the new status, carry out the decision. It keeps no state that is not in files, so it may be
// killed at any point. Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "jobs/local/state.h"
#include "jobs/model/reconcile.h"

namespace lockstep {

struct SupervisorOptions {
  std::function<void(const PodFolder&)> start_shim;  // throws IoError
  std::function<void(std::string_view)> log;         // appends a line to the daemon's log
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::ordered_json;

  // Reads all jobs. Logs and ignores those that cannot be read. REQUIRES: no other process writes job.json files there.
  Supervisor(StateDir state, FileSystem& files, SupervisorOptions options);

  // Handles a request of a command:
  //   {"op": "apply", "job": LocalJob}
  //   {"op": "suspend", "namespace": ..., "name": ..., "uid": ..., "suspend": true}
  //   {"op": "remove", "namespace": ..., "name": ..., "uid": ...}
  // Returns the result of Runner::apply(), else "done". The change is on disk when it returns. Throws Error or IoError
  // if nothing was changed.
  std::string handle(const Json& request);

  // When to call step() again: at `time`, or as soon as one of `processes` is readable.
  struct Wakeup {
    Clock::time_point time;
    std::vector<Descriptor> processes;  // pidfds of shims
  };
  // Brings all jobs forward. Does not block.
  Wakeup step();

  // Whether no job needs attention, now or later.
  bool is_idle() const { return watched_ == 0; }

 private:
  struct Entry {
    LocalJob local;
    int settled = 0;  // all replicas of attempts before this one have ended
    // When a shim was started for each replica (by index) of attempt `started_attempt`.
    std::map<int, Clock::time_point> started;
    int started_attempt = -1;
    bool quiet = false;  // nothing to do before `next`
    Clock::time_point next{};
  };
  using Key = std::pair<std::string, std::string>;
  using StatusesByAttempt = std::map<int, std::vector<PodStatus>>;

  void load();
  std::string apply(LocalJob wanted);
  Entry& find(const Json& request);

  // Brings one job forward. Lowers `next` to when the job needs attention again, as do the next three functions.
  // Returns false if the job was deleted.
  bool step(Entry& entry, Wakeup& next);
  void advance(Entry& entry, Wakeup& next);
  // Stops all replicas of a job that is being deleted. Returns whether all have ended.
  bool stop_all(Entry& entry, Wakeup& next);
  // Wakes up when the shim exits.
  void watch(PodStatus& status, Wakeup& next) const;
  StatusesByAttempt read_statuses(Entry& entry);
  std::vector<Pod> pods_of(const Entry& entry, const StatusesByAttempt& statuses) const;
  // Adds an event for each replica whose phase changed since the last call.
  void report_phase_changes(LocalJob& local, const std::vector<Pod>& pods, const StatusesByAttempt& statuses) const;
  void start_attempt(const Entry& entry);
  void clean(const Entry& entry);
  void remove_folder(const std::string& folder);
  // Starts a replica if it is `wanted`, else stops it; cleans up after a lost one. Returns when to call it again.
  Clock::time_point drive_replica(Entry& entry, int attempt, int index, PodStatus& status, bool wanted);
  Clock::time_point start(Entry& entry, int attempt, int index);
  // Writes ended.json for a replica without a shim, so that no shim can start it later.
  void record_end(const PodFolder& folder, const EndRecord& ended);
  // The coordinator ports of all jobs that have not finished.
  std::set<int> used_ports() const;
  // Logs a problem, unless it is the same as the last one.
  void log_problem(const std::string& problem);

  StateDir state_;
  FileSystem& files_;
  SupervisorOptions options_;
  std::map<Key, Entry> jobs_;
  size_t watched_ = 0;
  std::string last_problem_;
};

}  // namespace lockstep
