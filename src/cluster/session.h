// Session: what a process holds between initialize() and shutdown(): the coordinator, where it is this process's to
// run, its own place at it, and the comms of its lanes in the World.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cluster/control.h"
#include "cluster/detect.h"
#include "lockstep/distributed.h"

namespace lockstep {

class ControlServer;

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
  void report_failure(const std::string& message, bool retryable);
  int failure_code() const;

 private:
  void agree(std::string_view name, std::string_view text);
  void on_failure(const Failure& failure);

  const distributed::Options options_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<Control> control_;
  int64_t agreements_ = 0;

  // Ends the process when it does not end by itself after a failure.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread executioner_;
};

}  // namespace lockstep
