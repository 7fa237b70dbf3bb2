// World: this process among those that compute together, and its lanes among theirs. Lanes of all processes are
// numbered process by process. Until a cluster is joined a process is alone. Set once, before anything is computed;
// afterwards safe from any thread, groups of a lane from that lane's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "comm/recorder.h"

namespace lockstep {

class World {
 public:
  struct Membership {
    int process_index = 0, process_count = 1;
    // For each lane of this process, its Comm among the lanes of all processes.
    std::vector<std::unique_ptr<Comm>> lanes = {};
    // Of these comms, and those split from them, once settle() was called.
    std::chrono::nanoseconds settled_timeout = Comm::kDefaultTimeout;
    // Throws Error, in all processes, when they give different texts under one name.
    std::function<void(std::string_view name, std::string_view text)> agree = {};
    // This process cannot go on.
    std::function<void(const std::string& reason)> failed = {};
    // Throws, for an error of an operation with others, one that says what the job has failed of, with the names of
    // processes; returns when it is another one.
    std::function<void(const std::exception& error)> throw_cause = {};
    // What this process is at, for those who watch it.
    std::function<void(int64_t step, const char* operation)> progress = {};
    // Where operations of the lanes with those of others are recorded. May be left out.
    std::shared_ptr<FlightRecorder> recorder = {};
  };

  // What is built upon the Comms of the lanes. Called from any thread.
  struct Dependent {
    std::function<void(const std::string& reason)> abort = {};  // with the Comms; also where the process is alone
    std::function<void()> leave = {};                           // before they are destroyed
  };

  static World& instance();

  bool alone() const { return member_.process_count == 1; }
  int process_index() const { return member_.process_index; }
  int process_count() const { return member_.process_count; }
  // Of this process; every process has as many.
  int64_t lanes_here() const;
  // Of all processes, and the first of this one's.
  int64_t lanes() const { return lanes_here() * process_count(); }
  int64_t first_lane() const { return lanes_here() * process_index(); }

  // A lane of this process (numbered here from 0) among others, made when first asked for: all of them must ask, in
  // the same order. Lasts as long as the membership.
  Comm& group(int64_t lane_here, const std::vector<int>& lanes, const std::string& name);

  // Something was computed together: from now on processes wait no longer for others who may be compiling. REQUIRES: no
  // lane is in an operation. Takes no time when it was called before.
  void settle();

  void agree(std::string_view name, std::string_view text) const;
  void progress(int64_t step, const char* operation) const;
  // Makes every lane of every process that waits for another throw CommAborted. `own`: the reason lies in this process,
  // and the others are told.
  void abort(const std::string& reason, bool own = false);
  // After abort(): throws, for an error of an operation with other processes, one that says what the job has failed of;
  // returns when it is another one.
  void throw_cause(const std::exception& error) const;

  void join(Membership membership);
  void leave();
  // REQUIRES: nothing is computed yet with what depends. There is one.
  void set_dependent(Dependent dependent);

 private:
  struct Groups {
    std::map<std::vector<int>, std::unique_ptr<Comm>> made;
  };
  Dependent dependent();

  Membership member_;
  bool settled_ = false;
  std::vector<Groups> groups_;  // of each lane here; destroyed before the Comms they were split from
  std::mutex dependent_mutex_;
  Dependent dependent_;
};

}  // namespace lockstep
