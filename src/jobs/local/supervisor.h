// Supervisor: the daemon without its socket. It looks at what is there (the jobs' files, the locks of shepherds), asks
// reconcile() what should be, writes that down, and does it; then again. It remembers nothing that the files do not
// say, so it may be killed between any two lines. Used by one thread.
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
  std::function<void(const PodFolder&)> start_shepherd;  // throws IoError when it cannot
  std::function<void(std::string_view)> say;             // a line for the daemon's log
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::ordered_json;

  // Reads all jobs. One that cannot be read is said and left alone. REQUIRES: nobody else writes there.
  Supervisor(StateDir state, FileSystem& files, SupervisorOptions options);

  // Does what a command asks for: {"op": "apply", "job": LocalJob}, {"op": "suspend", "space", "name", "uid",
  // "suspend"}, {"op": "remove", "space", "name", "uid"}. The answer is what apply() of Runner returns, else "done".
  // When it returns, it is on the disk. Throws Error and IoError; then nothing was changed.
  std::string handle(const Json& request);

  struct Next {
    Clock::time_point time;             // call step() again then at the latest,
    std::vector<Descriptor> processes;  // or when one of these is readable
  };
  Next step();

  // Whether anything has to be watched.
  bool is_idle() const { return watched_ == 0; }

 private:
  struct Entry {
    LocalJob local;
    int settled = 0;                           // attempts below it are over, with nothing left of them
    std::map<int, Clock::time_point> started;  // when a shepherd was started, by index, for the attempt below
    int started_attempt = -1;
    bool quiet = false;  // nothing is to be done before `next`
    Clock::time_point next{};
  };
  using Key = std::pair<std::string, std::string>;
  using Sights = std::map<int, std::vector<PodSight>>;  // by attempt

  void load();
  std::string apply(LocalJob wanted);
  Entry& find(const Json& request);

  // False: the job is gone.
  bool step(Entry& entry, Next& next);
  void advance(Entry& entry, Next& next);
  // For a job that is to go; returns whether nothing of it runs any more.
  bool end_all(Entry& entry, Next& next);
  void watch(PodSight& sight, Next& next) const;
  Sights look_at(Entry& entry);
  std::vector<Pod> pods_of(const Entry& entry, const Sights& sights) const;
  void tell_phases(LocalJob& local, const std::vector<Pod>& pods, const Sights& sights) const;
  void start_attempt(const Entry& entry);
  void clean(const Entry& entry);
  void remove_folder(const std::string& folder);
  // Brings one replica towards what is wanted. Returns when to look again.
  Clock::time_point tend(Entry& entry, int attempt, int index, PodSight& sight, bool wanted);
  Clock::time_point start(Entry& entry, int attempt, int index);
  void seal(const PodFolder& folder, const Ended& ended);
  std::set<int> ports_in_use() const;
  void say_trouble(const std::string& trouble);

  StateDir state_;
  FileSystem& files_;
  SupervisorOptions options_;
  std::map<Key, Entry> jobs_;
  size_t watched_ = 0;
  std::string last_trouble_;  // said last: not every second again
};

}  // namespace lockstep
