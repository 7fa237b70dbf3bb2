// World: this process among the processes of the job, and its lanes among all lanes. Lanes are numbered process by
// process, and every process has the same number of lanes. Until the process joins a cluster, it is the only one. A part
// of the runtime.
//
// Thread safety: join() and leave() are called while nothing is computed; everything else is then safe from any thread,
// except that the groups of a lane are used by the thread of that lane.
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
  World() = default;
  ~World() { leave(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // What the cluster layer provides when the process joins a job.
  struct Membership {
    int process_index = 0, process_count = 1;
    // For each lane of this process, its Comm in the group of all lanes of the job.
    std::vector<std::unique_ptr<Comm>> lanes = {};
    // The timeout of these Comms, and of those split from them, after end_warmup().
    std::chrono::nanoseconds timeout_after_warmup = Comm::kDefaultTimeout;
    // Throws Error, in all processes, when processes give different texts under one name.
    std::function<void(std::string_view name, std::string_view text)> agree = {};
    // Reports to the job that this process cannot continue.
    std::function<void(const std::string& reason)> report_failure = {};
    // If `error` comes from an operation with other processes: throws an error that states why the job has failed, and
    // names processes. Otherwise returns.
    std::function<void(const std::exception& error)> throw_cause = {};
    // Reports the current step and operation of this process.
    std::function<void(int64_t step, const char* operation)> progress = {};
    // Records the operations of the lanes with other lanes; optional.
    std::shared_ptr<FlightRecorder> recorder = {};
  };

  // Hooks of an object that holds Comms derived from those of the lanes (such as the NCCL Comms). Called from any
  // thread.
  struct DerivedComms {
    std::function<void(const std::string& reason)> abort = {};  // called by abort(), also with a single process
    std::function<void()> leave = {};                           // called before the Comms of the lanes are destroyed
  };

  // That of the current runtime.
  static World& current();

  bool is_single_process() const { return member_.process_count == 1; }
  int process_index() const { return member_.process_index; }
  int process_count() const { return member_.process_count; }
  // The number of lanes of this process; the same in every process.
  int64_t local_lanes() const;
  // The number of lanes of the job, and the number of this process's first lane among them.
  int64_t lanes() const { return local_lanes() * process_count(); }
  int64_t first_lane() const { return local_lanes() * process_index(); }

  // The Comm of a lane of this process, numbered from 0, in the group of these lanes of the job. Created on the first
  // call: all members must make these first calls in the same order. Valid until leave().
  Comm& group(int64_t local_lane, const std::vector<int>& lanes, const std::string& name);

  // Sets timeout_after_warmup. Called when the first program across processes has completed: from then on no process
  // has to wait for another one to compile. REQUIRES: no lane is in an operation. Only the first call has an effect.
  void end_warmup();

  void agree(std::string_view name, std::string_view text) const;
  void progress(int64_t step, const char* operation) const;
  // Makes every lane of every process that waits for another throw CommAborted. `caused_here`: the cause is in this
  // process, so it is also reported to the job.
  void abort(const std::string& reason, bool caused_here = false);
  // See Membership::throw_cause. Called after abort().
  void throw_cause(const std::exception& error) const;

  void join(Membership membership);
  void leave();
  // Sets the only DerivedComms. REQUIRES: nothing has been computed with them.
  void set_derived_comms(DerivedComms derived);

 private:
  struct Groups {
    std::map<std::vector<int>, std::unique_ptr<Comm>> by_lanes;
  };
  DerivedComms derived_comms();

  Membership member_;
  bool warmup_ended_ = false;
  std::vector<Groups> groups_;  // by local lane; destroyed before the Comms they were split from
  std::mutex derived_mutex_;
  DerivedComms derived_;
};

}  // namespace lockstep
