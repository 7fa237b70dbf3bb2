// FlightDumper: writes the dump of this process's flight recorder when it fails, and whenever it receives SIGUSR2.
// Safe from any thread. One at a time listens to the signal.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cluster/flight.h"

namespace lockstep {

class FlightDumper {
 public:
  struct Options {
    FlightOrigin origin;
    std::string folder;  // made when there is none
    std::function<void(const std::string& line)> log = {};
    FileSystem* files = &FileSystem::real();
  };

  FlightDumper(std::shared_ptr<const FlightRecorder> recorder, Options options);
  // Stops listening; the signal is as it was before.
  ~FlightDumper();
  FlightDumper(const FlightDumper&) = delete;
  FlightDumper& operator=(const FlightDumper&) = delete;

  // From now on SIGUSR2 writes a dump. Returns false, and does nothing, where the program handles or ignores that
  // signal.
  bool handle_signal();

  // This process, or another, has failed: what is recorded now is written. Only the first call counts. A thread of its
  // own writes, and every caller waits for it, so long at most: who returns may end the process, but a disk that hangs
  // does not keep the others from the news.
  void dump_failure(const std::string& reason, std::chrono::milliseconds timeout = std::chrono::seconds(2)) noexcept;

  // From now on.
  void set_folder(const std::string& folder);

  // Writes what is recorded now, unless there was a failure: that says more.
  void write(const std::string& reason) noexcept;

 private:
  void write(const FlightDump& dump) noexcept;
  void log_write_error(const char* why) const;

  const std::shared_ptr<const FlightRecorder> recorder_;
  const Options options_;
  std::string folder_;  // under file_
  std::mutex file_;     // held while it is written, taken before mutex_
  std::mutex mutex_;    // of what follows
  std::condition_variable changed_;
  bool failed_ = false, written_ = false;
  std::thread writer_;

  int event_ = -1;
  std::atomic<bool> ending_{false};
  struct sigaction before_ = {};
  std::thread listener_;
};

// Where dumps go: what LOCKSTEP_FLIGHT_DIR says, or a folder of the job's own among the temporary files.
std::string flight_folder(const char* variable, const std::string& job);
// The folder of dumps among the temporary files that was written to last; empty when there is none. Only folders of
// this user (or of root) count; where there is one of another user, `others` is set to it.
std::string latest_flight_folder(std::string* others = nullptr);

}  // namespace lockstep
