// Session: the state of a process between initialize() and shutdown(): its Control (with the coordinator itself in
// process 0), the Comms of its lanes in the World, and its flight recorder. Thread-safe, except for construction,
// shutdown() and destruction, which belong to the main thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/control.h"
#include "cluster/data_plane.h"
#include "cluster/detect.h"
#include "lane/cpus.h"
#include "lockstep/distributed.h"

namespace lockstep {

class FlightDumper;
class World;
namespace detail {
class DeviceTable;
}

class Session {
 public:
  // Registers with the coordinator. Returns when all processes have registered. Throws as distributed::initialize does.
  Session(const distributed::Options& options, const detail::ClusterInfo& info);
  // Leaves the job. Without a preceding shutdown() this is a failure of the job.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Joins the World and the device table. Reports its failure to the other processes, and throws as
  // distributed::initialize does. Call it once, first.
  void join(const detail::ClusterInfo& info);
  void shutdown();
  void sync(const std::string& name);
  // All-gather of texts: returns those of all processes, by process id. Calls on one channel must not overlap;
  // different channels may be used by different threads.
  std::vector<std::string> exchange(const std::string& channel, const std::string& own);
  void report_failure(const std::string& message, bool retryable);
  int failure_code() const;
  // A note about data between hosts that is neither encrypted nor signed; see DataPlane. Empty: none.
  const std::string& unprotected_data() const { return unprotected_data_; }
  // Sets the folder for flight records, unless Options::flight_dir is set.
  void set_flight_folder(const std::string& folder);

 private:
  // Delegated to by the public constructor, so that the destructor runs if that one throws.
  explicit Session(const distributed::Options& options);
  // Connects the data plane. Throws CommAborted as soon as the job fails.
  DataPlane connect_data_plane(const std::vector<ProcessFacts>& facts, bool mpi);
  // The first cause as reported by the coordinator, or, if that does not arrive soon, this process's own error; and the
  // operation that this process was in.
  std::string describe_cause(const std::string& error);
  std::string name_processes(const std::string& error) const;
  void throw_cause(const std::exception& error);
  // While joining: throws the job's failure, which is known or about to arrive, unless it is this process's own error.
  void throw_first_cause(const CommError& error);
  // Joins the World and the device table.
  void join_world(const detail::ClusterInfo& info);
  void agree(std::string_view name, std::string_view text);
  void on_failure(const Failure& failure);

  const distributed::Options options_;
  std::string unprotected_data_;
  std::optional<ScopedCpuShare> cpu_share_;  // for as long as the process is in the job
  World& world_;
  detail::DeviceTable& devices_;
  std::shared_ptr<Control> control_;
  int lanes_ = 1;                   // per process
  std::atomic<int64_t> step_ = -1;  // current step of this process
  std::unique_ptr<FlightDumper> flight_;
  int64_t agreements_ = 0;
  std::atomic<int64_t> syncs_ = 0;
  bool clean_shutdown_ = false;  // shutdown() succeeded

  std::mutex exchange_mutex_;
  std::map<std::string, int64_t> exchanges_;  // number of exchanges, by channel

  std::mutex abort_mutex_;  // held while a failure is passed to the World

  // After a failure: terminates the process if it has not begun to leave the session within failure_grace, or has not
  // finished within another failure_grace. Runs on a thread that starts with the session, because a process that fails
  // may be out of memory.
  void run_kill_timer(int process);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false, ended_ = false;
  std::optional<Failure> failure_;
  std::thread kill_timer_;
};

// The session of the current runtime; null for a single process.
std::shared_ptr<Session> current_session();

// Its Session::unprotected_data(); "" without a session.
std::string unprotected_data();

}  // namespace lockstep
