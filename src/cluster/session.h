// Session: what a process holds between initialize() and shutdown(): its place at the coordinator, which in process 0
// comes with the coordinator itself, and the comms of its lanes in the World.
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
#include "lockstep/distributed.h"

namespace lockstep {

class FlightDumper;

class Session {
 public:
  // Meets the others, and joins the World and the table of devices. Throws as distributed::initialize does.
  Session(const distributed::Options& options, const detail::ClusterInfo& info);
  // The job goes on without this process: a failure to the others, unless shutdown() came before.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void shutdown();
  void sync(const std::string& name);
  // Gives a text and returns those of all processes. Exchanges of one channel follow one another; different channels
  // may be used by different threads.
  std::vector<std::string> exchange(const std::string& channel, const std::string& own);
  void report_failure(const std::string& message, bool retryable);
  int failure_code() const;
  // Where this process writes what it has recorded when the job fails, unless LOCKSTEP_FLIGHT_DIR says another place.
  void set_flight_folder(const std::string& folder);

 private:
  // So that the destructor takes back what was done before the other one fails.
  explicit Session(const distributed::Options& options);
  // The data plane, or CommAborted as soon as the job fails.
  DataPlane connect_data_plane(const std::vector<ProcessFacts>& facts, bool mpi);
  // What the job has failed of, in the words of the coordinator or, when those do not come soon, of the error that this
  // process met; and where it was then.
  std::string describe_cause(const std::string& error);
  std::string name_processes(const std::string& error) const;
  void throw_cause(const std::exception& error);
  // Joins the World and the table of devices.
  void join_world(const detail::ClusterInfo& info);
  void agree(std::string_view name, std::string_view text);
  void on_failure(const Failure& failure);

  const distributed::Options options_;
  std::shared_ptr<Control> control_;
  int lanes_ = 1;                   // of each process
  std::atomic<int64_t> step_ = -1;  // that this process is at
  std::unique_ptr<FlightDumper> flight_;
  int64_t agreements_ = 0;
  std::atomic<int64_t> syncs_ = 0;
  bool clean_shutdown_ = false;  // shutdown() came to its end

  std::mutex exchange_mutex_;
  std::map<std::string, int64_t> exchanges_;  // so far, by channel

  std::mutex abort_mutex_;  // what a failure stops is being stopped

  // Ends the process when it does not end by itself after a failure: when it has not begun to within the time of grace,
  // or is not done with it after another.
  void start_kill_timer(const Failure& failure);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false, ended_ = false;
  std::optional<Failure> failure_;
  std::thread kill_timer_;
};

// That of this process; null while it is alone.
std::shared_ptr<Session> current_session();

}  // namespace lockstep
